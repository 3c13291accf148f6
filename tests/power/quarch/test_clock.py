from __future__ import annotations

import random

import pytest

from wattload.core.units import NS_PER_S
from wattload.power.quarch.clock import RATE_MAX, DeviceClock

START_NS = 1_000 * NS_PER_S


def test_stream_begins_between_command_and_answer() -> None:
    clock = DeviceClock(START_NS, START_NS + 2_000_000)
    assert clock.host_ns(0) == START_NS + 1_000_000
    assert clock.spread_ns == 2_000_000


def test_early_arrival_bounds_the_begin() -> None:
    clock = DeviceClock(START_NS, START_NS + 2_000_000)
    clock.heard(NS_PER_S, START_NS + NS_PER_S + 500_000)
    assert clock.spread_ns == 500_000
    assert clock.host_ns(NS_PER_S) == START_NS + NS_PER_S + 250_000


def test_late_arrivals_change_nothing() -> None:
    clock = DeviceClock(START_NS, START_NS + 1000)
    for second in range(1, 30):
        clock.heard(second * NS_PER_S, START_NS + second * NS_PER_S + 80_000_000)
    assert clock.host_ns(30 * NS_PER_S) == START_NS + 30 * NS_PER_S + 500


@pytest.mark.parametrize("ppm", [-45.0, 0.0, 30.0])
def test_drift_is_found_under_delays_a_thousand_times_as_large(ppm: float) -> None:
    chance = random.Random(7)
    clock = DeviceClock(START_NS, START_NS + 1_000_000)
    for tenth in range(1, 36_000):
        device_ns = tenth * NS_PER_S // 10
        true_ns = START_NS + round(device_ns * (1 + ppm * 1e-6))
        clock.heard(device_ns, true_ns + round(chance.expovariate(1 / 5e6)))
    assert clock.rate * 1e6 == pytest.approx(ppm, abs=0.5)
    end_ns = 3600 * NS_PER_S
    assert clock.host_ns(end_ns) == pytest.approx(
        START_NS + end_ns * (1 + ppm * 1e-6), abs=2_000_000
    )


def test_first_minute_is_too_short_to_tell_drift_from_delay() -> None:
    clock = DeviceClock(START_NS, START_NS + 1000)
    for second in (1, 20, 40):
        clock.heard(second * NS_PER_S, START_NS + second * NS_PER_S + second * 1_000_000)
    assert clock.rate == 0


def test_no_crystal_is_believed_to_run_off_wildly() -> None:
    clock = DeviceClock(START_NS, START_NS + 1000)
    for second in range(1, 200, 9):
        clock.heard(second * NS_PER_S, START_NS + 2 * second * NS_PER_S)
    assert clock.rate == RATE_MAX


def test_arrival_before_the_command_moves_the_begin() -> None:
    clock = DeviceClock(START_NS, START_NS + 1000)
    clock.heard(NS_PER_S, START_NS + NS_PER_S - 5_000)
    assert clock.host_ns(0) == START_NS - 5_000
    assert clock.spread_ns == 0
