"""Hatches are strokes within their bar, so that they print sharp and in grey."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattload.reports.charts.svg import draw_hatches, marker_colour
from wattload.reports.charts.themes import HATCHES, light, tint

SIZES = st.floats(min_value=0, max_value=300)


def bar(role: str, x: float = 10, y: float = 20, width: float = 60, height: float = 16) -> str:
    shape = f"M{x:.1f},{y:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}Z"
    return f'<path d="{shape}" fill="{marker_colour(role)}"/>'


def ends(svg: str) -> list[tuple[float, float]]:
    """Return both ends of every stroke."""
    strokes = re.search(r'<path d="([^"]*)" fill="none" stroke="[^"]*" stroke-width', svg)
    assert strokes is not None
    found = []
    number = r"(-?[0-9.]+)"
    for x, y, how, by, down in re.findall(
        rf"M{number},{number}([lhv]){number}(?:,{number})?", strokes.group(1)
    ):
        across = float(by) if how in "lh" else 0.0
        along = float(down) if how == "l" else float(by) if how == "v" else 0.0
        found += [(float(x), float(y)), (float(x) + across, float(y) + along)]
    return found


@pytest.mark.parametrize("role", HATCHES)
@given(SIZES, SIZES)
def test_no_stroke_leaves_its_bar(role: str, width: float, height: float) -> None:
    for x, y in ends(draw_hatches(bar(role, width=width, height=height))):
        assert 10 - 0.2 <= x <= 10 + width + 0.2
        assert 20 - 0.2 <= y <= 20 + height + 0.2


@pytest.mark.parametrize("role", HATCHES)
def test_a_hatch_is_opaque_strokes_and_no_pattern(role: str) -> None:
    svg = draw_hatches(bar(role))
    assert "pattern" not in svg
    assert "opacity" not in svg
    assert svg.startswith(f'<path d="M10,20h60v16h-60Z" fill="{tint(role).light}"/>')
    assert f'stroke="{light(role)}"' in svg
    assert marker_colour(role) not in svg
    assert len(ends(svg)) >= 6


def test_a_bar_that_grows_upward_is_hatched_too() -> None:
    assert ends(draw_hatches(bar("b", y=36, height=-16))) == ends(draw_hatches(bar("b")))


def test_a_bar_keeps_the_stroke_that_it_was_drawn_with() -> None:
    drawn = bar("b").replace("/>", ' stroke="#fffffe" stroke-width="1.5"/>')
    assert draw_hatches(drawn).endswith('fill="none" stroke="#fffffe" stroke-width="1.5"/>')


def test_what_is_no_rectangle_has_its_plain_colour() -> None:
    drawn = f'<path d="M0,0L5,5L0,5Z" fill="{marker_colour("c")}"/>'
    assert draw_hatches(drawn) == f'<path d="M0,0L5,5L0,5Z" fill="{light("c")}"/>'


def test_a_plain_bar_stays_as_it_is() -> None:
    drawn = f'<path d="M0,0h5v5h-5Z" fill="{light("a")}"/>'
    assert draw_hatches(drawn) == drawn
