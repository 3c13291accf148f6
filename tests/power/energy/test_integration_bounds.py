"""Limits from power state descriptors hold whatever the drive did between two reads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.power.energy_traces import Floats, ns, trace_of
from wattload.core.power import Bounds, Channel
from wattload.power.energy.integration import WindowResult, integrate


def bounds_of(  # noqa: PLR0917 - a window of a trace
    times_s: Floats, watts: Floats, channel: Channel, sensor: Bounds, start_s: float, end_s: float
) -> WindowResult:
    trace = trace_of(times_s, watts, channel=channel)
    return integrate(trace, sensor, ns(start_s), ns(end_s), period_s=0.1)


TIMES_S = np.round(np.arange(-20, 120) / 10, 6)


@pytest.mark.parametrize(
    ("channel", "before_w", "after_w", "seconds_at_before"),
    [
        (Channel.UPPER_W, 25.0, 15.0, 4.0 + 0.5),
        (Channel.UPPER_W, 15.0, 25.0, 3.9),
        (Channel.LOWER_W, 5.0, 4.0, 3.9),
        (Channel.LOWER_W, 4.0, 5.0, 4.0 + 0.5),
    ],
)
def test_the_wider_limit_holds_until_a_transition_must_be_over(
    channel: Channel, before_w: float, after_w: float, seconds_at_before: float
) -> None:
    """The state is read as changed at second 4; the transition may take half a second more."""
    watts = np.where(TIMES_S < 4, before_w, after_w)
    result = bounds_of(TIMES_S, watts, channel, Bounds(settle_s=0.5), 0, 10)
    expected_j = before_w * seconds_at_before + after_w * (10 - seconds_at_before)
    assert result.energy_j == pytest.approx(expected_j, rel=1e-9)


def test_a_state_seen_for_one_read_only_widens_all_that_its_transitions_reach() -> None:
    watts = np.where((TIMES_S > 3.95) & (TIMES_S < 4.05), 25.0, 15.0)
    result = bounds_of(TIMES_S, watts, Channel.UPPER_W, Bounds(settle_s=0.5), 0, 10)
    wide_s = 4.1 + 0.5 - 3.9
    assert result.energy_j == pytest.approx(25 * wide_s + 15 * (10 - wide_s), rel=1e-9)


def test_the_length_of_a_read_belongs_to_the_change_it_saw() -> None:
    trace = trace_of(TIMES_S, np.where(TIMES_S < 4, 25.0, 15.0), channel=Channel.UPPER_W)
    trace.spread_ns[:] = 40_000_000
    result = integrate(trace, Bounds(), ns(0), ns(10), period_s=0.1)
    assert result.energy_j == pytest.approx(25 * 4.02 + 15 * 5.98, rel=1e-9)


def test_an_unread_interval_is_bounded_by_what_any_state_allows() -> None:
    values = np.where(TIMES_S == 4.2, np.nan, 15.0)
    sensor = Bounds(lowest_w=0.005, highest_w=25.0)
    upper = trace_of(TIMES_S, values, channel=Channel.UPPER_W)
    found = integrate(upper, sensor, ns(0), ns(10), period_s=0.1)
    assert found.coverage == pytest.approx(0.98, rel=1e-9)
    assert found.energy_j == pytest.approx(15 * 9.8 + 25 * 0.2, rel=1e-9)
    lower = trace_of(TIMES_S, np.where(TIMES_S == 4.2, np.nan, 4.0), channel=Channel.LOWER_W)
    found = integrate(lower, sensor, ns(0), ns(10), period_s=0.1)
    assert found.energy_j == pytest.approx(4 * 9.8 + 0.005 * 0.2, rel=1e-9)


def _walk(rng: np.random.Generator, sensor: Bounds) -> tuple[Floats, NDArray[np.int64], Floats]:
    """Return when a drive changed state, to which, and when each transition was over."""
    changes_s = np.cumsum(rng.uniform(0.7, 4.0, 40)) - 15
    states = rng.integers(0, 2, changes_s.size)
    over_s = changes_s + rng.uniform(0, sensor.settle_s, changes_s.size)
    return changes_s, states, over_s


@pytest.mark.parametrize("seed", range(8))
def test_the_truth_lies_within_the_bounds_however_states_change(seed: int) -> None:
    """A drive at the very limits of its states, that draws the worse of both while it changes."""
    rng = np.random.default_rng(seed)
    sensor = Bounds(settle_s=0.5, lowest_w=4.0, highest_w=25.0)
    changes_s, states, over_s = _walk(rng, sensor)
    reads_s = np.sort(rng.uniform(-10, 70, 800)).round(6)
    seen = states[np.searchsorted(changes_s, reads_s, "right") - 1]
    fine_s = np.arange(0, 60, 1e-4) + 5e-5
    at = np.searchsorted(changes_s, fine_s, "right") - 1
    moving = fine_s < over_s[at]

    def truth_j(limit: dict[int, float], pick: Callable[[Floats, Floats], Floats]) -> float:
        watts = np.array([limit[0], limit[1]])
        now, before = watts[states[at]], watts[states[at - 1]]
        return float(np.where(moving, pick(now, before), now).sum() * 1e-4)

    for channel, limit, sign in (
        (Channel.UPPER_W, {0: 25.0, 1: 15.0}, 1),
        (Channel.LOWER_W, {0: 5.0, 1: 4.0}, -1),
    ):
        pick = np.maximum if sign > 0 else np.minimum
        watts = np.array([limit[int(state)] for state in seen])
        result = bounds_of(reads_s, watts, channel, sensor, 0, 60)
        assert result.energy_j is not None
        assert sign * (result.energy_j - truth_j(limit, pick)) >= -1e-2
