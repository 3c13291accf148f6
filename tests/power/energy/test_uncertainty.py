from __future__ import annotations

import math

import numpy as np
import pytest

from tests.power.energy_facts import facts
from tests.power.energy_traces import Bursts, Floats, boxcar, ns, samples_of, trace_of
from wattload.core.power import Boxcar, Channel, Counter, Instant, Sensor, SourceFacts
from wattload.power.energy.integration import integrate_profile
from wattload.power.energy.profile import profile_of
from wattload.power.energy.trace import Trace, traces
from wattload.power.energy.uncertainty import Uncertainty, uncertainty

TIMES_S = np.round(np.arange(-50, 660) / 10, 6)


def uncertainty_of(trace: Trace, facts: SourceFacts, start_s: float, end_s: float) -> Uncertainty:
    window = (ns(start_s), ns(end_s))
    profile = profile_of(trace, facts.sensor, period_s=0.1)
    result = integrate_profile(trace, profile, facts.sensor, *window)
    return uncertainty(trace, profile, result, facts, window)


def test_parts_of_flat_power_are_gain_and_quantisation() -> None:
    found = uncertainty_of(
        trace_of(TIMES_S, np.full(710, 10.0)), facts("meter", accuracy_percent=1.0), 0, 60
    )
    assert found.parts_j == pytest.approx(
        {
            "gain": 6.0,
            "quantisation": 2 * 0.01 / math.sqrt(12) * 60,
            "edge": 0.0,
            "sampling": 0.0,
            "gap": 0.0,
        }
    )
    assert found.total_j == pytest.approx(math.hypot(6.0, 1.2 / math.sqrt(12)))


def test_unknown_accuracy_leaves_the_total_unknown_and_the_parts_known() -> None:
    trace = trace_of(TIMES_S, np.full(710, 10.0))
    found = uncertainty_of(trace, facts("meter"), 0, 60)
    assert found.total_j is None
    assert "gain" not in found.parts_j
    assert found.reason == "the gain uncertainty of meter is unknown"
    found = uncertainty_of(trace, facts("meter", resolution_w=None), 0, 60)
    assert found.reason == "the gain and quantisation uncertainty of meter is unknown"


def test_no_energy_has_no_uncertainty() -> None:
    found = uncertainty_of(
        trace_of([0.0, 1.0], [1.0, 1.0]), facts("meter", accuracy_percent=1.0), 0, 60
    )
    assert found.total_j is None
    assert found.parts_j == {}
    assert found.reason is not None
    assert found.reason.startswith("readings cover 1.7 %")


LOAD = Bursts(low_w=5, high_w=21, on_s=40, cycle_s=100)
SLIDING = Boxcar(window_s=1.0, update_period_s=0.0)
TUMBLING = Boxcar(window_s=1.0, update_period_s=1.0, phase_s=(ns(0.6) % 10**9) / 1e9)
LAST_UPDATES_S = np.floor(TIMES_S - 0.6 + 1e-9) + 0.6


@pytest.mark.parametrize(
    ("sensor", "watts", "starts_s", "greatest_j"),
    [
        (Instant(), LOAD.power_w(TIMES_S), np.linspace(-0.1, 0, 11), 16 * 0.1 / 2),
        (SLIDING, boxcar(LOAD.energy_j, 1.0, TIMES_S), np.linspace(-0.5, 0.5, 21), 0),
        (TUMBLING, boxcar(LOAD.energy_j, 1.0, LAST_UPDATES_S), np.linspace(-0.4, 0.6, 21), 0),
    ],
)
def test_edge_part_bounds_the_error_of_a_step_near_the_edge(
    sensor: Sensor, watts: Floats, starts_s: Floats, greatest_j: float
) -> None:
    trace = trace_of(TIMES_S, watts)
    profile = profile_of(trace, sensor, period_s=0.1)
    errors_j = []
    for start_s in starts_s:
        window = (ns(start_s), ns(30))
        result = integrate_profile(trace, profile, sensor, *window)
        assert result.energy_j is not None
        errors_j.append(abs(result.energy_j - LOAD.between_j(float(start_s), 30)))
        edge_j = uncertainty(trace, profile, result, facts("meter", sensor=sensor), window)
        assert errors_j[-1] <= edge_j.parts_j["edge"] + 1e-6
    assert max(errors_j) == pytest.approx(greatest_j, abs=1e-6)


def test_reads_of_the_moment_are_uncertain_by_when_power_changed() -> None:
    checkpoint = Bursts(low_w=5, high_w=21, on_s=2.3, cycle_s=7.31)
    errors, stated = [], []
    for phase_s in np.linspace(0, 1, 23):
        reads_s = np.arange(-3, 64, 1.0) + phase_s
        trace = trace_of(reads_s, checkpoint.power_w(reads_s))
        found = uncertainty_of(trace, facts("meter", accuracy_percent=0.0), 0, 60)
        result = integrate_profile(
            trace, profile_of(trace, Instant(), period_s=1), Instant(), ns(0), ns(60)
        )
        assert result.energy_j is not None
        errors.append(result.energy_j - checkpoint.between_j(0, 60))
        stated.append(found.parts_j["sampling"])
    assert np.sqrt(np.mean(np.square(errors))) < np.mean(stated)


def test_slow_reads_widen_the_edge() -> None:
    trace = trace_of(TIMES_S, np.where(TIMES_S < 0.05, 5.0, 21.0))
    slow = traces(samples_of(TIMES_S, np.where(TIMES_S < 0.05, 5.0, 21.0), spread_ns=20_000_000))
    source = facts("meter")
    fast_j = uncertainty_of(trace, source, 0.05, 30).parts_j["edge"]
    slow_j = uncertainty_of(next(iter(slow.values())), source, 0.05, 30).parts_j["edge"]
    assert fast_j == pytest.approx(16 * 0.05)
    assert slow_j == pytest.approx(16 * (0.05 + 0.01))


def test_gap_is_how_far_power_beside_the_hole_lies_from_what_fills_it() -> None:
    watts = np.where((TIMES_S > 39) & (TIMES_S < 45), 20.0, 8.0)
    kept = (TIMES_S <= 40) | (TIMES_S >= 43.1)
    trace = trace_of(TIMES_S[kept], watts[kept])
    found = uncertainty_of(trace, facts("meter", accuracy_percent=1.0), 0, 62)
    result = integrate_profile(
        trace, profile_of(trace, Instant(), period_s=0.1), Instant(), ns(0), ns(62)
    )
    assert result.energy_j is not None
    fill_w = (result.energy_j - result.covered_j) / 3.1
    assert 8 < fill_w < 20
    assert found.parts_j["gap"] == pytest.approx(max(fill_w - 8, 20 - fill_w) * 3.1)


def test_gap_may_hide_any_power_of_the_window() -> None:
    """Reads fail under load: a hole may hold the burst that all the others show."""
    watts = np.where((TIMES_S > 10) & (TIMES_S < 20), 20.0, 8.0)
    kept = (TIMES_S <= 40) | (TIMES_S >= 43.1)
    trace = trace_of(TIMES_S[kept], watts[kept])
    gap_j = uncertainty_of(trace, facts("meter", accuracy_percent=1.0), 0, 62).parts_j["gap"]
    assert gap_j == pytest.approx(12 * 3.1)


def test_gap_at_the_end_of_a_window_has_the_power_near_to_it() -> None:
    watts = np.where((TIMES_S > 10) & (TIMES_S < 20), 20.0, 8.0)
    kept = TIMES_S <= 60
    trace = trace_of(TIMES_S[kept], watts[kept])
    assert uncertainty_of(trace, facts("meter", accuracy_percent=1.0), 0, 62).parts_j["gap"] == 0


@pytest.mark.parametrize(("idle_s", "error_j"), [(2.0, 12.0), (3.0, 0.0)])
def test_gap_at_the_end_of_a_run_holds_the_truth(idle_s: float, error_j: float) -> None:
    """The last 3 s were not read: filled at the mean of all, it would be off by 33.5 J of 18."""
    watts = np.where((TIMES_S > 2) & (57 - idle_s >= TIMES_S), 17.0, 5.0)
    kept = TIMES_S <= 57
    trace = trace_of(TIMES_S[kept], watts[kept])
    result = integrate_profile(
        trace, profile_of(trace, Instant(), period_s=0.1), Instant(), ns(0), ns(60)
    )
    found = uncertainty_of(trace, facts("meter", accuracy_percent=0.0), 0, 60)
    assert result.energy_j is not None
    assert found.total_j is not None
    off_j = result.energy_j - (5 * 60 + 12 * (55 - idle_s))
    assert off_j == pytest.approx(error_j, abs=1)
    assert abs(off_j) <= found.total_j


def test_both_edges_of_a_window_are_off_the_same_way_and_add_up() -> None:
    watts = np.where((TIMES_S > 10) & (TIMES_S < 40), 20.0, 8.0)
    parts_j = uncertainty_of(trace_of(TIMES_S, watts), facts("meter"), 10.05, 39.95).parts_j
    assert parts_j["edge"] == pytest.approx(2 * 12 * 0.1 / 2)


def test_counter_is_uncertain_by_its_step_at_each_end() -> None:
    trace = trace_of(TIMES_S, 10 * TIMES_S + 1000, channel=Channel.ENERGY_J)
    found = uncertainty_of(trace, facts("meter", sensor=Counter(quantum_j=0.3)), 0, 60)
    assert found.parts_j["quantisation"] == pytest.approx(2 * 0.3 / math.sqrt(6))
    assert found.parts_j["edge"] == pytest.approx(0, abs=1e-6)


def test_counter_that_moves_seldom_is_uncertain_by_what_it_misses() -> None:
    trace = trace_of(TIMES_S, 10 * TIMES_S + 1000, channel=Channel.ENERGY_J)
    sensor = Counter(quantum_j=0.001, update_period_s=0.1)
    found = uncertainty_of(trace, facts("meter", sensor=sensor), 0, 60)
    assert found.parts_j["quantisation"] == pytest.approx(2 * 10 * 0.1 / math.sqrt(6))


@pytest.mark.parametrize("window_s", [60, 300])
def test_reading_that_is_held_is_as_uncertain_as_its_updates_are_few(window_s: int) -> None:
    """A management controller senses every 10 s and is read every 2 s: that adds nothing."""
    rng = np.random.default_rng(1)
    sensor = Instant(update_period_s=10.0)
    source = facts("redfish_power", sensor=sensor, accuracy_percent=1.0, resolution_w=0.1)
    window = (ns(0), ns(window_s))
    held = 0
    for _ in range(300):
        load = Bursts(low_w=5, high_w=21, on_s=2.3, cycle_s=7, first_s=rng.uniform(0, 7))
        reads_s = np.arange(-20, window_s + 20, 2.0) + rng.uniform(0, 2)
        first_s = rng.uniform(0, 10)
        trace = trace_of(reads_s, load.power_w(np.floor((reads_s - first_s) / 10) * 10 + first_s))
        profile = profile_of(trace, sensor, period_s=2)
        result = integrate_profile(trace, profile, sensor, *window)
        stated = uncertainty(trace, profile, result, source, window)
        assert result.energy_j is not None
        assert stated.total_j is not None
        held += abs(result.energy_j - load.between_j(0, window_s)) <= stated.total_j
    assert held >= 0.95 * 300


def test_flat_power_that_is_held_is_certain() -> None:
    trace = trace_of(TIMES_S, np.full(710, 10.0))
    held = uncertainty_of(trace, facts("bmc", sensor=Instant(update_period_s=10.0)), 0, 60)
    assert held.parts_j["sampling"] == held.parts_j["edge"] == 0.0
