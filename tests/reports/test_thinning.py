from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from wattload.reports.thinning import COLUMNS, POINT_LIMIT, Array, Places, thin


def _columns(time_s: Array, span_s: tuple[float, float]) -> Places:
    """Return the column of pixels that each sample falls into, by division and no search."""
    start_s, end_s = span_s
    place = np.floor((time_s - start_s) / (end_s - start_s) * COLUMNS).astype(np.int64)
    return np.clip(place, 0, COLUMNS - 1)


def _assert_columns_keep_their_extremes(
    time_s: Array, value: Array, span_s: tuple[float, float]
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
def test_every_column_of_pixels_keeps_its_least_its_most_and_a_hole(value: Array) -> None:
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
