"""The response of a sensor from the readings under a known load: pulses, then a fast train.

Readings conserve energy: with s(t) the response to a step of power from 0 to 1, all that a reading
shows too late is tau, the integral of H - s, where H is the step itself. Between two settled
plateaus it follows from the integral of the readings alone, without a shape of the response (see
``response``). Each edge gives one value; their scatter is the uncertainty.

A counter is a series of mean powers between the changes of its count, so that its integral is the
count, interpolated between these changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Counter, Instant, SourceFacts
from wattload.core.record.energy import CalibrationRecord, SensorRecord
from wattload.core.units import NS_PER_S
from wattload.power.energy.profile import Profile, profile_of
from wattload.power.energy.response import declared_response
from wattload.power.energy.trace import MOST_J, Trace, TraceKey

PULSE_COUNT = 8
PULSE_MIN_S = 2.0
LEAST_SETTLED = 1.4
"""A pulse is at least so many times as long as its response, to show the power behind that."""
LONGEST_S = 60.0
"""A calibration that would take longer is not made: the sensor is too slow."""

_GOLDEN = ((math.sqrt(5) - 1) / 2, (3 - math.sqrt(5)) / 2)
TRAIN_S = 5.0
_TRAIN_HZ = 5.0
_TRAIN_DUTY = 0.5
_TRAIN_CLOCKS_S = (1 / 7, 1 / 4)
"""The train has the frequency of an update clock in this range, which shows whether it aliases."""

_SETTLED = 0.02
"""The response has settled when it stays this close to 1, or within its noise."""
_SETTLED_SIGMA = 4.5
_UNSTEADY_MOST = 0.1
"""Power of a drive under a constant load may vary by so much of the jump."""
_SPAN = 1.5
"""The response is integrated for so many settling times, for what is left of it then."""
_SETTLED_SHARE = 0.75
"""The rest of each plateau must be settled, to know its power."""
_NEW_READS = 1.5
"""Readings that change after fewer reads than this are new at every read."""
_RESPONSE_SIGMA = 5.0
_LEAST_JUMP = 0.5
"""Each step of power is at least this share of their mean: the load is the same in all pulses."""
_CHANGES_MIN = 8

Floats = NDArray[np.float64]
Times = tuple[tuple[float, float], ...]
"""Start and end of each interval of load, in seconds."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The averaged response to a step: ``share`` is the mean over ``step_s`` from each time.

    ``noise`` is its standard deviation where it has settled, by the scatter of the steps.
    """

    time_s: Floats
    share: Floats
    step_s: float
    noise: float

    @property
    def unsteady(self) -> float:
        """The standard deviation of the last quarter: what all steps have in common there."""
        return float(self.share[-max(1, self.share.size // 4) :].std())

    @property
    def drift(self) -> float:
        """The mean of the last quarter less that of the one before."""
        count = max(1, self.share.size // 4)
        return float(self.share[-count:].mean() - self.share[-2 * count : -count].mean())


def pulse_times(window_s: float, update_s: float) -> tuple[Times, Times] | None:
    """Return pulses and a train; ``None`` if a sensor is too slow for those of a minute.

    Times are in seconds from the start of a calibration, which begins and ends with a pause. Each
    pulse and each pause is twice as long as the response, or as long as a minute allows. Their
    edges meet the update clock of ``update_s`` (> 0) at many phases: they are the golden ratio of
    it beyond a multiple, or else by so much shorter than one that all phases are evenly spaced.
    """
    settle_s = window_s + update_s
    base_s = max(PULSE_MIN_S, 2 * settle_s)
    length_s = min(
        update_s * (max(0, math.ceil(base_s / update_s - part)) + part) for part in _GOLDEN
    )
    most_s = (LONGEST_S - TRAIN_S - settle_s) / (2 * PULSE_COUNT + 1)
    if length_s > most_s:
        length_s = update_s * (math.floor(most_s / update_s) - 1 / (2 * PULSE_COUNT))
    if length_s < LEAST_SETTLED * settle_s:
        return None
    pulses = tuple(
        ((2 * number + 1) * length_s, (2 * number + 2) * length_s) for number in range(PULSE_COUNT)
    )
    start_s = (2 * PULSE_COUNT + 1) * length_s
    least_s, most_s = _TRAIN_CLOCKS_S
    cycle_s = update_s if least_s <= update_s <= most_s else 1 / _TRAIN_HZ
    train = tuple(
        (start_s + number * cycle_s, start_s + (number + _TRAIN_DUTY) * cycle_s)
        for number in range(round(TRAIN_S / cycle_s))
    )
    return pulses, train


def declared_sensor(facts: SourceFacts, seen_s: float = 0.0, reason: str = "") -> SensorRecord:
    """Return the sensor of a source as declared; ``reason`` is why it was not calibrated.

    ``seen_s`` is the time between updates by its readings, used if none is declared.
    """
    declared_s = getattr(facts.sensor, "update_period_s", 0.0)
    update_s = seen_s if declared_s is None else declared_s
    # A count is taken at the reads that see it change, so at most a read late.
    held_s = min(update_s, facts.period_s) if isinstance(facts.sensor, Counter) else update_s
    response = declared_response(facts.sensor, held_s, facts.period_s)
    # A wrong phase of the update clock or a wrong time of a read: each is equally distributed.
    tau_s = math.hypot(update_s, facts.period_s) / math.sqrt(12)
    return SensorRecord(
        basis="declared",
        reason=reason,
        tau_s=response.tau_s,
        tau_uncertainty_s=2 * tau_s,
        kappa_s=response.kappa_s,
        kappa_uncertainty_s=2 * tau_s,
        settle_s=response.settle_s,
        update_s=update_s,
        noise_w=0.0,
        step_w=facts.resolution_w or 0.0,
        declared_tau_s=response.tau_s,
    )


def calibrate(record: CalibrationRecord, facts: SourceFacts) -> SensorRecord:
    """Return the sensor of a source from its readings under the pulses of a calibration.

    Readings that do not show a response, or not all of it, leave the sensor as declared, with the
    reason.
    """
    readings = _Readings.of(record, facts)
    seen_s, jitter_s = readings.clock()
    update_s = seen_s or 0.0
    declared = declared_sensor(facts, update_s)
    observed: dict[str, object] = {
        "update_s": update_s,
        "jitter_s": jitter_s,
        "step_w": readings.step_w(),
    }
    edges = _edges(record, readings, max(3 * readings.period_s, 2 * update_s))
    rise_count = sum(edge.is_rise for edge in edges)
    count = min(rise_count, len(edges) - rise_count)
    if count < PULSE_COUNT:
        reason = f"not calibrated: readings are complete for {count} of {PULSE_COUNT} pulses"
        return declared.model_copy(update={"reason": reason})
    if readings.time_s.size < _CHANGES_MIN or seen_s is None:
        # Readings that seldom change can't show which load they are of.
        reason = "not calibrated: the readings hardly change under the load"
        return declared.model_copy(update={"reason": reason})

    length_s = min(edge.length_s for edge in edges)
    rough = _Pulses.of(readings, edges, length_s / 2)
    if not rough.jump_w > _RESPONSE_SIGMA * rough.unsure_w:
        observed["noise_w"] = rough.noise_w
        reason = "not calibrated: the readings do not respond to the pulses of the load"
        # A slow mean does not follow pulses, but rises under all of them.
        responds = None if _rises(readings, edges, rough.noise_w, update_s) else False
        return declared.model_copy(update={**observed, "reason": reason, "responds": responds})

    observed["responds"] = True
    if min(step.jump_w for step in rough.steps) < _LEAST_JUMP * rough.jump_w:
        reason = "not calibrated: the pulses differ in power"
        return declared.model_copy(update={**observed, "reason": reason})
    curves = [_curve(readings, rough.steps_of(is_rise=up)) for up in (True, False)]
    limits = [
        max(_SETTLED, _SETTLED_SIGMA * curve.noise, min(3 * curve.unsteady, _UNSTEADY_MOST))
        for curve in curves
    ]
    limit = max(limits)
    settle_s = max(map(_settle_s, curves, limits))
    has_settled = all(abs(curve.drift) <= limit for curve in curves)
    if not has_settled or settle_s > _SETTLED_SHARE * length_s:
        reason = f"not calibrated: the readings do not settle within {length_s:.2g} s"
        return declared.model_copy(update={**observed, "reason": reason})

    span_s = min(_SPAN * settle_s, _SETTLED_SHARE * length_s)
    pulses = _Pulses.of(readings, edges, span_s)
    read_s = readings.period_s / math.sqrt(12)
    rise_s, fall_s = (
        np.array([span_s - step.shown_s(readings, span_s) for step in pulses.steps_of(is_rise=up)])
        for up in (True, False)
    )
    later_s = float(fall_s.mean() - rise_s.mean())
    agree = abs(later_s) <= math.hypot(
        _expanded(rise_s, read_s / math.sqrt(rise_s.size)),
        _expanded(fall_s, read_s / math.sqrt(fall_s.size)),
    )
    delays_s = np.concatenate((rise_s, fall_s)) if agree else rise_s
    tau_s = float(delays_s.mean())
    steps = pulses.steps if agree else pulses.steps_of(is_rise=True)
    kappas_s = np.array([step.shown_s(readings, tau_s) for step in steps])
    fall_later_s = 0.0 if agree else later_s
    # What is left of the response after the span, if it falls exponentially; and where readings are
    # held, reads find updates at a phase of their own.
    left = limit ** (span_s / settle_s) if settle_s else 0.0
    common_s = math.hypot(left * span_s, read_s if update_s else 0.0)
    share, share_uncertainty = _train_share(
        record,
        readings,
        pulses,
        settle_s=settle_s,
        each_s=max(update_s, readings.period_s),
        fall_later_s=fall_later_s,
    )
    return declared.model_copy(
        update={
            **observed,
            "basis": "calibrated",
            "tau_s": tau_s,
            "tau_uncertainty_s": _expanded(delays_s, common_s),
            "kappa_s": max(0.0, float(kappas_s.mean())),
            "kappa_uncertainty_s": _expanded(kappas_s, common_s / 2),
            "settle_s": settle_s,
            "noise_w": pulses.noise_w,
            "fall_later_s": fall_later_s,
            "train_share": share,
            "train_share_uncertainty": share_uncertainty,
        }
    )


def response_curve(record: CalibrationRecord, facts: SourceFacts) -> Curve | None:
    """Return the response to a rise of the load, averaged over all pulses; ``None`` without one."""
    readings = _Readings.of(record, facts)
    edges = [edge for edge in _edges(record, readings, math.inf) if edge.is_rise]
    steps = [_Step.of(readings, edge, edge.length_s / 2) for edge in edges]
    if not steps or min(step.jump_w for step in steps) <= 0:
        return None
    return _curve(readings, steps)


@dataclass(frozen=True, slots=True)
class _Readings:
    """Readings as their energy is integrated, at the times in s of those that are updates.

    ``value_w`` is the power there: as read, and for a counter the mean since the time before.
    ``read_s`` are the times of all reads that succeeded, usually ``period_s`` apart.
    """

    profile: Profile
    time_s: Floats
    value_w: Floats
    read_s: Floats
    period_s: float

    @classmethod
    def of(cls, record: CalibrationRecord, facts: SourceFacts) -> _Readings:
        values = np.array([np.nan if each is None else each for each in record.values], np.float64)
        time_ns, first = np.unique(np.array(record.time_ns, np.int64), return_index=True)
        value = values[first]
        value[~(np.abs(value) <= MOST_J)] = np.nan
        trace = Trace.from_columns(
            TraceKey(facts.name, facts.device, facts.figure_channel),
            time_ns,
            np.zeros_like(time_ns),
            value,
            np.zeros(time_ns.size, np.int8),
        )
        # A declared window plays no part: the readings show how long the mean is.
        sensor = facts.sensor if isinstance(facts.sensor, Counter) else Instant()
        profile = profile_of(trace, sensor, period_s=facts.period_s)
        read_s = time_ns[~np.isnan(value)] / NS_PER_S
        period_s = float(np.median(np.diff(read_s))) if read_s.size > 1 else facts.period_s
        return cls(profile, profile.end_ns / NS_PER_S, profile.end_w, read_s, period_s)

    def until(self, time_s: Floats | float) -> Floats:
        """Return the integral of the readings in J up to some times."""
        time_ns = np.rint(np.atleast_1d(time_s) * NS_PER_S).astype(np.int64)
        return self.profile.cumulative(time_ns.ravel())[0].reshape(np.shape(time_s))

    def read_before(self, time_s: float) -> float:
        """Return the time of the last read up to a time, or of the first one."""
        at = int(np.searchsorted(self.time_s, time_s, "right")) - 1
        return float(self.time_s[max(at, 0)])

    def clock(self) -> tuple[float | None, float]:
        """Return the time between updates (0: each read) and its standard deviation in seconds.

        It is ``None`` if readings do not change at regular times.
        """
        changed_s = self.time_s[1:][np.diff(self.value_w) != 0]
        if changed_s.size < _CHANGES_MIN:
            return None, 0.0
        between_s = np.diff(changed_s)
        usual_s = float(np.median(between_s))
        if usual_s < _NEW_READS * self.period_s:
            return 0.0, 0.0
        regular_s = between_s[np.abs(between_s - usual_s) < usual_s / 2]
        if 2 * regular_s.size < between_s.size:
            return None, 0.0
        # A change is seen up to a read late.
        jitter_s2 = float(regular_s.var()) - self.period_s**2 / 6
        return float(regular_s.mean()), math.sqrt(max(jitter_s2, 0.0))

    def step_w(self) -> float:
        """Return the least difference of two successive readings that differ, 0 without any."""
        steps_w = np.abs(np.diff(self.value_w))
        return float(steps_w[steps_w > 0].min()) if steps_w.any() else 0.0


@dataclass(frozen=True, slots=True)
class _Edge:
    """A change of the load at ``at_s``, between those before and after it, in seconds."""

    before_s: float
    at_s: float
    after_s: float
    is_rise: bool

    @property
    def length_s(self) -> float:
        return min(self.at_s - self.before_s, self.after_s - self.at_s)


def _edges(record: CalibrationRecord, readings: _Readings, longest_gap_s: float) -> list[_Edge]:
    """Return the edges of the pulses around which readings are complete."""
    changes_s = [moment / NS_PER_S for pulse in record.pulses for moment in pulse]
    if len(changes_s) <= 2 or not readings.time_s.size:  # noqa: PLR2004 - pulses with a pause
        return []
    pause_s = min(on - off for off, on in zip(changes_s[1::2], changes_s[2::2], strict=False))
    end_s = record.train[0][0] / NS_PER_S if record.train else changes_s[-1] + pause_s
    times_s = [changes_s[0] - pause_s, *changes_s, end_s]
    edges = [
        _Edge(before_s, at_s, after_s, is_rise=index % 2 == 0)
        for index, (before_s, at_s, after_s) in enumerate(
            zip(times_s, times_s[1:], times_s[2:], strict=False)
        )
    ]
    return [edge for edge in edges if edge.length_s > 0 and _is_read(readings, edge, longest_gap_s)]


def _is_read(readings: _Readings, edge: _Edge, longest_gap_s: float) -> bool:
    first, last = np.searchsorted(readings.read_s, (edge.before_s, edge.after_s))
    read_s = np.concatenate(([edge.before_s], readings.read_s[first:last], [edge.after_s]))
    return bool(np.diff(read_s).max() <= longest_gap_s)


@dataclass(frozen=True, slots=True)
class _Step:
    """An edge with the settled power before and after it."""

    edge: _Edge
    before_w: float
    after_w: float

    @classmethod
    def of(cls, readings: _Readings, edge: _Edge, span_s: float) -> _Step:
        """Return the step of an edge; power has settled ``span_s`` after each change."""
        levels_w = []
        for start_s, next_s in ((edge.before_s, edge.at_s), (edge.at_s, edge.after_s)):
            end_s = readings.read_before(next_s)
            first_s = min(start_s + span_s, (start_s + end_s) / 2 + span_s / 2)
            ends_j = readings.until(np.array([first_s, end_s]))
            levels_w.append(float(np.diff(ends_j)[0]) / max(end_s - first_s, 1e-9))
        return cls(edge, *levels_w)

    @property
    def jump_w(self) -> float:
        """The rise of power by the load."""
        return (self.after_w - self.before_w) * (1 if self.edge.is_rise else -1)

    def shown_s(self, readings: _Readings, until_s: float) -> float:
        """Return the integral of the response up to a time after the edge.

        It begins at the last read before the edge, as the line to the next one is not of a time
        before it.
        """
        from_s = readings.read_before(self.edge.at_s)
        to_s = self.edge.at_s + until_s
        read_j = float(readings.until(to_s)) - float(readings.until(from_s))
        return (read_j - self.before_w * (to_s - from_s)) / (self.after_w - self.before_w)


@dataclass(frozen=True, slots=True)
class _Pulses:
    """The steps of all pulses, if power settles ``span_s`` after each of them.

    ``noise_w`` is the standard deviation of a settled update, and ``unsure_w`` that of the jump.
    """

    steps: Sequence[_Step]
    noise_w: float
    jump_w: float
    unsure_w: float

    @classmethod
    def of(cls, readings: _Readings, edges: Sequence[_Edge], span_s: float) -> _Pulses:
        steps = [_Step.of(readings, edge, span_s) for edge in edges]
        jumps_w = np.array([step.jump_w for step in steps])
        plateaus = [
            readings.value_w[
                slice(*np.searchsorted(readings.time_s, (edge.at_s + span_s, edge.after_s)))
            ]
            for edge in edges
        ]
        deviations_w = np.concatenate(
            [np.empty(0), *(each - each.mean() for each in plateaus if each.size)]
        )
        noise_w = float(deviations_w.std()) if deviations_w.size else 0.0
        unsure_w = max(
            noise_w / math.sqrt(max(1, deviations_w.size)),
            float(jumps_w.std()) / math.sqrt(jumps_w.size),
        )
        return cls(steps, noise_w, float(jumps_w.mean()), unsure_w)

    def steps_of(self, *, is_rise: bool) -> Sequence[_Step]:
        return [step for step in self.steps if step.edge.is_rise is is_rise]


def _rises(readings: _Readings, edges: Sequence[_Edge], noise_w: float, update_s: float) -> bool:
    """Return whether power in the later half of the pulses is above that before them."""
    first, middle, last = edges[0], edges[len(edges) // 2], edges[-1]
    spans_s = np.array([[first.at_s - first.length_s / 2, first.at_s], [middle.at_s, last.after_s]])
    before_w, amid_w = (np.diff(readings.until(spans_s)) / np.diff(spans_s))[:, 0]
    count = max(1.0, first.length_s / 2 / max(update_s, readings.period_s))
    return bool(amid_w - before_w > _RESPONSE_SIGMA * noise_w / math.sqrt(count))


def _curve(readings: _Readings, steps: Sequence[_Step]) -> Curve:
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
    return Curve(
        time_s=grid_s[:-1],
        share=np.mean(shares, axis=0),
        step_s=step_s,
        noise=math.sqrt(float(np.mean(spread**2)) / len(steps)) if spread.size else 0.0,
    )


def _settle_s(curve: Curve, limit: float) -> float:
    """Return the time after which the response stays within ``limit`` of 1."""
    unsettled = np.flatnonzero(np.abs(curve.share - 1) > limit)
    return float(curve.time_s[unsettled[-1]]) + curve.step_s if unsettled.size else 0.0


def _expanded(seconds: Floats, common_s: float) -> float:
    """Return the uncertainty of a mean (k = 2): its scatter, and a part common to all values."""
    return 2 * math.hypot(float(seconds.std(ddof=1)) / math.sqrt(seconds.size), common_s)


def _train_share(
    record: CalibrationRecord,
    readings: _Readings,
    pulses: _Pulses,
    *,
    settle_s: float,
    each_s: float,
    fall_later_s: float,
) -> tuple[float | None, float | None]:
    """Return the mean share of the jump that the train shows, less its duty, and its uncertainty.

    Both are ``None`` if the train was not read. ``each_s`` is the time between two updates.
    """
    if not record.train:
        return None, None
    start_s, last_s = record.train[0][0] / NS_PER_S, record.train[-1][1] / NS_PER_S
    end_s, train_s = last_s + settle_s, last_s - start_s
    if readings.read_s[-1] < end_s:
        return None, None
    from_s = readings.read_before(start_s)
    offs_w = [step.before_w if step.edge.is_rise else step.after_w for step in pulses.steps]
    shown_j = float(readings.until(end_s)) - float(readings.until(from_s))
    shown_j -= float(np.mean(offs_w)) * (end_s - from_s)
    on_s = sum(end_ns - start_ns for start_ns, end_ns in record.train) / NS_PER_S
    # Updates are independent; the train may begin and end at any phase of them.
    random_s = math.hypot(
        pulses.noise_w / pulses.jump_w * math.sqrt(train_s * each_s),
        pulses.unsure_w / pulses.jump_w * train_s,
        each_s / math.sqrt(6),
    )
    unsure_s = 2 * random_s + len(record.train) * abs(fall_later_s)
    return (shown_j / pulses.jump_w - on_s) / train_s, unsure_s / train_s
