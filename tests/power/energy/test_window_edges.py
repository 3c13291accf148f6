"""A phase begins and ends with work: what a sensor smears at its edges is off the same way in each.

Phases of random lengths, pauses and powers, entered once or many times; what the sensor does not
state (its gain) is left out, so that the rest of the interval has to hold the truth by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.power.energy_facts import facts, window
from tests.power.energy_traces import Floats, ns, samples_of
from wattload.core.power import Boxcar, Channel, Counter, Instant, Sensor
from wattload.core.record.energy import EnergyRecord
from wattload.power.energy.ledger import EnergyLedger

CASES = 60
BOXCAR = Boxcar(window_s=1.0)


@dataclass(frozen=True)
class Phases:
    """Intervals of work at some power each, and joules up to any moment."""

    at_s: Floats
    power_w: Floats
    intervals: tuple[tuple[float, float], ...]

    def energy_j(self, time_s: Floats) -> Floats:
        joules = np.concatenate(([0.0], np.cumsum(np.diff(self.at_s) * self.power_w[:-1])))
        return np.interp(time_s, self.at_s, joules)

    @property
    def true_j(self) -> float:
        return float(sum(np.diff(self.energy_j(np.array(each)))[0] for each in self.intervals))


def phases(
    rng: np.random.Generator, count: int, work_s: float, pause_s: float, *, late_s: float = 0.0
) -> Phases:
    """Return ``count`` intervals; power follows the work ``late_s`` after it begins or ends."""
    idle_w, busy_w = rng.uniform(3, 6), rng.uniform(9, 22)
    at_s, power_w, intervals = [-1000.0], [idle_w], []
    time_s = 10 + rng.random()
    for _ in range(count):
        end_s = time_s + work_s * rng.uniform(0.9, 1.1)
        at_s += [time_s + late_s, end_s + late_s]
        power_w += [busy_w, idle_w]
        intervals.append((time_s, end_s))
        time_s = end_s + pause_s * rng.uniform(0.9, 1.1)
    return Phases(np.array([*at_s, time_s + 1000]), np.array([*power_w, idle_w]), tuple(intervals))


def reckoned(
    load: Phases, kind: str, rng: np.random.Generator, *, rate_hz: float = 10.0
) -> EnergyRecord:
    """Return what the product tells of the phases by one kind of sensor."""
    reads_s = np.arange(1.5, load.intervals[-1][1] + 5, 1 / rate_hz)
    reads_s = reads_s + rng.uniform(0, 0.01, reads_s.size)
    sensor: Sensor = BOXCAR
    channel, values = Channel.POWER_W, load.energy_j(reads_s)
    if kind == "counter":
        sensor, channel = Counter(quantum_j=1e-6), Channel.ENERGY_J
    elif kind == "instant":
        sensor = Instant()
        values = load.power_w[np.searchsorted(load.at_s, reads_s, "right") - 1]
    else:
        first_s = rng.random()
        updates_s = reads_s if kind == "sliding" else np.floor(reads_s - first_s) + first_s
        values = np.round(load.energy_j(updates_s) - load.energy_j(updates_s - 1), 2)
    whole = window("write", load.intervals[0][0], load.intervals[-1][1])
    intervals = tuple((ns(start_s), ns(end_s)) for start_s, end_s in load.intervals)
    (record,) = EnergyLedger(
        samples_of(reads_s, values, channel=channel, spread_ns=1_000_000),
        [facts("meter", sensor=sensor, accuracy_percent=0.0)],
        host="host1",
    ).phase_records([whole.model_copy(update={"intervals": intervals})])
    return record


@pytest.mark.parametrize("kind", ["sliding", "tumbling", "counter", "instant"])
@pytest.mark.parametrize(
    ("count", "work_s", "pause_s"), [(1, 60, 5), (4, 17, 2), (12, 5, 2.5), (30, 2.3, 4.7)]
)
def test_uncertainty_without_the_gain_holds_the_truth_however_often_a_phase_is_entered(
    kind: str, count: int, work_s: float, pause_s: float
) -> None:
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(CASES // 4 if count == 30 else CASES // 2):
        late_s = rng.choice([0.0, 0.02, 0.05])
        load = phases(rng, count, work_s, pause_s, late_s=late_s)
        record = reckoned(load, kind, rng)
        assert record.energy_j is not None
        assert record.uncertainty_j is not None
        held += abs(record.energy_j - load.true_j) <= record.uncertainty_j
    assert held >= 0.95 * (CASES // 4 if count == 30 else CASES // 2)


@pytest.mark.parametrize(
    ("kind", "limit"), [("sliding", 0.001), ("tumbling", 0.012), ("counter", 0.001)]
)
@pytest.mark.parametrize(("count", "work_s", "pause_s"), [(4, 17, 2), (12, 5, 2.5), (30, 2.3, 4.7)])
def test_phases_that_begin_and_end_with_work_lose_nothing_at_their_edges(
    kind: str, limit: float, count: int, work_s: float, pause_s: float
) -> None:
    """Cut at their edges as they stand, such means are 1 to 10 % off, always below."""
    rng = np.random.default_rng(5)
    for _ in range(4):
        load = phases(rng, count, work_s, pause_s)
        record = reckoned(load, kind, rng)
        assert record.energy_j == pytest.approx(load.true_j, rel=limit)


def spaced(rng: np.random.Generator, pause_s: float) -> Phases:
    """Return 12 writes of 5 s, each read back after a dip of 0.1 s, then a pause."""
    at_s, power_w, intervals = [-1000.0], [5.0], []
    time_s = 10 + rng.random()
    for _ in range(12):
        intervals.append((time_s, time_s + 5))
        at_s += [time_s, time_s + 5, time_s + 5.1, time_s + 7.6]
        power_w += [18.2, 8.5, 17.0, 5.0]
        time_s += 7.6 + pause_s
    return Phases(np.array([*at_s, time_s + 1000]), np.array([*power_w, 5.0]), tuple(intervals))


@pytest.mark.parametrize("kind", ["sliding", "tumbling"])
@pytest.mark.parametrize("pause_s", [0.1, 0.3, 1.0])
def test_pauses_shorter_than_a_reading_averages_are_not_taken_for_the_phase(
    kind: str, pause_s: float
) -> None:
    rng = np.random.default_rng(0)
    for _ in range(4):
        load = spaced(rng, pause_s)
        record = reckoned(load, kind, rng)
        assert record.energy_j is not None
        assert record.energy_j == pytest.approx(load.true_j, rel=0.01)
        assert record.uncertainty_j is not None
        assert abs(record.energy_j - load.true_j) <= record.uncertainty_j


@pytest.mark.parametrize("kind", ["sliding", "tumbling"])
def test_intervals_shorter_than_what_a_reading_averages_have_no_figure(kind: str) -> None:
    """Writes of 0.35 s between other work: a mean over 1 s tells what both used, not which."""
    rng = np.random.default_rng(2)
    record = reckoned(phases(rng, 40, 0.35, 0.45), kind, rng)
    assert record.energy_j is None
    assert record.uncertainty_j is None
    assert record.missing["energy_j"].endswith(
        "is shorter than the 1 s over which the sensor averages"
    )
    assert not record.chosen


def test_edge_parts_of_a_phase_add_up_over_its_intervals() -> None:
    rng = np.random.default_rng(3)
    stated_j = []
    for count in (10, 40):
        record = reckoned(phases(rng, count, 5, 2.5), "counter", np.random.default_rng(1))
        assert record.energy_j is not None
        stated_j.append(record.uncertainty_parts_j["edge"] / record.energy_j)
    assert stated_j[1] == pytest.approx(stated_j[0], rel=0.5)
