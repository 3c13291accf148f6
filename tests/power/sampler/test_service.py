"""A sampler service: many clients, one after another, and who may use it."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.power.nobody import NOBODY, folder_for_all, needs_root
from tests.power.sampler_bench import ROOT, RUN_ID, Bench, wait_for
from tests.second_user import as_other, need_second_user, shared_folder
from wattload.core.errors import PowerError
from wattload.core.record.file import RECORD_FILE
from wattload.power.config import PowerConfig
from wattload.power.sampler.access import Access
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.protocol import MAX_LINE_BYTES, PROTOCOL_VERSION
from wattload.power.sampler.server import listening

AS_NOBODY = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
stream = socket.socket(socket.AF_UNIX)
stream.connect(sys.argv[1])
stream.sendall(sys.argv[2].encode())
sys.stdout.write(stream.makefile().readline())
"""


def connect(bench: Bench, path: Path) -> SamplerClient:
    client = SamplerClient.connect(path)
    bench.clients.append(client)
    return client


def say(path: Path, data: bytes) -> list[dict[str, object]]:
    """Send bytes as a separate client and return all answers until the service disconnects."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(10)
        stream.connect(str(path))
        try:
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the service disconnected on what it had read so far
        answer = b""
        try:
            while received := stream.recv(65536):
                answer += received
        except ConnectionResetError:
            pass
    return [json.loads(line) for line in answer.splitlines()]


def test_service_serves_client_after_client(bench: Bench) -> None:
    path = bench.service()
    for run_id in (RUN_ID, "run-2"):
        if run_id != RUN_ID:
            bench.add_run(run_id)
        client = connect(bench, path)
        client.hello(run_id)
        client.open(PowerConfig(state=1), devices=["nvme0"], block_devices=[])
        client.start()
        client.finish()
        client.close()
        assert client.pid is None
        assert bench.state() == 0
    assert path.exists()


def test_end_of_a_client_is_the_end_of_its_run_alone(bench: Bench) -> None:
    path = bench.service()
    client = connect(bench, path)
    client.hello(RUN_ID)
    client.open(PowerConfig(state=1), devices=["nvme0"], block_devices=[])
    client.close()
    wait_for((bench.run / RECORD_FILE).exists)
    assert bench.state() == 0
    bench.add_run("run-2")
    connect(bench, path).hello("run-2")


def test_restarted_service_undoes_what_the_killed_one_left(bench: Bench) -> None:
    client = connect(bench, bench.service())
    client.hello(RUN_ID)
    client.open(PowerConfig(state=1), devices=["nvme0"], block_devices=[])
    bench.processes[-1].kill()
    bench.processes[-1].wait()
    assert bench.state() == 1
    bench.service()
    assert bench.state() == 0
    log = bench.folder / "service.log"
    wait_for(lambda: "restored to power state 0" in log.read_text())


def test_second_client_hears_who_is_served(bench: Bench) -> None:
    path = bench.service()
    connect(bench, path).hello(RUN_ID)
    with pytest.raises(PowerError, match="busy with run run-1"):
        connect(bench, path).hello(RUN_ID)


def test_client_that_connects_early_waits_for_its_turn(bench: Bench) -> None:
    path = bench.service()
    early = connect(bench, path)
    bench.add_run("run-2")
    client = connect(bench, path)
    client.hello("run-2")
    with pytest.raises(PowerError, match="busy with run run-2"):
        early.hello(RUN_ID)
    client.close()
    wait_for((bench.runs / "run-2" / RECORD_FILE).exists)
    early.hello(RUN_ID)


def test_clients_have_a_number(bench: Bench) -> None:
    path = bench.service()
    for _ in range(16):
        connect(bench, path)
    with pytest.raises(
        PowerError, match=r"has 16 connections to the sampler|ended before it answered"
    ):
        connect(bench, path).hello(RUN_ID)


def test_socket_belongs_to_its_user(bench: Bench) -> None:
    path = bench.service()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_second_service_does_not_take_the_socket(bench: Bench) -> None:
    path = bench.service()
    command = [*bench.program, "--socket", str(path), "--runs", str(bench.runs)]
    reported = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert reported.returncode == 1
    assert "listens on" in reported.stderr
    connect(bench, path).hello(RUN_ID)


def test_socket_of_a_killed_service_is_taken_over(bench: Bench) -> None:
    path = bench.service()
    bench.processes[-1].kill()
    bench.processes[-1].wait()
    assert path.exists()
    bench.service()
    assert say(path, b"{}\n")[0]["ok"] is False


def test_service_ends_with_a_signal_and_removes_its_socket(bench: Bench) -> None:
    path = bench.service()
    connect(bench, path).hello(RUN_ID)
    bench.processes[-1].send_signal(signal.SIGTERM)
    bench.clients[-1].close()
    assert bench.processes[-1].wait(10) == 0
    assert not path.exists()


def test_socket_that_cannot_be_made_is_one_sentence(bench: Bench) -> None:
    command = [*bench.program, "--socket", "/proc/nowhere", "--runs", str(bench.runs)]
    reported = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert reported.returncode == 1
    assert reported.stderr.startswith("the socket /proc/nowhere can't be created")


@pytest.mark.parametrize("kind", ["file", "pipe", "link"])
def test_a_lock_that_another_user_has_planted_is_named(kind: str) -> None:
    need_second_user()
    with shared_folder() as folder:
        path = folder / "s"

        def plant() -> None:
            lock = folder / "s.lock"
            if kind == "file":
                lock.touch(0o666)
            elif kind == "pipe":
                os.mkfifo(lock, 0o666)
            else:
                lock.symlink_to("/etc/passwd")

        as_other(plant)
        with (
            pytest.raises(PowerError, match=r"can't be created: .*s\.lock"),
            listening(path, Access()),
        ):
            pass
        assert not path.exists()


@pytest.fixture
def reachable() -> Iterator[Bench]:
    """A bench whose folders another user may enter."""
    with folder_for_all() as folder:
        bench = Bench(folder)
        bench.set_up()
        yield bench
        bench.clean()


def as_nobody(path: Path, message: dict[str, object]) -> dict[str, object]:
    # -I -S: no files of this user's environment, which nobody may not read.
    reported = subprocess.run(
        [sys.executable, "-I", "-S", "-c", AS_NOBODY, str(path), json.dumps(message) + "\n"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    answer: dict[str, object] = json.loads(reported)
    return answer


HELLO: dict[str, object] = {"command": "hello", "protocol": PROTOCOL_VERSION, "run_id": RUN_ID}


@needs_root
def test_another_user_is_refused(reachable: Bench) -> None:
    path = reachable.service()
    path.chmod(0o666)  # as if only the rights of its folder protected it
    assert as_nobody(path, HELLO) == {
        "ok": False,
        "kind": "PowerError",
        "error": f"user {NOBODY} may not use this sampler; `wattload sampler --user {NOBODY}`, "
        "or --group with one of the user's groups, permits it",
    }


@needs_root
def test_allowed_user_s_files_are_that_user_s(reachable: Bench) -> None:
    path = reachable.service("--user", str(NOBODY))
    os.chown(reachable.run, NOBODY, NOBODY)
    assert as_nobody(path, HELLO)["ok"] is True
    record = reachable.run / RECORD_FILE
    wait_for(record.exists)
    assert record.stat().st_uid == NOBODY


@needs_root
def test_allowed_user_speaks_for_his_own_runs_alone(reachable: Bench) -> None:
    path = reachable.service("--user", str(NOBODY))
    answer = as_nobody(path, HELLO)
    assert answer["ok"] is False
    assert f"belongs to user 0, not to user {NOBODY}" in str(answer["error"])
    assert not (reachable.run / RECORD_FILE).exists()


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A service that many clients use and that must survive the last one."""
    bench = Bench(tmp_path_factory.mktemp("talker"))
    bench.set_up()
    yield bench.service()
    bench.clean()


def test_commands_before_hello_are_refused(talker: Path) -> None:
    for command in ("start", "status", "finish"):
        (answer,) = say(talker, json.dumps({"command": command}).encode() + b"\n")
        assert answer["ok"] is False
        assert "send hello first" in str(answer["error"])


def test_commands_out_of_order_are_refused(talker: Path) -> None:
    messages = [HELLO, {"command": "start"}, {"command": "finish"}, HELLO]
    answers = say(talker, b"".join(json.dumps(each).encode() + b"\n" for each in messages))
    assert [answer["ok"] for answer in answers] == [True, False, False, False]
    assert "busy with run run-1" in str(answers[3]["error"])


def test_oversized_message_ends_the_client_and_not_the_service(talker: Path) -> None:
    answers = say(talker, b"x" * (MAX_LINE_BYTES * 3))
    assert [answer["ok"] for answer in answers] in ([False], [])
    assert say(talker, b"{}\n")[0]["ok"] is False


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.binary(max_size=200), max_size=5))
def test_no_bytes_end_the_service(talker: Path, lines: list[bytes]) -> None:
    answers = say(talker, b"\n".join(lines) + b"\n")
    assert all(answer["ok"] is False for answer in answers)
    assert "command must be one of" in str(say(talker, b"{}\n")[0]["error"])
