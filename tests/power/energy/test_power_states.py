"""Seconds, bytes and joules of a window by observed power state; their sums are the totals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.power.energy_traces import Floats, ns, trace_of
from wattload.core.power import Channel, Instant
from wattload.core.record.energy import PowerStateShare
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import Course
from wattload.power.energy.power_states import shares
from wattload.power.energy.profile import profile_of
from wattload.power.energy.trace import Trace

TIMES_S = np.round(np.arange(-20, 130) / 10, 6)
FLAT = np.full(TIMES_S.size, 10.0)
IN_STATE_0: list[float | None] = [0.0] * TIMES_S.size
STEP_AT_4 = [0.0 if time_s < 4 else 1.0 for time_s in TIMES_S]


def states_of(values: list[float | None], times_s: Floats = TIMES_S) -> Trace:
    return trace_of(times_s, values, channel=Channel.POWER_STATE)


def shares_of(
    states: Trace,
    watts: Floats = FLAT,
    *,
    intervals_s: Sequence[tuple[float, float]] = ((0, 10),),
    changes: Trace | None = None,
) -> dict[str, PowerStateShare]:
    """Return the shares of some intervals: energy by power, and a thousand bytes a second."""
    profile = profile_of(trace_of(TIMES_S, watts), Instant(), period_s=0.1)
    totals: dict[str, tuple[Course | None, str]] = {
        "energy_j": (lambda time_ns: profile.cumulative(time_ns)[0], ""),
        "moved_bytes": (lambda time_ns: np.rint((time_ns - ns(0)) / 1e6), ""),
        **dict.fromkeys(("lower_j", "upper_j"), (None, "no bound")),
    }
    windows = [(ns(start_s), ns(end_s)) for start_s, end_s in intervals_s]
    found = shares(states, totals, windows, period_s=0.1, changes=changes)
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


def test_shares_of_several_intervals_are_summed() -> None:
    found = shares_of(states_of([*STEP_AT_4]), intervals_s=[(1, 2), (3, 5), (5, 6), (8, 9)])
    assert {state: (share.seconds, share.energy_j) for state, share in found.items()} == {
        "0": pytest.approx((1.9, 19)),
        "transition": pytest.approx((0.1, 1)),
        "1": pytest.approx((3.0, 30)),
    }
    assert [share.moved_bytes for share in found.values()] == [1900, 3000, 100]
    assert found["0"].missing == dict.fromkeys(("lower_j", "upper_j"), "no bound")


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


@settings(max_examples=40)
@given(
    reads=st.lists(
        st.tuples(st.floats(0.001, 6), st.one_of(st.none(), st.integers(0, 3))), max_size=40
    ),
    edges_s=st.lists(st.floats(-5, 60), min_size=2, max_size=8, unique=True),
)
def test_shares_sum_to_the_totals(
    reads: list[tuple[float, int | None]], edges_s: list[float]
) -> None:
    times_s = np.cumsum([step_s for step_s, _ in reads])
    at_s = sorted(edges_s)
    intervals_s = list(zip(at_s[::2], at_s[1::2], strict=False))
    found = shares_of(states_of([state for _, state in reads], times_s), intervals_s=intervals_s)
    seconds = sum(ns(end_s) - ns(start_s) for start_s, end_s in intervals_s) / NS_PER_S
    assert sum(share.seconds for share in found.values()) == pytest.approx(seconds)
    moved = sum(share.moved_bytes or 0 for share in found.values())
    assert moved == pytest.approx(1000 * seconds, abs=len(at_s))
