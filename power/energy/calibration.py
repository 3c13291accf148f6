"""The response of a sensor from the readings under a known load: pulses, then a fast train.

Readings conserve energy: with s(t) the response to a step of power from 0 to 1, all that a reading
shows too late is tau, the integral of H - s, where H is the step itself. Between two settled
plateaus it follows from the integral of the readings alone, without a shape of the response (see
``response``). Each edge gives one value; their scatter is the uncertainty. A counter is a series of
mean powers between the changes of its count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Counter, Instant, SourceFacts
from wattload.core.record.energy import CalibrationRecord, SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import COVERAGE_FACTOR, Window
from wattload.power.energy.profile import Profile, profile_of
from wattload.power.energy.sensor import CHANGES_MIN, clock, declared_sensor, usual_s
from wattload.power.energy.trace import Trace, TraceKey, plausible

PULSE_COUNT = 8
PULSE_MIN_S = 2.0

_GAP_SHARE = 0.5
"""Reads that are so much of a pulse apart still show its power; when it began shows in the scatter
of the delays."""
_SETTLED = 0.02
"""The response has settled when it stays this close to 1, or within its noise."""
_SETTLED_SIGMA = 4.5
_UNSTEADY_MOST = 0.1
"""Power of a drive under a constant load may vary by so much of the jump."""
_SPAN = 1.5
"""The response is integrated for so many settling times, for what is left of it then."""
_SETTLED_SHARE = 0.75
"""The rest of each plateau must be settled, to know its power."""
_RESPONSE_SIGMA = 5.0
_MOST_SIGMA = 3.0
"""Noise hides no greater step of power than its mean and so many standard deviations."""
_FAST_SHARE = 0.6
"""Readings whose updates are closer than this share of the train's period follow its pulses."""
_LEAST_JUMP = 0.5
"""Each step of power is at least this share of their mean: the load is the same in all pulses."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """The averaged response to a step: ``share`` is the mean over ``step_s`` from each time.

    ``noise`` is its standard deviation where it has settled, by the scatter of the steps.
    """

    time_s: Floats
    share: Floats
    step_s: float
    noise: float


def sensor_record(
    facts: SourceFacts,
    profile: Profile,
    quiet: Sequence[Window],
    calibrations: Sequence[CalibrationRecord],
) -> SensorRecord:
    """Return the sensor of a source from its latest calibration, else as declared.

    ``profile`` is what it read in the run, ``quiet`` are the times without work.
    """
    declared = declared_sensor(facts, profile, quiet)
    for record in reversed(calibrations):
        if (record.source, record.device) == (facts.name, facts.device):
            found = calibrate(record, facts)
            if found.basis == "calibrated":
                own = {"step_w": declared.step_w, "noise_w": declared.noise_w}
                return found.model_copy(update=own)
            # Readings that should settle at once, but did not under the pulses, may fall late.
            late_s = max(0.0, PULSE_MIN_S - 4 * declared.settle_s) if found.responds else 0.0
            kept = {"reason", "responds", "scatter_s", "jump_w", "jump_most_w", "tau_uncertainty_s"}
            shown = found.model_dump(include=kept)
            declared = declared.model_copy(update=shown | {"fall_later_s": late_s})
    return declared


def calibrate(record: CalibrationRecord, facts: SourceFacts) -> SensorRecord:
    """Return the sensor of a source from its readings under the pulses of a calibration.

    Readings that do not show a response, or not all of it, leave the sensor as declared, with the
    reason.
    """
    readings = Readings.of(record, facts)
    sensor = declared_sensor(facts, readings.profile)
    if not readings.is_complete:
        return _refused(sensor, f"readings are not complete for {PULSE_COUNT} pulses")
    if np.count_nonzero(np.diff(readings.value)) < CHANGES_MIN:
        # Readings that seldom change can't show which load they are of.
        return _refused(sensor, "the readings hardly change under the load")
    jumps_w = readings.jumps_w
    jump_w, unsure_w = _mean(jumps_w)
    # A slow mean does not follow pulses, but rises under all of them, to half of their power.
    drift_w = float(np.ptp(readings.levels_w))
    is_slow = drift_w > _RESPONSE_SIGMA * jumps_w.std()
    most_w = max(jump_w + _MOST_SIGMA * unsure_w, 2 * drift_w if is_slow else 0.0)
    sensor = sensor.model_copy(update={"jump_w": jump_w, "jump_most_w": most_w})
    if not jump_w > _RESPONSE_SIGMA * unsure_w:
        reason = "the readings do not respond to the pulses of the load"
        return _refused(sensor, reason, responds=None if is_slow else False)
    if jumps_w.min() < _LEAST_JUMP * jump_w:
        return _refused(sensor, "the pulses differ in power", responds=True)
    return _calibrated(sensor, record, readings)


def _refused(sensor: SensorRecord, reason: str, *, responds: bool | None = None) -> SensorRecord:
    why = {"reason": f"not calibrated: {reason}", "responds": responds}
    return sensor.model_copy(update=why)


def _calibrated(
    sensor: SensorRecord, record: CalibrationRecord, readings: Readings
) -> SensorRecord:
    """Return a sensor that responds with its delay, if its readings settle."""
    length_s = readings.length_s
    curves = [_curve(readings, first) for first in (0, 1)]
    limit, settle_s = map(max, zip(*map(_settling, curves), strict=True))
    span_s = min(_SPAN * settle_s, _SETTLED_SHARE * length_s)
    readings = readings.settled(span_s)
    delays_s = span_s - readings.shown_s(span_s)
    rises_s, falls_s = delays_s[::2], delays_s[1::2]
    scatter_s = math.hypot(rises_s.std(ddof=1), falls_s.std(ddof=1)) / math.sqrt(2)
    # As it is known from few changes, by the standard deviation of Student's t.
    scatter_s *= math.sqrt((delays_s.size - 2) / (delays_s.size - 4))
    sensor = sensor.model_copy(update={"scatter_s": scatter_s})
    if settle_s > _SETTLED_SHARE * length_s:
        # So much later than declared, at least, so that the declared delay is wrong by as much.
        unlike_s = 2 * abs(float(delays_s.mean()) - sensor.tau_s)
        wide_s = max(sensor.tau_uncertainty_s, unlike_s)
        sensor = sensor.model_copy(update={"tau_uncertainty_s": wide_s})
        reason = f"the readings do not settle within {length_s:.2g} s"
        return _refused(sensor, reason, responds=True)

    # The clock is as the readings show it, whatever is declared.
    update_s, jitter_s = clock(Instant(), readings.time_ns, readings.value)
    # What is left of the response after the span, if it falls exponentially; and where readings are
    # held, reads find updates at a phase of their own.
    left = limit ** (span_s / settle_s) if settle_s else 0.0
    read_s = readings.period_s / math.sqrt(12)
    common_s = math.hypot(left * span_s, read_s if update_s else 0.0)
    fall_later_s = float(falls_s.mean() - rises_s.mean())
    unsure_s = (_expanded(each, read_s / math.sqrt(each.size)) for each in (rises_s, falls_s))
    agree = abs(fall_later_s) <= math.hypot(*unsure_s)
    used = slice(None, None, 1 if agree else 2)
    tau_s = float(delays_s[used].mean())
    kappas_s = readings.shown_s(max(0.0, tau_s))[used]
    known = {
        "basis": "calibrated",
        "reason": "",
        "responds": True,
        "tau_s": tau_s,
        "tau_uncertainty_s": _expanded(delays_s[used], common_s),
        "kappa_s": max(0.0, float(kappas_s.mean())),
        "kappa_uncertainty_s": _expanded(kappas_s, common_s / 2),
        # A symmetric response has settled after twice its delay, whatever noise hides of it.
        "settle_s": max(settle_s, 2 * tau_s + 3 * jitter_s),
        "update_s": update_s,
        "jitter_s": jitter_s,
        "noise_w": readings.noise_w(span_s),
        "fall_later_s": 0.0 if agree else fall_later_s,
    }
    train = _train(sensor.model_copy(update=known), record, readings)
    if train is None:
        reason = "the readings end before the fast train of the load does"
        return _refused(sensor, reason, responds=True)
    return sensor.model_copy(update=known | train)


def response_curve(record: CalibrationRecord, facts: SourceFacts) -> Curve | None:
    """Return the response to a rise of the load, averaged over all pulses; ``None`` without one."""
    readings = Readings.of(record, facts)
    if not readings.is_complete:
        return None
    jump_w, unsure_w = _mean(readings.jumps_w)
    return _curve(readings, 0) if jump_w > _RESPONSE_SIGMA * unsure_w else None


@dataclass(frozen=True, slots=True)
class Readings:
    """The reads of a calibration that succeeded, and the profile that its energy is integrated of.

    ``value`` is as read, in W, or in J for a counter; ``period_s`` is the usual time between reads.
    ``times_s`` (n + 2,) are the n changes of the load by the pulses, rises and falls in turn,
    between the start of the first pause and the end of the last one. ``levels_w`` (n + 1,) is the
    settled power between two of them, if the readings are complete.
    """

    profile: Profile
    time_ns: NDArray[np.int64]
    value: Floats
    period_s: float
    times_s: Floats
    levels_w: Floats

    @classmethod
    def of(cls, record: CalibrationRecord, facts: SourceFacts) -> Readings:
        key = TraceKey(facts.name, facts.device, facts.figure_channel)
        time_ns, value = np.array(record.time_ns, np.int64), np.array(record.values, np.float64)
        none, rank = np.zeros_like(time_ns), np.zeros(time_ns.size, np.int8)
        trace, _ = plausible(Trace.from_columns(key, time_ns, none, value, rank), facts)
        # A declared window plays no part: the readings show how long the mean is.
        sensor = facts.sensor if isinstance(facts.sensor, Counter) else Instant()
        profile = profile_of(trace, sensor, period_s=facts.period_s)
        known = ~np.isnan(trace.value)
        time_ns, value = trace.time_ns[known], trace.value[known]
        times_s = np.array(record.pulses).ravel() / NS_PER_S
        if len(record.pulses) > 1:
            pause_s = np.diff(times_s)[1::2].min()
            end_s = record.train[0][0] / NS_PER_S if record.train else times_s[-1] + pause_s
            times_s = np.concatenate(([times_s[0] - pause_s], times_s, [end_s]))
        period_s = usual_s(time_ns) or facts.period_s
        readings = cls(profile, time_ns, value, period_s, times_s, times_s[1:])
        return readings.settled(readings.length_s / 2) if readings.is_complete else readings

    @property
    def is_complete(self) -> bool:
        """Whether all pulses were read without a long gap."""
        if self.times_s.size <= 2 * PULSE_COUNT or not self.profile.end_ns.size:
            return False
        start_s, end_s = self.times_s[[0, -1]]
        read_s = self.time_ns / NS_PER_S
        inside_s = read_s[(read_s > start_s) & (read_s < end_s)]
        gap_s = np.diff(inside_s, prepend=start_s, append=end_s).max()
        return bool(gap_s <= _GAP_SHARE * self.length_s)

    @property
    def length_s(self) -> float:
        """The shortest time between two changes."""
        return float(np.diff(self.times_s).min())

    @property
    def jumps_w(self) -> Floats:
        """The rise of power by the load, at each change."""
        return np.diff(self.levels_w) * (-1.0) ** np.arange(self.levels_w.size - 1)

    def mean_w(self, start_s: Floats, end_s: Floats) -> Floats:
        """Return the mean of the readings between some times."""
        ends_ns = np.rint(np.stack((start_s, end_s)) * NS_PER_S).astype(np.int64)
        start_j, end_j = self.profile.cumulative(ends_ns)[0]
        mean_w: Floats = (end_j - start_j) / np.maximum(end_s - start_s, 1e-9)
        return mean_w

    def before(self, time_s: Floats) -> Floats:
        """Return the times of the last updates up to some times, or of the first one."""
        updates_s = self.profile.end_ns / NS_PER_S
        before_s: Floats = updates_s[np.maximum(np.searchsorted(updates_s, time_s, "right") - 1, 0)]
        return before_s

    def settled(self, span_s: float) -> Self:
        """Return the readings with the power that has settled ``span_s`` after each change."""
        start_s, end_s = self.times_s[:-1], self.before(self.times_s[1:])
        first_s = np.minimum(start_s + span_s, (start_s + end_s + span_s) / 2)
        return replace(self, levels_w=self.mean_w(first_s, end_s))

    def shown_s(self, until_s: float) -> Floats:
        """Return the integral of the response up to a time after each change.

        It begins at the last read before the change, as the line to the next one is not of a time
        before it.
        """
        at_s = self.times_s[1:-1]
        from_s, to_s = self.before(at_s), at_s + until_s
        shown_w = self.mean_w(from_s, to_s) - self.levels_w[:-1]
        return shown_w * (to_s - from_s) / np.diff(self.levels_w)

    def noise_w(self, span_s: float) -> float:
        """Return the standard deviation of readings that settled ``span_s`` after each change."""
        time_s, watts = self.profile.end_ns / NS_PER_S, self.profile.end_w
        at = np.searchsorted(self.times_s, time_s, "right") - 1
        is_settled = (at >= 0) & (at < self.levels_w.size) & (time_s > self.times_s[at] + span_s)
        return float(np.std(watts[is_settled] - self.levels_w[at[is_settled]]))


def _mean(values: Floats) -> tuple[float, float]:
    """Return a mean and its standard deviation, by the scatter of its values."""
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(values.size)


def _expanded(seconds: Floats, common_s: float) -> float:
    """Return the uncertainty of a mean (k = 2): its scatter, and a part common to all values."""
    return COVERAGE_FACTOR * math.hypot(_mean(seconds)[1], common_s)


def _curve(readings: Readings, first: int) -> Curve:
    """Return the mean response to all rises (``first`` 0) or falls (1), each of weight 1."""
    step_s = readings.period_s
    # The line to the first reading after the next edge belongs to that one.
    grid_s = np.arange(max(1, int(readings.length_s / step_s) - 1), dtype=np.float64) * step_s
    from_s = readings.times_s[1 + first : -1 : 2] + grid_s[:, None]
    watts = readings.mean_w(from_s, from_s + step_s)
    shares = (watts - readings.levels_w[first:-1:2]) / np.diff(readings.levels_w)[first::2]
    noise = math.sqrt(shares.var(axis=1)[grid_s.size // 2 :].mean() / shares.shape[1])
    return Curve(time_s=grid_s, share=shares.mean(axis=1), step_s=step_s, noise=noise)


def _settling(curve: Curve) -> tuple[float, float]:
    """Return how close to 1 a response stays and after which time; never, if it drifts at last."""
    count = max(1, curve.share.size // 4)
    last, previous = curve.share[-count:], curve.share[-2 * count : -count]
    unsteady = min(3 * float(last.std()), _UNSTEADY_MOST)
    limit = max(_SETTLED, _SETTLED_SIGMA * curve.noise, unsteady)
    if abs(float(last.mean() - previous.mean())) > limit:
        return limit, math.inf
    unsettled = np.flatnonzero(np.abs(curve.share - 1) > limit)
    return limit, float(curve.time_s[unsettled[-1]]) + curve.step_s if unsettled.size else 0.0


def _train(
    sensor: SensorRecord, record: CalibrationRecord, readings: Readings
) -> dict[str, float | None] | None:
    """Return what the readings show of the train; ``None`` if they do not reach its end.

    Its mean as a share of the jump, less its duty, is the sum of its edges' delays: it is as
    uncertain as the delays of the pulses scatter. The readings' distance from the duty (RMS) is 0.5
    for samples of moments, and hardly any for a mean, whatever its phase. Those as fast as the
    train's pulses show these: theirs is ``None``.
    """
    train_s = np.array(record.train).reshape(-1, 2) / NS_PER_S
    end_s = np.array(train_s.max(initial=0.0) + sensor.settle_s)
    if not train_s.size or readings.time_ns[-1] < end_s * NS_PER_S:
        return None
    start_s, length_s = train_s[0, 0], float(np.ptp(train_s))
    duty = float(np.diff(train_s).sum()) / length_s
    jump_w, unsure_w = _mean(readings.jumps_w)
    off_w = float(readings.levels_w[::2].mean())
    from_s = readings.before(start_s)
    shown_w = (readings.mean_w(from_s, end_s) - off_w) * (end_s - from_s) / length_s
    each_s, noise = max(sensor.update_s, readings.period_s), sensor.noise_w / jump_w
    unsure = math.hypot(
        noise * math.sqrt(each_s / length_s),  # updates are independent
        unsure_w / jump_w,
        (sensor.scatter_s or 0.0) * math.sqrt(train_s.size) / length_s,
        readings.period_s / math.sqrt(6) / length_s,  # its start and end
    )
    # Where readings settle late, the train's last ones come after its end.
    inside_s = np.array((sensor.settle_s, length_s + sensor.tau_s / 2)) + start_s
    first, last = np.searchsorted(readings.profile.end_ns, inside_s * NS_PER_S).tolist()
    apart = (readings.profile.end_w[first:last] - off_w) / jump_w - duty
    is_slow = each_s > _FAST_SHARE * length_s / len(train_s) and apart.size > 0
    return {
        "train_share": float(shown_w) / jump_w - duty,
        "train_share_uncertainty": COVERAGE_FACTOR * unsure,
        "train_ripple": math.sqrt(max(0.0, float(np.mean(apart**2)) - noise**2))
        if is_slow
        else None,
    }
