"""How power varied in a phase: peaks of moving means, a percentile and a histogram.

A peak must not be an estimate, so all figures are of readings, or of means of successive ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wattload.core.base_models import fields_of
from wattload.core.power import Counter, PowerBin, SourceFacts
from wattload.core.record.energy import PowerStatistics
from wattload.core.units import NS_PER_S
from wattload.power.energy.edges import Edges
from wattload.power.energy.integration import COVERAGE_FACTOR, Window
from wattload.power.energy.profile import Profile
from wattload.power.energy.trace import Values

PEAKS_S: Mapping[str, float] = {"peak_100ms_w": 0.1, "peak_1s_w": 1.0}
"""Each peak of the record with the length of its moving mean."""
LENGTH_TOLERANCE = 0.1
"""A mean over a time that differs by this share counts as a mean over a given time."""
GAP_SHARE = 0.15
"""In a mean, two reads are at most so much of it farther apart than usual."""
POINTS_MIN = 10
"""So many readings that leave time out, or updates of a counter, make a mean of their time."""
P99_READINGS = 100
"""Of fewer, the greatest one would be their 99th percentile."""
BINS_MAX = 30


def power_statistics(
    profile: Profile, edges: Edges, facts: SourceFacts, windows: Sequence[Window]
) -> PowerStatistics:
    """Return the statistics of the power in the windows of a phase; see ``PowerStatistics``.

    ``edges`` are those of the profile, which has holes.
    """
    window_s, finest_s = _resolution(profile, edges, facts)
    resolution_s = finest_s if isinstance(facts.sensor, Counter) else window_s
    watts = _means(profile, edges, resolution_s, window_s, windows)
    figures: dict[str, tuple[Any, str]] = {}
    for name, length_s in PEAKS_S.items():
        means = _means(profile, edges, length_s, window_s, windows)
        reason = f"no mean over {_text_s(length_s)} lies within an interval of the phase"
        if length_s < (1 - LENGTH_TOLERANCE) * finest_s:
            means, reason = watts[:0], f"its readings resolve {_text_s(finest_s)}"
        figures[name] = (float(means.max()), "") if means.size else (None, reason)
    short_w, long_w = (figures[name][0] for name in PEAKS_S)
    if short_w is not None and long_w is not None:
        # It is lower if a reading is missing where power was high: only long means allow for that.
        figures["peak_100ms_w"] = max(short_w, long_w), ""
    p99_w, no_p99 = None, f"there are {watts.size} readings; a 99th percentile needs {P99_READINGS}"
    if watts.size >= P99_READINGS:
        p99_w = float(np.quantile(watts, 0.99, method="inverted_cdf"))
    bins, bin_w = _histogram(watts, facts.resolution_w or 0.0)
    none = "no reading is of the time within an interval of the phase alone"
    figures |= {"p99_w": (p99_w, no_p99 if watts.size else none), "bin_w": (bin_w, none)}
    return PowerStatistics(
        resolution_s=resolution_s,
        reading_count=int(watts.size),
        histogram=bins,
        **fields_of(figures),
    )


def _resolution(profile: Profile, edges: Edges, facts: SourceFacts) -> tuple[float, float]:
    """Return the window of a reading (0: a moment, as of a count), and the shortest mean shown.

    Windows that adjoin leave no time out; moments and short windows sample it. A count is up to an
    update period late and rounded to a quantum. Over ``POINTS_MIN`` of either, both together change
    a mean by at most 20 %, and as a rule by far less.
    """
    if isinstance(facts.sensor, Counter):
        each_s = (profile.end_ns - profile.start_ns) / NS_PER_S
        mean_w = float(np.average(profile.start_w, weights=each_s))
        unit_s = facts.sensor.quantum_j / mean_w if mean_w > 0 else math.inf
        coarse_s = POINTS_MIN * max(facts.sensor.update_period_s, unit_s)
        return 0.0, max(float(np.median(each_s)), coarse_s)
    is_gapless = (1 - LENGTH_TOLERANCE) * edges.spacing_s <= edges.window_s
    return edges.window_s, edges.window_s if is_gapless else POINTS_MIN * edges.spacing_s


def _means(
    profile: Profile,
    edges: Edges,
    length_s: float,
    window_s: float,
    windows: Sequence[Window],
) -> Values:
    """Return means over ``length_s`` that depend on the power in some windows only.

    Readings that are means over ``window_s`` are joined for the rest of that length, without gaps.
    The time that a reading depends on follows from the response: that of a mean is symmetrical
    about ``tau_s``, one with a long end begins at once.
    """
    joined_s, response = length_s - window_s, edges.response
    first_s = response.settle_s + COVERAGE_FACTOR * response.tau_uncertainty_s
    last_ns = round(max(0.0, 2 * response.tau_s - first_s) * NS_PER_S)
    near = slice(*np.searchsorted(profile.end_ns, (windows[0][0], windows[-1][1] + last_ns + 1)))
    end_ns, watts, from_ns = profile.end_ns[near], profile.end_w[near], profile.end_ns[near]
    is_whole = np.ones(end_ns.size, np.bool_)
    if joined_s > LENGTH_TOLERANCE * length_s and end_ns.size:
        each_ns = end_ns - profile.start_ns[near]
        gap_ns = np.median(each_ns) + GAP_SHARE * length_s * NS_PER_S
        joined = Profile(
            start_ns=profile.start_ns[near],
            end_ns=end_ns,
            start_w=profile.start_w[near],
            end_w=watts,
            observed=(each_ns <= gap_ns).astype(np.float64),
        )
        joined_ns = round(joined_s * NS_PER_S)
        from_ns = end_ns - joined_ns
        joules, seconds = np.subtract(joined.cumulative(end_ns), joined.cumulative(from_ns))
        is_whole = seconds > joined_s - 1e-6
        watts = joules * NS_PER_S / joined_ns
    start_ns = from_ns - round(first_s * NS_PER_S)
    starts_ns, ends_ns = np.array(windows, dtype=np.int64).T
    at = np.searchsorted(starts_ns, start_ns, "right") - 1
    is_inside = (at >= 0) & (end_ns - last_ns <= ends_ns[np.maximum(at, 0)])
    inside: Values = watts[is_whole & is_inside]
    return inside


def _histogram(watts: Values, resolution_w: float) -> tuple[tuple[PowerBin, ...], float | None]:
    """Return at most ``BINS_MAX`` + 1 bins, whose width is 1, 2 or 5 times a power of ten."""
    if not watts.size:
        return (), None
    least, most = float(watts.min()), float(watts.max())
    width = max((most - least) / BINS_MAX, resolution_w, max(abs(least), abs(most)) * 1e-6, 1e-6)
    decade = 10.0 ** math.floor(math.log10(width))
    bin_w = float(next(f"{s * decade:.0e}" for s in (1, 2, 5, 10) if s * decade >= width * 0.999))
    index = np.floor(watts / bin_w + 1e-9).astype(np.int64)
    first = int(index.min())
    return tuple(
        PowerBin(lower_w=round((first + at) * bin_w, 9), count=count)
        for at, count in enumerate(np.bincount(index - first).tolist())
    ), bin_w


def _text_s(seconds: float) -> str:
    rounded_s = float(f"{seconds:.3g}")
    return f"{rounded_s:g} s" if rounded_s >= 1 else f"{1e3 * rounded_s:g} ms"
