from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_traces import Floats, ns, trace_of
from wattload.core.power import Channel
from wattload.core.record.energy import PowerStateShare
from wattload.power.energy.integration import window_curve
from wattload.power.energy.power_states import DivisibleEnergy, shares
from wattload.power.energy.profile import Profile, profile_of
from wattload.power.energy.trace import ByteSeries, Trace

NONE = DivisibleEnergy(curve=None, reason="no bound")


def power(times_s: Floats, watts: Floats) -> Profile:
    from wattload.core.power import Instant

    return profile_of(trace_of(times_s, watts), Instant(), period_s=0.1)


def states_of(times_s: Floats, values: list[float | None]) -> Trace:
    return trace_of(times_s, values, channel=Channel.POWER_STATE)


def shares_of(  # noqa: PLR0917 - all that shares depend on
    states: Trace,
    profile: Profile | None,
    start_s: float,
    end_s: float,
    traffic: ByteSeries | None = None,
    changes: Trace | None = None,
) -> dict[str, PowerStateShare]:
    window = (ns(start_s), ns(end_s))
    energy = (
        DivisibleEnergy(curve=None, reason="too little coverage")
        if profile is None
        else DivisibleEnergy(curve=window_curve(profile, Channel.POWER_W, *window))
    )
    found = shares(
        states,
        {"energy_j": energy, "lower_j": NONE, "upper_j": NONE},
        *window,
        period_s=0.1,
        traffic=traffic,
        changes=changes,
    )
    return {share.state: share for share in found}


TIMES_S = np.round(np.arange(-20, 130) / 10, 6)


def test_segment_is_in_a_state_only_if_both_ends_read_it() -> None:
    states = states_of(TIMES_S, [0.0 if time_s < 4 else 1.0 for time_s in TIMES_S])
    watts = np.where(TIMES_S < 4, 20.0, 10.0)
    found = shares_of(states, power(TIMES_S, watts), 0, 10)
    assert list(found) == ["0", "1", "transition"]
    assert found["0"].seconds == pytest.approx(3.9, rel=1e-9)
    assert found["transition"].seconds == pytest.approx(0.1, rel=1e-9)
    assert found["1"].seconds == pytest.approx(6.0, rel=1e-9)
    assert found["0"].energy_j == pytest.approx(78, rel=1e-9)
    assert found["transition"].energy_j == pytest.approx(1.5, rel=1e-9)
    assert found["1"].energy_j == pytest.approx(60, rel=1e-9)


def test_shares_sum_to_the_totals_with_gaps_in_both_traces() -> None:
    rng = np.random.default_rng(7)
    watts = rng.uniform(5, 20, TIMES_S.size)
    kept = (TIMES_S < 6) | (TIMES_S > 9.2)
    profile = power(TIMES_S[kept], watts[kept])
    values: list[float | None] = [float(rng.integers(0, 3)) for _ in TIMES_S]
    for failed in (40, 41, 90):
        values[failed] = None
    found = shares_of(states_of(TIMES_S, values), profile, 0.03, 10.07)
    total = window_curve(profile, Channel.POWER_W, ns(0.03), ns(10.07))
    energies = [share.energy_j for share in found.values() if share.energy_j is not None]
    assert sum(energies) == pytest.approx(
        float(total.energy_j(np.array([ns(10.07)]))[0]), rel=1e-12
    )
    assert sum(share.seconds for share in found.values()) == pytest.approx(10.04, rel=1e-12)
    assert found["unknown"].seconds == pytest.approx(0.5, rel=1e-9)


def test_state_that_was_read_too_seldom_is_unknown() -> None:
    found = shares_of(
        states_of(np.array([-1.0, 3.0, 6.0, 9.0, 11.0]), [0.0] * 5),
        power(TIMES_S, np.full(TIMES_S.size, 10.0)),
        0,
        10,
    )
    assert found["unknown"].seconds == pytest.approx(3, rel=1e-9)
    assert found["0"].seconds == pytest.approx(7, rel=1e-9)


def test_time_before_the_first_and_after_the_last_read_is_unknown() -> None:
    inside = (TIMES_S >= 2) & (TIMES_S <= 7)
    states = states_of(TIMES_S[inside], [0.0] * int(inside.sum()))
    found = shares_of(states, power(TIMES_S, np.full(TIMES_S.size, 10.0)), 0, 10)
    assert found["unknown"].seconds == pytest.approx(5, rel=1e-9)
    assert found["unknown"].energy_j == pytest.approx(50, rel=1e-9)


def test_one_read_of_the_state_tells_nothing() -> None:
    found = shares_of(
        states_of(np.array([5.0]), [0.0]), power(TIMES_S, np.full(TIMES_S.size, 10.0)), 0, 10
    )
    assert list(found) == ["unknown"]
    assert found["unknown"].seconds == 10


def test_share_of_a_missing_energy_is_missing_with_the_reason() -> None:
    found = shares_of(states_of(TIMES_S, [0.0] * TIMES_S.size), None, 0, 10)
    assert found["0"].energy_j is None
    assert found["0"].missing["energy_j"] == "too little coverage"
    assert found["0"].missing["moved_bytes"]
    assert found["0"].seconds == 10


def series_of(bins: dict[int, int], intervals: list[tuple[int, int]]) -> ByteSeries:
    """Return the series of bytes per bin of 100 ms."""
    return ByteSeries.from_bins(
        np.array([*bins]), np.array([*bins.values()]), bin_ns=100_000_000, intervals=intervals
    )


def test_bytes_are_shared_in_time_and_sum_exactly() -> None:
    bins = {ns(tenth / 10): 1_000_003 + tenth for tenth in range(100)}
    traffic = series_of(bins, [(ns(0), ns(10))])
    states = states_of(TIMES_S, [0.0 if time_s < 4 else 1.0 for time_s in TIMES_S])
    found = shares_of(states, power(TIMES_S, np.full(TIMES_S.size, 10.0)), 0, 10, traffic)
    assert sum(share.moved_bytes or 0 for share in found.values()) == sum(bins.values())
    assert found["0"].moved_bytes == sum(1_000_003 + tenth for tenth in range(39))


def test_bytes_of_a_bin_stay_inside_the_phase() -> None:
    bins = {ns(-0.05): 500, ns(0.95): 700}
    traffic = series_of(bins, [(ns(0), ns(1))])
    at = traffic.at(np.array([ns(0), ns(0.025), ns(0.05), ns(0.95), ns(1)]))
    assert at.tolist() == [0, 250, 500, 500, 1200]


def test_bin_outside_the_window_still_counts() -> None:
    traffic = series_of({ns(1.0): 300}, [(ns(0), ns(1))])
    assert traffic.at(np.array([ns(1)])).tolist() == [300]


def test_series_that_stops_early_gives_no_bytes() -> None:
    traffic = ByteSeries(time_ns=np.array([ns(0), ns(9)]), moved_bytes=np.array([0.0, 900.0]))
    found = shares_of(
        states_of(TIMES_S, [0.0] * TIMES_S.size),
        power(TIMES_S, np.full(TIMES_S.size, 10.0)),
        0,
        10,
        traffic,
    )
    assert found["0"].moved_bytes is None


def test_bytes_of_a_bin_at_an_interval_s_end_stay_out_of_the_pause() -> None:
    bins = {ns(0.9): 1000, ns(1.9): 700}
    traffic = series_of(bins, [(ns(0), ns(0.93)), (ns(1.98), ns(3))])
    at = traffic.at(np.array([ns(0), ns(0.93), ns(1.98), ns(3)]))
    assert at.tolist() == [0, 1000, 1000, 1700]


def test_a_bin_that_several_intervals_share_keeps_its_bytes() -> None:
    intervals = [(ns(0.01), ns(0.02)), (ns(0.05), ns(0.08))]
    traffic = series_of({ns(0): 1001}, intervals)
    at = traffic.at(np.array([moment for span in intervals for moment in span]))
    assert at.tolist() == [0, 250, 250, 1001]


def counted(times_s: Floats, counts: list[float | None]) -> Trace:
    return trace_of(times_s, counts, channel=Channel.POWER_STATE_CHANGES)


FLAT = np.full(TIMES_S.size, 10.0)


def test_changes_that_no_read_saw_are_a_transition() -> None:
    """The drive slept and woke between two reads in second 4, and counted both."""
    seconds = np.arange(0, 11.0)
    changes = counted(seconds, [7.0 if second < 5 else 9.0 for second in seconds])
    states = states_of(TIMES_S, [0.0] * TIMES_S.size)
    found = shares_of(states, power(TIMES_S, FLAT), 0, 10, changes=changes)
    assert found["transition"].seconds == pytest.approx(1.0, rel=1e-9)
    assert found["0"].seconds == pytest.approx(9.0, rel=1e-9)


def test_a_change_that_a_read_saw_is_explained() -> None:
    seconds = np.arange(0, 11.0)
    changes = counted(seconds, [7.0 if second < 5 else 8.0 for second in seconds])
    states = states_of(TIMES_S, [0.0 if time_s < 4.5 else 1.0 for time_s in TIMES_S])
    found = shares_of(states, power(TIMES_S, FLAT), 0, 10, changes=changes)
    assert found["transition"].seconds == pytest.approx(0.1, rel=1e-9)


def test_a_count_that_fell_explains_nothing() -> None:
    changes = counted(np.array([0.0, 5.0, 10.0]), [7.0, 3.0, 3.0])
    states = states_of(TIMES_S, [0.0] * TIMES_S.size)
    found = shares_of(states, power(TIMES_S, FLAT), 0, 10, changes=changes)
    assert found["transition"].seconds == pytest.approx(5.0, rel=1e-9)


def test_a_count_that_was_not_read_changes_nothing() -> None:
    changes = counted(np.array([0.0, 5.0]), [None, 3.0])
    states = states_of(TIMES_S, [0.0] * TIMES_S.size)
    found = shares_of(states, power(TIMES_S, FLAT), 0, 10, changes=changes)
    assert list(found) == ["0"]
