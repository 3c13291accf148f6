"""What is shown of long work: rates of the last seconds, on one line of any width."""

from __future__ import annotations

import io
import sys
import threading
from typing import Any

import pytest

from tests.context import ThreadCommunicator, run_ranks
from wattload.cli import progress
from wattload.cli.progress import Frame, Rates, View, live_progress
from wattload.run.progress import Board, RankProgress, Standing, gather_board
from wattload.run.ranks import LocalCommunicator

GB = 10**9


def standing(active_s: float, read_bytes: int, written_bytes: int = 0, **changes: Any) -> Standing:
    values: dict[str, Any] = {
        "task": "checkpoints",
        "since_s": 100.0,
        "read_bytes": read_bytes,
        "written_bytes": written_bytes,
        "read_total_bytes": None,
        "written_total_bytes": None,
        "active_s": active_s,
        "phase": None,
    }
    return Standing(**(values | changes))


def board_of(own: RankProgress) -> Board:
    found = gather_board(own, LocalCommunicator(), "box")
    assert found is not None
    return found


def test_waiting_is_no_part_of_a_rate() -> None:
    rates = Rates()
    rates.add(standing(1.0, 0, GB), 101.0)
    for minute in range(1, 10):  # computing between two checkpoints
        read, written = rates.add(standing(1.0, 0, GB), 101.0 + 60 * minute)
        assert (read, written) == (None, GB)
    assert rates.add(standing(2.0, 3 * GB, GB), 700.0) == (1.5 * GB, 0.5 * GB)


def test_a_rate_is_of_the_last_seconds() -> None:
    rates = Rates()
    for second in range(1, 11):
        rates.add(standing(second, second * GB), 100.0 + second)
    for second in range(11, 21):
        shown = rates.add(standing(second, 10 * GB + (second - 10) * 2 * GB), 100.0 + second)
    assert shown == (2 * GB, None)


def test_a_task_without_timed_phases_has_the_rate_of_its_wall_time() -> None:
    assert Rates().add(standing(0.0, 0, 4 * GB, task="generating"), 102.0) == (None, 2 * GB)


def test_each_task_has_rates_of_its_own() -> None:
    rates = Rates()
    rates.add(standing(10.0, 10 * GB), 110.0)
    assert rates.add(standing(1.0, GB, since_s=110.0), 111.0) == (GB, None)


def test_a_frame_fits_every_width() -> None:
    frame = Frame(
        name="checkpoints, write",
        share=0.381,
        rates="read 1.21 GB/s, write 873 MB/s",
        power="12.3 W",
        temperature="41 °C",
        left="3 min 20 s left",
    )
    assert frame.line() == (
        "checkpoints, write: 38 %, read 1.21 GB/s, write 873 MB/s, 12.3 W, 41 °C, 3 min 20 s left"
    )
    for width in range(10, 140):
        line = frame.fitted(width, is_unicode=True)
        assert len(line) <= width
        assert ("3 min 20 s left" in line) == (width >= 42)
    assert "█" in frame.fitted(139, is_unicode=True)
    assert frame.fitted(139, is_unicode=False).encode("latin-1")
    assert "1.21 GB/s" in frame.fitted(80, is_unicode=True)


def test_the_time_left_counts_reads_and_writes_of_known_size() -> None:
    own = RankProgress()
    view = View(board_of(own))
    own.begin("checkpoints", read_bytes=GB, written_bytes=GB)
    own.advance(written_bytes=GB // 2)
    frame = view.frame(own.since_s + 10)
    assert frame is not None
    assert (frame.share, frame.left) == (0.25, "30 s left")
    own.begin("verifying")
    frame = view.frame(own.since_s + 10)
    assert frame is not None
    assert (frame.share, frame.left) == (None, "")


def test_a_phase_without_a_task_has_its_own_words_and_time() -> None:
    own = RankProgress()
    view = View(board_of(own))
    assert view.frame(0.0) is None
    with own.phase("idle", expected_s=20.0):
        frame = view.frame(own.phases[0].start_s + 5)
    assert frame is not None
    assert frame.line() == "idle power before the run: 15 s left"


def test_a_wait_of_known_length_within_a_task_shows_the_wait_only() -> None:
    own = RankProgress()
    own.begin("checkpoints", read_bytes=GB)
    own.advance(read_bytes=GB)
    with own.phase("rest", expected_s=30.0):
        frame = View(board_of(own)).frame(own.phases[0].start_s + 2)
    assert frame is not None
    assert frame.line() == "resting, so that the drive can finish: 28 s left"


def test_the_phase_of_random_reads_has_the_words_of_the_page_whoever_asks() -> None:
    own = RankProgress()
    with own.phase("gpu_random_read"):
        frame = View(board_of(own)).frame(own.phases[0].start_s)
    assert frame is not None
    assert frame.name == "small random reads"


def test_ranks_that_can_not_be_seen_are_said_to_be_missing() -> None:
    own = RankProgress()
    own.begin("reading")
    frame = View(Board(own, [], 4)).frame(own.since_s)
    assert frame is not None
    assert frame.name == "reading (1 of 4 ranks)"


def test_of_several_hosts_the_one_whose_progress_is_shown_is_named() -> None:
    own = RankProgress()
    own.begin("reading")

    def board(communicator: ThreadCommunicator) -> Board | None:
        return gather_board(own, communicator, f"box{communicator.rank}")

    first, *others = run_ranks(ThreadCommunicator.world(3), board)
    assert others == [None, None]
    assert first is not None
    frame = View(first).frame(own.since_s)
    assert frame is not None
    assert frame.name == "box0, 1 of 3 hosts: reading"


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def _shown(own: RankProgress, until: str, stream: io.StringIO) -> str:
    """Return what was shown once ``until`` was, or after a minute."""
    waited = threading.Event()
    with live_progress(board_of(own)):
        for _ in range(600):
            if until in stream.getvalue() or waited.wait(0.1):
                break
    return stream.getvalue()


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "TICK_S", 0.01)
    monkeypatch.setattr(progress, "LINE_PERIOD_S", 0.02)
    own = RankProgress()
    own.begin("reading", read_bytes=100)
    own.advance(read_bytes=50)
    lines = _shown(own, "\n", stream).splitlines()
    assert lines[0].startswith("reading: 50 %, read ")
    assert "\x1b" not in lines[0]


def test_on_a_terminal_there_is_one_line_which_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(progress, "TICK_S", 0.01)
    own = RankProgress()
    own.begin("reading", read_bytes=100)
    own.advance(read_bytes=50)
    shown = _shown(own, "50 %", stream)
    assert "50 %" in shown
    assert shown.rstrip().endswith("\x1b[2K"), "the line is erased at the end"


def test_a_terminal_that_can_only_print_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not progress._is_terminal()
