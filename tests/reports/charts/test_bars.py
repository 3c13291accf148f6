"""One panel of bars: values from zero, bounds as outlines, reasons in place of figures."""

from __future__ import annotations

import itertools
import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from wattload.reports.charts.bars import Bar, Dot, bars_svg, checked_range, split_svg
from wattload.reports.charts.themes import light
from wattload.results.quantity import Scale

JOULES = Scale(1, "J")


def bar(**changes: Any) -> Bar:
    return Bar(label="A", role="a", **changes)


def panel(*bars: Bar) -> str:
    svg = bars_svg("energy, J", bars, JOULES)
    ET.fromstring(svg)
    return svg


def widths(svg: str) -> list[float]:
    return [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)%"', svg)]


def test_bars_begin_at_zero_and_have_the_ratio_of_their_values() -> None:
    long, short = widths(panel(bar(value=3.0), bar(value=1.5)))
    assert long == 2 * short
    assert all(x == "0" for x in re.findall(r'<rect x="([^"]*)"', panel(bar(value=3.0))))


def test_a_missing_figure_is_its_reason_and_no_bar_of_zero() -> None:
    svg = panel(bar(reason="the meter was unplugged"), bar(value=2.0))
    assert ">the meter was unplugged<" in svg
    assert len(widths(svg)) == 1


def test_bounds_are_an_outline_from_end_to_end() -> None:
    svg = panel(bar(lower=1.0, upper=3.0))
    assert ">1.00 to 3.00<" in svg
    assert 'fill-opacity="0.18"' in svg
    assert "stroke-dasharray" not in svg


def test_a_lone_maximum_is_dashed_and_printed_with_its_sign() -> None:
    svg = panel(bar(upper=3.0))
    assert ">≤ 3.00<" in svg
    assert "stroke-dasharray" in svg


def test_a_run_that_does_not_count_is_hollow() -> None:
    svg = panel(bar(value=2.0, dots=[Dot(2.0), Dot(9.0, in_mean=False), Dot(3.0, forced=True)]))
    fills = re.findall(r'<circle [^>]*fill="(#[0-9a-f]+)"', svg)
    assert fills == [light("strong"), light("surface"), light("surface")]


def test_a_figure_stands_at_the_end_of_its_bar_and_not_at_its_farthest_run() -> None:
    svg = panel(bar(value=2.0, dots=[Dot(1.0), Dot(4.0)]), bar(value=3.0))
    (drawn, *_), (at,) = widths(svg), re.findall(r'<text x="([\d.]+)%"[^>]*>2.00<', svg)
    assert float(at) == drawn
    assert max(map(float, re.findall(r'cx="([\d.]+)%"', svg))) == pytest.approx(2 * drawn, abs=0.02)


@pytest.mark.parametrize("count", [3, 6])
def test_no_run_looks_like_a_decimal_sign_of_a_figure(count: int) -> None:
    svg = split_svg("GB/s", [bar(value=5.05, dots=[Dot(5.0), Dot(5.3)])] * count, JOULES)
    bases = [float(y) for y in re.findall(r'<text x="[^"]*" y="([\d.]+)"[^>]*>5.05<', svg)]
    dots = sorted({float(y) for y in re.findall(r'cy="([\d.]+)"', svg)})
    assert len(bases) == len(dots) == count
    digits, radius, clear = 8.8, 2.2, 1.5  # pixels
    for base, dot, following in itertools.zip_longest(bases, dots, bases[1:]):
        assert dot - radius >= base + clear
        assert following is None or dot + radius <= following - digits - 1


def test_a_ceiling_is_a_line_across_all_bars_and_far_above_none() -> None:
    bars = [bar(value=2.0), bar(value=1.0)]
    near = split_svg("GB/s", bars, JOULES, [("memory", 3.0)])
    assert near.count('data-tip="memory"') == len(bars)
    assert "memory" not in split_svg("GB/s", bars, JOULES, [("memory", 300.0)])


def test_thirty_bars_are_three_panels_of_one_scale() -> None:
    bars = [Bar(label=f"arm {index}", role="device", value=30.0 - index) for index in range(30)]
    svg = split_svg("GB/s", bars, JOULES)
    panels = ET.fromstring(svg)
    assert [panel.attrib["aria-label"].partition(":")[0] for panel in panels] == [
        "GB/s, arms 1 to 10",
        "GB/s, arms 11 to 20",
        "GB/s, arms 21 to 30",
    ]
    drawn = widths(svg)
    assert drawn[29] / drawn[0] == pytest.approx(1 / 30, rel=0.01)
    assert ET.fromstring(split_svg("GB/s", bars[:12], JOULES)).tag.endswith("svg")


def test_six_bars_are_hardly_higher_than_three() -> None:
    bars = [Bar(label=letter, role="a", value=1.0) for letter in "ABCDEF"]
    few, many = (
        float(ET.fromstring(split_svg("GB/s", own, JOULES)).attrib["height"])
        for own in (bars[:3], bars)
    )
    assert many < 1.25 * few


def test_a_mark_across_a_bar_is_named_and_the_panel_has_room_for_it() -> None:
    marked = bar(value=2.0, marks=[("ceiling <b>", 5.0)])
    assert marked.end == 5.0
    assert 'data-tip="ceiling &lt;b&gt;"' in panel(marked)
    assert checked_range(bar(value=2.0, marks=[("ceiling", 1e40)])).reason
