"""How power varied in a phase: peaks of moving means, a percentile and a histogram.

A peak must not be an estimate, so all figures are of readings or of means of successive readings.
Only the time that a reading depends on comes from the response of the sensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattload.core.power import Boxcar, Counter, PowerBin, SourceFacts
from wattload.core.record.energy import PowerStatistics, SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import Window
from wattload.power.energy.profile import Profile
from wattload.power.energy.response import Response
from wattload.power.energy.sensor import usual_s
from wattload.power.energy.trace import Times, Trace, ValueOrReason, Values, fields_of

PEAKS_S: Mapping[str, float] = {"peak_100ms_w": 0.1, "peak_1s_w": 1.0}
"""Each peak of the record with the length of its moving mean."""
LENGTH_TOLERANCE = 0.1
"""A mean over a time that differs by this share counts as a mean over a given time."""
SPAN_TOLERANCE = 0.15
"""The same for one mean of several readings, whose times vary: of ten, one may be missing."""
POINTS_MIN = 10
"""So many readings that leave time out, or updates of a counter, make a mean of its window."""
P99 = 0.99
P99_READINGS_MIN = 100
BINS_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Readings:
    """Readings of power in time order; all arrays have shape (n,).

    Reading i depends on the power from ``start_ns[i]`` to ``end_ns[i]`` only; ``weight`` is the
    length of a counter's mean, else 1. Readings are ``step_s`` apart, and the time of one adjoins
    that of the reading ``stride`` later, or comes before it. ``window_s`` is what a reading
    averages (0: a moment), ``resolution_s`` the shortest time whose mean the readings show.
    """

    start_ns: Times
    end_ns: Times
    watts: Values
    weight: Values
    step_s: float
    stride: int
    window_s: float
    resolution_s: float

    @classmethod
    def of_watts(cls, trace: Trace, facts: SourceFacts, sensor: SensorRecord) -> Readings:
        """Return the readings of a trace of watts; failed ones are left out."""
        known = ~np.isnan(trace.value)
        time_ns, watts = trace.time_ns[known], trace.value[known]
        step_s = usual_s(time_ns)
        window_s = facts.sensor.window_s if isinstance(facts.sensor, Boxcar) else 0.0
        if sensor.basis == "calibrated":
            window_s = Response.of(sensor).window_s(sensor.update_s, step_s)
        apart_s = max(step_s, sensor.update_s, window_s)
        first_ns, last_ns = _reach_ns(sensor)
        return cls(
            start_ns=time_ns - first_ns,
            end_ns=time_ns - last_ns,
            watts=watts,
            weight=np.ones(watts.size),
            step_s=step_s,
            stride=max(1, round(apart_s / step_s)) if step_s else 1,
            window_s=window_s,
            resolution_s=window_s,
        )

    @classmethod
    def of_counter(cls, means: Profile, facts: SourceFacts, sensor: SensorRecord) -> Readings:
        """Return the mean powers between the counts of a counter.

        A count is up to an update period late and rounded to a quantum. Over ``POINTS_MIN`` of
        either, both together change a mean by at most 20 %, and as a rule by far less.
        """
        seconds = (means.end_ns - means.start_ns) / NS_PER_S
        step_s = float(np.median(seconds)) if seconds.size else 0.0
        coarse_s = 0.0
        if isinstance(facts.sensor, Counter) and seconds.size:
            mean_w = float(np.average(means.start_w, weights=seconds))
            unit_s = facts.sensor.quantum_j / mean_w if mean_w > 0 else math.inf
            coarse_s = POINTS_MIN * max(facts.sensor.update_period_s, unit_s)
        first_ns, last_ns = _reach_ns(sensor)
        return cls(
            start_ns=means.start_ns - first_ns,
            end_ns=means.end_ns - last_ns,
            watts=means.start_w,
            weight=seconds,
            step_s=step_s,
            stride=1,
            window_s=step_s,
            resolution_s=max(step_s, coarse_s),
        )

    @property
    def spacing_s(self) -> float:
        return self.stride * self.step_s

    def unresolved(self, length_s: float) -> str:
        """Return why the readings don't show means over a time; empty if they do."""
        if not self.step_s:
            return "there are too few readings"
        # Windows that adjoin leave no time out; moments and short windows sample it.
        is_gapless = self.window_s > 0 and self.window_s >= (1 - LENGTH_TOLERANCE) * self.spacing_s
        finest_s = self.resolution_s if is_gapless else POINTS_MIN * self.spacing_s
        if length_s < (1 - LENGTH_TOLERANCE) * finest_s:
            return f"its readings resolve {_text_s(finest_s)}"
        adjoined_s = max(1, round(length_s / self.spacing_s)) * self.spacing_s
        if abs(adjoined_s - length_s) > LENGTH_TOLERANCE * length_s:
            return f"its means over {_text_s(self.spacing_s)} don't make {_text_s(length_s)}"
        return ""

    def means(self, length_s: float, windows: Sequence[Window]) -> Values:
        """Return the moving means over a time that depend on the power in some windows only.

        Each is the mean of successive readings whose windows adjoin, weighted by length. Those
        with a missing reading are left out.
        """
        count = max(1, round(length_s / self.spacing_s)) if self.spacing_s else 1
        reach = (count - 1) * self.stride
        if self.watts.size <= reach:
            return self.watts[:0]
        watts = self.watts
        if count > 1:
            joules = _sums(self.watts * self.weight, count, self.stride)
            watts = joules / _sums(self.weight, count, self.stride)
        start_ns, end_ns = self.start_ns[: watts.size], self.end_ns[reach:]
        own_s = float(np.median(self.end_ns - self.start_ns)) / NS_PER_S
        excess_s = (end_ns - start_ns) / NS_PER_S - reach * self.step_s - own_s
        from_ns, to_ns = np.array(windows, dtype=np.int64).T
        at = np.searchsorted(from_ns, start_ns, "right") - 1
        is_inside = (at >= 0) & (end_ns <= to_ns[np.maximum(at, 0)])
        inside: Values = watts[is_inside & (np.abs(excess_s) <= SPAN_TOLERANCE * length_s)]
        return inside


def power_statistics(
    readings: Readings, facts: SourceFacts, windows: Sequence[Window]
) -> PowerStatistics:
    """Return the statistics of the power in the windows of a phase; see ``PowerStatistics``."""
    watts = readings.means(readings.resolution_s, windows)
    none = "no reading is of the time within an interval of the phase alone"
    peaks = {name: _peak_w(readings, length_s, windows) for name, length_s in PEAKS_S.items()}
    short, long = peaks["peak_100ms_w"], peaks["peak_1s_w"]
    if short[0] is not None and long[0] is not None:
        # It is lower if a reading is missing where power was high: only long means allow for that.
        peaks["peak_100ms_w"] = max(short[0], long[0]), ""
    p99: ValueOrReason = None, none
    if watts.size >= P99_READINGS_MIN:
        p99 = float(np.quantile(watts, P99, method="inverted_cdf")), ""
    elif watts.size:
        needs = f"a 99th percentile needs {P99_READINGS_MIN}"
        p99 = None, f"there are {watts.size} readings; {needs}"
    bins, bin_w = _histogram(watts, facts.resolution_w or 0.0)
    figures: dict[str, tuple[Any, str]] = {**peaks, "p99_w": p99, "bin_w": (bin_w, none)}
    return PowerStatistics(
        resolution_s=readings.resolution_s,
        reading_count=int(watts.size),
        histogram=bins,
        **fields_of(figures),
    )


def _reach_ns(sensor: SensorRecord) -> tuple[int, int]:
    """Return how long before a reading the time that it depends on begins and ends.

    The response of a mean is symmetrical about ``tau_s``. One with a long end begins at once.
    """
    unsure_s = sensor.tau_uncertainty_s
    last_s = max(0.0, 2 * sensor.tau_s - sensor.settle_s - unsure_s)
    return round((sensor.settle_s + unsure_s) * NS_PER_S), round(last_s * NS_PER_S)


def _peak_w(readings: Readings, length_s: float, windows: Sequence[Window]) -> ValueOrReason:
    reason = readings.unresolved(length_s)
    if reason:
        return None, reason
    inside = readings.means(length_s, windows)
    if not inside.size:
        return None, f"no mean over {_text_s(length_s)} lies within an interval of the phase"
    return float(inside.max()), ""


def _histogram(watts: Values, resolution_w: float) -> tuple[tuple[PowerBin, ...], float | None]:
    """Return at most ``BINS_MAX`` + 1 bins, whose width is 1, 2 or 5 times a power of ten."""
    if not watts.size:
        return (), None
    least, most = float(watts.min()), float(watts.max())
    width = max((most - least) / BINS_MAX, resolution_w, max(abs(least), abs(most)) * 1e-6, 1e-6)
    decade = 10.0 ** math.floor(math.log10(width))
    bin_w = float(next(f"{s * decade:.0e}" for s in (1, 2, 5, 10) if s * decade >= width * 0.999))
    index = np.floor(watts / bin_w + 1e-9).astype(np.int64)
    counts = np.bincount(index - index.min())
    first = int(index.min())
    return tuple(
        PowerBin(lower_w=round((first + at) * bin_w, 9), count=int(count))
        for at, count in enumerate(counts)
    ), bin_w


def _sums(values: Values, count: int, stride: int) -> Values:
    """Return the sums of ``count`` values ``stride`` apart, by the first, shape (n - reach,)."""
    table = np.append(values, np.zeros(-values.size % stride)).reshape(-1, stride)
    total = np.vstack((np.zeros((1, stride)), np.cumsum(table, axis=0)))
    sums: Values = (total[count:] - total[:-count]).ravel()
    return sums[: values.size - (count - 1) * stride]


def _text_s(seconds: float) -> str:
    rounded_s = float(f"{seconds:.3g}")
    return f"{rounded_s:g} s" if rounded_s >= 1 else f"{1e3 * rounded_s:g} ms"
