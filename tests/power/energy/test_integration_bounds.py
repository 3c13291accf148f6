"""Limits from power state descriptors hold whatever the drive did between two reads."""

from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_traces import Floats, integrate, ns, trace_of
from wattload.core.power import Bounds, Channel
from wattload.power.energy.trace import Trace

TIMES_S = np.round(np.arange(-20, 120) / 10, 6)
SETTLING = Bounds(settle_s=0.5)
UPPER, LOWER = Channel.UPPER_W, Channel.LOWER_W


def energy_j(trace: Trace, sensor: Bounds, end_s: float = 10) -> float:
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
    assert energy_j(trace, SETTLING) == pytest.approx(expected_j, rel=1e-9)


def test_a_state_seen_for_one_read_only_widens_all_that_its_transitions_reach() -> None:
    watts = np.where((TIMES_S > 3.95) & (TIMES_S < 4.05), 25.0, 15.0)
    wide_s = 4.1 + 0.5 - 3.9
    found_j = energy_j(trace_of(TIMES_S, watts, channel=UPPER), SETTLING)
    assert found_j == pytest.approx(25 * wide_s + 15 * (10 - wide_s), rel=1e-9)


@pytest.mark.parametrize(("channel", "watts", "limit_w"), [(UPPER, 15, 25.0), (LOWER, 4, 0.005)])
def test_an_unread_interval_is_bounded_by_what_any_state_allows(
    channel: Channel, watts: float, limit_w: float
) -> None:
    trace = trace_of(TIMES_S, np.where(TIMES_S == 4.2, np.nan, watts), channel=channel)
    found_j = energy_j(trace, Bounds(lowest_w=0.005, highest_w=25.0))
    assert found_j == pytest.approx(watts * 9.8 + limit_w * 0.2, rel=1e-9)


@pytest.mark.parametrize(("channel", "before_w"), [(UPPER, 25.0), (LOWER, 3.0)])
def test_else_by_the_widest_limit_of_the_run(channel: Channel, before_w: float) -> None:
    """The state changes at second -1, and is read neither from 9.2 to 9.4 nor after the end."""
    watts = np.where(TIMES_S < -1, before_w, 20.0)
    watts[(TIMES_S > 9.2) & (TIMES_S < 9.4)] = np.nan
    until_s = float(TIMES_S[-1]) + 0.1
    found_j = energy_j(trace_of(TIMES_S, watts, channel=channel), Bounds(), until_s)
    expected_j = 20 * (until_s - 0.3) + before_w * 0.3
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
    found_j = energy_j(trace_of(reads_s, seen_w, channel=channel), SETTLING, 60)
    assert sign * (found_j - true_j) >= -1e-2
