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

import pytest

from tests.contracts.harness import HarnessContract, Watch
from tests.loaders.dlio.job import EPOCHS, make_training, needs_dlio, processes_that_say
from tests.mpich import shared_memory_of
from wattload.core.errors import RunError
from wattload.core.io import Harness, HarnessResult
from wattload.loaders.data.cold_cache import evict, resident_fraction
from wattload.loaders.dlio.config import Config
from wattload.loaders.dlio.harness import COMMAND, JOURNAL, OUTPUT, DlioHarness

pytestmark = [needs_dlio, pytest.mark.slow]


class TestDlio(HarnessContract):
    stretches = EPOCHS

    def harness(self, folder: Path) -> Harness[HarnessResult]:
        return DlioHarness(Config(workers=2), make_training(folder))


class TestDlioWithOurReader(HarnessContract):
    stretches = EPOCHS

    def harness(self, folder: Path) -> Harness[HarnessResult]:
        return DlioHarness(Config(workers=2, reader="wattload"), make_training(folder))


def test_two_accelerators_are_two_processes(tmp_path: Path) -> None:
    training = make_training(tmp_path, accelerators=2)
    result = DlioHarness(Config(workers=1), training).run(tmp_path / "output", Watch())
    assert [len(epoch) for epoch in result.epochs] == [2, 2]
    assert result.reported["train_au_percentage"] == pytest.approx(
        result.recomputed["train_au_percentage"], rel=1e-9
    )
    for epoch in result.epochs:
        for trained in epoch:
            assert trained.cpu_s > 0
            assert len(trained.load_s) == training.steps
            assert all(computed_s >= training.step_s for computed_s in trained.compute_s)
            assert trained.called_bytes is not None
            assert trained.called_bytes >= trained.read_bytes
    folder = tmp_path / "output"
    for kept in ("summary.json", "per_epoch_stats.json", "0_output.json", "1_output.json"):
        assert json.loads((folder / OUTPUT / kept).read_text())
    assert (folder / OUTPUT / "dlio.log").stat().st_size
    assert " -n 2 " in (folder / COMMAND).read_text()
    assert not (folder / "data").exists()


def test_it_reads_the_files_in_our_order_through_our_reader(tmp_path: Path) -> None:
    training = make_training(tmp_path)
    evict(training.samples.paths)
    harness = DlioHarness(Config(workers=1, reader="wattload"), training)
    result = harness.run(tmp_path / "output", Watch())
    lines = (tmp_path / "output" / JOURNAL).read_text().splitlines()
    said = [json.loads(line) for line in lines]
    read = [Path(line["path"]) for line in said if "path" in line]
    assert result.io.path.engine
    order = [index for epoch in training.orders for index in epoch[0]]
    assert read == [training.samples.paths[index] for index in order]
    assert result.plugged_bytes == EPOCHS * sum(training.samples.file_bytes)
    assert resident_fraction(training.samples.paths) == 0


def test_its_own_reader_goes_through_the_page_cache(tmp_path: Path) -> None:
    training = make_training(tmp_path)
    evict(training.samples.paths)
    DlioHarness(Config(workers=1), training).run(tmp_path / "output", Watch())
    # Most of them, not all: a kernel that reclaims idle memory (DAMON) may take a page at once.
    assert (resident_fraction(training.samples.paths) or 0) > 0.5


def test_spawned_workers_find_the_stand_ins(tmp_path: Path) -> None:
    training = make_training(tmp_path, epochs=1)
    harness = DlioHarness(Config(workers=1, start_method="spawn"), training)
    assert harness.run(tmp_path / "output", Watch()).io.moved_bytes


@pytest.mark.parametrize("accelerators", [1, 2])
@pytest.mark.parametrize("reader", ["dlio", "wattload"])
def test_a_corrupt_file_ends_it_with_its_last_words(
    tmp_path: Path, accelerators: int, reader: str
) -> None:
    training = make_training(tmp_path, accelerators=accelerators, check_crc=True)
    path = training.samples.paths[training.orders[0][0][-1]]
    with path.open("r+b") as file:
        file.seek(100_000)
        file.write(b"\0" * 8)
    harness = DlioHarness(Config(workers=1, reader=reader), training)
    with pytest.raises(RunError, match=r"dlio-benchmark failed .*CRC.*stderr\.log"):
        harness.run(tmp_path / "output", Watch())
    assert processes_that_say(str(tmp_path / "output")) == []
    assert "Traceback" in (tmp_path / "output" / "stderr.log").read_text()


class Meddler(Watch):
    """Does something when the second epoch begins."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act = act

    def before(self, stretch: int) -> None:
        super().before(stretch)
        if stretch == 1:
            self.act()


@pytest.mark.parametrize("accelerators", [1, 2])
def test_a_process_that_is_killed_ends_it(tmp_path: Path, accelerators: int) -> None:
    training = make_training(tmp_path, accelerators=accelerators)
    memory: set[Path] = set()

    def kill() -> None:
        pids = processes_that_say("wattload.loaders.dlio.launch")
        mine = [pid for pid in pids if os.getsid(pid) in processes_that_say(str(tmp_path))]
        memory.update(shared_memory_of(mine))
        os.kill(max(mine), signal.SIGKILL)

    harness = DlioHarness(Config(workers=1), training)
    with pytest.raises(RunError, match=r"dlio-benchmark (was ended by signal|failed)"):
        harness.run(tmp_path / "output", Meddler(kill))
    assert processes_that_say(str(tmp_path / "output")) == []
    assert memory or accelerators == 1
    assert not [path for path in memory if path.exists()]


def test_an_interrupt_ends_all_its_processes(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    harness = DlioHarness(Config(workers=2), make_training(tmp_path, accelerators=2))
    with pytest.raises(KeyboardInterrupt):
        harness.run(tmp_path / "output", Meddler(interrupt))
    assert processes_that_say(str(tmp_path / "output")) == []
    assert not (tmp_path / "output" / "data").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
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
            while not list(tmp_path.glob("runs/*/dlio/output/dlio.log")):
                assert run.poll() is None
                assert time.monotonic() < give_up_s
                time.sleep(0.05)
            run.send_signal(number)
            run.wait()
        finally:
            run.kill()
    assert run.returncode == (-9 if number == signal.SIGKILL else 130)
    give_up_s = time.monotonic() + 30
    while processes_that_say(str(tmp_path / "runs")) and time.monotonic() < give_up_s:
        time.sleep(0.1)
    assert processes_that_say(str(tmp_path / "runs")) == []
