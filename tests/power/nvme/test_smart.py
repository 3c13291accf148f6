from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model_host import packing
from tests.power.nvme.admin import Answers
from wattload.core.errors import PowerError
from wattload.power.nvme.logs import decode_smart, read_smart

WIDE = st.integers(0, 2**128 - 1)
DWORD = st.integers(0, 2**32 - 1)
WORD = st.integers(0, 0xFFFF)
BYTE = st.integers(0, 0xFF)
COUNTERS = {
    "reads": "read_commands",
    "writes": "write_commands",
    "busy": "busy_minutes",
    "cycles": "power_cycles",
    "hours": "power_on_hours",
    "unsafe": "unsafe_shutdowns",
    "media_errors": "media_errors",
    "log_entries": "error_log_entries",
}


@settings(deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(COUNTERS, WIDE)), WIDE, WIDE, st.sampled_from((0, 0xFF)))
def test_counters_of_16_bytes_come_back(
    counters: dict[str, int], read: int, written: int, fill: int
) -> None:
    raw = {name: packing.wide(value) for name, value in counters.items()}
    units = {"units_read": packing.wide(read), "units_written": packing.wide(written)}
    log = decode_smart(packing.pack(packing.SMART, 512, {**raw, **units}, fill=fill))
    for name, field in COUNTERS.items():
        assert getattr(log, field) == counters[name]
    assert (log.read_bytes, log.written_bytes) == (read * 512_000, written * 512_000)


@settings(deadline=None)
@given(
    temperature=WORD, warning=BYTE, spare=BYTE, threshold=BYTE, used=BYTE, minutes=DWORD,
    critical=DWORD, sensors=st.lists(WORD, min_size=8, max_size=8),
    thermal=st.tuples(DWORD, DWORD, DWORD, DWORD),
)  # fmt: skip
def test_health_and_heat_come_back(
    *, temperature: int, warning: int, spare: int, threshold: int, used: int, minutes: int,
    critical: int, sensors: list[int], thermal: tuple[int, int, int, int],
) -> None:  # fmt: skip
    names = ("tmt1_count", "tmt2_count", "tmt1_seconds", "tmt2_seconds")
    raw = packing.pack(
        packing.SMART,
        512,
        {
            "temperature": temperature, "warning": warning, "spare": spare,
            "threshold": threshold, "used": used, "warning_minutes": minutes,
            "critical_minutes": critical,
            **{f"sensor{index + 1}": kelvin for index, kelvin in enumerate(sensors)},
            **dict(zip(names, thermal, strict=True)),
        },
    )  # fmt: skip
    log = decode_smart(raw)
    assert (log.critical_warning, log.temperature_k) == (warning, temperature or None)
    assert (log.available_spare_percent, log.spare_threshold_percent) == (spare, threshold)
    assert log.percentage_used == used
    assert (log.warning_temperature_minutes, log.critical_temperature_minutes) == (
        minutes,
        critical,
    )
    assert log.sensors_k == tuple(kelvin or None for kelvin in sensors)
    assert (
        log.thermal_transitions_1,
        log.thermal_transitions_2,
        log.thermal_seconds_1,
        log.thermal_seconds_2,
    ) == thermal


@settings(deadline=None)
@given(
    olec=st.integers(0, 2**64 - 1), value=WORD, scale=st.integers(0, 3), kind=st.integers(0, 15),
    reserved=st.integers(0, 3), high=BYTE,
)  # fmt: skip
def test_energy_and_interval_power_come_back_with_step_and_type(
    *, olec: int, value: int, scale: int, kind: int, reserved: int, high: int
) -> None:
    ipm = value | scale << 16 | reserved << 18 | kind << 20 | high << 24
    log = decode_smart(packing.pack(packing.SMART, 512, {"olec": olec, "ipm": ipm}))
    assert log.lifetime_energy_wh == (olec or None)
    if value == 0 or scale not in (1, 2):
        assert (log.interval_power_w, log.interval_power_step_w) == (None, None)
        assert log.interval_power_type is None
    else:
        step_w = {1: 1e-4, 2: 1e-2}[scale]
        assert log.interval_power_w == pytest.approx(value * step_w)
        assert log.interval_power_step_w == pytest.approx(step_w)
        assert log.interval_power_type == kind


def test_log_is_read_without_clearing_events() -> None:
    data = packing.pack(packing.SMART, 512, {"temperature": 300})
    device = Answers(logs={0x02: data})
    assert read_smart(device).temperature_k == 300
    for command in device.sent:
        assert command.cdw10 == 0x02 | 1 << 15 | 127 << 16
        assert (command.namespace, command.data_bytes) == (0xFFFF_FFFF, 512)


def test_log_of_another_length_is_refused() -> None:
    with pytest.raises(PowerError, match="the SMART log has 512 bytes, got 513"):
        decode_smart(bytes(513))


def test_smart_log_of_zeros_reports_no_temperature_energy_or_power() -> None:
    log = decode_smart(bytes(512))
    assert (log.temperature_k, log.lifetime_energy_wh, log.interval_power_w) == (None,) * 3
