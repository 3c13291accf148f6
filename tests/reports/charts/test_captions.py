"""A chart of a forced comparison says so itself: who sees nothing else is not misled."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.reports.conftest import render_page
from tests.reports.sessions import session
from wattload.reports.blocks import Figure
from wattload.reports.charts.arms import arm_bar, arms_figure
from wattload.reports.charts.bars import Dot
from wattload.reports.charts.effects import effects_figure
from wattload.reports.charts.sweep_bars import sweep_figure
from wattload.reports.charts.themes import light
from wattload.reports.quantity import Scale
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.subject import Group, Subject, make_subject

PAST = "forced despite: different work: scale differ"
FAST, SLOW = [1e9, 1.01e9, 0.99e9, 1e9, 1.02e9], [5e8, 5.05e8, 4.95e8, 5e8, 5.1e8]


def runs(scale: str = "full", **changes: object) -> list[Run]:
    """Return five runs per arm, B's at another scale."""
    a = session({"A": FAST}, interleave="none", **changes)
    return [*a, *session({"B": SLOW}, interleave="none", scale=scale, **changes)]


def compared(made: list[Run], *, forced: bool = True) -> tuple[Subject, Group, list[Row]]:
    subject = make_subject(made, forced=forced)
    (group,) = subject.groups
    return subject, group, [row for row in compare(subject, group) if row.quantity.headline]


def effects(made: list[Run], *, forced: bool = True) -> Figure:
    _, _, rows = compared(made, forced=forced)
    found = effects_figure("c", "x", rows, "A", "B")
    assert found is not None
    return found


def title(found: Figure) -> str:
    (text,) = re.findall(r"<title[^>]*>(.*?)</title>", found.svg)
    return str(text)


def test_a_forced_call_is_hollow_and_says_so_beside_its_ratio() -> None:
    found = effects(runs())
    assert f'stroke="{light("a")}"' in found.svg
    assert f'fill="{light("a")}"' not in found.svg
    assert re.search(r">0\.5\d* \([^<]*\), forced<", found.svg)
    assert f">{PAST}<" in found.svg
    assert PAST in title(found)
    assert PAST in found.caption
    assert all(PAST.removeprefix("forced despite: ") in row[-1].text for row in found.table.rows)


def test_a_call_that_force_did_not_make_is_filled_and_says_nothing_of_it() -> None:
    for forced in (False, True):
        found = effects(runs(scale="quick"), forced=forced)
        assert f'fill="{light("a")}"' in found.svg
        assert "forced" not in found.svg + found.caption


def test_the_runs_of_a_forced_figure_are_hollow_marks() -> None:
    _, group, rows = compared(runs())
    bar = arm_bar(rows[0], "A", "A", "A", group.arms["A"])
    assert bar.value is not None
    scale = Scale(1, "")
    hollow, filled = bar.dot_rows(scale), replace(bar, dots=[Dot(1.0)]).dot_rows(scale)
    assert {(dot["fill"], dot["stroke"]) for dot in hollow} == {(light("surface"), light("strong"))}
    assert [(dot["fill"], dot["stroke"]) for dot in filled] == [(light("strong"), light("surface"))]
    found = arms_figure("c", "x", rows, group.arms)
    assert found is not None
    assert PAST in title(found)
    assert PAST in found.caption
    assert f">{PAST}<" in found.svg


def test_a_forced_sweep_says_so() -> None:
    made = [
        run
        for workers in (1, 8)
        for run in runs(settings={"workload": {"workers": workers}}, session=f"s{workers}")
    ]
    subject, group, _ = compared(made)
    found = sweep_figure("c", subject, group)
    assert found is not None
    assert PAST in title(found)
    assert PAST in found.caption
    assert "n = 5 per bar" in found.svg


@pytest.mark.parametrize("forced", [False, True])
def test_every_chart_of_a_forced_comparison_says_so_in_title_and_caption(*, forced: bool) -> None:
    source = render_page(runs(power="measured", virtual=False), forced=forced)
    found = re.findall(r'<figure id="(compare-[^"]*)">(.*?)</figure>', source, re.S)
    assert len(found) > 1
    for _, text in found:
        (named,) = re.findall(r"<title[^>]*>(.*?)</title>", text)
        (caption,) = re.findall(r"<figcaption>(.*?)</figcaption>", text)
        assert (PAST in named, PAST in caption) == (forced, forced)
