"""dlio-benchmark itself, run for real where it is installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loaders.dlio.job import (
    Window,
    WindowPhase,
    make_training,
    needs_dlio,
    processes_that_say,
)
from tests.mpich import shared_memory_of
from wattload.core.errors import RunError
from wattload.loaders.data.cold_cache import evict, resident_fraction
from wattload.loaders.dlio.config import Config
from wattload.loaders.dlio.harness import COMMAND, JOURNAL, OUTPUT, train
from wattload.loaders.dlio.program import Program

pytestmark = [needs_dlio, pytest.mark.slow]


def test_two_accelerators_are_two_processes(tmp_path: Path) -> None:
    training, window = make_training(tmp_path, accelerators=2, epochs=2), Window()
    result = train(Config(workers=1, reader="wattload"), training, tmp_path / "output", window)
    epoch_bytes = sum(training.samples.file_bytes)
    assert [phase.read_bytes for phase in window.phases] == [epoch_bytes] * 2
    for epoch in result.epochs:
        assert epoch.window_s == pytest.approx(epoch.ranks[0].duration_s, abs=0.01)
        for rank in epoch.ranks:
            assert len(rank.load_s) == training.steps
            assert sum(rank.processed_s) >= sum(rank.load_s) + training.steps * training.step_s
        assert epoch.counts.cpu_s > 0
    # The ranks begin an epoch some milliseconds apart.
    assert sum(epoch.plugged_bytes or 0 for epoch in result.epochs) == 2 * epoch_bytes
    folder = tmp_path / "output"
    for kept in ("summary.json", "per_epoch_stats.json", "0_output.json", "1_output.json"):
        assert json.loads((folder / OUTPUT / kept).read_text())
    assert (folder / OUTPUT / "dlio.log").stat().st_size
    assert " -n 2 " in (folder / COMMAND).read_text()


def test_jpeg_files_of_ours_are_read_whole_through_the_page_cache(tmp_path: Path) -> None:
    training = make_training(tmp_path, record_format="jpeg", rows=3000)
    evict(training.samples.paths)
    (epoch,) = train(Config(workers=1), training, tmp_path / "output", Window()).epochs
    file_bytes = sum(training.samples.file_bytes)
    # With code, settings and messages between its processes.
    assert file_bytes <= (epoch.counts.called_bytes or 0) < 1.5 * file_bytes
    assert epoch.plugged_bytes is None
    # Most of them, not all: a kernel that reclaims idle memory (DAMON) may take a page at once.
    assert (resident_fraction(training.samples.paths) or 0) > 0.5


def test_it_reads_nothing_while_nobody_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each count is late, as on a host without a free core: DLIO needs 0.1 s to read or to end."""

    def late(count: Callable[[Program], Any]) -> Callable[[Program], Any]:
        def counted(program: Program) -> Any:
            time.sleep(1)
            return count(program)

        return counted

    monkeypatch.setattr(Program, "mark", late(Program.mark))
    monkeypatch.setattr(Program, "counts", late(Program.counts))
    training = make_training(tmp_path, accelerators=2, epochs=2)
    result = train(Config(workers=1), training, tmp_path / "output", Window())
    epoch_bytes = sum(training.samples.file_bytes)
    for epoch in result.epochs:
        assert epoch.counts.cpu_s > 0
        assert epoch_bytes <= (epoch.counts.called_bytes or 0) < 1.5 * epoch_bytes


def test_it_reads_the_files_in_our_order_through_our_reader(tmp_path: Path) -> None:
    training = make_training(tmp_path, record_format="jpeg")
    evict(training.samples.paths)
    config = Config(workers=1, reader="wattload")
    result = train(config, training, tmp_path / "output", Window())
    lines = (tmp_path / "output" / JOURNAL).read_text().splitlines()
    said = [json.loads(line) for line in lines]
    read = [Path(line["path"]) for line in said if "path" in line]
    assert result.path.engine
    assert read == [training.samples.paths[index] for index in training.orders[0]]
    assert result.epochs[0].plugged_bytes == sum(training.samples.file_bytes)
    assert resident_fraction(training.samples.paths) == 0


def test_spawned_workers_find_the_stand_ins_and_start_no_mpi(tmp_path: Path) -> None:
    before = shared_memory()
    training = make_training(tmp_path, accelerators=2)
    train(Config(workers=1, start_method="spawn"), training, tmp_path / "output", Window())
    assert shared_memory() <= before


def test_a_corrupt_file_ends_it_with_its_last_words(tmp_path: Path) -> None:
    training = make_training(tmp_path, accelerators=2, check_crc=True)
    path = training.samples.paths[training.orders[0][-1]]
    with path.open("r+b") as file:
        file.seek(100_000)
        file.write(b"\0" * 8)
    with pytest.raises(RunError, match=r"dlio-benchmark failed .*CRC.*stderr\.log"):
        train(Config(workers=1, reader="wattload"), training, tmp_path / "output", Window())
    assert processes_that_say(str(tmp_path / "output")) == []
    assert "Traceback" in (tmp_path / "output" / "stderr.log").read_text()


class Meddler(Window):
    """Does something when the first batch has been loaded."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act = act

    def phase(self) -> WindowPhase:
        return MeddlingPhase(self.act)


class MeddlingPhase(WindowPhase):
    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act = act

    def moved(self, *, read_bytes: int) -> None:
        if not self.read_bytes:
            self.act()
        super().moved(read_bytes=read_bytes)


def test_a_process_that_is_killed_ends_it(tmp_path: Path) -> None:
    before = shared_memory()
    training = make_training(tmp_path, accelerators=2, step_s=1)

    def kill() -> None:
        mine = [pid for pid in processes_that_say(str(tmp_path)) if os.getsid(pid) == pid]
        os.kill(max(mine), signal.SIGKILL)  # the last that was started: a rank

    with pytest.raises(RunError, match=r"dlio-benchmark (was ended by signal|failed)"):
        train(Config(workers=1), training, tmp_path / "output", Meddler(kill))
    assert processes_that_say(str(tmp_path / "output")) == []
    assert shared_memory() <= before


def test_an_interrupt_ends_all_its_processes(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    training = make_training(tmp_path, accelerators=2)
    with pytest.raises(KeyboardInterrupt):
        train(Config(workers=2), training, tmp_path / "output", Meddler(interrupt))
    assert processes_that_say(str(tmp_path / "output")) == []
    assert not list((tmp_path / "output").glob("wattload-*"))


def test_a_run_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    settings = [
        "workload=unet3d",
        "loader=dlio",
        "scale=demo",
        "power=none",
        "accelerator.count=2",
        "label=ended",
    ]
    command = [sys.executable, "-m", "wattload", "run", *settings, f"runs={tmp_path}/runs"]
    arguments = [f"target.path={tmp_path}/target", "accelerator.step_s.unet3d=5"]
    root = Path(__file__).parents[3]
    with subprocess.Popen([*command, *arguments], stderr=subprocess.DEVNULL, cwd=root) as run:
        try:
            give_up_s = time.monotonic() + 90
            while not list(tmp_path.glob("runs/*/dlio/epoch1/output/dlio.log")):
                assert run.poll() is None
                assert time.monotonic() < give_up_s
                time.sleep(0.05)
            run.send_signal(signal.SIGKILL)
            run.wait()
        finally:
            run.kill()
    assert run.returncode == -signal.SIGKILL
    give_up_s = time.monotonic() + 30
    while processes_that_say(str(tmp_path / "runs")) and time.monotonic() < give_up_s:
        time.sleep(0.1)
    assert processes_that_say(str(tmp_path / "runs")) == []


def shared_memory() -> set[Path]:
    """Return the shared memory that no process has mapped: other jobs run meanwhile."""
    left = set(Path("/dev/shm").glob("mpich_shm_*"))
    return left - shared_memory_of(int(each.name) for each in Path("/proc").glob("[0-9]*"))
