"""Each thing that can be wrong is one sentence, and no process is left."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.block_plans import plan_of, stamped_file
from tests.loaders.gpu.children import children, mark
from tests.workloads.gpu_read.asking import target_at
from wattload.core.errors import ConfigError, NoGpuError, RunError, TargetError
from wattload.loaders.block_reads import Pattern, ReadPlan
from wattload.loaders.gpu_queue.config import DRIVER, Config

__all__ = ["mark"]

MODULE = "wattload.loaders.gpu"


@pytest.fixture
def plan(tmp_path: Path) -> ReadPlan:
    """A plan over one file."""
    return plan_of(stamped_file(tmp_path / "file"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "nvme"}, "loader.engine must be one of storage, memory, null, got 'nvme'"),
        ({"requester": "dpu"}, "loader.requester must be one of gpu, cpu, got 'dpu'"),
        ({"pollers": 0}, "loader.pollers must be 1 to 256, got 0"),
        ({"table_bytes": 100_000}, "must be a power of two, got 100000; use 131072"),
        ({"table_bytes": 1024}, "loader.table_bytes must be 65536 to 4294967296"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**settings).check()


def test_more_pollers_than_pairs(plan: ReadPlan) -> None:
    config = Config(requester="cpu", pollers=3)
    with pytest.raises(
        ConfigError,
        match=r"at most 2, 2 queue pairs for each of 1 files, got 3: .* more workload.queue_pairs",
    ):
        config.check_block_reads(plan, [])
    both = replace(plan, files=plan.files * 2, in_flight=128)
    config.check_block_reads(both, [])


@pytest.mark.parametrize(("drives", "pollers"), [(1, 1), (3, 3), (14, 4)])
def test_there_is_a_poller_per_drive(plan: ReadPlan, drives: int, pollers: int) -> None:
    many = replace(plan, queue_pairs=32, drive_count=drives)
    assert Config().queue_setup(many).pollers == pollers
    assert Config(pollers=7).queue_setup(many).pollers == 7


@pytest.mark.skipif(Path(DRIVER).exists(), reason="there is a GPU")
def test_no_gpu(plan: ReadPlan) -> None:
    for gpu in (None, "0000:65:00.0"):
        files = (replace(plan.files[0], gpu=gpu),)
        with pytest.raises(NoGpuError, match="needs an NVIDIA GPU and /dev/nvidiactl is missing"):
            Config().check_block_reads(replace(plan, files=files), [])


def test_memory_of_rings_counts(plan: ReadPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{Config.__module__}.memory_limit_bytes", lambda _: (1 << 30, "cgroup"))
    Config(requester="cpu").check_block_reads(plan, [])
    large = replace(plan, queue_pairs=1024, queue_size=65_536)
    with pytest.raises(ConfigError, match=r"takes 1\.40 GB of host .*queue_size"):
        Config(requester="cpu").check_block_reads(large, [])


def test_a_table_without_a_block_for_each_region(plan: ReadPlan) -> None:
    regions = replace(plan, in_flight=8192, queue_size=8192, pattern=Pattern.REGIONS)
    config = Config(requester="cpu", engine="memory", table_bytes=65_536)
    with pytest.raises(ConfigError, match="256 warps, and the table has 128 of 512 bytes; use a"):
        config.check_block_reads(regions, [])


def test_what_the_process_can_not_read_is_named(plan: ReadPlan, tmp_path: Path) -> None:
    (file,) = plan.files
    wrong: Any = "x"
    files = (replace(file, stamps=replace(file.stamps, word=wrong)),)
    with pytest.raises(RunError, match=r"process that reads exited with status 1: TypeError: "):
        Config(requester="cpu").block_reader(replace(plan, files=files), tmp_path)


def test_a_target_without_o_direct(plan: ReadPlan, tmp_path: Path) -> None:
    target = replace(target_at(tmp_path), direct_io=None, direct_io_missing="tmpfs has none")
    with pytest.raises(TargetError, match=r"has no O_DIRECT \(tmpfs has none\), which the queue's"):
        Config(requester="cpu").check_block_reads(plan, [target])
    Config(requester="cpu", engine="null").check_block_reads(plan, [target])


def test_memory_that_may_not_be_locked(plan: ReadPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    monkeypatch.setattr("wattload.loaders.gpu.host.has_capability", lambda *_: False)
    large = replace(plan, in_flight=4096, queue_size=4096)
    sentence = r"^RLIMIT_MEMLOCK 1 MiB, .* buffers of 2 MiB: .* ulimit -l 2048, or use fewer work"
    with pytest.raises(ConfigError, match=sentence):
        Config(requester="cpu").check_block_reads(large, [])


PROGRAM = """
import sys; from pathlib import Path
from wattload.loaders.gpu_queue.config import Config
from tests.loaders.block_plans import *
folder = Path(sys.argv[1])
plan = plan_of(stamped_file(folder / 'file'), duration_s=60.0)
class Told(Watch):
    def begin(self):
        super().begin(); print('reads', flush=True)
reader = Config(requester='cpu').block_reader(plan, folder)
try:
    reader.run(Told())
except KeyboardInterrupt:
    reader.close()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_queue_ends_with_its_run(tmp_path: Path, number: signal.Signals) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == b"reads\n"
    assert len(children(MODULE)) == 1
    deadline_s = time.monotonic() + 30
    if number is signal.SIGINT:
        os.killpg(run.pid, number)  # as a terminal does: the child gets it too
    else:
        run.kill()
    run.wait()
    run.stdout.close()
    while children(MODULE) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert not children(MODULE)
