"""Thinning a line to what its chart can show: the extremes of every column of pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Places = NDArray[np.int64]

COLUMNS = 820
"""Columns of pixels of a chart over time."""

POINT_LIMIT = 3 * COLUMNS + 2
"""The most points of one drawn series: each column's least, most and hole, and the two ends."""


def thin(
    time_s: Array, value: Array, span_s: tuple[float, float], columns: int = COLUMNS
) -> Places:
    """Return the places of the samples that a chart ``columns`` pixels wide has to draw.

    Of each column of pixels that holds samples the least, the most and the first hole are kept, and
    the line's two ends: the chart looks as it would with every sample. Means would hide the stalls
    and peaks that a reader looks for.

    Args:
        time_s: shape (n,), not falling.
        value: shape (n,), NaN for a hole.
        span_s: what the axis shows; samples beyond it fall into its outermost columns.
        columns: at most ``COLUMNS``.

    Returns:
        Indices, shape (m,), ``POINT_LIMIT`` at most, in order.
    """
    if time_s.size <= columns:
        return np.arange(time_s.size)
    edges = np.linspace(*span_s, columns + 1)[1:-1]
    starts = np.unique(np.concatenate(([0], np.searchsorted(time_s, edges))))
    starts = starts[starts < time_s.size]
    lengths = np.diff(starts, append=time_s.size)
    keep = [np.array([0, time_s.size - 1])]
    for extreme in (np.fmin, np.fmax):
        of_column = np.repeat(extreme.reduceat(value, starts), lengths)
        keep.append(_firsts(value == of_column, starts))
    keep.append(_firsts(np.isnan(value), starts))
    return np.unique(np.concatenate(keep))


def _firsts(marked: NDArray[np.bool_], starts: Places) -> Places:
    """Return the first marked place of each stretch that has one."""
    places = np.flatnonzero(marked)
    stretch = np.searchsorted(starts, places, side="right")
    return places[np.unique(stretch, return_index=True)[1]]
