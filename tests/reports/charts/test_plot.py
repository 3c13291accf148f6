"""The kit that charts are drawn with: ticks, places, and markup that stays text."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattload.reports.charts.plot import (
    MARKS_MAX,
    Axis,
    Frame,
    Labels,
    log_ticks,
    round_ticks,
    second_axis,
    thin_marks,
)

HOSTILE = "</text><script>alert(1)</script>\"'&\x07"


@given(st.floats(min_value=1e-42, max_value=1e40))
def test_ticks_are_round_begin_at_zero_and_end_within_the_axis(largest: float) -> None:
    found = round_ticks(0.0, largest)
    assert found[0] == 0
    assert 3 <= len(found) <= 7
    assert found == sorted(set(found))
    assert found[-1] <= largest * 1.001


@given(st.floats(1e-9, 1e9), st.floats(1.6, 1e6))
def test_logarithmic_ticks_are_inside_and_more_than_one(low: float, factor: float) -> None:
    found = log_ticks(low, low * factor)
    assert found
    assert all(low <= tick <= low * factor for tick in found)


def frame() -> Frame:
    return Frame(Axis(low=0, high=10, unit="s"), Axis(low=0, high=4, unit="W"), height=100)


def test_a_value_is_drawn_at_its_share_of_both_axes() -> None:
    own = frame()
    own.line([0, 5, 10], [0, 1, 4], "a", "A")
    assert 'd="M0.0 100.0L500.0 75.0L1000.0 0.0"' in own.svg("x")


@given(st.floats(1e-3, 1e9), st.floats(1e-3, 1e6))
def test_a_second_axis_has_round_labels_at_the_lines_of_the_first(high: float, most: float) -> None:
    first = Axis(low=0, high=high)
    second = second_axis(first, most, "W")
    assert second.high >= most * (1 - 1e-9)
    ticks = zip(first.ticks(4), second.ticks(4), strict=True)
    for (value, _), (own, _) in ticks:
        assert second.share(own) == pytest.approx(first.share(value))
        assert float(f"{own:.3g}") == pytest.approx(own)


def test_a_gap_breaks_a_line_and_a_step() -> None:
    own = frame()
    own.line([0, 1, 2, 3], [1, None, 1, 1], "a", "A")
    own.steps(np.array([0.0, 1, 2, 3]), np.array([1.0, np.nan, 2.0]), "b", "B")
    first, second = re.findall(r'<path d="([^"]*)"', own.svg("x"))
    assert first.count("M") == 2
    assert second.count("M") == 2


def test_what_a_script_needs_is_on_the_chart_and_texts_are_words_only() -> None:
    own = Frame(
        Axis(low=0, high=10, unit="s"),
        Axis(low=1, high=100, unit="ms", log=True),
        height=100,
        title=HOSTILE,
    )
    own.line([0, 10], [1, 100], "a", HOSTILE)
    own.mark(5, 10, "a", HOSTILE)
    svg = own.svg(HOSTILE)
    root = ET.fromstring(svg)
    assert root.get("data-x") == "0 10 linear s"
    assert root.get("data-y") == "1 100 log ms"
    assert "<script" not in svg
    assert root.get("aria-label", "").startswith("</text><script>")


def test_of_many_runs_the_lowest_and_the_highest_are_drawn() -> None:
    values = [float(value) for value in range(1000)]
    found = thin_marks(values, float)
    assert len(found) == MARKS_MAX
    assert (found[0], found[-1]) == (0.0, 999.0)


@pytest.mark.parametrize("low", [0.001, 1, 7000])
def test_a_logarithmic_axis_has_equal_ratios_equally_far_apart(low: float) -> None:
    axis = Axis(low=low, high=low * 100, log=True)
    assert axis.share(low * 10) == pytest.approx(0.5)


def test_a_label_that_would_overlap_is_left_out_and_that_is_known() -> None:
    frame = Frame(Axis(low=0, high=100), Axis(low=0, high=100), height=100)
    labels = Labels(frame)
    labels.add(10, 50, "64")
    labels.add(40, 50, "128")
    labels.add(10, 80, "256")
    assert not labels.lacks_some
    labels.add(12, 52, "512")  # beside the first one
    assert labels.lacks_some
    svg = frame.svg("points")
    assert all(f">{name}</text>" in svg for name in ("64", "128", "256"))
    assert ">512</text>" not in svg


def test_given_ticks_are_printed_in_a_larger_unit() -> None:
    axis = Axis(low=1e9, high=5e9, at=(1.2e9, 4.8e9), factor=1e9)
    assert axis.ticks(4) == [(1.2e9, "1.2"), (4.8e9, "4.8")]
