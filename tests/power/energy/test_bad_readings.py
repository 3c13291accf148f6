"""Readings with faults give a figure whose uncertainty holds, or none with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.power.energy_facts import facts, times_of, window
from tests.power.energy_traces import Bursts, Floats, boxcar, ns, samples_of, traces
from wattload.core.power import (
    Boxcar,
    Channel,
    Counter,
    Evidence,
    Instant,
    Sample,
    Sensor,
    SourceFacts,
)
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.phase import PhaseWindow
from wattload.power.energy.idle import IdleTime
from wattload.power.energy.integration import Window
from wattload.power.energy.ledger import EnergyLedger

WORK = window("work", 0, 60)
BEFORE = ns(-18), ns(-2)
POWER = Bursts(5, 20, on_s=60, cycle_s=1000)
TRUE_J = 1200.0
TIMES_S = np.arange(-200, 700) / 10
KINDS = ("power", "sliding", "tumbling", "counter")


@dataclass(frozen=True)
class Meter:
    """A source, and what it reads at some times in seconds."""

    facts: SourceFacts
    read: Callable[[Floats], Floats]

    def samples(self, times_s: Floats, values: Sequence[float | None] | Floats) -> list[Sample]:
        return samples_of(
            times_s,
            values,
            channel=self.facts.figure_channel,
            evidence=Evidence.MEASURED,
            source=self.facts.name,
        )


def meter_of(kind: str, power: Bursts = POWER) -> Meter:
    """Return a meter that is declared as it is, and reads in steps of 0.01 W or 0.001 J."""
    sensors: dict[str, tuple[Sensor, Callable[[Floats], Floats]]] = {
        "power": (Instant(), power.power_w),
        "sliding": (Boxcar(window_s=1.0), lambda t: boxcar(power.energy_j, 1.0, t)),
        "tumbling": (
            Boxcar(window_s=1.0, update_period_s=1.0),
            lambda t: boxcar(power.energy_j, 1.0, np.floor(t + 0.37) - 0.37),
        ),
        "counter": (Counter(quantum_j=0.001), lambda t: power.energy_j(t) + 1000),
    }
    sensor, read = sensors[kind]
    step = 0.001 if kind == "counter" else 0.01
    source = facts(kind, Evidence.MEASURED, sensor, accuracy_percent=0.5)
    return Meter(source, lambda t: np.round(read(t) / step) * step)


def record(
    meter: Meter,
    times_s: Floats,
    values: Sequence[float | None] | Floats,
    work: PhaseWindow = WORK,
    *,
    before: Window = BEFORE,
    loads: Sequence[Window] = (),
) -> EnergyRecord:
    """Return the energy of a phase; all other figures of the ledger are made as well."""
    samples = meter.samples(times_s, values)
    times = times_of(work, before=before, loads=loads)
    ledger = EnergyLedger(traces(samples), [meter.facts], host="host1", times=times)
    (found,) = ledger.phase_records([work])
    idle = IdleTime(moment="before", polled=True, window=before)
    for each in (found, *ledger.whole_run_records(), *ledger.idle_records([idle])):
        assert all(each.missing.values())
    for figure in (found.energy_j, found.uncertainty_j):
        assert figure is None or (np.isfinite(figure) and figure >= 0)
    return found


def holds(found: EnergyRecord, true_j: float) -> bool:
    assert found.energy_j is not None
    assert found.uncertainty_j is not None
    return abs(found.energy_j - true_j) <= found.uncertainty_j


@pytest.mark.parametrize("kind", KINDS)
def test_failed_reads_are_as_absent_ones(kind: str) -> None:
    meter, draw = meter_of(kind), np.random.default_rng(1)
    times_s = TIMES_S + draw.uniform(0, 1)
    values = meter.read(times_s)
    has_failed = draw.random(times_s.size) < 0.03
    some_failed = [None if bad else value for bad, value in zip(has_failed, values, strict=True)]
    failed = record(meter, times_s, some_failed)
    absent = record(meter, times_s[~has_failed], values[~has_failed])
    assert holds(failed, TRUE_J)
    assert (failed.energy_j, failed.uncertainty_j) == (absent.energy_j, absent.uncertainty_j)
    assert failed.coverage == absent.coverage == 1


@pytest.mark.parametrize("watts", [0.0, 7.0])
@pytest.mark.parametrize("kind", KINDS)
def test_constant_power_is_integrated(kind: str, watts: float) -> None:
    meter = meter_of(kind, Bursts(watts, watts, on_s=1, cycle_s=2))
    found = record(meter, TIMES_S, meter.read(TIMES_S))
    if kind == "counter" and not watts:
        assert "too coarse for 0 J" in found.missing["energy_j"]
        return
    assert holds(found, 60 * watts)
    assert (found.uncertainty_j or 0) < max(0.01 * 60 * watts, 0.5)


@pytest.mark.parametrize("kind", ["power", "sliding", "counter"])
def test_without_an_idle_time_there_is_a_figure(kind: str) -> None:
    meter = meter_of(kind)
    inside_s = TIMES_S[(TIMES_S >= 0) & (TIMES_S <= 60)]
    found = record(meter, inside_s, meter.read(inside_s))
    assert holds(found, TRUE_J)
    assert "in the idle baseline" in found.missing["net_j"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "known_s",
    [(30.0, 30.05), (30.0, 30.15), (30.0, 30.45), (-20.0, 0.0), (61.0, 70.0)],
    ids=["one", "two", "five", "before only", "after only"],
)
def test_too_few_readings_give_no_figure(kind: str, known_s: tuple[float, float]) -> None:
    meter = meter_of(kind)
    times_s = TIMES_S[(known_s[0] <= TIMES_S) & (known_s[1] > TIMES_S)]
    found = record(meter, times_s, meter.read(times_s))
    assert (found.energy_j, found.uncertainty_j) == (None, None)
    assert "cover" in found.missing["energy_j"]


@pytest.mark.parametrize("kind", ["power", "counter"])
def test_a_phase_shorter_than_a_read_period_has_a_figure(kind: str) -> None:
    meter = meter_of(kind, Bursts(5, 20, on_s=0.05, cycle_s=1000))
    found = record(meter, TIMES_S, meter.read(TIMES_S), window("work", 0, 0.05))
    assert holds(found, 1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (lambda t, v: (t, np.where(t == 4, -3, v)), "can't be negative"),
        (lambda t, v: (t, np.where(t == 4, np.inf, v)), "is impossible"),
        (lambda t, v: (t, np.where(t == 4, 1e308, v)), "is impossible"),
        (lambda t, v: (t, np.full(v.size, np.nan)), "no reading covers the time"),
        (lambda t, v: (np.where(t < 20, t, t - 5), v), "run back by 4.9 s"),
        (lambda t, v: (t[::-1], v[::-1]), "run back by 89.9 s"),
    ],
    ids=["negative", "infinite", "huge", "all NaN", "back", "reversed"],
)
def test_impossible_readings_give_a_reason(
    kind: str, fault: Callable[[Floats, Floats], tuple[Floats, Floats]], why: str
) -> None:
    meter = meter_of(kind)
    found = record(meter, *fault(TIMES_S, meter.read(TIMES_S)))
    assert (found.energy_j, found.mean_w, found.net_j) == (None, None, None)
    assert why in found.missing["energy_j"]


@pytest.mark.parametrize("kind", KINDS)
def test_two_samples_that_are_swapped_lose_nothing(kind: str) -> None:
    meter = meter_of(kind)
    order = np.arange(TIMES_S.size)
    order[[400, 401]] = order[[401, 400]]
    values = meter.read(TIMES_S)
    assert record(meter, TIMES_S[order], values[order]) == record(meter, TIMES_S, values)


def test_a_source_may_declare_that_it_reads_below_zero() -> None:
    meter = meter_of("power")
    source = meter.facts.model_copy(update={"may_be_negative": True})
    ledger = EnergyLedger(
        traces(meter.samples(TIMES_S, np.full(TIMES_S.size, -5.0))), [source], host="host1"
    )
    assert ledger.phase_records([WORK])[0].energy_j == pytest.approx(-300.0)


@pytest.mark.parametrize(("range_w", "is_refused"), [(25.0, True), (26.0, False), (None, False)])
def test_a_reading_at_the_end_of_the_range_refuses_its_phase(
    range_w: float | None, is_refused: bool
) -> None:
    """A fast meter shows its greatest readings: 25 W in one period of the second phase."""
    meter = facts("meter", sensor=Counter(quantum_j=1e-6), range_w=range_w)
    times_s = np.arange(0, 60, 0.1)
    most_w = np.where(np.abs(times_s - 40.05) < 0.06, 25.0, 21.0)
    samples = samples_of(times_s, 20 * times_s, channel=Channel.ENERGY_J)
    samples += samples_of(times_s - 0.05, most_w, channel=Channel.MAX_W)
    phases = window("first", 10, 30), window("second", 35, 50)
    ledger = EnergyLedger(traces(samples), [meter], host="host1", times=times_of(*phases))
    first, second = ledger.phase_records(phases)
    assert first.energy_j == pytest.approx(20 * 20)
    reason = second.missing.get("energy_j")
    assert reason == ("readings are pinned at the meter's maximum of 25 W" if is_refused else None)


@pytest.mark.parametrize("limit_w", [12.0, None])
def test_a_coarse_meter_is_pinned_if_only_its_idle_power_is_steady(limit_w: float | None) -> None:
    noise_w = np.random.default_rng(1).normal(0, 0.5, TIMES_S.size)
    work_w = 12 + 2 * np.sin(TIMES_S * 1.4) + noise_w
    watts = np.where((TIMES_S > 0) & (TIMES_S < 60), np.minimum(work_w, limit_w or 60), 5.0)
    found = record(meter_of("power"), TIMES_S, np.round(watts / 0.1) * 0.1)
    pinned = "readings are pinned at the meter's maximum of 12 W"
    assert found.missing.get("energy_j") == (pinned if limit_w else None)


def test_a_drive_of_steady_power_is_not_pinned_by_the_pulses_before_its_work() -> None:
    """The load that calibrates is pulses and a fast train, which reads less than they do."""
    is_pulse = (TIMES_S < -9) & (TIMES_S % 4 < 2)
    is_loaded = is_pulse | ((TIMES_S > 0) & (TIMES_S < 60))
    in_train = (TIMES_S > -9) & (TIMES_S < -4)
    watts = np.where(in_train, 11 + 0.5 * np.sin(TIMES_S * 30), np.where(is_loaded, 12.0, 5.0))
    loads, before = [(ns(-28), ns(-4))], (ns(-4), ns(-1))
    found = record(meter_of("power"), TIMES_S, watts, before=before, loads=loads)
    assert found.energy_j == pytest.approx(720, rel=0.01)


ANY_STEP_S = st.one_of(
    st.just(0.1), st.just(0.1), st.sampled_from([0.0, 1e-9, -1e-9, 0.3, 4.0, -0.05, -7.0])
)
ANY_VALUE = st.one_of(
    st.floats(0, 30),
    st.sampled_from([None, 5.0, 20.0, 0.0, -0.0, -1.0, 1e-300, 1e5, 1e300]),
    st.floats(),
)


@settings(max_examples=25)
@example([(0.1, 0.0), (0.1, 1.0), (-1e-9, 0.0), (-1e-9, 0.0)], "power", 0.0, 0.0)
@given(
    readings=st.lists(st.tuples(ANY_STEP_S, ANY_VALUE), max_size=60),
    kind=st.sampled_from(KINDS),
    start_s=st.floats(-1, 3),
    seconds=st.sampled_from([0.0, 1e-9, 0.05, 1.0, 3.0]),
)
def test_whatever_is_read_there_is_a_figure_or_a_reason(
    readings: list[tuple[float, float | None]], kind: str, start_s: float, seconds: float
) -> None:
    meter = meter_of(kind)
    times_s = np.cumsum([step for step, _ in readings])
    work = window("work", start_s, start_s + seconds)
    found = record(meter, times_s, [value for _, value in readings], work)
    assert (found.energy_j is None) == ("energy_j" in found.missing)
