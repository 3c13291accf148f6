"""Throughput and power over time: what is drawn, and how lines are thinned."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.record_power import PowerKind
from tests.records import Scenario
from tests.reports.conftest import one
from wattload.core.power import Channel
from wattload.reports.charts.themes import light
from wattload.reports.charts.timeline import (
    COLUMNS,
    POINT_LIMIT,
    Places,
    Samples,
    thin,
    timeline_figure,
)
from wattload.reports.runs.timeline import Timeline, make_timeline
from wattload.reports.runs.traces import PowerTrace, Signal


def _columns(time_s: Samples, span_s: tuple[float, float]) -> Places:
    """Return the column of pixels that each sample falls into, by division and no search."""
    start_s, end_s = span_s
    place = np.floor((time_s - start_s) / (end_s - start_s) * COLUMNS).astype(np.int64)
    return np.clip(place, 0, COLUMNS - 1)


def _assert_columns_keep_their_extremes(
    time_s: Samples, value: Samples, span_s: tuple[float, float]
) -> None:
    kept = thin(time_s, value, span_s)
    assert kept.size <= POINT_LIMIT
    assert (np.diff(kept) > 0).all()
    column = _columns(time_s, span_s)
    for extreme in (np.fmin, np.fmax):
        before, after = np.full((2, COLUMNS), np.nan)
        extreme.at(before, column, value)
        extreme.at(after, column[kept], value[kept])
        np.testing.assert_array_equal(after, before)
    holes = set(column[np.isnan(value)].tolist())
    assert set(column[kept][np.isnan(value[kept])].tolist()) == holes


VALUES = st.one_of(st.floats(0, 1e9), st.just(float("nan")), st.sampled_from([0.0, 7.0]))


@settings(deadline=None)
@given(arrays(np.float64, st.integers(1, 4 * COLUMNS), elements=VALUES, fill=st.just(5.0)))
def test_every_column_of_pixels_keeps_its_least_its_most_and_a_hole(value: Samples) -> None:
    # Moments lie a quarter of a column from the columns' edges, where rounding decides nothing.
    time_s = np.arange(value.size, dtype=np.float64) + 0.25
    _assert_columns_keep_their_extremes(time_s, value, (0.0, 2.0 * COLUMNS))


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.0, 0.9))
def test_columns_keep_their_extremes_where_samples_are_uneven(seed: int, share: float) -> None:
    random = np.random.default_rng(seed)
    moments = np.sort(random.choice(40 * COLUMNS, size=6 * COLUMNS, replace=False))
    time_s = moments.astype(np.float64) + 0.5
    value = random.lognormal(size=time_s.size)
    value[random.random(time_s.size) < share] = np.nan
    _assert_columns_keep_their_extremes(time_s, value, (0.0, 40.0 * COLUMNS))


def test_a_day_at_ten_hertz_keeps_a_single_stall_and_a_single_peak() -> None:
    time_s = np.arange(864_000) / 10
    value = np.full(time_s.size, 1.5e9)
    value[654_321], value[654_322] = 0.0, 9e9
    kept = thin(time_s, value, (0.0, 86_400.0))
    assert kept.size <= POINT_LIMIT <= 4000
    assert {654_321, 654_322} <= set(kept.tolist())


def test_both_ends_of_a_line_are_kept_so_that_its_area_closes() -> None:
    value = np.concatenate(([0.0], np.linspace(5.0, 9.0, 10_000), [0.0]))
    kept = thin(np.arange(value.size, dtype=float), value, (0.0, 10_001.0))
    assert (kept[0], kept[-1]) == (0, value.size - 1)


def test_few_samples_and_none_are_all_kept() -> None:
    short = np.arange(COLUMNS, dtype=float)
    assert thin(short, short, (0.0, 1.0)).tolist() == list(range(COLUMNS))
    assert thin(short[:0], short[:0], (0.0, 1.0)).size == 0


def test_samples_beyond_the_axis_are_kept_in_its_outermost_columns() -> None:
    time_s = np.arange(10 * COLUMNS, dtype=float)
    value = np.zeros(time_s.size)
    value[3] = 4.0
    assert 3 in thin(time_s, value, (5000.0, 6000.0))


def test_a_line_of_holes_keeps_one_for_each_column() -> None:
    value = np.full(10 * COLUMNS, np.nan)
    kept = thin(np.arange(value.size, dtype=float), value, (0.0, float(value.size)))
    assert COLUMNS <= kept.size <= COLUMNS + 2


def test_a_narrower_chart_has_fewer_points_and_the_same_extremes() -> None:
    value = np.random.default_rng(2).lognormal(size=50_000)
    kept = thin(np.arange(value.size, dtype=float), value, (0.0, 50_000.0), 100)
    assert kept.size <= 302
    assert (value[kept].min(), value[kept].max()) == (value.min(), value.max())


def test_throughput_and_power_share_the_time_axis(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="a", seconds=3.0, power="measured", virtual=False))
    figure = timeline_figure("c", "unet3d", make_timeline(run))
    assert figure is not None
    assert "Throughput, GB/s" in figure.svg
    assert "Power, W" in figure.svg
    assert figure.svg.count("seconds since the first phase began") == 1
    assert figure.svg.count(">train<") == 1
    assert [role for role, _ in figure.legend] == ["read", "write", "device", "power"]


def test_the_table_of_a_timeline_holds_means_that_agree_with_the_bytes(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="a", seconds=20.0, power="measured", virtual=False))
    figure = timeline_figure("c", "unet3d", make_timeline(run))
    assert figure is not None
    assert len(figure.table.rows) == 24
    busy = [float(row[1].text) for row in figure.table.rows[10:20]]
    assert sum(busy) / len(busy) == pytest.approx(1.5, rel=0.1)


def test_a_hole_in_the_power_is_a_hole_in_the_line(tmp_path: Path) -> None:
    import numpy as np

    run = one(tmp_path, Scenario(run_id="a", seconds=3.0, power="measured", virtual=False))
    timeline = make_timeline(run)
    (line,) = timeline.watts
    value = line.value.copy()
    value[40:45] = np.nan

    def moves(timeline: Timeline) -> int:
        figure = timeline_figure("c", "x", timeline)
        assert figure is not None
        return sum(
            path.count("M")
            for path in re.findall(r'<path d="([^"]*)"[^>]*' + light("power"), figure.svg)
        )

    broken = replace(timeline, watts=(replace(line, value=value),))
    assert moves(broken) == moves(timeline) + 1


def test_nothing_to_draw_is_no_chart() -> None:
    empty = Timeline(strips=(), rates=(), watts=(), bands=(), start_s=0.0, end_s=1.0)
    assert timeline_figure("c", "x", empty) is None


def test_a_long_name_is_shortened_to_its_strip(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="a", seconds=30.0))
    figure = timeline_figure("c", "unet3d", make_timeline(run))
    assert figure is not None
    assert "warm…" in figure.svg or "war…" in figure.svg


@pytest.mark.parametrize(
    ("power", "words"),
    [
        ("measured", "measured by a meter or a rail sensor"),
        ("bounds", "bounds from power states, not measured"),
        ("declared", "declared in a data sheet or by the user, not measured"),
    ],
)
def test_the_legend_names_the_evidence_of_power(
    tmp_path: Path, power: PowerKind, words: str
) -> None:
    run = one(tmp_path, Scenario(run_id="run-a", seconds=3.0, power=power, virtual=False))
    figure = timeline_figure("n", "s", make_timeline(run))
    assert figure is not None
    assert any(text.endswith(f": {words}") for _, text in figure.legend)


@pytest.mark.parametrize(
    ("power", "words"),
    [
        ("bounds", "bounds on the drive's power from its power states"),
        (
            "declared",
            "the watts declared for the drive by a data sheet or the user",
        ),
    ],
)
def test_the_caption_says_where_the_watts_are_from(
    tmp_path: Path, power: PowerKind, words: str
) -> None:
    run = one(tmp_path, Scenario(run_id="run-a", seconds=3.0, power=power, virtual=False))
    figure = timeline_figure("n", "s", make_timeline(run))
    assert figure is not None
    assert words in figure.caption
    assert ("power states" in figure.caption) == (power == "bounds")


def test_a_day_of_power_is_a_page_of_points(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="run-a", seconds=3.0, power="measured", virtual=False))
    source = run.record.power.sources[0]
    watts = np.random.default_rng(1).normal(9.0, 0.5, 864_000)
    watts[432_100] = 31.0
    signal = Signal(
        source=source.name,
        device=source.device,
        channel=Channel.POWER_W,
        time_ns=np.arange(watts.size) * 100_000_000,
        value=watts,
    )
    day = replace(run, traces=replace(run.traces, power=PowerTrace(signals=(signal,))))
    figure = timeline_figure("n", "s", make_timeline(day))
    assert figure is not None
    longest = max(figure.svg.split("<path"), key=len)
    assert longest.count("L") < POINT_LIMIT <= 4000
    assert len(figure.svg) < 100_000
