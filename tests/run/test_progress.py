"""The progress of all ranks: counters in shared memory, and what rank 0 sees of them."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.context import ThreadCommunicator, run_ranks
from wattload.core.host.counters import ProcessTree
from wattload.run.phases import PhaseRecorder
from wattload.run.progress import Address, Board, RankProgress, gather_board
from wattload.run.ranks import LocalCommunicator

OTHER_RANK = """
import sys
from wattload.run.progress import RankProgress
own = RankProgress()
own.begin("reading", read_bytes=300)
own.advance(read_bytes=200)
print(*own.address("box"), flush=True)
sys.stdin.read()
"""


def _board(own: RankProgress) -> Board:
    found = gather_board(own, LocalCommunicator(), "box")
    assert found is not None
    return found


class TwoRanks(LocalCommunicator):
    """Rank 0 of a world whose other rank is at an address."""

    world_size = 2

    def __init__(self, other: Address) -> None:
        self._other = other

    def gather(self, value: Any) -> list[Any]:
        return [value, self._other]


def test_bytes_of_phases_and_outside_of_them_are_counted_apart() -> None:
    own = RankProgress()
    recorder = PhaseRecorder(
        host="box", rank=0, tree=ProcessTree(frozenset()), read_stats=dict, progress=own
    )
    own.begin("checkpoints", read_bytes=400, written_bytes=100)
    with recorder.phase("write") as phase:
        phase.count_written(30)
        phase.count_read(40)
        phase.moved(read_bytes=5)
        shown = _board(own).read()
    own.advance(written_bytes=1)
    assert shown is not None
    assert (shown.read_bytes, shown.written_bytes) == (45, 30)
    assert (shown.read_total_bytes, shown.written_total_bytes) == (400, 100)
    assert shown.phase is not None
    assert shown.phase.name == "write"
    after = _board(own).read()
    assert after is not None
    assert (after.written_bytes, after.phase) == (31, None)


def test_a_new_task_starts_from_nothing_and_an_ended_one_is_not_shown() -> None:
    own = RankProgress()
    own.begin("first", read_bytes=10)
    own.advance(read_bytes=7)
    own.begin("second")
    shown = _board(own).read()
    assert shown is not None
    assert (shown.task, shown.read_bytes, shown.read_total_bytes) == ("second", 0, None)
    own.end()
    assert _board(own).read() is None


def test_only_timed_phases_are_active_time() -> None:
    own = RankProgress()
    board = _board(own)
    own.begin("checkpoints")
    with own.phase("train", timed=False):
        waiting = board.read()
    with own.phase("write", timed=True), own.phase("read", timed=True):
        moving = board.read()
    ended, later = board.read(), board.read()
    assert waiting is not None
    assert moving is not None
    assert ended is not None
    assert later is not None
    assert waiting.active_s == 0
    assert ended.active_s >= moving.active_s > 0
    assert later.active_s == ended.active_s


def test_rank_0_sees_the_counters_of_another_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_RANK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        host, *numbers = process.stdout.readline().split()
        other = Address(host, *map(int, numbers))
        own = RankProgress()
        own.begin("reading", read_bytes=100)
        own.advance(read_bytes=50)
        board = gather_board(own, TwoRanks(other), "box")
        assert board is not None
        both = board.read()
        own.begin("verifying")
        alone = board.read()
        process.communicate("")
    assert (board.seen_count, board.rank_count) == (2, 2)
    assert both is not None
    assert (both.read_bytes, both.read_total_bytes) == (250, 400)
    assert alone is not None
    assert alone.read_bytes == 0, "the other rank is at another task"


def test_a_rank_that_cannot_be_reached_is_left_out() -> None:
    own, other = RankProgress(), RankProgress()
    reached = other.address("box")
    for address in (
        reached._replace(pid=2**22),
        reached._replace(token=1),
        reached._replace(descriptor=os.open("/dev/null", os.O_RDONLY)),
    ):
        board = gather_board(own, TwoRanks(address), "box")
        assert board is not None
        assert (board.seen_count, board.rank_count) == (1, 2)
        if address.descriptor != reached.descriptor:
            os.close(address.descriptor)


def test_only_rank_0_gets_a_board() -> None:
    def gathered(communicator: ThreadCommunicator) -> Board | None:
        return gather_board(RankProgress(), communicator, "box")

    first, second = run_ranks(ThreadCommunicator.world(2), gathered)
    assert first is not None
    assert second is None


def test_the_counters_fit_a_page() -> None:
    assert RankProgress().counters.nbytes == mmap.PAGESIZE
