"""Ratios of two arms, in the colour of the better one."""

from __future__ import annotations

from pathlib import Path

from tests.reports.conftest import arm, one
from wattload.reports.charts.effects import effects_figure
from wattload.reports.charts.themes import light
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.subject import make_subject


def test_ratios_without_runs_are_no_chart(tmp_path: Path) -> None:
    subject = make_subject(
        [one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, status="failed"))]
    )
    (group,) = subject.groups
    assert effects_figure("c", "x", compare(subject, group), "A", "B") is None


def test_called_ratios_have_the_colour_of_their_arm(arms: tuple[Run, ...]) -> None:
    subject = make_subject(arms)
    (group,) = subject.groups
    figure = effects_figure("c", "x", compare(subject, group), "A", "B")
    assert figure is not None
    assert f'fill="{light("a")}"' in figure.svg
    assert f'fill="{light("b")}"' not in figure.svg
    assert f'stroke="{light("device")}"' in figure.svg  # hollow: called for neither
