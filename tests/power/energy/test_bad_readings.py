"""Readings with faults give a figure whose uncertainty holds, or none with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.power.energy_facts import activity_of, facts, window
from tests.power.energy_traces import Bursts, Floats, boxcar, ns, samples_of
from wattload.core.power import Boxcar, Channel, Counter, Evidence, Instant, Sample, SourceFacts
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.phase import PhaseWindow
from wattload.power.energy.ledger import EnergyLedger
from wattload.power.energy.source_ledger import IdleTime

WORK = window("work", 0, 60)
POWER = Bursts(5, 20, on_s=60, cycle_s=1000)
TRUE_J = 1200.0
TIMES_S = np.arange(-200, 700) / 10


class Meter(NamedTuple):
    """A source, and what it reads at some times in seconds."""

    facts: SourceFacts
    read: Callable[[Floats], Floats]

    @property
    def channel(self) -> Channel:
        return self.facts.figure_channel

    def samples(self, times_s: Floats, values: Sequence[float | None] | Floats) -> list[Sample]:
        return samples_of(
            times_s,
            values,
            channel=self.channel,
            evidence=Evidence.MEASURED,
            source=self.facts.name,
        )


def rounded(step: float, values: Floats) -> Floats:
    return np.round(values / step) * step


def meters(power: Bursts = POWER, *, accuracy_percent: float = 0.5) -> Mapping[str, Meter]:
    """Return a meter of each kind that is declared as it is."""

    def measured(name: str, sensor: Instant | Boxcar | Counter) -> SourceFacts:
        return facts(name, Evidence.MEASURED, sensor, accuracy_percent=accuracy_percent)

    sliding, tumbling = Boxcar(window_s=1.0), Boxcar(window_s=1.0, update_period_s=1.0)
    return {
        "power": Meter(measured("power", Instant()), lambda t: rounded(0.01, power.power_w(t))),
        "sliding": Meter(
            measured("sliding", sliding), lambda t: rounded(0.01, boxcar(power.energy_j, 1.0, t))
        ),
        "tumbling": Meter(
            measured("tumbling", tumbling),
            lambda t: rounded(0.01, boxcar(power.energy_j, 1.0, np.floor(t + 0.37) - 0.37)),
        ),
        "counter": Meter(
            measured("counter", Counter(quantum_j=0.001)),
            lambda t: rounded(0.001, power.energy_j(t) + 1000),
        ),
    }


KINDS = ("power", "sliding", "tumbling", "counter")


def records(
    samples: Sequence[Sample],
    *sources: SourceFacts,
    work: PhaseWindow = WORK,
    resets_ns: Mapping[str, Sequence[int]] | None = None,
) -> tuple[EnergyRecord, ...]:
    """Return the energies of a phase; all other figures of the ledger are made as well."""
    ledger = EnergyLedger(
        samples,
        sources,
        host="host1",
        activity=activity_of(work),
        baseline=(ns(-18), ns(-2)),
        resets_ns=resets_ns,
    )
    found = ledger.phase_records([work])
    idle = IdleTime(moment="before", polled=True, window=(ns(-18), ns(-2)))
    for each in (*found, *ledger.whole_run_records(), *ledger.idle_records([idle])):
        for name in each.missing:
            assert each.missing[name], f"{name} has no reason"
    for each in found:
        if each.energy_j is not None:
            assert np.isfinite(each.energy_j)
            assert each.energy_j >= 0
        if each.uncertainty_j is not None:
            assert np.isfinite(each.uncertainty_j)
            assert each.uncertainty_j >= 0
    return found


def record(meter: Meter, times_s: Floats, values: Sequence[float | None] | Floats) -> EnergyRecord:
    (found,) = records(meter.samples(times_s, values), meter.facts)
    return found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_failed_reads_are_as_absent_ones(kind: str, seed: int) -> None:
    meter = meters()[kind]
    draw = np.random.default_rng(seed)
    noise = 0.0 if kind == "counter" else draw.normal(0, 0.05, TIMES_S.size)
    times_s = TIMES_S + draw.uniform(0, 1)
    if kind == "tumbling":
        # A held value keeps its noise until it is replaced.
        noise = draw.normal(0, 0.05, TIMES_S.size)[np.floor(times_s + 0.37).astype(int)]
    values = meter.read(times_s) + noise
    has_failed = draw.random(times_s.size) < 0.03
    some_failed = [None if bad else value for bad, value in zip(has_failed, values, strict=True)]
    failed = record(meter, times_s, some_failed)
    absent = record(meter, times_s[~has_failed], values[~has_failed])
    assert failed.energy_j is not None
    assert failed.uncertainty_j is not None
    assert abs(failed.energy_j - TRUE_J) < failed.uncertainty_j
    assert (failed.energy_j, failed.uncertainty_j) == (absent.energy_j, absent.uncertainty_j)
    assert failed.coverage == absent.coverage == 1


SAVES = tuple((8.0 * index, 8.0 * index + 5) for index in range(24))
SAVING = window("work", 0, SAVES[-1][1]).model_copy(
    update={"intervals": tuple((ns(start_s), ns(end_s)) for start_s, end_s in SAVES)}
)


@pytest.mark.parametrize("kind", ["power", "sliding"])
def test_an_interval_without_readings_is_estimated_from_the_others(kind: str) -> None:
    """The phase has its energy: the interval only lowers the coverage and widens U."""
    meter = meters(Bursts(5, 20, on_s=5, cycle_s=8), accuracy_percent=0.001)[kind]
    times_s = np.arange(-200, 1915) / 10
    draw = np.random.default_rng(7)
    values = meter.read(np.maximum(times_s, 0)) + draw.normal(0, 0.05, times_s.size)
    start_s, end_s = SAVES[11]
    is_lost = (times_s > start_s - 0.05) & (times_s < end_s + 0.05)
    lost = [None if bad else value for bad, value in zip(is_lost, values, strict=True)]
    (whole,) = records(meter.samples(times_s, values), meter.facts, work=SAVING)
    (part,) = records(meter.samples(times_s, lost), meter.facts, work=SAVING)
    assert whole.coverage == 1
    assert part.coverage is not None
    assert 0.95 < part.coverage < 0.97
    assert part.energy_j is not None
    assert part.uncertainty_j is not None
    assert whole.uncertainty_j is not None
    assert abs(part.energy_j - 24 * 5 * 20) < part.uncertainty_j
    assert part.uncertainty_j > whole.uncertainty_j


@pytest.mark.parametrize("watts", [0.0, 7.0])
@pytest.mark.parametrize("kind", ["power", "sliding", "tumbling", "counter"])
def test_constant_power_is_integrated(kind: str, watts: float) -> None:
    meter = meters(Bursts(watts, watts, on_s=1, cycle_s=2))[kind]
    found = record(meter, TIMES_S, meter.read(TIMES_S))
    if kind == "counter" and not watts:
        assert "too coarse for 0 J" in found.missing["energy_j"]
        return
    assert found.energy_j is not None
    assert found.uncertainty_j is not None
    assert abs(found.energy_j - 60 * watts) <= found.uncertainty_j < max(0.01 * 60 * watts, 0.5)


@pytest.mark.parametrize("kind", ["power", "sliding", "counter"])
def test_without_an_idle_interval_there_is_a_figure(kind: str) -> None:
    meter = meters()[kind]
    inside_s = TIMES_S[(TIMES_S >= 0) & (TIMES_S <= 60)]
    found = record(meter, inside_s, meter.read(inside_s))
    assert found.energy_j is not None
    assert found.uncertainty_j is not None
    assert abs(found.energy_j - TRUE_J) <= found.uncertainty_j
    assert found.net_j is None
    assert "in the idle baseline" in found.missing["net_j"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "known_s",
    [(30.0, 30.05), (30.0, 30.15), (30.0, 30.45), (-20.0, 0.0), (61.0, 70.0)],
    ids=["one", "two", "five", "before only", "after only"],
)
def test_too_few_readings_give_no_figure(kind: str, known_s: tuple[float, float]) -> None:
    meter = meters()[kind]
    times_s = TIMES_S[(known_s[0] <= TIMES_S) & (known_s[1] > TIMES_S)]
    found = record(meter, times_s, meter.read(times_s))
    assert found.energy_j is None
    assert found.uncertainty_j is None
    assert "cover" in found.missing["energy_j"]


@pytest.mark.parametrize("kind", ["power", "counter"])
def test_a_phase_shorter_than_a_read_period_has_a_figure(kind: str) -> None:
    meter = meters(Bursts(5, 20, on_s=0.05, cycle_s=1000))[kind]
    work = window("work", 0, 0.05)
    (found,) = records(meter.samples(TIMES_S, meter.read(TIMES_S)), meter.facts, work=work)
    assert found.energy_j is not None
    assert found.uncertainty_j is not None
    assert abs(found.energy_j - 1.0) <= found.uncertainty_j


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (lambda t, v: (t, np.where(t == 4, -3, v)), "can't be negative"),
        (lambda t, v: (t, np.where(t == 4, np.inf, v)), "is impossible"),
        (lambda t, v: (t, -v), "can't be negative"),
        (lambda t, v: (t, np.full(v.size, np.nan)), "no reading covers the window"),
        (lambda t, v: (np.where(t < 20, t, t - 5), v), "run back by 4.9 s"),
        (lambda t, v: (t[::-1], v[::-1]), "run back by 89.9 s"),
    ],
    ids=["negative", "infinite", "all negative", "all NaN", "back", "reversed"],
)
def test_impossible_readings_give_a_reason(
    kind: str, fault: Callable[[Floats, Floats], tuple[Floats, Floats]], why: str
) -> None:
    meter = meters()[kind]
    found = record(meter, *fault(TIMES_S, meter.read(TIMES_S)))
    assert found.energy_j is None
    assert why in found.missing["energy_j"]


def test_sources_of_different_clocks_do_not_spoil_each_other() -> None:
    power, counter = meters()["power"], meters()["counter"]
    samples = power.samples(TIMES_S, power.read(TIMES_S))
    samples += counter.samples(TIMES_S + 3600, counter.read(TIMES_S))
    here, elsewhere = records(samples, power.facts, counter.facts)
    assert here == record(power, TIMES_S, power.read(TIMES_S))
    assert elsewhere.energy_j is None
    assert elsewhere.missing["energy_j"] == "no reading covers the window"


def test_a_counter_that_was_reset_lacks_only_that_moment() -> None:
    meter = meters()["counter"]
    counts = meter.read(TIMES_S)
    found = record(meter, TIMES_S, np.where(TIMES_S < 30, counts, counts - counts[500]))
    assert found.energy_j is not None
    assert found.uncertainty_j is not None
    assert abs(found.energy_j - TRUE_J) <= found.uncertainty_j
    assert found.coverage == pytest.approx(1 - 0.1 / 60)


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
    meter = meters()[kind]
    times_s = np.cumsum([step for step, _ in readings])
    work = window("work", start_s, start_s + seconds)
    samples = meter.samples(times_s, [value for _, value in readings])
    (found,) = records(samples, meter.facts, work=work)
    assert (found.energy_j is None) == ("energy_j" in found.missing)
