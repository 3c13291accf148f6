from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.model_host.drive import effects_bytes, smart_bytes
from wattload.core.errors import PowerError
from wattload.power.nvme.admin import log_command
from wattload.power.nvme.logs import decode_effects, decode_firmware_slot, freezing_commands
from wattload.power.nvme.smart import decode_smart

COUNT = st.integers(0, 2**128 - 1)
DWORD = st.integers(0, 2**32 - 1)


def test_smart_fields_stand_where_the_specification_has_them() -> None:
    log = decode_smart(
        smart_bytes(
            temperature=323,
            counters=(4, 5, 6, 7, 8, 9, 10, 11, 12, 13),
            warning=2,
            warning_minutes=21,
            critical=22,
            sensor=300,
            t1=1,
            t2=2,
            s1=3,
            s2=4,
            olec=77,
        )
    )
    assert (log.critical_warning, log.temperature_k) == (2, 323)
    assert (log.available_spare_percent, log.spare_threshold_percent) == (100, 10)
    assert log.percentage_used == 3
    assert (log.read_bytes, log.written_bytes) == (4 * 512_000, 5 * 512_000)
    assert (log.read_commands, log.write_commands, log.busy_minutes) == (6, 7, 8)
    assert (log.power_cycles, log.power_on_hours, log.unsafe_shutdowns) == (9, 10, 11)
    assert (log.media_errors, log.error_log_entries) == (12, 13)
    assert (log.warning_temperature_minutes, log.critical_temperature_minutes) == (21, 22)
    assert log.sensors_k == (300, *[None] * 7)
    assert (log.thermal_transitions_1, log.thermal_transitions_2) == (1, 2)
    assert (log.thermal_seconds_1, log.thermal_seconds_2) == (3, 4)
    assert log.lifetime_energy_wh == 77


def test_smart_log_of_zeros_reports_no_temperature_energy_or_power() -> None:
    log = decode_smart(bytes(512))
    assert (log.temperature_k, log.lifetime_energy_wh, log.interval_power_w) == (None,) * 3


@pytest.mark.parametrize(
    ("ipm", "watts"),
    [(0x0001_2710, 1.0), (0x0002_07D0, 20.0), (0x0000_07D0, None), (0x0003_07D0, None),
     (0x0001_0000, None), (0x00F2_07D0, 20.0)],
)  # fmt: skip
def test_interval_power_has_two_scales_and_ignores_its_type(ipm: int, watts: float | None) -> None:
    assert decode_smart(smart_bytes(ipm=ipm)).interval_power_w == watts


@settings(deadline=None)
@given(st.tuples(*[COUNT] * 10), st.integers(0, 0xFFFF), DWORD, DWORD)
def test_smart_counters_of_128_bits_come_back(
    counters: tuple[int, ...], temperature: int, t1: int, s2: int
) -> None:
    log = decode_smart(smart_bytes(temperature=temperature, counters=counters, t1=t1, s2=s2))
    assert log.read_bytes == counters[0] * 512_000
    assert log.error_log_entries == counters[9]
    assert log.temperature_k == (temperature or None)
    assert (log.thermal_transitions_1, log.thermal_seconds_2) == (t1, s2)


def test_cut_logs_are_refused() -> None:
    with pytest.raises(PowerError, match="512 bytes, got 511"):
        decode_smart(bytes(511))
    with pytest.raises(PowerError, match="4096 bytes, got 12"):
        decode_effects(bytes(12))


@settings(deadline=None)
@given(st.sets(st.integers(0, 255)))
def test_commands_that_hold_up_others_are_found(opcodes: set[int]) -> None:
    assert freezing_commands(decode_effects(effects_bytes(tuple(opcodes)))) == opcodes


def test_logs_are_read_without_clearing_events() -> None:
    command = log_command(0x02, 512)
    assert command.cdw10 == 0x02 | 1 << 15 | 127 << 16
    assert command.namespace == 0xFFFFFFFF
    assert command.data_bytes == 512


def test_long_logs_and_specific_identifiers_use_dword_11() -> None:
    command = log_command(0x09, 4 * 0x1_0002, specific=3)
    assert command.cdw10 >> 16 == 1
    assert command.cdw11 == 1 | 3 << 16


def test_firmware_slot_is_the_active_one() -> None:
    assert decode_firmware_slot(b"\x32") == 2
    assert decode_firmware_slot(b"\x30") is None
