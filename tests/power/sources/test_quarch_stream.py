from __future__ import annotations

import math
import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.errors import PowerDataLostError
from wattload.core.units import NS_PER_S
from wattload.power.sources.quarch_stream import RATE_MAX, DeviceClock, Thinner

START_NS = 1_000 * NS_PER_S


def test_stream_begins_between_command_and_answer() -> None:
    clock = DeviceClock(START_NS, START_NS + 2_000_000)
    assert clock.host_ns(0) == START_NS + 1_000_000
    assert clock.spread_ns == 2_000_000


def test_early_arrival_bounds_the_begin() -> None:
    clock = DeviceClock(START_NS, START_NS + 2_000_000)
    clock.add_arrival(NS_PER_S, START_NS + NS_PER_S + 500_000)
    assert clock.spread_ns == 500_000
    assert clock.host_ns(NS_PER_S) == START_NS + NS_PER_S + 250_000


def test_late_arrivals_change_nothing() -> None:
    clock = DeviceClock(START_NS, START_NS + 1000)
    for second in range(1, 30):
        clock.add_arrival(second * NS_PER_S, START_NS + second * NS_PER_S + 80_000_000)
    assert clock.host_ns(30 * NS_PER_S) == START_NS + 30 * NS_PER_S + 500


@pytest.mark.parametrize("ppm", [-45.0, 0.0, 30.0])
def test_drift_is_found_under_delays_a_thousand_times_as_large(ppm: float) -> None:
    chance = random.Random(7)
    clock = DeviceClock(START_NS, START_NS + 1_000_000)
    for tenth in range(1, 36_000):
        device_ns = tenth * NS_PER_S // 10
        true_ns = START_NS + round(device_ns * (1 + ppm * 1e-6))
        clock.add_arrival(device_ns, true_ns + round(chance.expovariate(1 / 5e6)))
    assert clock.rate * 1e6 == pytest.approx(ppm, abs=0.5)
    end_ns = 3600 * NS_PER_S
    assert clock.host_ns(end_ns) == pytest.approx(
        START_NS + end_ns * (1 + ppm * 1e-6), abs=2_000_000
    )


def test_first_minute_is_too_short_to_tell_drift_from_delay() -> None:
    clock = DeviceClock(START_NS, START_NS + 1000)
    for second in (1, 20, 40):
        clock.add_arrival(second * NS_PER_S, START_NS + second * NS_PER_S + second * 1_000_000)
    assert clock.rate == 0


def test_no_crystal_is_believed_to_run_off_wildly() -> None:
    clock = DeviceClock(START_NS, START_NS + 1000)
    for second in range(1, 200, 9):
        clock.add_arrival(second * NS_PER_S, START_NS + 2 * second * NS_PER_S)
    assert clock.rate == RATE_MAX


def test_arrival_before_the_command_moves_the_begin() -> None:
    clock = DeviceClock(START_NS, START_NS + 1000)
    clock.add_arrival(NS_PER_S, START_NS + NS_PER_S - 5_000)
    assert clock.host_ns(0) == START_NS - 5_000
    assert clock.spread_ns == 0


PERIOD_NS = 4_000


def times(start: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (np.arange(start, start + count) * PERIOD_NS).astype(np.int64)


def test_interval_is_ready_with_its_last_reading_and_not_before() -> None:
    thinner = Thinner(period_ns=PERIOD_NS, interval_ns=1_000_000)
    assert thinner.add(times(0, 249), np.ones(249)) == []
    (interval,) = thinner.add(times(249, 1), np.ones(1))
    assert (interval.start_ns, interval.end_ns) == (0, 1_000_000)


@settings(max_examples=40)
@given(
    watts=st.lists(st.floats(-1, 100, allow_nan=False), min_size=1, max_size=400),
    cuts=st.lists(st.integers(0, 400), max_size=8),
    interval=st.integers(1, 60),
)
def test_no_joule_is_lost_however_the_stream_is_cut(
    watts: list[float], cuts: list[int], interval: int
) -> None:
    thinner = Thinner(period_ns=PERIOD_NS, interval_ns=interval * PERIOD_NS)
    edges = sorted({0, len(watts), *(cut for cut in cuts if cut < len(watts))})
    intervals = []
    for start, end in pairwise(edges):
        intervals += thinner.add(times(start, end - start), np.array(watts[start:end]))
    whole = len(watts) // interval * interval
    assert len(intervals) == len(watts) // interval
    if intervals:
        truth_j = math.fsum(watts[:whole]) * PERIOD_NS * 1e-9
        assert intervals[-1].energy_j == pytest.approx(truth_j, rel=1e-12, abs=1e-15)
        assert min(each.min_w for each in intervals) == min(watts[:whole])
        assert max(each.max_w for each in intervals) == max(watts[:whole])


def test_jump_within_a_block_is_lost_data() -> None:
    thinner = Thinner(period_ns=PERIOD_NS, interval_ns=1_000_000)
    gap = np.concatenate((times(0, 10), times(12, 10)))
    with pytest.raises(PowerDataLostError, match=r"jumps by 12 us at 48 us, .* 4 us apart"):
        thinner.add(gap, np.ones(20))


def test_jump_between_two_blocks_is_lost_data() -> None:
    thinner = Thinner(period_ns=PERIOD_NS, interval_ns=1_000_000)
    thinner.add(times(0, 10), np.ones(10))
    with pytest.raises(PowerDataLostError, match="readings and their energy were lost"):
        thinner.add(times(11, 1), np.ones(1))


def test_empty_block_is_not_a_reading() -> None:
    thinner = Thinner(period_ns=PERIOD_NS, interval_ns=1_000_000)
    assert thinner.add(times(0, 0), np.ones(0)) == []
    assert thinner.reached_ns == 0


def test_interval_shorter_than_the_period_is_one_period() -> None:
    thinner = Thinner(period_ns=4_096_000, interval_ns=1_000_000)
    time_ns = np.array([0, 4_096_000], dtype=np.int64)
    assert [each.end_ns for each in thinner.add(time_ns, np.ones(2))] == [4_096_000, 8_192_000]
