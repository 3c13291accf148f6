"""Seconds, bytes and joules of a window by observed power state; their sums are the totals."""

from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_traces import Floats, ns, trace_of
from wattload.core.power import Channel, Instant
from wattload.core.record.energy import PowerStateShare
from wattload.power.energy.integration import window_curve
from wattload.power.energy.power_states import DivisibleEnergy, shares
from wattload.power.energy.profile import profile_of
from wattload.power.energy.trace import ByteSeries, Trace

NONE = DivisibleEnergy(curve=None, reason="no bound")
TIMES_S = np.round(np.arange(-20, 130) / 10, 6)
FLAT = np.full(TIMES_S.size, 10.0)
IN_STATE_0: list[float | None] = [0.0] * TIMES_S.size
STEP_AT_4 = [0.0 if time_s < 4 else 1.0 for time_s in TIMES_S]


def states_of(values: list[float | None], times_s: Floats = TIMES_S) -> Trace:
    return trace_of(times_s, values, channel=Channel.POWER_STATE)


def shares_of(
    states: Trace,
    watts: Floats | None = FLAT,
    times_s: Floats = TIMES_S,
    *,
    traffic: ByteSeries | None = None,
    changes: Trace | None = None,
) -> dict[str, PowerStateShare]:
    """Return the shares of the window from 0 to 10 s."""
    window = (ns(0), ns(10))
    energy = DivisibleEnergy(curve=None, reason="too little coverage")
    if watts is not None:
        profile = profile_of(trace_of(times_s, watts), Instant(), period_s=0.1)
        energy = DivisibleEnergy(curve=window_curve(profile, Channel.POWER_W, *window))
    found = shares(
        states,
        {"energy_j": energy, "lower_j": NONE, "upper_j": NONE},
        *window,
        period_s=0.1,
        traffic=traffic,
        changes=changes,
    )
    return {share.state: share for share in found}


def test_segment_is_in_a_state_only_if_both_ends_read_it() -> None:
    found = shares_of(states_of([*STEP_AT_4]), np.where(TIMES_S < 4, 20.0, 10.0))
    assert {state: (share.seconds, share.energy_j) for state, share in found.items()} == {
        "0": pytest.approx((3.9, 78)),
        "transition": pytest.approx((0.1, 1.5)),
        "1": pytest.approx((6.0, 60)),
    }


@pytest.mark.parametrize(
    ("read_s", "unknown_s"),
    [
        (np.array([-1.0, 3.0, 6.0, 9.0, 11.0]), 3.0),  # too seldom
        (TIMES_S[(TIMES_S >= 2) & (TIMES_S <= 7)], 5.0),  # not at the beginning and the end
        (np.array([5.0]), 10.0),
    ],
)
def test_time_without_reads_of_the_state_is_unknown(read_s: Floats, unknown_s: float) -> None:
    found = shares_of(states_of([0.0] * read_s.size, read_s))
    assert found["unknown"].seconds == pytest.approx(unknown_s)
    assert found["unknown"].energy_j == pytest.approx(10 * unknown_s)


def test_share_of_a_missing_energy_is_missing_with_the_reason() -> None:
    found = shares_of(states_of(IN_STATE_0), None)["0"]
    assert found.missing["energy_j"] == "too little coverage"
    assert found.missing["moved_bytes"]
    assert found.seconds == 10


def series_of(bins: dict[float, int], *intervals_s: tuple[float, float]) -> ByteSeries:
    """Return the series of bytes per bin of 100 ms."""
    return ByteSeries.from_bins(
        np.array([ns(at_s) for at_s in bins]),
        np.array([*bins.values()]),
        bin_ns=100_000_000,
        intervals=[(ns(start_s), ns(end_s)) for start_s, end_s in intervals_s],
    )


def test_bytes_are_shared_in_time_and_sum_exactly() -> None:
    bins = {tenth / 10: 1_000_003 + tenth for tenth in range(100)}
    found = shares_of(states_of([*STEP_AT_4]), traffic=series_of(bins, (0, 10)))
    assert sum(share.moved_bytes or 0 for share in found.values()) == sum(bins.values())
    assert found["0"].moved_bytes == sum(1_000_003 + tenth for tenth in range(39))


@pytest.mark.parametrize(
    ("bins", "intervals_s", "moved"),
    [
        ({-0.05: 500, 0.95: 700}, [(0, 1)], {0.025: 250, 0.05: 500, 0.95: 500, 1: 1200}),
        ({1.0: 300}, [(0, 1)], {1: 300}),
        ({0.9: 1000, 1.9: 700}, [(0, 0.93), (1.98, 3)], {0.93: 1000, 1.98: 1000, 3: 1700}),
        ({0.0: 1001}, [(0.01, 0.02), (0.05, 0.08)], {0.02: 250, 0.05: 250, 0.08: 1001}),
    ],
    ids=["at both edges", "behind the end", "not in the pause", "in several intervals"],
)
def test_bytes_of_a_bin_are_in_the_intervals_of_the_phase(
    bins: dict[float, int], intervals_s: list[tuple[float, float]], moved: dict[float, int]
) -> None:
    traffic = series_of(bins, *intervals_s)
    assert traffic.at(np.array([ns(at_s) for at_s in moved])).tolist() == [*moved.values()]


SECONDS = np.arange(0, 11.0)


@pytest.mark.parametrize(
    ("counts", "states", "transition_s"),
    [
        # The drive slept and woke between two reads in second 4, and counted both.
        ([7.0 if second < 5 else 9.0 for second in SECONDS], IN_STATE_0, 1.0),
        # A change that a read saw is explained.
        ([7.0 if second < 4 else 8.0 for second in SECONDS], STEP_AT_4, 0.1),
        ([7.0 if second < 5 else 3.0 for second in SECONDS], IN_STATE_0, 1.0),
        ([None if second < 5 else 3.0 for second in SECONDS], IN_STATE_0, 0.0),
    ],
    ids=["unseen", "seen", "count that fell", "count that was not read"],
)
def test_changes_that_no_read_saw_are_a_transition(
    counts: list[float | None], states: list[float | None], transition_s: float
) -> None:
    changes = trace_of(SECONDS, counts, channel=Channel.POWER_STATE_CHANGES)
    found = shares_of(states_of([*states]), changes=changes)
    seconds = found["transition"].seconds if "transition" in found else 0.0
    assert seconds == pytest.approx(transition_s)
