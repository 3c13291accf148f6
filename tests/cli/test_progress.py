"""Progress: lines without a terminal, a bar on one, nothing on ranks above 0."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.context import ThreadCommunicator, process_of
from wattload.cli import progress
from wattload.cli.progress import BarProgress, LineProgress, terminal_progress
from wattload.run.process import SilentProgress


def test_lines_name_the_task_its_size_and_its_rate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_PERIOD_S", 0.0)
    lines = LineProgress()
    lines.begin("reading", 4_000_000)
    lines.advance(1_000_000)
    lines.end()
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "reading (4.00 MB)"
    assert said[1].startswith("reading: 1.00 MB, ")
    assert said[1].endswith(" left")
    assert said[2].startswith("reading: 1.00 MB in ")


def test_a_task_of_unknown_size_has_no_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_PERIOD_S", 0.0)
    lines = LineProgress()
    lines.begin("verifying", None)
    lines.advance(1000)
    lines.end()
    assert "left" not in capsys.readouterr().err


def test_a_bar_shows_bytes_and_rate() -> None:
    screen = io.StringIO()
    bar = BarProgress(Console(file=screen, force_terminal=True, width=120))
    bar.begin("writing", 2_000_000)
    bar.advance(1_500_000)
    bar.end()
    bar.end()
    assert "writing" in screen.getvalue()
    assert "1.50 MB" in screen.getvalue()


def test_without_a_terminal_there_are_lines() -> None:
    assert isinstance(terminal_progress(), LineProgress)


def test_only_rank_0_shows_anything() -> None:
    _, second = ThreadCommunicator.world(2)
    process = process_of(second)
    process.reporter = None  # type: ignore[assignment]  # never called
    silent = process.progress()
    assert isinstance(silent, SilentProgress)
    silent.begin("reading", 1)
    silent.advance(1)
    silent.end()
    process.note("twice")
