"""Energy of a window by readings of power, limits and counters, with the holes of each."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.power.energy_traces import Floats, integrate, ns, samples_of, trace_of, traces
from wattload.core.power import Bounds, Channel, Counter, Evidence, Instant
from wattload.power.energy.integration import WindowResult
from wattload.power.energy.profile import fall_count
from wattload.power.energy.trace import Trace

TIMES_S = np.round(np.arange(-20, 1200) / 10, 6)
UPPER, LOWER = Channel.UPPER_W, Channel.LOWER_W
SETTLING = Bounds(settle_s=0.5)
MILLIJOULE = Counter(quantum_j=0.001)
STEADY_J = 300 + 10 * TIMES_S
RESET_J = np.where(TIMES_S < 30.05, STEADY_J, 10 * (TIMES_S - 30.05))


def of_power(trace: Trace, start_s: float, end_s: float, period_s: float = 0.1) -> WindowResult:
    return integrate(trace, Instant(), ns(start_s), ns(end_s), period_s=period_s)


def test_ramp_is_exact_whatever_the_spacing() -> None:
    times_s: Floats = np.sort(np.random.default_rng(3).uniform(-3, 63, 400)).round(6)
    result = of_power(trace_of(times_s, 5 + 0.2 * times_s), 0.5, 59.5)
    assert result.energy_j == pytest.approx(5 * 59 + 0.1 * (59.5**2 - 0.25), rel=1e-9)
    assert (result.coverage, result.reason) == (1, "")
    assert result.evidence is Evidence.SELF_REPORTED


@pytest.mark.parametrize(
    ("value", "evidence"), [(1.0, Evidence.ESTIMATED), (None, Evidence.MEASURED)]
)
def test_weakest_evidence_of_the_successful_reads_counts(
    value: float | None, evidence: Evidence
) -> None:
    samples = samples_of([0.0, 1.0, 3.0], [1.0, 1.0, 1.0], evidence=Evidence.MEASURED)
    samples += samples_of([2.0], [value], evidence=Evidence.ESTIMATED)
    (trace,) = traces(samples).values()
    assert trace.evidence(ns(0.2), ns(0.8)) is Evidence.MEASURED
    assert trace.evidence(ns(0.2), ns(2.5)) is evidence


@pytest.mark.parametrize(
    ("first_s", "last_s", "coverage", "energy_j"),
    [
        (40, 43, 1, 17 * 80 + 5 * 20),  # bridged
        (40, 44, 0.96, 17 * 80 + 5 * 20),
        (8, 12, 0.96, 5 * 8 + 11 * 4 + 17 * 78 + 5 * 10),
    ],
)
def test_hole_is_filled_with_the_power_around_it(
    first_s: float, last_s: float, coverage: float, energy_j: float
) -> None:
    """Power is 17 W from second 10 to 90, else 5 W; some seconds are not read."""
    watts = np.where((TIMES_S > 10) & (TIMES_S <= 90), 17.0, 5.0)
    kept = (first_s >= TIMES_S) | (last_s <= TIMES_S)
    result = of_power(trace_of(TIMES_S[kept], watts[kept]), 0, 100)
    assert result.coverage == pytest.approx(coverage, rel=1e-9)
    assert result.energy_j == pytest.approx(energy_j, abs=0.7)


def test_gap_grows_with_the_period() -> None:
    times_s = np.arange(-20, 120, 5.0)
    trace = trace_of(times_s, np.full(times_s.shape, 10.0))
    assert of_power(trace, 0, 100, period_s=5).coverage == 1.0
    assert of_power(trace, 0, 100, period_s=1).coverage == 0.0


@pytest.mark.parametrize(
    ("kept", "end_s", "reason"),
    [
        (
            (TIMES_S <= 40) | (TIMES_S >= 46),
            100,
            "readings cover 94.0 % of the time; at least 95 % are required",
        ),
        (TIMES_S < -10, 100, "no reading covers the time"),
        (TIMES_S < 110, 0, "the window is empty"),
    ],
    ids=["94 %", "no reading", "empty"],
)
def test_windows_that_are_not_covered_have_a_reason(
    kept: NDArray[np.bool_], end_s: float, reason: str
) -> None:
    result = of_power(trace_of(TIMES_S[kept], np.full(int(kept.sum()), 10.0)), 0, end_s)
    assert (result.energy_j, result.reason) == (None, reason)


def of_limit(trace: Trace, sensor: Bounds, end_s: float = 10) -> float:
    found = integrate(trace, sensor, ns(0), ns(end_s), period_s=0.1).energy_j
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("channel", "before_w", "after_w", "seconds_at_before"),
    [(UPPER, 25, 15, 4.5), (UPPER, 15, 25, 3.9), (LOWER, 5, 4, 3.9), (LOWER, 4, 5, 4.5)],
)
def test_the_wider_limit_holds_until_a_transition_must_be_over(
    channel: Channel, before_w: float, after_w: float, seconds_at_before: float
) -> None:
    """The state is read as changed at second 4; the transition may take half a second more."""
    trace = trace_of(TIMES_S, np.where(TIMES_S < 4, before_w, after_w), channel=channel)
    expected_j = before_w * seconds_at_before + after_w * (10 - seconds_at_before)
    assert of_limit(trace, SETTLING) == pytest.approx(expected_j, rel=1e-9)


def test_a_state_seen_for_one_read_only_widens_all_that_its_transitions_reach() -> None:
    watts = np.where((TIMES_S > 3.95) & (TIMES_S < 4.05), 25.0, 15.0)
    wide_s = 4.1 + 0.5 - 3.9
    found_j = of_limit(trace_of(TIMES_S, watts, channel=UPPER), SETTLING)
    assert found_j == pytest.approx(25 * wide_s + 15 * (10 - wide_s), rel=1e-9)


@pytest.mark.parametrize("channel", [UPPER, LOWER])
@pytest.mark.parametrize(
    ("sensor", "hole_w"),
    [(Bounds(lowest_w=0.005, highest_w=25.0), (25.0, 0.005)), (Bounds(), (20.0, 4.0))],
    ids=["of any state", "widest of the run"],
)
def test_an_unread_time_has_the_widest_limit(
    channel: Channel, sensor: Bounds, hole_w: tuple[float, float]
) -> None:
    """Limits change before the window. They are read neither at 4.2 s nor after the end."""
    seen_w, early_w = (15.0, 20.0) if channel is UPPER else (5.0, 4.0)
    watts = np.where(TIMES_S < -1, early_w, seen_w)
    watts[TIMES_S == 4.2] = np.nan
    end_s = float(TIMES_S[-1]) + 0.1
    found_j = of_limit(trace_of(TIMES_S, watts, channel=channel), sensor, end_s)
    expected_j = seen_w * (end_s - 0.3) + hole_w[channel is LOWER] * 0.3
    assert found_j == pytest.approx(expected_j, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("channel", "limits_w", "sign"), [(UPPER, (25.0, 15.0), 1), (LOWER, (5.0, 4.0), -1)]
)
def test_the_truth_lies_within_the_bounds_however_states_change(
    channel: Channel, limits_w: tuple[float, float], sign: int, seed: int
) -> None:
    """A drive at the very limits of its states, that draws the worse of both while it changes."""
    rng = np.random.default_rng(seed)
    changes_s = np.cumsum(rng.uniform(0.7, 4.0, 40)) - 15
    watts = np.array(limits_w)[rng.integers(0, 2, changes_s.size)]
    over_s = changes_s + rng.uniform(0, SETTLING.settle_s, changes_s.size)
    fine_s: Floats = np.arange(0, 60, 1e-4) + 5e-5
    at = np.searchsorted(changes_s, fine_s, "right") - 1
    worse_w = sign * np.maximum(sign * watts[at], sign * watts[at - 1])
    true_j = float(np.where(fine_s < over_s[at], worse_w, watts[at]).sum()) * 1e-4
    reads_s = np.sort(rng.uniform(-10, 70, 800)).round(6)
    seen_w = watts[np.searchsorted(changes_s, reads_s, "right") - 1]
    found_j = of_limit(trace_of(reads_s, seen_w, channel=channel), SETTLING, 60)
    assert sign * (found_j - true_j) >= -1e-2


def of_counter(
    joules: Floats,
    sensor: Counter = MILLIJOULE,
    *,
    start_s: float = 0,
    end_s: float = 60,
    kept: NDArray[np.bool_] | None = None,
    resets_s: tuple[float, ...] = (),
) -> WindowResult:
    shown = np.full(TIMES_S.size, True) if kept is None else kept
    return integrate(
        trace_of(TIMES_S[shown], joules[shown], channel=Channel.ENERGY_J),
        sensor,
        ns(start_s),
        ns(end_s),
        period_s=0.1,
        resets_ns=[ns(time_s) for time_s in resets_s],
    )


def test_difference_of_a_counter_with_both_edges_interpolated() -> None:
    result = of_counter(STEADY_J, start_s=0.033, end_s=60.077)
    assert result.energy_j == pytest.approx(10 * 60.044, rel=1e-9)
    assert result.coverage == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("joules", "wrap_j", "energy_j"),
    [(np.mod(STEADY_J, 65.5), 65.5, 600), (np.where(TIMES_S < 5.05, 10.0, 20.0), 100, 10)],
    ids=["wraps", "stands still"],
)
def test_wrap_adds_the_range_once_per_fall(joules: Floats, wrap_j: float, energy_j: float) -> None:
    result = of_counter(joules, Counter(quantum_j=0.001, wrap_j=wrap_j))
    assert result.energy_j == pytest.approx(energy_j, rel=1e-9)


@pytest.mark.parametrize(
    ("joules", "wrap_j", "resets_s"),
    [
        (RESET_J, 262_144, (30.04,)),
        (STEADY_J, None, (30.04,)),
        (RESET_J, None, ()),
        # 10 kJ in a tenth of a second is more than any other power of the run.
        (np.where(TIMES_S < 30.05, 50_000 + 10 * TIMES_S, RESET_J), 60_000, ()),
    ],
    ids=["fall at a reset", "rise at a reset", "fall without a range", "impossible power"],
)
def test_reset_is_a_hole(joules: Floats, wrap_j: float | None, resets_s: tuple[float, ...]) -> None:
    result = of_counter(joules, Counter(quantum_j=0.001, wrap_j=wrap_j), resets_s=resets_s)
    assert result.coverage == pytest.approx(59.9 / 60, rel=1e-9)
    assert result.energy_j == pytest.approx(600, rel=1e-9)


@pytest.mark.parametrize("wrong_j", [-50.0, 0.0, 1e9, np.nan])
def test_one_wrong_or_failed_read_loses_nothing(wrong_j: float) -> None:
    result = of_counter(np.where(TIMES_S == 28, wrong_j, STEADY_J))
    assert result.energy_j == pytest.approx(600, rel=1e-9)
    assert result.coverage == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("joules", "wrap_j", "count"),
    [(RESET_J, None, 1), (np.mod(STEADY_J, 65.5), 65.5, 0), (STEADY_J[:0], None, 0)],
)
def test_falls_without_a_wrap_are_counted(joules: Floats, wrap_j: float | None, count: int) -> None:
    trace = trace_of(TIMES_S[: joules.size], joules, channel=Channel.ENERGY_J)
    assert fall_count(trace, Counter(quantum_j=0.001, wrap_j=wrap_j)) == count


def test_step_that_reaches_half_a_percent_is_refused() -> None:
    assert of_counter(STEADY_J, Counter(quantum_j=3.0)).reason == (
        "the counter's step of 3 J is too coarse for 600 J; it must be under 0.5 % of the energy"
    )
    assert of_counter(STEADY_J, Counter(quantum_j=2.999)).energy_j is not None
    assert of_counter(np.full(TIMES_S.size, 5.0)).energy_j is None


@pytest.mark.parametrize("wrap_j", [None, 500.0])
@pytest.mark.parametrize("end_s", [60.0, 30.0])
def test_long_gap_is_a_hole_and_no_edge_is_interpolated_in_it(
    wrap_j: float | None, end_s: float
) -> None:
    kept = (TIMES_S <= 20) | (TIMES_S >= 40)
    joules = STEADY_J if wrap_j is None else np.mod(STEADY_J, wrap_j)
    result = of_counter(joules, Counter(quantum_j=0.001, wrap_j=wrap_j), end_s=end_s, kept=kept)
    assert result.coverage == pytest.approx(2 / 3, rel=1e-9)
    assert result.energy_j is None
