"""Simulated runs whose energies are known: power over time, read by sensors of many kinds.

A run has an idle time, the work of one or several phases, a rest and another idle time. Power is a
step function on a grid of 1 ms, so that its integral is exact. A sensor keeps its properties, which
are drawn at random, from its calibration to the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tests.power.energy_facts import facts, times_of, window
from tests.power.energy_traces import T0_NS, Floats, ns, trace_of
from wattload.core.power import (
    Accuracy,
    Boxcar,
    Channel,
    Counter,
    Evidence,
    Instant,
    Sensor,
    SourceFacts,
)
from wattload.core.record.energy import CalibrationRecord, EnergyRecord, SensorRecord
from wattload.core.record.phase import PhaseWindow
from wattload.core.units import NS_PER_S
from wattload.power.energy.ledger import EnergyLedger
from wattload.run.pulses import pulse_times

GRID_S, MS = 0.001, NS_PER_S // 1000
BEFORE_S, REST_S, AFTER_S = 60.0, 30.0, 10.0
IDLE_W, WORK_W = 5.0, 14.0
READ_S = 0.1
NOISE_W, RESOLUTION_W = 0.01, 0.001
EXACT = Accuracy(reading_percent=0.0)
Spans = tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Power:
    """Power in watts from ``start_s`` on, each for 1 ms; constant before and after."""

    start_s: float
    watts: Floats

    @classmethod
    def idle(cls, start_s: float, end_s: float, watts: float = IDLE_W) -> Power:
        return cls(start_s=start_s, watts=np.full(round((end_s - start_s) / GRID_S), watts))

    @property
    def end_s(self) -> float:
        return self.start_s + self.watts.size * GRID_S

    def time_s(self) -> Floats:
        """Return the middle of each step."""
        return self.start_s + (np.arange(self.watts.size, dtype=np.float64) + 0.5) * GRID_S

    def part(self, start_s: float, end_s: float) -> Floats:
        """Return a view of the steps of a time, to be changed."""
        first, last = (round((at - self.start_s) / GRID_S) for at in (start_s, end_s))
        return self.watts[max(first, 0) : max(last, 0)]

    def energy_j(self, time_s: Floats) -> Floats:
        """Return the integral of power from ``start_s`` to each time."""
        sums_j = np.concatenate(([0.0], np.cumsum(self.watts))) * GRID_S
        borders_s = self.start_s + np.arange(sums_j.size) * GRID_S
        beyond_j = np.minimum(time_s - self.start_s, 0) * self.watts[0]
        beyond_j += np.maximum(time_s - self.end_s, 0) * self.watts[-1]
        energy_j: Floats = np.interp(time_s, borders_s, sums_j) + beyond_j
        return energy_j

    def between_j(self, spans: Spans) -> float:
        return float(sum(np.diff(self.energy_j(np.array(span)))[0] for span in spans))

    def at(self, time_s: Floats) -> Floats:
        index = np.floor((time_s - self.start_s) / GRID_S).astype(np.int64)
        return self.watts[np.clip(index, 0, self.watts.size - 1)]

    def filtered(self, constant_s: float) -> Power:
        """Return this power behind an RC filter."""
        length = 2 ** math.ceil(math.log2(2 * self.watts.size))
        answer = np.exp(-np.arange(self.watts.size) * GRID_S / constant_s)
        spectrum = np.fft.rfft(answer / answer.sum(), length)
        changes_w = np.fft.irfft(np.fft.rfft(self.watts - self.watts[0], length) * spectrum, length)
        return replace(self, watts=self.watts[0] + changes_w[: self.watts.size])

    def followed(self, rise_s: float, fall_s: float) -> Power:
        """Return what a detector shows that rises and falls with other time constants."""
        now_w, found, stride = float(self.watts[0]), [], 10
        for watts in self.watts[::stride].tolist():
            constant_s = rise_s if watts > now_w else fall_s
            now_w += (watts - now_w) * (1 - math.exp(-stride * GRID_S / constant_s))
            found.append(now_w)
        return replace(self, watts=np.repeat(found, stride)[: self.watts.size])


@dataclass(frozen=True, kw_only=True)
class Work:
    """A run's power, the intervals of each phase by name, and its rests; times in seconds."""

    power: Power
    phases: Mapping[str, Spans]
    rests: Spans

    def at_rest(self, start_s: float, end_s: float) -> Floats:
        """Return a view of the steps of a time behind the work, to be changed."""
        return self.power.part(self.rests[-1][0] + start_s, self.rests[-1][0] + end_s)

    def tail_j(self) -> float:
        return self.power.between_j(self.rests) - IDLE_W * sum(b - a for a, b in self.rests)


Load = Callable[[np.random.Generator], Work]
Reader = Callable[[Power, Floats, np.random.Generator], Floats]
"""Returns a sensor's readings of a power at some times."""


def _levels(rng: np.random.Generator, count: int) -> Floats:
    return WORK_W + rng.uniform(-3, 6, count)


def _run(phases: Mapping[str, Spans], levels_w: Sequence[float], rests: Spans = ()) -> Work:
    """Return a run of phases at constant power, with a rest behind them."""
    end_s = max(end for spans in phases.values() for _, end in spans)
    power = Power.idle(-BEFORE_S, end_s + REST_S + AFTER_S)
    spans = [span for each in phases.values() for span in each]
    for span, watts in zip(spans, levels_w, strict=True):
        power.part(*span)[:] = watts
    return Work(power=power, phases=phases, rests=(*rests, (end_s, end_s + REST_S)))


def _length_s(rng: np.random.Generator, least_s: float = 10.0, most_s: float = 25.0) -> float:
    return round(float(rng.uniform(least_s, most_s)), 3)


def steady(rng: np.random.Generator) -> Work:
    """One phase at one power."""
    return _run({"write": ((0.0, _length_s(rng)),)}, _levels(rng, 1).tolist())


def draining(rng: np.random.Generator) -> Work:
    """A drive that ends its work some seconds after the host."""
    work, drain_s = steady(rng), _length_s(rng, 2, 12)
    work.at_rest(0, drain_s)[:] = IDLE_W + rng.uniform(2, 8)
    return work


def collecting(rng: np.random.Generator) -> Work:
    """Garbage collection in short turns within the rest."""
    work = steady(rng)
    for at_s in np.cumsum(rng.uniform(1.0, 4.0, 5)).tolist():
        work.at_rest(at_s, at_s + 0.6)[:] = IDLE_W + 6
    return work


def collecting_late(rng: np.random.Generator) -> Work:
    """Garbage collection that begins after the rest, in the idle time behind it."""
    work = steady(rng)
    work.at_rest(REST_S + 3, REST_S + AFTER_S)[:] = IDLE_W + 3
    return work


def smooth(rng: np.random.Generator) -> Work:
    """Power that rises, varies and falls slowly, without a step."""
    work = steady(rng)
    ((start_s, end_s),) = work.phases["write"]
    time_s, rise_s = work.power.time_s(), rng.uniform(3, 6)
    shape = np.clip(np.minimum(time_s - start_s, end_s + rise_s - time_s) / rise_s, 0, 1)
    shape = (1 - np.cos(np.pi * shape)) / 2
    turns = sum(
        rng.uniform(0.5, 1.5) * np.sin(2 * np.pi * (time_s / each_s + rng.uniform()))
        for each_s in (7.3, 11.9, 17.1)
    )
    work.power.watts[:] = IDLE_W + shape * (WORK_W - IDLE_W + turns)
    return work


def bursting(rng: np.random.Generator) -> Work:
    """Bursts at several Hz within the phase."""
    work = steady(rng)
    part = work.power.part(*work.phases["write"][0])
    into = np.arange(part.size) * GRID_S * rng.uniform(3.1, 7.7) % 1
    part[into >= rng.uniform(0.3, 0.7)] = IDLE_W + 1
    return work


def keeping_step(rng: np.random.Generator) -> Work:
    """Bursts that keep step with a clock of 1 s."""
    work = steady(rng)
    part = work.power.part(*work.phases["write"][0])
    part[np.arange(part.size) * GRID_S * 4 % 1 >= 0.5] = IDLE_W + 1
    return work


def back_to_back(rng: np.random.Generator) -> Work:
    """Three phases in a row, at different powers."""
    ends_s = np.cumsum([_length_s(rng, 10, 15) for _ in range(3)]).round(3).tolist()
    spans = zip([0.0, *ends_s], ends_s, strict=False)
    return _run({f"phase{k}": (span,) for k, span in enumerate(spans)}, _levels(rng, 3).tolist())


def saving(rng: np.random.Generator) -> Work:
    """Saves of a training, in whose pauses the drive rests."""
    starts_s = (np.arange(4) * (_length_s(rng, 5, 8) + 4.0)).round(3).tolist()
    spans = tuple((start_s, round(start_s + _length_s(rng, 3, 5), 3)) for start_s in starts_s)
    pauses = tuple((end_s, next_s) for (_, end_s), next_s in zip(spans, starts_s[1:], strict=False))
    return _run({"save": spans}, _levels(rng, 4).tolist(), pauses)


def hurrying(rng: np.random.Generator) -> Work:
    """Short saves that follow each other before readings settle."""
    starts_s = np.cumsum(rng.uniform(1.8, 2.4, 30)).round(3)
    ends_s = (starts_s + rng.uniform(0.8, 1.6, 30)).round(3)
    spans = tuple(zip(starts_s.tolist(), ends_s.tolist(), strict=True))
    return _run({"save": spans}, _levels(rng, 30).tolist())


def noise(values: Floats, rng: np.random.Generator, sigma_w: float = NOISE_W) -> Floats:
    return values + rng.normal(0, sigma_w, values.size)


def mean_w(power: Power, time_s: Floats, window_s: float | Floats) -> Floats:
    """Return the mean power of the time before each of some moments."""
    return (power.energy_j(time_s) - power.energy_j(time_s - window_s)) / window_s


def sliding(window_s: float = 1.0, noise_w: float = NOISE_W) -> Reader:
    return lambda power, reads_s, rng: noise(mean_w(power, reads_s, window_s), rng, noise_w)


def instant(power: Power, reads_s: Floats, rng: np.random.Generator) -> Floats:
    return noise(power.at(reads_s), rng)


def clocked(
    window_s: float | None,
    least_s: float = 1.0,
    most_s: float | None = None,
    *,
    rc_s: float = 0.0,
    shown_s: float = 0.0,
) -> Reader:
    """Return a sensor that is updated after ``least_s`` to ``most_s``, from a random phase on.

    A reading is the mean over ``window_s`` (0: the power of the moment, ``None``: the mean since
    the update before), behind an RC filter of ``rc_s``. It is published by a clock of ``shown_s``.
    """

    def read(power: Power, reads_s: Floats, rng: np.random.Generator) -> Floats:
        seen = power.filtered(rc_s) if rc_s else power
        count = int((power.end_s - power.start_s + 12) / least_s) + 1
        between_s = rng.uniform(least_s, most_s or least_s, count)
        updates_s = power.start_s - 10 - rng.uniform(0, least_s) + np.cumsum(between_s)
        window = between_s if window_s is None else window_s
        values = seen.at(updates_s) if window_s == 0 else mean_w(seen, updates_s, window)
        if shown_s:
            phase_s = rng.uniform(0, shown_s)
            reads_s = np.floor((reads_s - phase_s) / shown_s) * shown_s + phase_s
        return noise(values, rng)[np.searchsorted(updates_s, reads_s, "right") - 1]

    return read


def counting(
    quantum_j: float, *, lag_s: float = 0.0, wrap_j: float | None = None, resets: bool = False
) -> Reader:
    def read(power: Power, reads_s: Floats, rng: np.random.Generator) -> Floats:
        counts_j = power.energy_j(reads_s - lag_s) + rng.uniform(1e3, 2e3)
        if resets:
            at = int(np.searchsorted(reads_s, rng.uniform(2, 8)))
            counts_j[at:] -= counts_j[at - 1]
        counts_j = np.floor(counts_j / quantum_j) * quantum_j
        return counts_j % wrap_j if wrap_j else counts_j

    return read


def saturated(limit_w: float, inner: Reader) -> Reader:
    return lambda power, reads_s, rng: np.minimum(inner(power, reads_s, rng), limit_w)


def shifted(offset_w: float, inner: Reader) -> Reader:
    return lambda power, reads_s, rng: inner(power, reads_s, rng) + offset_w


def fast_attack(fall_s: float) -> Reader:
    """Return a detector that rises with 0.1 s and falls slower."""
    return lambda power, reads_s, rng: noise(power.followed(0.1, fall_s).at(reads_s), rng)


def with_gap(gap_s: float, inner: Reader) -> Reader:
    def read(power: Power, reads_s: Floats, rng: np.random.Generator) -> Floats:
        values, since_s = inner(power, reads_s, rng), reads_s - rng.uniform(1, 5)
        return np.where((since_s > 0) & (since_s < gap_s), np.nan, values)

    return read


@dataclass(frozen=True)
class Kind:
    """A sensor as it is and as it is declared, under a load.

    ``sensor`` draws its properties, ``jitter_s`` is the standard deviation of the times of reads,
    and ``gap_s`` is the length of a time in the run without a successful read.
    """

    name: str
    sensor: Callable[[np.random.Generator], Reader]
    declared: Sensor
    load: Load = steady
    jitter_s: float = 0.001
    accuracy: Accuracy = EXACT
    range_w: float | None = None
    gap_s: float = 0.0
    is_recorded: bool = False

    @property
    def is_counter(self) -> bool:
        return isinstance(self.declared, Counter)

    @property
    def facts(self) -> SourceFacts:
        source = facts("meter", Evidence.MEASURED, self.declared, range_w=self.range_w)
        resolution_w = None if self.is_counter else RESOLUTION_W
        changes = {"accuracy": self.accuracy, "is_recorded": self.is_recorded}
        return source.model_copy(update={**changes, "resolution_w": resolution_w})

    def read(self, reader: Reader, power: Power, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return the times in seconds and the values of reads over a power and 0.5 s more."""
        count = int((power.end_s - power.start_s + 0.5) / READ_S)
        reads_s = power.start_s + (np.arange(count, dtype=np.float64) + rng.uniform()) * READ_S
        reads_s = np.sort(reads_s + rng.normal(0, self.jitter_s, count))
        values = reader(power, reads_s, rng)
        if not self.is_counter:
            values = np.round(values / RESOLUTION_W) * RESOLUTION_W
        return reads_s, values


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The energies of one simulated run, the true ones in J, and the sensor as it was used."""

    records: tuple[EnergyRecord, ...]
    true_j: Mapping[str, float]
    true_tail_j: float
    sensor: SensorRecord | None


def calibration(kind: Kind, reader: Reader, rng: np.random.Generator) -> CalibrationRecord | None:
    """Return the readings of a sensor under pulses, ``None`` if it is too slow for them."""
    window_s = kind.declared.window_s if isinstance(kind.declared, Boxcar) else 0.0
    update_s = getattr(kind.declared, "update_period_s", 0.0)
    times = pulse_times(window_s, max(window_s if update_s is None else update_s, READ_S))
    if times is None:
        return None
    power = Power.idle(-5.0, times[1][-1][1] + 5.0)
    high_w = float(_levels(rng, 1)[0])
    for start_s, end_s in (*times[0], *times[1]):
        power.part(start_s, end_s)[:] = high_w
    pulses, train = (
        [(round(start_s / GRID_S) * MS, round(end_s / GRID_S) * MS) for start_s, end_s in each]
        for each in times
    )
    reads_s, values = kind.read(reader, power, rng)
    time_ns = np.rint(reads_s * NS_PER_S).astype(np.int64).tolist()
    return calibration_record(kind.facts, pulses, train, time_ns, values.tolist())


def calibration_record(
    source: SourceFacts,
    pulses: Sequence[tuple[int, int]],
    train: Sequence[tuple[int, int]],
    time_ns: Sequence[int],
    values: Sequence[float],
) -> CalibrationRecord:
    return CalibrationRecord(
        host="host1",
        device=source.device,
        source=source.name,
        utc="2026-11-29T06:00:00Z",
        run_id="",
        key={},
        origin_ns=T0_NS - 3600 * NS_PER_S,
        pulses=tuple((start_ns, end_ns) for start_ns, end_ns in pulses),
        train=tuple(train),
        time_ns=tuple(time_ns),
        values=tuple(None if math.isnan(value) else value for value in values),
    )


def phase_window(name: str, spans: Spans) -> PhaseWindow:
    whole = window(name, spans[0][0], spans[-1][1])
    each = tuple((ns(start_s), ns(end_s)) for start_s, end_s in spans)
    return whole.model_copy(update={"intervals": each})


def outcome(kind: Kind, seed: int, *, is_calibrated: bool = True, has_rest: bool = True) -> Outcome:
    """Return the energies of one simulated run of a kind.

    Without a rest, work of another kind follows the phases at once and lasts for its time.
    """
    rng = np.random.default_rng(seed)
    reader, work = kind.sensor(rng), kind.load(rng)
    made = calibration(kind, reader, rng) if is_calibrated and not kind.is_recorded else None
    phases = [phase_window(name, spans) for name, spans in work.phases.items()]
    others = []
    rest_s, after_s = work.rests[-1]
    if not has_rest:
        work.at_rest(0, REST_S)[:] = WORK_W + rng.uniform(-8, 8)
        others = [window("verify", rest_s, after_s, timed=False)]
    if kind.gap_s:
        reader = with_gap(kind.gap_s, reader)
    trace = trace_of(
        *kind.read(reader, work.power, rng),
        channel=Channel.ENERGY_J if kind.is_counter else Channel.POWER_W,
    )
    ledger = EnergyLedger(
        {trace.key: trace},
        [kind.facts],
        host="host1",
        times=times_of(
            *(*phases, *others),
            before=(ns(-BEFORE_S), ns(-0.5)),
            after=(ns(after_s), ns(after_s + AFTER_S)),
            rests=[(ns(a), ns(b)) for a, b in work.rests] if has_rest else (),
        ),
        calibrations=() if made is None else (made,),
    )
    return Outcome(
        records=ledger.phase_records(phases),
        true_j={name: work.power.between_j(spans) for name, spans in work.phases.items()},
        true_tail_j=work.tail_j(),
        sensor=ledger.sensor(kind.facts),
    )


MEAN, ON_CLOCK = Boxcar(window_s=1.0), Boxcar(window_s=1.0, update_period_s=1.0)
"""As drives declare their own means, and as a meter whose clock is declared."""
SLIDING = Boxcar(window_s=1.0, update_period_s=0.0)
WRAPPING = Counter(quantum_j=0.1, wrap_j=262.144)

_SENSORS = {
    "1 s mean, sliding": Kind("", lambda _: sliding(), SLIDING),
    "1 s mean on a 1 s clock": Kind("", lambda _: clocked(1.0), MEAN),
    "timer that re-arms and drifts": Kind(
        "", lambda rng: clocked(None, 1.0, 1.0 + rng.uniform(0.02, 0.1)), MEAN
    ),
    "update period 3 % longer": Kind("", lambda _: clocked(1.03, 1.03), ON_CLOCK),
    "two clocks": Kind("", lambda rng: clocked(None, shown_s=rng.uniform(0.15, 0.35)), MEAN),
    "intervals of 0.8 to 1.2 s": Kind("", lambda _: clocked(None, 0.8, 1.2), MEAN),
    "exponential mean on a 1 s clock": Kind(
        "", lambda rng: clocked(0.0, rc_s=rng.uniform(0.5, 1.0)), MEAN
    ),
    "1 s mean behind RC": Kind("", lambda rng: clocked(1.0, rc_s=rng.uniform(0.2, 0.5)), MEAN),
    "0.5 s mean behind RC": Kind(
        "",
        lambda rng: clocked(0.5, 0.25, rc_s=rng.uniform(0.1, 0.18)),
        Boxcar(window_s=0.5, update_period_s=0.25),
    ),
    "undeclared mean": Kind("", lambda _: sliding(), Instant()),
    "0.1 J counter that wraps": Kind("", lambda _: counting(0.1, wrap_j=262.144), WRAPPING),
}
"""Sensors of the usual kinds."""
_LOADS: Sequence[tuple[str, Load]] = (
    *[(name, steady) for name in _SENSORS],
    ("1 s mean on a 1 s clock", draining),
    ("0.5 s mean behind RC", draining),
    ("1 s mean, sliding", collecting),
    ("0.5 s mean behind RC", collecting),
    ("1 s mean on a 1 s clock", bursting),
    ("undeclared mean", bursting),
    ("1 s mean, sliding", back_to_back),
    ("1 s mean on a 1 s clock", back_to_back),
    ("0.5 s mean behind RC", back_to_back),
    ("0.1 J counter that wraps", back_to_back),
    ("1 s mean on a 1 s clock", saving),
    ("two clocks", saving),
)

KINDS = (
    *[
        replace(_SENSORS[name], name=f"{name}, {load.__name__.replace('_', ' ')}", load=load)
        for name, load in _LOADS
    ],
    Kind("honest instant, smooth", lambda _: instant, Instant(), smooth),
    Kind("honest mean, smooth", lambda _: clocked(1.0), ON_CLOCK, smooth),
    Kind(
        "precise meter, recorded",
        lambda _: sliding(READ_S, 0.001),
        Boxcar(window_s=READ_S, update_period_s=0.0),
        bursting,
        is_recorded=True,
    ),
    Kind(
        "0.1 J counter that was reset",
        lambda _: counting(0.1, resets=True),
        Counter(quantum_j=0.1),
    ),
    Kind("counter 1 s late", lambda _: counting(0.001, lag_s=1.0), Counter(quantum_j=0.001)),
    Kind("gap of 1.3 s", lambda _: sliding(), SLIDING, gap_s=1.3),
    Kind("clock 50 ppm fast", lambda _: clocked(1.0, 0.99995), ON_CLOCK),
    Kind("noise of 1 W", lambda _: sliding(noise_w=1.0), SLIDING),
    Kind("reads with 30 ms of jitter", lambda _: sliding(), SLIDING, jitter_s=0.03),
)
"""Kinds whose energies are right within a small uncertainty."""

DOUBTFUL = (
    Kind("1 Wh counter", lambda _: counting(3600.0), Counter(quantum_j=3600.0)),
    Kind("gap of 6 s", lambda _: sliding(), SLIDING, gap_s=6.0),
    Kind("saturated", lambda rng: saturated(rng.uniform(10, 11), sliding()), SLIDING),
    Kind(
        "saturated at a declared range",
        lambda _: saturated(10.0, clocked(1.0)),
        ON_CLOCK,
        range_w=10.0,
    ),
    Kind("fast attack and slow decay, steady", lambda _: fast_attack(1.5), Instant()),
    Kind("fast attack and slow decay, bursting", lambda _: fast_attack(0.3), Instant(), bursting),
    Kind(
        "fast attack and very slow decay, bursting", lambda _: fast_attack(1.5), Instant(), bursting
    ),
    Kind(
        "offset within its accuracy",
        lambda rng: shifted(rng.uniform(-0.3, 0.3), sliding()),
        SLIDING,
        accuracy=Accuracy(reading_percent=0.0, watts=0.3),
    ),
    *[
        replace(_SENSORS[name], name=f"{name}, {load.__name__.replace('_', ' ')}", load=load)
        for name in ("1 s mean behind RC", "exponential mean on a 1 s clock")
        for load in (draining, back_to_back)
    ],
    *[
        replace(_SENSORS[name], name=f"{name}, hurrying", load=hurrying)
        for name in ("1 s mean, sliding", "1 s mean on a 1 s clock")
    ],
    *[
        Kind(f"aliased load, {name}", lambda _: clocked(0.0), Instant(update_period_s=1.0), load)
        for name, load in (("bursting", bursting), ("keeping step", keeping_step))
    ],
)
"""Kinds whose readings do not show their energy: it is refused, or its uncertainty is large.

A meter that does not settle within the pulses is not calibrated: its delay is not told from that
of a drive which ends late."""
