"""Spans of ranks become windows of hosts, and every device byte is counted once."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from wattload.core.host.counters import BlockStat, ProcessTree
from wattload.core.record.phase import PhaseSpan, merge_intervals, phase_windows
from wattload.core.units import NS_PER_S
from wattload.run.phases import (
    BIN_NS,
    MarkedSpan,
    OpenPhase,
    PhaseRecorder,
    PhaseTraffic,
    RankJournal,
    block_counters,
    phase_halves,
)


def _span(start_s: float, end_s: float, *, rank: int = 0, name: str = "read") -> PhaseSpan:
    return PhaseSpan(
        name=name,
        parent=None,
        host="box",
        rank=rank,
        timed=True,
        start_ns=int(start_s * NS_PER_S),
        end_ns=int(end_s * NS_PER_S),
        read_bytes=100,
        written_bytes=0,
        operations=1,
        cpu_s=0.5,
    )


def _stat(read_bytes: int) -> BlockStat:
    return BlockStat(
        read_operations=0,
        read_bytes=read_bytes,
        write_operations=0,
        written_bytes=0,
        busy_s=0.0,
        weighted_s=0.0,
    )


def test_a_window_is_first_start_to_last_end_with_its_spread() -> None:
    (window,) = phase_windows([_span(1.0, 5.0), _span(1.5, 4.0, rank=1)])
    assert (window.seconds, window.start_spread_s, window.end_spread_s) == (4.0, 0.5, 1.0)
    assert (window.rank_count, window.read_bytes, window.cpu_s) == (2, 200, 1.0)


def test_active_time_leaves_out_the_pauses_between_spans() -> None:
    (window,) = phase_windows([_span(0, 2), _span(5, 6)])
    assert (window.seconds, window.active_s) == (6.0, 3.0)


def test_merged_intervals_are_disjoint() -> None:
    assert merge_intervals([(5, 7), (1, 3), (2, 4), (4, 5)]) == [(1, 7)]
    assert merge_intervals([(1, 2), (3, 4)]) == [(1, 2), (3, 4)]


def test_overlapping_ranks_count_each_device_byte_once() -> None:
    first = MarkedSpan(_span(0, 4), {"vda": _stat(1000)}, {"vda": _stat(1900)})
    second = MarkedSpan(_span(1, 5, rank=1), {"vda": _stat(1200)}, {"vda": _stat(2500)})
    later = MarkedSpan(_span(9, 10), {"vda": _stat(7000)}, {"vda": _stat(7007)})
    (counter,) = block_counters([first, second, later])
    assert counter.read_bytes == (2500 - 1000) + 7


def _rows(moved: dict[int, int]) -> list[PhaseTraffic]:
    return [
        PhaseTraffic(
            host="box",
            rank=0,
            phase="read",
            time_ns=BIN_NS * np.array([*moved]),
            read_bytes=np.array([*moved.values()]),
            written_bytes=np.zeros(len(moved), dtype=np.int64),
        )
    ]


def test_halves_are_of_active_time_with_its_stalls() -> None:
    """Bins in which nothing moved were left out once: a drive that fell tenfold looked steady."""
    windows = phase_windows([_span(0, 10)])
    fast_then_stalling = dict.fromkeys(range(50), 100) | {50 + 10 * i: 100 for i in range(5)}
    (halves,) = phase_halves(windows, _rows(fast_then_stalling))
    (window,) = phase_windows([_span(0, 10)], [halves])
    assert window.half_rates_bytes_per_s == (1000.0, 100.0)


def test_pauses_between_spans_belong_to_no_half() -> None:
    windows = phase_windows([_span(0, 2), _span(8, 10)])
    moved = dict.fromkeys((*range(20), *range(80, 100)), 10)
    (halves,) = phase_halves(windows, _rows(moved))
    assert (halves.first_bytes, halves.second_bytes) == (200, 200)


def test_under_two_seconds_there_are_no_halves() -> None:
    windows = phase_windows([_span(0, 1.9)])
    assert not list(phase_halves(windows, _rows({1: 10})))


@pytest.fixture
def recorder(tmp_path: Path) -> PhaseRecorder:
    made = PhaseRecorder(
        host="box", rank=3, tree=ProcessTree(), read_stats=lambda: {"vda": _stat(0)}
    )
    made.write_to(RankJournal(tmp_path, 3))
    return made


def test_a_closed_journal_takes_no_line(tmp_path: Path) -> None:
    """The watch's thread may write to it, and the next file that is opened has its descriptor."""
    journal = RankJournal(tmp_path, 0)
    journal.close()
    with (tmp_path / "next").open("wb"):
        journal.write("failed", {})
    assert not (tmp_path / "next").read_bytes()


def _move(phase: OpenPhase, times: int) -> None:
    for _ in range(times):
        phase.moved(read_bytes=1)


def test_phases_nest_and_count_from_any_thread(recorder: PhaseRecorder) -> None:
    with recorder.phase("outer") as outer, recorder.phase("inner", timed=False) as inner:
        threads = [threading.Thread(target=_move, args=(inner, 500)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outer.moved(written_bytes=7)
    spans = {item.span.name: item.span for item in recorder.spans}
    assert spans["inner"].read_bytes == spans["inner"].operations == 2000
    assert (spans["inner"].parent, spans["inner"].timed) == ("outer", False)
    assert (spans["outer"].parent, spans["outer"].written_bytes) == (None, 7)
    assert sum(int(each.read_bytes.sum()) for each in recorder.traffic_of_phases()) == 2000


def test_a_phase_that_fails_leaves_its_open_line_only(
    recorder: PhaseRecorder, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match="full"), recorder.phase("write"):
        raise OSError("full")
    lines = (tmp_path / "journal-3.jsonl").read_text().splitlines()
    assert len(lines) == 1
    assert '"event":"begin"' in lines[0]
    assert recorder.spans == []


def test_cpu_time_counts_children_and_leaves_the_excluded_out() -> None:
    import subprocess
    import sys

    burn = "import time\nwhile time.process_time() < 0.3: pass\ninput()"
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE) as child:
        own_s = ProcessTree(frozenset([child.pid])).cpu_s()
        deadline = 200
        while ProcessTree().cpu_s() - own_s < 0.3 and deadline:
            deadline -= 1
            threading.Event().wait(0.05)
        assert deadline, "the child's CPU time was never seen"
        assert child.stdin is not None
        child.stdin.write(b"\n")
