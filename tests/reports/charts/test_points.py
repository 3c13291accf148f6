"""Measured points over a quantity: what has no value, the axis, and the chart's table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.reports.page_text import blocks_text
from wattload.core.units import Unit
from wattload.reports.charts.points import point_lines_figure
from wattload.results.shapes import PointLine, PointLines


def chart(
    *lines: tuple[str, Sequence[float], Sequence[float | None]], **changes: Any
) -> PointLines:
    values: dict[str, Any] = {
        "name": "knee",
        "title": "p99 over rates",
        "caption": "",
        "what": "p99",
        "unit": Unit.SECONDS,
        "over": "requests",
        "over_unit": Unit.SAMPLES_PER_SECOND,
        "lines": [PointLine(letter, f"arm {letter}", xs, ys) for letter, xs, ys in lines],
        "gap": "overloaded",
    }
    return PointLines(**(values | changes))


def test_a_point_without_a_value_is_hollow_at_the_top_and_named_in_the_table() -> None:
    figure = point_lines_figure(chart(("A", (1, 2, 4), (0.1, 0.2, None))))
    assert figure is not None
    heights = [float(each) for each in re.findall(r'<circle [^>]*cy="([\d.]+)"', figure.svg)]
    assert heights[2] < heights[1] < heights[0]
    assert 'data-tip="arm A at 4.00 /s: overloaded"' in figure.svg
    assert "arm A | 4.000 | overloaded" in blocks_text([figure])


def test_an_axis_whose_ends_are_far_apart_is_logarithmic() -> None:
    near, far = (
        point_lines_figure(chart(("A", (1, 2, last), (0.1, 0.2, 0.3)))) for last in (4, 100)
    )
    assert near is not None
    assert far is not None
    assert " linear " in near.svg.partition('data-x="')[2].partition('"')[0]
    assert " log " in far.svg.partition('data-x="')[2].partition('"')[0]


def test_a_limit_is_within_the_chart_even_above_all_points() -> None:
    figure = point_lines_figure(chart(("A", (1, 2), (0.1, 0.2)), limit=0.5))
    assert figure is not None
    high = float(figure.svg.partition('data-y="')[2].split()[1])
    assert high > 0.5
    assert "stroke-dasharray" in figure.svg


def test_no_value_at_all_is_no_chart() -> None:
    assert point_lines_figure(chart(("A", (1, 2), (None, None)))) is None
    assert point_lines_figure(chart()) is None


def test_several_arms_have_a_legend() -> None:
    one = point_lines_figure(chart(("A", (1, 2), (0.1, 0.2))))
    two = point_lines_figure(chart(("A", (1, 2), (0.1, 0.2)), ("B", (1, 2), (0.2, 0.3))))
    assert one is not None
    assert two is not None
    assert one.legend == []
    assert two.legend == [("a", "arm A"), ("b", "arm B")]


def test_lines_of_one_arm_differ_in_colour() -> None:
    figure = point_lines_figure(chart(("", (1, 2), (0.1, 0.2)), ("", (1, 2), (0.2, 0.3))))
    assert figure is not None
    assert len({role for role, _ in figure.legend}) == 2
