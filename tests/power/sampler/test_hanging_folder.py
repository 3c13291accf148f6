"""Run folders on a file system that hangs, and processes that their user has stopped.

Whatever hangs, the drive is restored, other clients are served, and the service ends when asked.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.power.hanging_fuse import HangingFolder, hanging
from tests.power.nobody import (
    NOBODY,
    as_nobody,
    folder_for_all,
    give,
    lines_of,
    need_nobody,
    run_of_nobody,
)
from tests.power.sampler.hostile import hello, is_served, raw
from tests.power.sampler_bench import Bench, wait_for
from wattload.core.errors import PowerError
from wattload.core.record.file import RECORD_FILE, read_record
from wattload.power.config import PowerConfig
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.protocol import encode

CLIENT = """
import sys, time
from pathlib import Path
from wattload.power.sampler.client import SamplerClient
from wattload.power.config import PowerConfig

client = SamplerClient.connect(Path(sys.argv[1]))
client.hello("mine")
client.open(PowerConfig(state=1, period_s=0.02), devices=["nvme0"], block_devices=[])
client.start()
while client.status().tick_count < 3:
    time.sleep(0.01)
print("sampling", flush=True)
if sys.argv[2] == "finish":
    sys.stdin.readline()
    finished = client.finish()
    lost = finished.lost_sample_count > 0
    print(finished.states[0].restored, finished.sample_count, lost, flush=True)
time.sleep(300)
"""


IMPATIENT = """
import runpy, sys
from wattload.power.sampler import connection
connection._SILENCE_LIMIT_S, connection.LIFE_LIMIT_S = 1.0, 2.0
sys.argv[0] = "program"
runpy.run_module("tests.model_host.program", run_name="__main__")
"""


class Impatient(Bench):
    """A host whose sampler lets a silent run keep the service for two seconds at most."""

    @property
    def program(self) -> Sequence[str]:
        return (sys.executable, "-P", "-c", IMPATIENT, "--models", str(self.models))


IMPATIENT_LATER = """
import runpy, sys, threading, time
from pathlib import Path
from wattload.power.sampler import connection, run_folder

def watch(trigger, module, limit):
    while not trigger.exists():
        time.sleep(0.02)
    setattr(globals()[module], limit, 1.0)
    trigger.unlink()

limit = (Path(sys.argv.pop(1)), *sys.argv.pop(1).split("."))
threading.Thread(target=watch, args=limit, daemon=True).start()
sys.argv[0] = "program"
runpy.run_module("tests.model_host.program", run_name="__main__")
"""


class ImpatientLater(Bench):
    """A host whose sampler has a limit of a second only, from ``hurry`` on."""

    limit = "run_folder.ANSWER_LIMIT_S"

    @property
    def trigger(self) -> Path:
        return self.folder / "hurry"

    @property
    def program(self) -> Sequence[str]:
        program = (sys.executable, "-P", "-c", IMPATIENT_LATER, str(self.trigger), self.limit)
        return (*program, "--models", str(self.models))

    def hurry(self) -> None:
        self.trigger.touch()
        wait_for(lambda: not self.trigger.exists())


@pytest.fixture
def bench() -> Iterator[Bench]:
    need_nobody()
    with folder_for_all() as folder:
        bench = Bench(folder)
        bench.set_up()
        yield bench
        bench.clean()


@pytest.fixture
def hung(bench: Bench) -> Iterator[HangingFolder]:
    """The folder of the run ``mine`` of user nobody, on a file system that hangs on request."""
    folder = bench.runs / "mine"
    folder.mkdir()
    give(folder)
    with hanging(folder, owner=NOBODY) as mounted:
        yield mounted


def sampled(bench: Bench, path: Path, end: str = "wait") -> subprocess.Popen[str]:
    """Start nobody's client; returns when its run is sampled and has changed the drive."""
    client = as_nobody(CLIENT, str(path), end, stdin=subprocess.PIPE)
    bench.processes.append(client)
    assert client.stdout is not None
    assert client.stdout.readline() == "sampling\n"
    assert bench.state() == 1
    return client


def finish_without_samples(client: subprocess.Popen[str]) -> None:
    """Let nobody's client finish; returns when it was told that its samples are lost."""
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write("\n")
    client.stdin.flush()
    assert client.stdout.readline() == "0 0 True\n"


def helper_of(service: subprocess.Popen[str]) -> int:
    """Return the process that works in nobody's folder."""
    children = Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split()
    (helper,) = [int(each) for each in children if Path(f"/proc/{each}").stat().st_uid == NOBODY]
    return helper


def helper_is_by_name(helper: int) -> bool:
    return b"wattload.power.sampler.helper" in Path(f"/proc/{helper}/cmdline").read_bytes()


def has_ended(process: subprocess.Popen[str]) -> bool:
    return process.poll() is not None


def test_end_of_a_run_on_a_file_system_that_hangs_restores_the_drive(
    bench: Bench, hung: HangingFolder
) -> None:
    path = bench.service("--user", str(NOBODY))
    client = sampled(bench, path)
    hung.hang()
    os.killpg(client.pid, signal.SIGKILL)
    wait_for(lambda: bench.state() == 0)
    is_served(bench, path)
    (service, *_) = bench.processes
    service.terminate()
    wait_for(lambda: has_ended(service))
    assert any("run mine has no record" in line for line in lines_of(bench))


def test_service_ends_while_a_run_s_file_system_hangs(bench: Bench, hung: HangingFolder) -> None:
    path = bench.service("--user", str(NOBODY))
    sampled(bench, path)
    hung.hang()
    (service, *_) = bench.processes
    service.terminate()
    wait_for(lambda: bench.state() == 0)
    service.wait(timeout=60)
    assert service.returncode == 0


def test_folder_that_hangs_before_its_run_is_announced_keeps_nobody_out(
    bench: Bench, hung: HangingFolder
) -> None:
    path = bench.service("--user", str(NOBODY))
    hung.hang()
    waiting = as_nobody(CLIENT, str(path), "wait")
    bench.processes.append(waiting)
    (service, *_) = bench.processes
    children = Path(f"/proc/{service.pid}/task/{service.pid}/children")
    wait_for(lambda: bool(children.read_text()))
    is_served(bench, path)
    assert not has_ended(waiting)


def test_run_whose_own_log_hangs_is_restored(bench: Bench, hung: HangingFolder) -> None:
    """The log of a sampler that the run itself has started is on the run's file system."""
    client = SamplerClient.spawn(bench.runs, hung.path / "log", program=(*bench.program, "--once"))
    client.hello(bench.run.name)
    client.open(PowerConfig(state=1, period_s=0.02), devices=["nvme0"], block_devices=[])
    client.start()
    hung.hang()
    client.abort("failed", "the file system hangs")
    assert bench.state() == 0
    assert bench.record().status == "failed"
    hung.unmount()
    client.close()


def test_record_is_written_when_a_stopped_helper_goes_on(bench: Bench) -> None:
    path = bench.service("--user", str(NOBODY))
    run = run_of_nobody(bench, "mine")
    client = sampled(bench, path)
    (service, *_) = bench.processes
    helper = helper_of(service)
    assert helper_is_by_name(helper)
    os.kill(helper, signal.SIGSTOP)
    os.killpg(client.pid, signal.SIGKILL)
    wait_for(lambda: bench.state() == 0)
    is_served(bench, path)
    assert not (run / RECORD_FILE).exists()
    os.kill(helper, signal.SIGCONT)
    wait_for((run / RECORD_FILE).exists)
    assert read_record(run).status == "aborted"


def test_run_whose_helper_was_killed_is_restored_and_says_that_samples_are_lost(
    bench: Bench,
) -> None:
    path = bench.service("--user", str(NOBODY))
    run_of_nobody(bench, "mine")
    client = sampled(bench, path, "finish")
    (service, *_) = bench.processes
    os.kill(helper_of(service), signal.SIGKILL)
    finish_without_samples(client)
    is_served(bench, path)


def test_service_ends_while_its_client_is_stopped(bench: Bench) -> None:
    path = bench.service("--user", str(NOBODY))
    run_of_nobody(bench, "mine")
    client = sampled(bench, path)
    os.killpg(client.pid, signal.SIGSTOP)
    with (
        SamplerClient.connect(path) as other,
        pytest.raises(PowerError, match="busy with run mine"),
    ):
        other.hello(bench.run.name)
    (service, *_) = bench.processes
    service.terminate()
    wait_for(lambda: bench.state() == 0)
    service.wait(timeout=60)
    assert service.returncode == 0
    assert read_record(bench.runs / "mine").status == "aborted"


def test_finish_ends_at_its_deadline_while_the_run_s_helper_is_stopped() -> None:
    """The helper never answers and is never killed from outside: the drive is restored before."""
    need_nobody()
    with folder_for_all() as folder:
        bench = ImpatientLater(folder)
        bench.set_up()
        try:
            path = bench.service("--user", str(NOBODY))
            run_of_nobody(bench, "mine")
            client = sampled(bench, path, "finish")
            (service, *_) = bench.processes
            bench.hurry()
            os.kill(helper_of(service), signal.SIGSTOP)
            finish_without_samples(client)
            assert bench.state() == 0
            is_served(bench, path)
        finally:
            bench.clean()


@pytest.fixture
def impatient() -> Iterator[Impatient]:
    need_nobody()
    with folder_for_all() as folder:
        bench = Impatient(folder)
        bench.set_up()
        yield bench
        bench.clean()


def test_client_that_is_silent_after_hello_keeps_the_others_out_for_a_while_only(
    impatient: Impatient,
) -> None:
    path = impatient.service()
    with raw(path) as silent:
        silent.sendall(encode(hello()))
        answers = silent.makefile()
        assert json.loads(answers.readline())["ok"] is True
        assert "announced and not opened" in json.loads(answers.readline())["error"]
    wait_for((impatient.run / RECORD_FILE).exists)
    is_served(impatient, path)


def test_client_that_says_start_and_nothing_more_loses_its_run(impatient: Impatient) -> None:
    path = impatient.service()
    opening = {"request": {"state": 1}, "devices": ["nvme0"], "block_devices": []}
    with raw(path) as silent:
        for message in (hello(), {"command": "open", **opening}, {"command": "start"}):
            silent.sendall(encode(message))
        answers = [json.loads(line) for line in silent.makefile()]
    assert [each["ok"] for each in answers] == [True, True, True, False]
    assert "sent nothing for 2 s, so the sampler has ended it" in answers[-1]["error"]
    assert impatient.state() == 0
    wait_for((impatient.run / RECORD_FILE).exists)
    assert "was stopped or hung" in impatient.record().status_reason
    is_served(impatient, path)


def test_stopped_client_loses_its_run_and_hears_why_when_it_goes_on() -> None:
    need_nobody()
    with folder_for_all() as folder:
        bench = ImpatientLater(folder)
        bench.limit = "connection.LIFE_LIMIT_S"
        bench.set_up()
        try:
            path = bench.service("--user", str(NOBODY))
            run_of_nobody(bench, "mine")
            client = sampled(bench, path, "finish")
            os.killpg(client.pid, signal.SIGSTOP)
            bench.hurry()
            wait_for(lambda: bench.state() == 0)
            is_served(bench, path)
            wait_for((bench.runs / "mine" / RECORD_FILE).exists)
            assert read_record(bench.runs / "mine").status == "aborted"
            os.killpg(client.pid, signal.SIGCONT)
            assert client.stdin is not None
            assert client.stderr is not None
            client.stdin.write("\n")
            client.stdin.flush()
            assert "PowerError: the run was stopped or hung" in client.stderr.read()
        finally:
            bench.clean()


def test_client_that_does_nothing_shows_that_it_lives(
    impatient: Impatient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wattload.power.sampler.client._BEAT_S", 0.1)
    with SamplerClient.connect(impatient.service()) as client:
        client.hello(impatient.run.name)
        client.open(PowerConfig(state=1, period_s=0.02), devices=["nvme0"], block_devices=[])
        client.start()
        time.sleep(3)  # longer than its sampler waits for a silent one
        assert client.finish().states[0].restored == 0
