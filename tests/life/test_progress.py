"""Progress: lines without a terminal, a bar on one, nothing on ranks above 0."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from wattload.life import progress
from wattload.life.progress import BarProgress, LineProgress, SilentProgress, progress_for


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


def test_only_rank_0_says_anything() -> None:
    silent = progress_for(1)
    assert isinstance(silent, SilentProgress)
    silent.begin("reading", 1)
    silent.advance(1)
    silent.end()
    assert not isinstance(progress_for(0), SilentProgress)
