"""The line between us and the program's processes, with real processes that are not DLIO's."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.contracts.harness import Watch
from tests.loaders.dlio.job import make_training
from wattload.loaders.dlio import launch
from wattload.loaders.dlio.config import ChildSettings
from wattload.loaders.dlio.epoch_server import EpochServer, Program
from wattload.loaders.samples import Training

RANK = """
import sys
from wattload.loaders.dlio.launch import Tracer

class DLIOBenchmark:
    my_rank = int(sys.argv[1])

    @Tracer("any", of="kind").log
    def _train(self, epoch):
        data = open(sys.argv[2], "rb", buffering=0).read()
        sum(data)
        for batch in Tracer().iter(range(int(sys.argv[3])), "train"):
            if sys.argv[4] == "dies" and epoch == 2:
                raise ValueError("no more")
        return epoch

for epoch in (1, 2):
    assert DLIOBenchmark()._train(epoch) == epoch
"""

RANKS = """
import subprocess, sys
ranks = [subprocess.Popen([sys.executable, "-c", sys.argv[1], str(rank), *sys.argv[3:]])
         for rank in range(int(sys.argv[2]))]
sys.exit(max(rank.wait() for rank in ranks))
"""


class Play:
    """A server and the program it conducts."""

    def __init__(self, folder: Path, training: Training, *, steps: int, way: str = "lives") -> None:
        self.watch, self.prepared = Watch(), list[int]()
        self.server = EpochServer(folder / "line", training, self.watch, self.prepared.append)
        settings = ChildSettings(
            socket=str(folder / "line"),
            journal="",
            largest_bytes=1,
            record_format="npz",
            block_bytes=4096,
            queue_depth=1,
            check_crc=False,
            nonce=None,
        )
        path = training.samples.paths[0]
        arguments = [str(training.accelerators), str(path), str(steps), way]
        command = [sys.executable, "-c", RANKS, RANK, *arguments]
        self.program = Program(command, folder, {**os.environ, **settings.environment()})

    def run(self) -> int:
        try:
            self.server.serve(self.program)
            return self.program.status()
        finally:
            self.program.end()
            self.server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "output").mkdir()
    return tmp_path


@pytest.mark.parametrize("accelerators", [1, 2])
def test_epochs_begin_when_all_are_ready_and_every_batch_is_counted(
    folder: Path, accelerators: int
) -> None:
    training = make_training(folder, accelerators=accelerators)
    play = Play(folder, training, steps=training.steps)
    assert play.run() == 0
    assert play.watch.told == ["before 0", "after 0", "before 1", "after 1"]
    assert play.prepared == [1]
    assert play.watch.moved_bytes == dict.fromkeys((0, 1), sum(training.samples.file_bytes))
    for report in play.server.reports:
        assert dict(report.batches) == dict.fromkeys(range(accelerators), training.steps)
        for rank in range(accelerators):
            assert report.done[rank]["end_ns"] > report.done[rank]["begin_ns"]
            spent = report.spent[rank]
            assert spent["cpu_s"] > 0
            assert spent["called_bytes"] >= training.samples.file_bytes[0]
            assert spent["peak_bytes"] > 1 << 20


def test_a_rank_that_dies_ends_the_play_with_its_words(folder: Path) -> None:
    training = make_training(folder)
    play = Play(folder, training, steps=training.steps, way="dies")
    assert play.run() == 1
    assert play.watch.told == ["before 0", "after 0", "before 1"]
    assert play.program.last_error_line() == "ValueError: no more"


def test_a_rank_that_is_gone_when_leave_is_given_is_no_failure_of_ours(folder: Path) -> None:
    training = make_training(folder)
    play = Play(folder, training, steps=training.steps)

    def end_it(_: int) -> None:
        _, rank = launch._members(play.program._process.pid)
        os.kill(rank, signal.SIGKILL)
        while play.program._process.poll() is None:
            time.sleep(0.01)

    play.server._prepare = end_it
    assert play.run() == 247  # what the launcher makes of its only rank's -9


def test_a_failure_of_ours_between_epochs_is_raised(folder: Path) -> None:
    training = make_training(folder)
    play = Play(folder, training, steps=training.steps)

    def fail(_: int) -> None:
        raise OSError("the page cache can't be emptied")

    play.server._prepare = fail
    with pytest.raises(OSError, match="can't be emptied"):
        play.run()


def test_processes_end_when_we_hang_up(folder: Path) -> None:
    training = make_training(folder)
    play = Play(folder, training, steps=training.steps)

    def hang_up(_: int) -> None:
        play.server.close()
        raise KeyboardInterrupt

    play.server._prepare = hang_up
    with pytest.raises(KeyboardInterrupt):
        play.server.serve(play.program)
    assert play.program.status() == 1
    play.program.end()


def test_without_settings_nothing_is_announced() -> None:
    from wattload.loaders.dlio.launch import EPOCH_FUNCTION, TraceLog, Tracer

    def train(benchmark: object, epoch: int) -> int:
        return epoch + 1

    train.__qualname__ = EPOCH_FUNCTION
    assert Tracer().log(train)(object(), 1) == 2
    assert list(Tracer().iter([1, 2])) == [1, 2]
    with Tracer(name="any").update(step=1) as tracer:
        tracer.flush()
        tracer.reset()
    other = Tracer().log_init(len)
    assert other is len
    TraceLog().initialize_log("file")
    TraceLog().finalize()
