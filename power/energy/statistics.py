"""How power varied in a phase: peaks of moving means, percentile, histogram, slew, and drift.

The energy model estimates how power varied within a window of the sensor. A peak must not be an
estimate, so all figures here are of readings or of means of successive readings. From the model
they use only the lag and the window, which give the time that a reading depends on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Boxcar, Counter, Instant, PowerBin, SourceFacts
from wattload.core.record.energy import PowerStatistics, SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import Window
from wattload.power.energy.profile import Profile
from wattload.power.energy.trace import Times, Trace, ValueOrReason, Values, fields_of

PEAKS_S: Mapping[str, float] = {"peak_100us_w": 1e-4, "peak_100ms_w": 0.1, "peak_1s_w": 1.0}
"""Each peak of the record with the length of its moving mean."""
LENGTH_TOLERANCE = 0.1
"""A mean over a time that differs by this share counts as a mean over a given time."""
SPAN_TOLERANCE = 0.15
"""The same for one mean of several readings, whose times vary: of ten, one may be missing."""
POINTS_MIN = 10
"""So many readings that leave time out, or updates of a counter, make a mean of its window."""
RC_REACH = 3.0
"""95 % of a filtered reading comes from this many time constants."""
P99 = 0.99
P99_READINGS_MIN = 100
FIFTHS = 5
FIFTHS_READINGS_MIN = 50
BINS_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Readings:
    """Readings of power in time order; all arrays have shape (n,).

    Reading i depends on the power from ``start_ns[i]`` to ``end_ns[i]`` only, without the lag and
    with the lag's uncertainty: a reading that may be of the time before a phase is not of it.
    ``weight`` is its length for the mean of a counter, else 1. Readings are ``step_s`` apart, those
    whose windows adjoin ``stride`` readings. ``window_s`` is what one averages (0: a moment), and
    ``resolution_s`` the shortest time whose mean they show. ``is_gapless``: windows that adjoin
    leave no time out. ``reason`` says why no mean can be formed of them, if so.
    """

    start_ns: Times
    end_ns: Times
    watts: Values
    weight: Values
    step_s: float
    stride: int
    window_s: float
    resolution_s: float
    is_gapless: bool
    reason: str = ""

    @classmethod
    def of_watts(cls, trace: Trace, facts: SourceFacts, found: SensorRecord | None) -> Readings:
        """Return the readings of a trace of watts; failed ones are left out."""
        known = ~np.isnan(trace.value)
        time_ns, watts = trace.time_ns[known], trace.value[known]
        sensor = facts.sensor
        held_s = (sensor.update_period_s or 0.0) if isinstance(sensor, Boxcar | Instant) else 0.0
        shape, window_s = "instant", 0.0
        if isinstance(sensor, Boxcar):
            shape, window_s = "boxcar", sensor.window_s
        if found is not None and found.is_known:
            shape, window_s = found.shape, found.window_s
        step_s = _usual_s(time_ns)
        spacing_s = max(step_s, held_s, window_s if shape == "boxcar" else 0.0)
        reach_s = held_s + window_s * (RC_REACH if shape == "rc" else 1.0)
        late_ns, unsure_ns = _late_ns(found)
        return cls(
            start_ns=time_ns - late_ns - unsure_ns - round(reach_s * NS_PER_S),
            end_ns=time_ns - late_ns + unsure_ns,
            watts=watts,
            weight=np.ones(watts.size),
            step_s=step_s,
            stride=max(1, round(spacing_s / step_s)) if step_s else 1,
            window_s=window_s,
            resolution_s=window_s,
            is_gapless=shape == "boxcar" and window_s >= (1 - LENGTH_TOLERANCE) * spacing_s,
            reason=_contradicted(found),
        )

    @classmethod
    def of_counter(cls, means: Profile, facts: SourceFacts, found: SensorRecord | None) -> Readings:
        """Return the mean powers between the counts of a counter.

        A count is up to an update period late and rounded to a quantum. Over ``POINTS_MIN`` of
        either, both together change a mean by at most 20 %, and as a rule by far less.
        """
        late_ns, unsure_ns = _late_ns(found)
        seconds = (means.end_ns - means.start_ns) / NS_PER_S
        step_s = float(np.median(seconds)) if seconds.size else 0.0
        coarse_s = 0.0
        if isinstance(facts.sensor, Counter) and seconds.size:
            mean_w = float(np.average(means.start_w, weights=seconds))
            unit_s = facts.sensor.quantum_j / mean_w if mean_w > 0 else math.inf
            coarse_s = POINTS_MIN * max(facts.sensor.update_period_s, unit_s)
        return cls(
            start_ns=means.start_ns - late_ns - unsure_ns,
            end_ns=means.end_ns - late_ns + unsure_ns,
            watts=means.start_w,
            weight=seconds,
            step_s=step_s,
            stride=1,
            window_s=step_s,
            resolution_s=max(step_s, coarse_s),
            is_gapless=True,
            reason=_contradicted(found),
        )

    @property
    def spacing_s(self) -> float:
        return max(self.window_s if self.is_gapless else 0.0, self.stride * self.step_s)

    def unresolved(self, length_s: float) -> str:
        """Return why the readings don't show means over a time; empty if they do."""
        if self.reason or not self.step_s:
            return self.reason or "there are too few readings"
        if length_s < (1 - LENGTH_TOLERANCE) * self.resolution_s:
            return f"its readings resolve {_text_s(self.resolution_s)}"
        if self.is_gapless:
            adjoined_s = self._count(length_s) * self.spacing_s
            if abs(adjoined_s - length_s) > LENGTH_TOLERANCE * length_s:
                return f"its means over {_text_s(self.spacing_s)} don't make {_text_s(length_s)}"
        else:
            apart_s = max(self.spacing_s, self.window_s)
            if length_s < (1 - LENGTH_TOLERANCE) * POINTS_MIN * apart_s:
                kind = "looks back over" if self.window_s > self.spacing_s else "is read every"
                needs = f"a mean over {_text_s(length_s)} needs a {POINTS_MIN}th"
                return f"it {kind} {_text_s(apart_s)}; {needs}"
        return ""

    def means(self, length_s: float) -> Readings:
        """Return the moving means over a time that the readings resolve, one per reading.

        Each is the mean of successive readings whose windows adjoin, weighted by length. Those
        with a missing reading are left out.
        """
        count = max(1, self._count(length_s))
        reach = (count - 1) * self.stride
        if self.watts.size <= reach:
            return self.only(np.zeros(self.watts.size, np.bool_))
        watts, weight = self.watts, self.weight
        if count > 1:
            weight = _sums(self.weight, count, self.stride)
            watts = _sums(self.watts * self.weight, count, self.stride) / weight
        whole = self._part(
            slice(None, self.watts.size - reach), slice(reach, None), watts, weight, length_s
        )
        own_s = float(np.median(self.end_ns - self.start_ns)) / NS_PER_S
        expected_s = (count - 1) * self.stride * self.step_s + own_s
        span_s = (whole.end_ns - whole.start_ns) / NS_PER_S
        return whole.only(np.abs(span_s - expected_s) <= SPAN_TOLERANCE * length_s)

    def between(self, start_ns: int, end_ns: int) -> Readings:
        """Return the readings that depend on the power between two times only."""
        first = int(np.searchsorted(self.start_ns, start_ns))
        part = slice(first, max(first, int(np.searchsorted(self.end_ns, end_ns, "right"))))
        return self._part(part, part, self.watts[part], self.weight[part], self.resolution_s)

    def within(self, windows: Sequence[Window]) -> Readings:
        """Return the readings that depend on the power in one of some windows only."""
        return self.only(_is_within(self.start_ns, self.end_ns, windows))

    def only(self, which: NDArray[np.bool_]) -> Readings:
        part = np.flatnonzero(which)
        return self._part(part, part, self.watts[part], self.weight[part], self.resolution_s)

    def _part(
        self,
        first: slice | NDArray[np.intp],
        last: slice | NDArray[np.intp],
        watts: Values,
        weight: Values,
        resolution_s: float,
    ) -> Readings:
        return replace(
            self,
            start_ns=self.start_ns[first],
            end_ns=self.end_ns[last],
            watts=watts,
            weight=weight,
            resolution_s=resolution_s,
        )

    def _count(self, length_s: float) -> int:
        return round(length_s / self.spacing_s) if self.spacing_s else 1


def power_statistics(
    readings: Readings, facts: SourceFacts, peaks: Trace | None, windows: Sequence[Window]
) -> PowerStatistics:
    """Return the statistics of the power in the windows of a phase; see ``PowerStatistics``.

    ``peaks`` are peaks of means over 100 µs that the meter's own readings show, one for each
    ``facts.period_s``, timed at its middle.
    """
    readings = readings.between(windows[0][0], windows[-1][1])
    own = readings.means(readings.resolution_s)
    inside = own.within(windows)
    watts, seconds = inside.watts, sum(end_ns - start_ns for start_ns, end_ns in windows) / NS_PER_S
    none = readings.reason or "no reading is of the time within an interval of the phase alone"
    few = none if not watts.size else f"there are {watts.size} readings; "
    figures: dict[str, tuple[Any, str]] = {
        name: _peak(readings, length_s, windows) for name, length_s in PEAKS_S.items()
    }
    if peaks is not None:
        half_ns = round(facts.period_s / 2 * NS_PER_S)
        found = peaks.value[
            _is_within(peaks.time_ns - half_ns, peaks.time_ns + half_ns, windows)
            & ~np.isnan(peaks.value)
        ]
        figures["peak_100us_w"] = (float(found.max()), "") if found.size else (None, none)
    _raise(figures)
    figures["p99_w"] = (
        (float(np.quantile(watts, P99, method="inverted_cdf")), "")
        if watts.size >= P99_READINGS_MIN
        else (None, few + (f"a 99th percentile needs {P99_READINGS_MIN}" if watts.size else ""))
    )
    slew, over_s = _slew(own, windows)
    figures["slew_w_per_s"] = slew
    figures["slew_over_s"] = (None if slew[0] is None else over_s, slew[1])
    fifths, why = None, ""
    if watts.size < FIFTHS_READINGS_MIN:
        why = few + (f"fifths need {FIFTHS_READINGS_MIN}" if watts.size else "")
    elif seconds < 2 * FIFTHS * readings.resolution_s:
        why = f"a fifth of the phase is too short for means over {_text_s(readings.resolution_s)}"
    else:
        fifths = tuple(float(part.mean()) for part in np.array_split(watts, FIFTHS))
    bins, bin_w = _histogram(watts, facts.resolution_w or 0.0)
    figures |= {"fifths_w": (fifths, why), "bin_w": (bin_w, none)}
    return PowerStatistics(
        resolution_s=readings.resolution_s,
        reading_count=int(watts.size),
        histogram=bins,
        **fields_of(figures),
    )


def _raise(peaks: dict[str, tuple[Any, str]]) -> None:
    """Raise each peak to at least those over longer times.

    It is lower if a reading is missing where power was high: only long means allow for that.
    """
    longest_w = -math.inf
    for name in sorted(PEAKS_S, key=PEAKS_S.__getitem__, reverse=True):
        watts = peaks[name][0]
        if watts is not None:
            longest_w = max(longest_w, watts)
            peaks[name] = (longest_w, "")


def _peak(readings: Readings, length_s: float, windows: Sequence[Window]) -> ValueOrReason:
    reason = readings.unresolved(length_s)
    if reason:
        return None, reason
    inside = readings.means(length_s).within(windows)
    if not inside.watts.size:
        return None, f"no mean over {_text_s(length_s)} lies within an interval of the phase"
    return float(inside.watts.max()), ""


def _slew(own: Readings, windows: Sequence[Window]) -> tuple[ValueOrReason, float]:
    """Return the largest change between two means that adjoin, in W/s, and the time between."""
    step_s = own.step_s
    apart = max(own.stride, round(own.resolution_s / step_s)) if step_s else 1
    over_s = apart * step_s
    none = own.reason or "no two successive readings lie within an interval of the phase"
    if own.watts.size <= apart:
        return (None, none), over_s
    seconds = (own.end_ns[apart:] - own.end_ns[:-apart]) / NS_PER_S
    which = _is_within(own.start_ns[:-apart], own.end_ns[apart:], windows)
    which &= (seconds > 0) & (np.abs(seconds - over_s) <= over_s / 2)
    if not which.any():
        return (None, none), over_s
    change_w = np.abs(own.watts[apart:] - own.watts[:-apart])
    return (float((change_w[which] / seconds[which]).max()), ""), over_s


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


def _is_within(start_ns: Times, end_ns: Times, windows: Sequence[Window]) -> NDArray[np.bool_]:
    """Return which intervals lie wholly in one of some windows, which are in order of time."""
    from_ns = np.array([window[0] for window in windows], dtype=np.int64)
    to_ns = np.array([window[1] for window in windows], dtype=np.int64)
    at = np.searchsorted(from_ns, start_ns, "right") - 1
    which: NDArray[np.bool_] = (at >= 0) & (end_ns <= to_ns[np.maximum(at, 0)])
    return which


def _usual_s(time_ns: Times) -> float:
    return float(np.median(np.diff(time_ns))) / NS_PER_S if time_ns.size > 1 else 0.0


def _late_ns(found: SensorRecord | None) -> tuple[int, int]:
    """Return the lag that was found and its uncertainty; 0 if it is unknown."""
    if found is None or not found.is_known:
        return 0, 0
    return round(found.lag_s * NS_PER_S), round(found.lag_uncertainty_s * NS_PER_S)


def _contradicted(found: SensorRecord | None) -> str:
    if found is None or found.is_explained:
        return ""
    return "no sensor explains its readings, so their time is unknown"


def _text_s(seconds: float) -> str:
    rounded_s = float(f"{seconds:.3g}")
    scale, unit = next(
        (each for each in ((1, "s"), (1e3, "ms")) if rounded_s * each[0] >= 1), (1e6, "µs")
    )
    return f"{rounded_s * scale:.3g} {unit}"
