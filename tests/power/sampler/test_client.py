"""The run's side on its own, against answers that no real sampler would send."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.power.sampler_bench import ROOT
from wattload.core.errors import MissingExtraError, PowerError, PowerPermissionError, TargetError
from wattload.power.sampler import client as client_module
from wattload.power.sampler.client import SamplerClient

BECOME_ROOT = """
import os, sys
from wattload.core.errors import PowerError
from wattload.power.sampler import helper
helper.load_code()
os.setgid(65534); os.setuid(65534)
try:
    helper.become(0, 0, [])
except PowerError as error:
    sys.stdout.write(str(error))
"""


FINISHED: dict[str, object] = {
    "states": [], "controllers": {}, "own_energies": [], "tick_count": 1, "missed_tick_count": 0,
    "sample_count": 1, "lost_sample_count": 0, "cpu_s": 0.1,
}  # fmt: skip


class Impostor:
    """Listens like a sampler and answers each message with fixed bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer: bytes = b""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        stream, _ = self._listener.accept()
        with stream:
            while stream.recv(65536):
                if not self.answer:
                    return
                stream.sendall(self.answer)

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[Impostor]:
    impostor = Impostor(tmp_path / "s")
    yield impostor
    impostor.close()


@pytest.fixture
def client(impostor: Impostor) -> Iterator[SamplerClient]:
    with SamplerClient.connect(impostor.path) as client:
        yield client


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
    impostor.answer = (
        json.dumps({"ok": False, "kind": kind, "error": "a sentence"}).encode() + b"\n"
    )
    with pytest.raises(error, match="a sentence") as caught:
        client.hello("r")
    assert type(caught.value) is error


@pytest.mark.parametrize("answer", [b"?\n", b"[]\n", b"[" * 100_000 + b"\n"])
def test_answer_of_no_sampler_is_an_error(
    impostor: Impostor, client: SamplerClient, answer: bytes
) -> None:
    impostor.answer = answer
    with pytest.raises(
        PowerError, match=r"the sampler sent (invalid JSON|JSON that is not an object)"
    ):
        client.status()


@pytest.mark.parametrize(
    "report",
    [
        None,
        {},
        {"host": "h", "samples_file": "../../precious", **FINISHED},
        {"host": "h", "samples_file": "samples-h.jsonl", "news": 1, **FINISHED},
    ],
)
def test_report_of_another_wattload_is_one_sentence(
    impostor: Impostor, client: SamplerClient, report: object
) -> None:
    """A samples file elsewhere is refused too: the run would read it and remove it."""
    impostor.answer = json.dumps({"ok": True, "version": "9.9", "report": report}).encode() + b"\n"
    client.hello("r")
    with pytest.raises(
        PowerError, match=r"wattload 9\.9\) sent a reply .*: start both from the same"
    ):
        client.finish()


def test_report_that_is_understood(impostor: Impostor, client: SamplerClient) -> None:
    report = {"host": "h", "samples_file": "samples-h.jsonl", **FINISHED}
    impostor.answer = json.dumps({"ok": True, "report": report}).encode() + b"\n"
    assert client.finish().samples_file == "samples-h.jsonl"


def test_answer_without_an_end_is_given_up(
    impostor: Impostor, client: SamplerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MAX_ANSWER_BYTES", 1000)
    impostor.answer = b"x" * 2000
    with pytest.raises(PowerError, match="longer than 1000 bytes"):
        client.status()


def test_service_that_hangs_up_is_an_error_that_says_what_to_do(client: SamplerClient) -> None:
    with pytest.raises(PowerError, match=r"ended before it answered start; .*power restore"):
        client.start()


def test_silent_service_is_given_up(
    impostor: Impostor, client: SamplerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    impostor.answer = b"no end of line"
    monkeypatch.setattr(client_module, "_ANSWER_TIMEOUT_S", 0.05)
    with pytest.raises(PowerError, match="did not answer start"):
        client.start()


def test_forked_child_gives_the_connection_up(impostor: Impostor, client: SamplerClient) -> None:
    impostor.answer = json.dumps({"ok": True, "version": "9.9"}).encode() + b"\n"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            client.hello("r")
            os.write(writer, b"y")
        except PowerError:
            os.write(writer, b"n")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1) == b"n"
    os.close(reader)
    os.close(writer)
    client.hello("r")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_nobody_cannot_act_for_root() -> None:
    reported = subprocess.run(
        [sys.executable, "-c", BECOME_ROOT],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    ).stdout
    assert reported.startswith("the sampler can't act for user 0; run it as root")


def test_a_refusal_that_came_before_the_question_is_read(tmp_path: Path) -> None:
    """A service refuses a user at the connection, and hangs up before the run says hello."""
    refused = {"ok": False, "kind": "PowerError", "error": "user 7 may not use this sampler"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        with SamplerClient.connect(tmp_path / "s") as client:
            stream, _ = listener.accept()
            stream.sendall(json.dumps(refused).encode() + b"\n")
            stream.shutdown(socket.SHUT_RDWR)
            stream.close()
            with pytest.raises(PowerError, match="user 7 may not use this sampler"):
                client.hello("run-1")


def test_a_sampler_needs_no_folder_for_temporary_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    (tmp_path / "run-1").mkdir()
    with SamplerClient.spawn(tmp_path, tmp_path / "log") as client:
        client.hello("run-1")
