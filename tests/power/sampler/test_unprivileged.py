"""Runs without any privilege: root's sampler with a benchmark of the user nobody."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from tests.power.nobody import (
    NOBODY,
    as_nobody,
    folder_for_all,
    give,
    need_nobody,
    run_of_nobody,
)
from tests.power.sampler_bench import ROOT, Bench, wait_for
from wattload.core.record.file import RECORD_FILE, read_record

RUN = "import sys; from wattload.__main__ import main; sys.exit(main())"

CLIENT = """
import os, sys, time
from pathlib import Path
from wattload.power.sampler.client import SamplerClient
from wattload.power.config import PowerConfig

assert os.getresuid() == (65534, 65534, 65534) and os.getgroups() == []
client = SamplerClient.spawn(Path(sys.argv[4]), service=Path(sys.argv[1]))
config = PowerConfig(state=1, period_s=0.02)
opened = client.open(sys.argv[2], config, devices=["nvme0"], block_devices=[])
client.start()
time.sleep(0.2)
print(opened.states[0].verified, flush=True)
if sys.argv[3] == "finish":
    print(client.finish().states[0].restored, flush=True)
elif sys.argv[3] == "exit":
    sys.exit()
time.sleep(60)
"""


@pytest.fixture
def bench() -> Iterator[Bench]:
    need_nobody()
    with folder_for_all() as folder:
        bench = Bench(folder)
        bench.set_up()
        bench.models.chmod(0o700)  # the drive belongs to root: nobody can't even see it
        yield bench
        bench.clean()


def client_of_nobody(bench: Bench, end: str) -> subprocess.Popen[str]:
    path = bench.service("--group", str(NOBODY))
    run_of_nobody(bench, "mine")
    process = as_nobody(CLIENT, str(path), "mine", end, str(bench.runs))
    bench.processes.append(process)
    assert process.stdout is not None
    reported = process.stdout.readline()
    if reported != "1\n":
        assert process.stderr is not None
        pytest.fail(process.stderr.read())
    return process


def close(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()


def test_power_state_is_set_and_restored_for_a_user_who_could_not(bench: Bench) -> None:
    process = client_of_nobody(bench, "finish")
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    assert bench.state() == 0
    samples = bench.runs / "mine" / "samples-host-1.jsonl"
    found = samples.stat()
    assert (found.st_uid, found.st_gid) == (NOBODY, NOBODY)
    close(process)


@pytest.mark.parametrize("end", ["killed", "exit"])
def test_end_of_an_unprivileged_run_is_recorded_and_undone(bench: Bench, end: str) -> None:
    process = client_of_nobody(bench, end)
    if end == "killed":
        assert bench.state() == 1
        os.killpg(process.pid, signal.SIGKILL)
    record = bench.runs / "mine" / RECORD_FILE
    wait_for(record.exists)
    assert bench.state() == 0
    found = record.stat()
    assert (found.st_uid, found.st_gid) == (NOBODY, NOBODY)
    assert read_record(record.parent).status == "aborted"
    close(process)


class Bounded(Bench):
    """A bench whose sampler is root with only the unit's capabilities."""

    @property
    def program(self) -> Sequence[str]:
        unit = (ROOT / "docs" / "wattload-sampler.service").read_text()
        (line,) = [each for each in unit.splitlines() if each.startswith("CapabilityBoundingSet=")]
        granted = line.partition("=")[2].lower().replace("cap_", "+").split()
        bounds = ("--bounding-set", ",".join(["-all", *granted]), "--no-new-privs")
        return ("setpriv", "--regid", str(NOBODY), "--clear-groups", *bounds, *super().program)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is missing")
def test_capabilities_of_the_unit_are_enough() -> None:
    need_nobody()
    with folder_for_all() as folder:
        bench = Bounded(folder)
        bench.set_up()
        process = client_of_nobody(bench, "exit")
        record = bench.runs / "mine" / RECORD_FILE
        wait_for(record.exists)
        assert record.stat().st_uid == NOBODY
        assert bench.state() == 0
        bench.clean()
        close(process)


def test_a_whole_run_of_nobody_is_sampled_by_root_s_sampler(bench: Bench) -> None:
    """No NVMe drive is needed: socket, group and recording are the same without one."""
    path = bench.service("--group", str(NOBODY))
    target = bench.folder / "target"
    target.mkdir()
    give(target, bench.runs)
    process = as_nobody(
        RUN, "run", "workload=null", "scale=demo", "label=least", f"target.path={target}",
        f"runs={bench.runs}", f"power.sampler_socket={path}", "--json",
        environment={"HOME": str(target)},
    )  # fmt: skip
    out, error = process.communicate(timeout=300)
    assert process.returncode in (0, 3), error
    (run,) = bench.runs.glob("*-null-least-*")
    record = read_record(run)
    assert record.status == "complete"
    assert "the sampler was lost" not in record.power.choice
    assert json.loads(out)
    assert (run / "power.parquet").exists()
    assert {each.stat().st_uid for each in run.rglob("*")} == {NOBODY}
