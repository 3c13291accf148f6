"""The virtual drive's insides: rates that hold, energy that is exact, states, heat, limits."""

from __future__ import annotations

import pytest

from tests.lab.virtual_ssd.curve import EnergyCurve
from tests.lab.virtual_ssd.design import STATES, Design
from tests.lab.virtual_ssd.thermal import HEAVY, LIGHT
from tests.lab_unit.virtual import CHUNK_BYTES, NS, START_NS, Bench

ROOMY = Design(cache_bytes=1 << 40)


def test_curve_is_exact_between_its_corners() -> None:
    curve = EnergyCurve(100)
    curve.add(100 + NS, 5.0)
    curve.add(100 + 2 * NS, 5.0)
    curve.add(100 + 3 * NS, 20.0)
    assert curve.corner_count == 3
    assert curve.between_j(100 + NS // 2, 100 + 5 * NS // 2) == pytest.approx(7.5 + 10.0)
    assert curve.energy_j(100) == 0
    assert curve.energy_j(100 + 3 * NS) == curve.total_j == 30.0


def test_idle_drive_draws_its_state_s_idle_power() -> None:
    bench = Bench()
    bench.wait(10)
    assert bench.energy_j(START_NS, bench.now_ns) == pytest.approx(50.0)


@pytest.mark.parametrize("state", [0, 1, 2])
@pytest.mark.parametrize("is_write", [False, True])
def test_rate_is_the_state_s_own(state: int, is_write: bool) -> None:
    bench = Bench(ROOMY)
    bench.engine.request_state(state, bench.now_ns)
    bench.drain()
    for _ in range(50):
        bench.give(is_write=is_write)
    seconds = bench.drain()
    rate = STATES[state].write_bytes_per_s if is_write else STATES[state].read_bytes_per_s
    assert 50 * CHUNK_BYTES / seconds == pytest.approx(rate, rel=1e-6)


def test_reading_costs_idle_power_and_joules_per_byte() -> None:
    bench = Bench()
    for _ in range(24):
        bench.give(is_write=False)
    seconds = bench.drain()
    moved = 24 * CHUNK_BYTES
    expected_j = STATES[0].idle_w * seconds + Design().read_j_per_byte * moved
    assert bench.energy_j(START_NS, bench.now_ns) == pytest.approx(expected_j, rel=1e-9)


def test_energy_of_a_write_includes_its_destaging_afterwards() -> None:
    bench = Bench()
    for _ in range(10):
        bench.give(is_write=True)
    written_s = bench.drain()
    at_end_j = bench.energy_j(START_NS, bench.now_ns)
    assert bench.engine.dirty_bytes > 0
    bench.wait(20)
    moved = 10 * CHUNK_BYTES
    idle_j = STATES[0].idle_w * (written_s + 20)
    per_byte = Design().write_j_per_byte + Design().destage_j_per_byte
    assert bench.engine.dirty_bytes == 0
    total_j = bench.energy_j(START_NS, bench.now_ns)
    assert total_j == pytest.approx(idle_j + per_byte * moved, rel=1e-6)
    assert total_j - at_end_j > STATES[0].idle_w * 20


def test_account_does_not_depend_on_how_often_it_is_kept() -> None:
    totals = []
    for steps in (1, 7, 1000):
        bench = Bench()
        for _ in range(30):
            bench.give(is_write=True)
        bench.engine.request_state(1, bench.now_ns)
        for _ in range(steps):
            bench.wait(6 / steps)
        end_ns = START_NS + 5 * NS
        totals.append(bench.energy_j(START_NS, end_ns))
    assert totals == pytest.approx([totals[0]] * 3, rel=1e-9)


def test_writes_slow_down_when_the_cache_is_full() -> None:
    bench = Bench(Design(cache_bytes=4 * CHUNK_BYTES))
    for _ in range(200):
        bench.give(is_write=True)
    bench.drain()
    gaps_ns = [b - a for a, b in zip(bench.finished_ns, bench.finished_ns[1:], strict=False)]
    assert gaps_ns[-1] == pytest.approx(gaps_ns[0] / Design().destage_share, rel=1e-6)


def test_change_of_state_takes_the_latencies_of_both_states() -> None:
    bench = Bench()
    end_ns = bench.engine.request_state(1, bench.now_ns)
    assert end_ns - START_NS == (2_000 + 5_000) * 1000
    bench.give(is_write=False)
    bench.wait(0.005)
    assert bench.engine.state == 0
    bench.drain()
    assert bench.engine.state == 1
    length_ns = round(CHUNK_BYTES / STATES[1].read_bytes_per_s * NS)
    assert bench.finished_ns == [end_ns + length_ns]


def test_sleeping_drive_wakes_for_io_into_the_state_it_came_from() -> None:
    bench = Bench()
    for state in (1, 3):
        bench.engine.request_state(state, bench.now_ns)
        bench.drain()
    before_ns = bench.now_ns
    bench.wait(10)
    assert bench.energy_j(before_ns, bench.now_ns) == pytest.approx(3.0)
    bench.give(is_write=False)
    seconds = bench.drain()
    assert bench.engine.state == 1
    assert seconds == pytest.approx(0.105 + CHUNK_BYTES / STATES[1].read_bytes_per_s)


def test_destaging_waits_while_asleep_unless_permitted() -> None:
    bench = Bench()
    bench.give(is_write=True)
    bench.drain()
    bench.engine.force_state(3, bench.now_ns)
    dirty_bytes = bench.engine.dirty_bytes
    bench.wait(5)
    assert bench.engine.dirty_bytes == dirty_bytes > 0
    bench.engine.background_while_asleep = True
    bench.wait(5)
    assert bench.engine.dirty_bytes == 0


def test_temperature_follows_power() -> None:
    bench = Bench()
    idle_k = bench.engine.thermal.temperature_k
    for _ in range(int(120 * 12e6) // CHUNK_BYTES):
        bench.give(is_write=False)
    bench.drain()
    busy_k = 300 + 1.6 * 17.0
    assert idle_k == 308.0
    assert bench.engine.thermal.temperature_k == pytest.approx(busy_k, abs=0.1)
    bench.wait(20)
    left_k = bench.engine.thermal.temperature_k - idle_k
    assert left_k == pytest.approx((busy_k - idle_k) / 2.718281828, rel=0.01)


def test_host_s_thresholds_throttle_and_are_counted() -> None:
    bench = Bench()
    thermal = bench.engine.thermal
    thermal.light_k, thermal.heavy_k = 315, 325
    for _ in range(int(60 * 12e6) // CHUNK_BYTES):
        bench.give(is_write=False)
    bench.wait(5)
    unthrottled = bench.engine.read_bytes
    bench.wait(15)
    assert thermal.level == LIGHT
    bench.wait(1)
    before = bench.engine.read_bytes
    bench.wait(5)
    assert (bench.engine.read_bytes - before) / unthrottled == pytest.approx(0.7, rel=0.05)
    assert thermal.entries[LIGHT] >= 1
    assert thermal.seconds[LIGHT] > 5
    assert thermal.entries[HEAVY] == 0
    assert thermal.temperature_k < 325


@pytest.mark.parametrize("is_write", [False, True])
@pytest.mark.parametrize("limit_w", [8.0, 12.0])
def test_power_limit_holds(limit_w: float, is_write: bool) -> None:
    bench = Bench()
    bench.engine.limit_w = limit_w
    for _ in range(400):
        bench.give(is_write=is_write)
    bench.wait(5)
    start_ns = bench.now_ns
    bench.wait(10)
    mean_w = bench.energy_j(start_ns, bench.now_ns) / 10
    assert 0.8 * limit_w < mean_w <= limit_w * 1.001


def test_maximum_of_every_state_holds_whatever_is_done() -> None:
    for state in (0, 1, 2):
        bench = Bench()
        bench.engine.force_state(state, bench.now_ns)
        for index in range(300):
            bench.give(is_write=index % 3 != 0)
        while bench.engine.wake_ns is not None:
            before_ns = bench.now_ns
            bench.wait(0.1)
            mean_w = bench.energy_j(before_ns, bench.now_ns) / 0.1
            assert STATES[state].idle_w <= mean_w <= STATES[state].max_w
