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
from dataclasses import dataclass
from typing import NamedTuple

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
_RIPPLE_LEAST = 3
_GAP_SHARE = 1 / 3
"""Readings are complete around an edge if no gap is longer than this share of the load's length
there, or than a few reads: what a gap hides of the response varies from edge to edge."""
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
            known = {
                "reason": found.reason,
                "responds": found.responds,
                "scatter_s": found.scatter_s,
                "fall_later_s": late_s,
            }
            declared = declared.model_copy(update=known)
    return declared


def calibrate(record: CalibrationRecord, facts: SourceFacts) -> SensorRecord:
    """Return the sensor of a source from its readings under the pulses of a calibration.

    Readings that do not show a response, or not all of it, leave the sensor as declared, with the
    reason.
    """
    readings = Readings.of(record, facts)
    # The clock is as the readings show it, whatever is declared.
    update_s, jitter_s = clock(Instant(), readings.time_ns, readings.value)
    edges = _edges(record, readings, max(3 * readings.period_s, 2 * update_s))
    length_s = min((edge.length_s for edge in edges), default=0.0)
    sensor = declared_sensor(facts, readings.profile)

    def refused(reason: str, *, responds: bool | None) -> SensorRecord:
        why = f"not calibrated: {reason}"
        return sensor.model_copy(update={"reason": why, "responds": responds})

    is_rise = np.array([edge.is_rise for edge in edges], np.bool_)
    if (count := min(is_rise.sum(), (~is_rise).sum())) < PULSE_COUNT:
        reason = f"readings are complete for {count} of {PULSE_COUNT} pulses"
        return refused(reason, responds=None)
    if np.count_nonzero(np.diff(readings.value)) < CHANGES_MIN:
        # Readings that seldom change can't show which load they are of.
        return refused("the readings hardly change under the load", responds=None)

    steps = [_Step.of(readings, edge, length_s / 2) for edge in edges]
    jump_w, unsure_w = _jump(steps)
    rise_w, rise_unsure_w = _rise(readings, edges, sensor.noise_w, update_s)
    most_w = max(jump_w + _MOST_SIGMA * unsure_w, rise_w + _MOST_SIGMA * rise_unsure_w)
    sensor = sensor.model_copy(update={"jump_w": jump_w, "jump_most_w": most_w})
    if not jump_w > _RESPONSE_SIGMA * unsure_w:
        # A slow mean does not follow pulses, but rises under all of them.
        is_slow = rise_w > _RESPONSE_SIGMA * rise_unsure_w
        reason = "the readings do not respond to the pulses of the load"
        return refused(reason, responds=None if is_slow else False)
    if min(step.jump_w for step in steps) < _LEAST_JUMP * jump_w:
        return refused("the pulses differ in power", responds=True)
    rises, falls = ([each for each in steps if each.edge.is_rise is up] for up in (True, False))
    settling = zip(*(_settling(_curve(readings, each)) for each in (rises, falls)), strict=True)
    limit, settle_s = map(max, settling)
    span_s = min(_SPAN * settle_s, _SETTLED_SHARE * length_s)
    steps = [_Step.of(readings, edge, span_s) for edge in edges]
    delays_s = np.array([span_s - step.shown_s(readings, span_s) for step in steps])
    rises_s, falls_s = delays_s[is_rise], delays_s[~is_rise]
    scatter_s = math.hypot(rises_s.std(ddof=1), falls_s.std(ddof=1)) / math.sqrt(2)
    # The standard deviation of Student's t, as it is known from few edges.
    scatter_s *= math.sqrt((len(steps) - 2) / (len(steps) - 4))
    if settle_s > _SETTLED_SHARE * length_s:
        sensor = sensor.model_copy(update={"scatter_s": scatter_s})
        return refused(f"the readings do not settle within {length_s:.2g} s", responds=True)

    # What is left of the response after the span, if it falls exponentially; and where readings are
    # held, reads find updates at a phase of their own.
    left = limit ** (span_s / settle_s) if settle_s else 0.0
    read_s = readings.period_s / math.sqrt(12)
    common_s = math.hypot(left * span_s, read_s if update_s else 0.0)
    fall_later_s = float(falls_s.mean() - rises_s.mean())
    unsure_s = (_expanded(each, read_s / math.sqrt(each.size)) for each in (rises_s, falls_s))
    agree = abs(fall_later_s) <= math.hypot(*unsure_s)
    used = is_rise | agree
    tau_s = float(delays_s[used].mean())
    kappas_s = np.array([step.shown_s(readings, tau_s) for step in steps])[used]
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
        "scatter_s": scatter_s,
        "update_s": update_s,
        "jitter_s": jitter_s,
        "noise_w": _noise_w(readings.profile, edges, span_s),
        "fall_later_s": 0.0 if agree else fall_later_s,
    }
    train = _train(sensor.model_copy(update=known), record, readings, steps)
    if train and not isinstance(facts.sensor, Counter):
        known["train_ripple"] = _ripple(sensor.model_copy(update=known), record, readings, steps)
    reason = "the readings end before the fast train of the load does"
    return sensor.model_copy(update={**known, **train}) if train else refused(reason, responds=True)


def response_curve(record: CalibrationRecord, facts: SourceFacts) -> Curve | None:
    """Return the response to a rise of the load, averaged over all pulses; ``None`` without one."""
    readings = Readings.of(record, facts)
    edges = [edge for edge in _edges(record, readings, math.inf) if edge.is_rise]
    steps = [_Step.of(readings, edge, edge.length_s / 2) for edge in edges]
    return _curve(readings, steps) if steps and min(each.jump_w for each in steps) > 0 else None


@dataclass(frozen=True, slots=True)
class Readings:
    """The reads of a calibration that succeeded, and the profile that its energy is integrated of.

    ``value`` is as read, in W, or in J for a counter; ``period_s`` is the usual time between reads.
    """

    profile: Profile
    time_ns: NDArray[np.int64]
    value: Floats
    period_s: float

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
        time_ns = trace.time_ns[known]
        return cls(profile, time_ns, trace.value[known], usual_s(time_ns) or facts.period_s)

    def until(self, time_s: Floats | float) -> Floats:
        """Return the integral of the readings in J up to some times."""
        time_ns = np.rint(np.atleast_1d(time_s) * NS_PER_S).astype(np.int64)
        return self.profile.cumulative(time_ns.ravel())[0].reshape(np.shape(time_s))

    def between(self, start_s: float, end_s: float) -> float:
        """Return the integral of the readings in J from one time to another."""
        return float(self.until(end_s) - self.until(start_s))

    def before(self, time_s: float) -> float:
        """Return the time of the last update up to a time, or of the first one."""
        time_ns = self.profile.end_ns
        at = int(np.searchsorted(time_ns, time_s * NS_PER_S, "right")) - 1
        return float(time_ns[max(at, 0)]) / NS_PER_S


class _Edge(NamedTuple):
    """A change of the load at ``at_s``, between those before and after it, in seconds."""

    before_s: float
    at_s: float
    after_s: float
    is_rise: bool

    @property
    def length_s(self) -> float:
        return min(self.at_s - self.before_s, self.after_s - self.at_s)


def _edges(record: CalibrationRecord, readings: Readings, longest_gap_s: float) -> list[_Edge]:
    """Return the edges of the pulses around which readings are complete."""
    changes_s = np.array(record.pulses).ravel() / NS_PER_S
    if len(record.pulses) <= 1 or not readings.profile.end_ns.size:
        return []
    pause_s = np.diff(changes_s)[1::2].min()
    end_s = record.train[0][0] / NS_PER_S if record.train else changes_s[-1] + pause_s
    times_s = [changes_s[0] - pause_s, *changes_s, end_s]
    edges, reads_s = [], readings.time_ns / NS_PER_S
    for index in range(len(times_s) - 2):
        before_s, at_s, after_s = map(float, times_s[index : index + 3])
        first, last = np.searchsorted(reads_s, (before_s, after_s))
        read_s = np.concatenate(([before_s], reads_s[first:last], [after_s]))
        edge = _Edge(before_s, at_s, after_s, index % 2 == 0)
        most_s = max(longest_gap_s, _GAP_SHARE * edge.length_s)
        if edge.length_s > 0 and np.diff(read_s).max() <= most_s:
            edges.append(edge)
    return edges


class _Step(NamedTuple):
    """An edge with the settled power before and after it."""

    edge: _Edge
    before_w: float
    after_w: float

    @classmethod
    def of(cls, readings: Readings, edge: _Edge, span_s: float) -> _Step:
        """Return the step of an edge; power has settled ``span_s`` after each change."""
        levels_w = []
        for start_s, next_s in ((edge.before_s, edge.at_s), (edge.at_s, edge.after_s)):
            end_s = readings.before(next_s)
            first_s = min(start_s + span_s, (start_s + end_s) / 2 + span_s / 2)
            levels_w.append(readings.between(first_s, end_s) / max(end_s - first_s, 1e-9))
        return cls(edge, *levels_w)

    @property
    def jump_w(self) -> float:
        """The rise of power by the load."""
        return (self.after_w - self.before_w) * (1 if self.edge.is_rise else -1)

    def shown_s(self, readings: Readings, until_s: float) -> float:
        """Return the integral of the response up to a time after the edge.

        It begins at the last read before the edge, as the line to the next one is not of a time
        before it.
        """
        from_s, to_s = readings.before(self.edge.at_s), self.edge.at_s + until_s
        shown_j = readings.between(from_s, to_s) - self.before_w * (to_s - from_s)
        return shown_j / (self.after_w - self.before_w)


def _jump(steps: Sequence[_Step]) -> tuple[float, float]:
    """Return the mean rise of power by the load and its standard deviation, by their scatter."""
    jumps_w = np.array([step.jump_w for step in steps])
    return float(jumps_w.mean()), float(jumps_w.std(ddof=1)) / math.sqrt(jumps_w.size)


def _noise_w(profile: Profile, edges: Sequence[_Edge], span_s: float) -> float:
    """Return the standard deviation of settled updates from the mean of their plateau."""
    ends_ns = np.array([(edge.at_s + span_s, edge.after_s) for edge in edges]) * NS_PER_S
    ends = np.searchsorted(profile.end_ns, ends_ns).tolist()
    plateaus = [profile.end_w[first:last] for first, last in ends]
    deviations_w = [plateau - plateau.mean() for plateau in plateaus if plateau.size]
    return float(np.concatenate(deviations_w).std()) if deviations_w else 0.0


def _rise(
    readings: Readings, edges: Sequence[_Edge], noise_w: float, update_s: float
) -> tuple[float, float]:
    """Return the step of power if all pulses are one mean, and its standard deviation.

    It is twice the rise of the mean from before them to their later half, as half the time is load.
    """
    first, middle, last = edges[0], edges[len(edges) // 2], edges[-1]
    half_s, amid_s = first.length_s / 2, last.after_s - middle.at_s
    before_w = readings.between(first.at_s - half_s, first.at_s) / half_s
    rise_w = readings.between(middle.at_s, last.after_s) / amid_s - before_w
    count = max(1.0, half_s / max(update_s, readings.period_s))
    return 2 * rise_w, 2 * noise_w / math.sqrt(count)


def _curve(readings: Readings, steps: Sequence[_Step]) -> Curve:
    """Return the mean response of some steps, each of weight 1."""
    step_s = readings.period_s
    length_s = min(step.edge.length_s for step in steps)
    # The line to the first reading after the next edge belongs to that one.
    grid_s: Floats = np.arange(max(2, int(length_s / step_s)), dtype=np.float64) * step_s
    shares = [
        (np.diff(readings.until(step.edge.at_s + grid_s)) / step_s - step.before_w)
        / (step.after_w - step.before_w)
        for step in steps
    ]
    spread = np.std(shares, axis=0)[grid_s.size // 2 :]
    noise = math.sqrt(float(np.mean(spread**2)) / len(steps)) if spread.size else 0.0
    return Curve(time_s=grid_s[:-1], share=np.mean(shares, axis=0), step_s=step_s, noise=noise)


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


def _expanded(seconds: Floats, common_s: float) -> float:
    """Return the uncertainty of a mean (k = 2): its scatter, and a part common to all values."""
    own_s = float(seconds.std(ddof=1)) / math.sqrt(seconds.size)
    return COVERAGE_FACTOR * math.hypot(own_s, common_s)


def _train(
    sensor: SensorRecord, record: CalibrationRecord, readings: Readings, steps: Sequence[_Step]
) -> dict[str, float]:
    """Return the share of the jump that the train shows less its duty; empty if it is not read."""
    train = np.array(record.train).reshape(-1, 2) / NS_PER_S
    end_s = float(train.max(initial=0.0)) + sensor.settle_s
    if not train.size or readings.time_ns[-1] < end_s * NS_PER_S:
        return {}
    start_s, train_s, on_s = float(train[0, 0]), float(np.ptp(train)), float(np.diff(train).sum())
    jump_w, unsure_w = _jump(steps)
    from_s = readings.before(start_s)
    shown_s = (readings.between(from_s, end_s) - _off_w(steps) * (end_s - from_s)) / jump_w
    # Updates are independent; the train may begin and end at any phase of them.
    each_s = max(sensor.update_s, readings.period_s)
    random_s = math.hypot(
        sensor.noise_w / jump_w * math.sqrt(train_s * each_s),
        unsure_w / jump_w * train_s,
        each_s / math.sqrt(6),
    )
    return {
        "train_share": (shown_s - on_s) / train_s,
        "train_share_uncertainty": COVERAGE_FACTOR * random_s / train_s,
    }


def _ripple(
    sensor: SensorRecord, record: CalibrationRecord, readings: Readings, steps: Sequence[_Step]
) -> float | None:
    """Return how far readings of the train are from its duty as a share of the jump (RMS).

    A mean hardly differs from it, whatever its phase; samples of moments show load or none, half of
    the jump away. Readings that are as fast as the train's pulses show these, so ``None``.
    """
    train = np.array(record.train).reshape(-1, 2) / NS_PER_S
    start_s, train_s, on_s = float(train[0, 0]), float(np.ptp(train)), float(np.diff(train).sum())
    jump_w, _ = _jump(steps)
    if max(sensor.update_s, readings.period_s) <= _FAST_SHARE * train_s / len(train):
        return None
    # Where readings settle late, the train's last ones come after its end.
    edges_s = np.array((start_s + sensor.settle_s, start_s + train_s + sensor.tau_s / 2))
    time_ns, watts = readings.profile.end_ns, readings.profile.end_w
    first, last = np.searchsorted(time_ns, edges_s * NS_PER_S).tolist()
    if last - first < _RIPPLE_LEAST:
        return None
    apart = (watts[first:last] - _off_w(steps)) / jump_w - on_s / train_s
    return math.sqrt(max(0.0, float(np.mean(apart**2)) - (sensor.noise_w / jump_w) ** 2))


def _off_w(steps: Sequence[_Step]) -> float:
    """Return the power without load."""
    return float(np.mean([min(step.before_w, step.after_w) for step in steps]))
