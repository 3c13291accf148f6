"""What the virtual drive tells of itself, read by our decoders: one text, read twice."""

from __future__ import annotations

import struct

import pytest

from tests.lab.virtual_ssd.design import STATES
from tests.lab.virtual_ssd.meters import interval_power_w, power_field
from tests.lab_unit.virtual import NS, START_NS, Bench, VirtualAdmin
from wattload.power.nvme.admin import SET_FEATURES, AdminCommand, fetch
from wattload.power.nvme.features import (
    POWER_LIMIT,
    POWER_MANAGEMENT,
    Select,
    is_saveable,
    read_power_limit,
    read_power_state,
    read_transitions,
    set_command,
)
from wattload.power.nvme.identify import identify_controller
from wattload.power.nvme.logs import (
    read_firmware_slot,
    read_freezing_commands,
    read_ocp_smart,
    read_smart,
)
from wattload.power.nvme.measurement import (
    POWER_MEASUREMENT,
    START,
    STOP,
    read_measurement_setting,
    read_power_measurement,
)


@pytest.fixture
def admin() -> VirtualAdmin:
    return VirtualAdmin(Bench())


def set_feature(admin: VirtualAdmin, feature: int, value: int, data: bytes = b"") -> int:
    admin.sent_data = data
    status = admin.submit(
        AdminCommand(name="", opcode=SET_FEATURES, cdw10=feature, cdw11=value)
    ).status
    admin.sent_data = b""
    return status


def busy(admin: VirtualAdmin, seconds: float) -> None:
    """Read for a time."""
    for _ in range(int(seconds * 12) + 1):
        admin.bench.give(is_write=False)
    admin.bench.wait(seconds)


def test_power_states_are_read_as_designed(admin: VirtualAdmin) -> None:
    controller = identify_controller(admin)
    assert len(controller.power_states) == len(STATES)
    for reported, true in zip(controller.power_states, STATES, strict=True):
        assert reported.max_w == pytest.approx(true.max_w)
        assert reported.idle_w == pytest.approx(true.idle_w)
        assert reported.operational == true.operational
        assert reported.entry_latency_s == pytest.approx(true.entry_us / 1e6)
        assert reported.exit_latency_s == pytest.approx(true.exit_us / 1e6)
    assert controller.capabilities.power_measurement
    assert controller.capabilities.power_limit
    assert controller.selects_features
    assert read_freezing_commands(admin, controller) == frozenset()
    assert read_firmware_slot(admin) == 1


def test_state_is_reached_when_set_features_completes(admin: VirtualAdmin) -> None:
    before_ns = admin.bench.now_ns
    fetch(admin, set_command(POWER_MANAGEMENT, "state", value=1))
    assert read_power_state(admin) == 1
    assert admin.bench.now_ns - before_ns == 7_000_000
    assert read_power_state(admin, Select.DEFAULT) == 0
    assert not is_saveable(admin, 0x02)


@pytest.mark.parametrize(
    ("feature", "value"),
    [(0x02, 4), (0x23, 100 | 3 << 16), (0x25, 2), (0xC7, 26), (0xC7, 9), (0x99, 0)],
)
def test_impossible_values_are_refused(admin: VirtualAdmin, feature: int, value: int) -> None:
    assert set_feature(admin, feature, value) == 0x4002


def test_nothing_is_saved(admin: VirtualAdmin) -> None:
    assert set_feature(admin, 0x02 | 1 << 31, 1) == 0x410D
    assert read_power_state(admin) == 0


def test_limits_are_read_back_and_hold(admin: VirtualAdmin) -> None:
    fetch(admin, set_command(POWER_LIMIT, "limit", value=1000 | 2 << 16))
    assert read_power_limit(admin).watts == pytest.approx(10.0)
    assert admin.bench.engine.limit_w == pytest.approx(10.0)
    assert set_feature(admin, 0xC7, 12) == 0
    assert admin.bench.engine.limit_w == pytest.approx(10.0)
    assert set_feature(admin, 0x23, 0) == 0
    assert read_power_limit(admin).watts is None
    assert admin.bench.engine.limit_w == pytest.approx(12.0)
    assert set_feature(admin, 0x23, 350 | 2 << 16) == 0x413E


def test_transitions_are_taken_over(admin: VirtualAdmin) -> None:
    table = struct.pack("<Q", 3 << 3 | 700 << 8).ljust(256, b"\0")
    assert set_feature(admin, 0x0C, 1, table) == 0
    (rule,) = read_transitions(admin).transitions
    assert (rule.state, rule.target, rule.idle_s) == (0, 3, 0.7)
    admin.bench.wait(1)
    assert read_power_state(admin) == 3


@pytest.mark.parametrize("watts", [0.5, 5.0, 6.5, 6.6, 17.25])
def test_interval_power_is_coded_as_finely_as_fits(watts: float) -> None:
    raw = power_field(watts)
    step_w = {1: 1e-4, 2: 1e-2}[raw >> 16]
    assert (raw & 0xFFFF) * step_w == pytest.approx(watts, abs=step_w / 2)
    assert step_w == (1e-4 if watts <= 6.5535 else 1e-2)


def test_sliding_interval_power_is_the_mean_of_the_last_second(admin: VirtualAdmin) -> None:
    bench = admin.bench
    bench.wait(5)
    busy(admin, 0.5)
    told_w = read_smart(admin).interval_power_w
    assert told_w == pytest.approx(bench.energy_j(bench.now_ns - NS, bench.now_ns), abs=0.006)
    assert told_w == pytest.approx(11.0, abs=0.01)


def test_tumbling_interval_power_keeps_still_for_a_second(admin: VirtualAdmin) -> None:
    bench = admin.bench
    bench.drive.updates = "tumbling"
    bench.wait(5)
    busy(admin, 0.999)
    assert read_smart(admin).interval_power_w == pytest.approx(5.0)
    bench.wait(0.001)
    last_second_j = bench.energy_j(START_NS + 5 * NS, START_NS + 6 * NS)
    assert read_smart(admin).interval_power_w == pytest.approx(last_second_j, abs=0.006)


def test_window_of_interval_power_can_be_another_than_is_declared(admin: VirtualAdmin) -> None:
    bench = admin.bench
    bench.drive.window_s = 2.0
    bench.wait(5)
    busy(admin, 1.0)
    mean_w = bench.energy_j(bench.now_ns - 2 * NS, bench.now_ns) / 2
    assert read_smart(admin).interval_power_w == pytest.approx(mean_w, abs=0.006)


def test_interval_power_before_the_first_second_is_of_what_there_is() -> None:
    bench = Bench()
    assert interval_power_w(bench.engine.curve, "sliding") == 0.0
    bench.wait(0.25)
    assert interval_power_w(bench.engine.curve, "sliding") == pytest.approx(5.0)


def test_smart_counts_bytes_energy_and_heat(admin: VirtualAdmin) -> None:
    for _ in range(10):
        admin.bench.give(is_write=True)
    admin.bench.drain()
    admin.bench.wait(600)
    smart = read_smart(admin)
    assert smart.written_bytes == 21 * 512_000
    assert smart.write_commands == 10
    assert smart.temperature_k == round(admin.bench.engine.thermal.temperature_k)
    true_wh = 1234.3 + admin.bench.engine.curve.total_j / 3600
    assert smart.lifetime_energy_wh is not None
    assert 0 <= smart.lifetime_energy_wh - true_wh < 1


def test_measurement_is_the_mean_of_whole_seconds(admin: VirtualAdmin) -> None:
    bench = admin.bench
    bench.wait(3)
    fetch(admin, set_command(POWER_MEASUREMENT, "start", value=START | 30 << 16))
    start_ns = bench.now_ns
    setting = read_measurement_setting(admin)
    assert (setting.active, setting.stop_after_minutes) == (True, 30)
    busy(admin, 20.5)
    bench.wait(9.7)
    log = read_power_measurement(admin)
    truth_j = bench.energy_j(start_ns, start_ns + 30 * NS)
    assert (log.generation, log.active, log.count) == (1, True, 30)
    assert log.average.watts is not None
    assert log.average.watts * 30 == pytest.approx(truth_j, rel=0.0005)
    assert log.maximum.watts == pytest.approx(17.0, abs=0.01)
    assert log.histogram is not None
    assert sum(each.count for each in log.histogram) == 30
    assert log.histogram[67].lower_w == 16.75
    fetch(admin, set_command(POWER_MEASUREMENT, "stop", value=STOP))
    bench.wait(10)
    assert read_power_measurement(admin).count == 30
    assert not read_power_measurement(admin).active


def test_measurement_ends_by_itself(admin: VirtualAdmin) -> None:
    fetch(admin, set_command(POWER_MEASUREMENT, "start", value=START | 1 << 16))
    admin.bench.wait(61)
    log = read_power_measurement(admin)
    assert (log.active, log.count) == (False, 60)


def test_ocp_log_counts_changes_and_media(admin: VirtualAdmin) -> None:
    for state in (1, 2, 0):
        fetch(admin, set_command(POWER_MANAGEMENT, "state", value=state))
    admin.bench.give(is_write=True)
    admin.bench.drain()
    admin.bench.wait(5)
    log = read_ocp_smart(admin)
    assert log.power_state_changes == 3
    assert log.media_written_bytes == pytest.approx(1.1 * (1 << 20), abs=3)
    assert log.peak_power_w == 25
    assert log.average_power_w == 5
