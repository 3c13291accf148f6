"""The run's side on its own, against answers that no real sampler would send."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattload.core.errors import MissingExtraError, PowerError, PowerPermissionError, TargetError
from wattload.power.config import PowerConfig
from wattload.power.sampler import client as client_module
from wattload.power.sampler.client import SamplerClient

WAIT_S = 30

INTERRUPTS = """
import os, signal, socket
stream = socket.socket(fileno=0)
stream.recv(1)
stream.recv(65536)
os.kill(os.getppid(), signal.SIGINT)
stream.recv(65536)
stream.sendall(b'{"ok": true, "report": {}}\\n{"ok": true, "report": {"states": []}}\\n')
"""
"""A sampler that has its client interrupted before it answers the first command."""


class Impostor:
    """Answers each message with fixed bytes; without any it hangs up."""

    def __init__(self, stream: socket.socket) -> None:
        self.answer: bytes = b""
        self._stream = stream
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def reply(self, **answer: object) -> None:
        self.answer = json.dumps(answer).encode() + b"\n"

    def _serve(self) -> None:
        with self._stream:
            while self._stream.recv(65536):
                if not self.answer:
                    return
                self._stream.sendall(self.answer)

    def close(self) -> None:
        self._thread.join()


@pytest.fixture
def pair() -> Iterator[tuple[SamplerClient, Impostor]]:
    ours, theirs = socket.socketpair()
    impostor = Impostor(theirs)
    with SamplerClient(ours, subprocess.Popen(["true"]), None) as client:
        yield client, impostor
    impostor.close()


@pytest.fixture
def client(pair: tuple[SamplerClient, Impostor]) -> SamplerClient:
    return pair[0]


@pytest.fixture
def impostor(pair: tuple[SamplerClient, Impostor]) -> Impostor:
    return pair[1]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("PowerPermissionError", PowerPermissionError),
        ("MissingExtraError", MissingExtraError),
        ("TargetError", TargetError),
        ("NoSuchError", PowerError),
        ("ClassVar", PowerError),
        ("annotations", PowerError),
    ],
)
def test_error_has_the_class_it_had_in_the_sampler(
    impostor: Impostor, client: SamplerClient, kind: str, error: type[Exception]
) -> None:
    impostor.reply(ok=False, kind=kind, error="a sentence")
    with pytest.raises(error, match="a sentence") as caught:
        client.start()
    assert type(caught.value) is error


@pytest.mark.parametrize("answer", [b"?\n", b"[]\n", b"[" * 100_000 + b"\n"])
def test_answer_of_no_sampler_is_an_error(
    impostor: Impostor, client: SamplerClient, answer: bytes
) -> None:
    impostor.answer = answer
    with pytest.raises(PowerError, match=r"a message (is not valid JSON|must be a JSON object)"):
        client.start()


@pytest.mark.parametrize("answer", [{}, {"report": {}}, {"report": {"states": [], "new": 1}}])
def test_reply_of_another_version_is_one_sentence(
    impostor: Impostor, client: SamplerClient, answer: dict[str, object]
) -> None:
    impostor.reply(ok=True, **answer)
    commands = (
        lambda: client.open("r", PowerConfig(), devices=[], block_devices=[]),
        client.finish,
        client.abort,
    )
    for command in commands:
        with pytest.raises(PowerError, match=r"can't read .+: start both from the same"):
            command()


def test_sampler_that_hangs_up_is_an_error_that_says_what_to_do(client: SamplerClient) -> None:
    with pytest.raises(PowerError, match=r"ended with status 0 before it .* start; .*restore"):
        client.start()


def test_silent_sampler_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "ANSWER_TIMEOUT_S", 0.05)
    ours, theirs = socket.socketpair()
    theirs.sendall(b"no end of line")
    with (
        theirs,
        SamplerClient(ours, subprocess.Popen(["true"]), None) as client,
        pytest.raises(PowerError, match="did not answer start"),
    ):
        client.start()


def test_sampler_that_ends_late_is_still_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_END_TIMEOUT_S", 0.05)
    ours, theirs = socket.socketpair()
    with theirs, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        SamplerClient(ours, process, None).close()
        assert process.returncode is None
        assert process.stdin is not None
        process.stdin.close()
        deadline_s = time.monotonic() + WAIT_S
        while process.returncode is None:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)


def test_a_sampler_needs_no_folder_for_temporary_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with (
        SamplerClient.spawn(tmp_path, tmp_path / "log") as client,
        pytest.raises(PowerError, match="there is no run"),
    ):
        client.start()


def test_the_answer_to_an_interrupted_command_is_not_taken_for_that_to_the_next(
    tmp_path: Path,
) -> None:
    program = (sys.executable, "-c", INTERRUPTS)
    with SamplerClient.spawn(tmp_path, tmp_path / "log", program=program) as client:
        with pytest.raises(KeyboardInterrupt):
            client.open("run", PowerConfig(), devices=[], block_devices=[])
        assert client.abort() == ()
