"""Log pages: SMART, OCP's extended SMART, endurance groups, effects and the list of pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model_host import packing
from tests.power.nvme.admin import Answers
from wattload.core.errors import PowerError
from wattload.power.nvme.admin import log_command
from wattload.power.nvme.identify import decode_controller, decode_uuid_list, read_ocp_uuid_index
from wattload.power.nvme.logs import (
    decode_freezing_commands,
    decode_ocp_smart,
    decode_smart,
    decode_supported_pages,
    is_ocp_smart,
    media_counter,
    read_firmware_slot,
    read_freezing_commands,
    read_group_media_bytes,
    read_ocp_smart,
    read_rated_bytes,
    read_smart,
    read_supported_pages,
)

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


def test_smart_log_of_zeros_reports_no_temperature_energy_or_power() -> None:
    log = decode_smart(bytes(512))
    assert (log.temperature_k, log.lifetime_energy_wh, log.interval_power_w) == (None,) * 3


def c0(**values: int | bytes) -> bytes:
    return packing.pack(packing.OCP_SMART, 512, {"guid": packing.OCP_SMART_GUID, **values})


@settings(deadline=None)
@given(
    written=WIDE, read=WIDE, events=BYTE, status=BYTE, point=WORD, minor=WORD, major=BYTE,
    changes=st.integers(0, 2**64 - 1), highest=BYTE, peak=WORD, average=WORD,
    lifetime=st.integers(0, 2**48 - 1), version=WORD, fill=st.sampled_from((0, 0xFF)),
)  # fmt: skip
def test_extended_smart_comes_back_and_its_power_from_version_5_on(
    *, written: int, read: int, events: int, status: int, point: int, minor: int, major: int,
    changes: int, highest: int, peak: int, average: int, lifetime: int, version: int, fill: int,
) -> None:  # fmt: skip
    log = decode_ocp_smart(
        packing.pack(
            packing.OCP_SMART,
            512,
            {
                "written": packing.wide(written), "read": packing.wide(read),
                "throttle_events": events, "throttle_status": status, "point": point,
                "minor": minor, "major": major, "state_changes": changes, "highest_c": highest,
                "peak": peak, "average": average, "lifetime": packing.wide(lifetime, 6),
                "version": version, "guid": packing.OCP_SMART_GUID,
            },
            fill=fill,
        )
    )  # fmt: skip
    assert log.media_written_bytes == written
    assert (log.throttle_events, log.throttle_status) == (events, status)
    assert log.power_state_changes == changes
    assert log.highest_temperature_k == (highest + 273 if highest else None)
    power = (log.peak_power_w, log.average_power_w)
    assert power == ((peak or None, average or None) if version >= 5 else (None, None))


@settings(deadline=None)
@given(st.binary(min_size=16, max_size=16), st.integers(0, 15))
def test_foreign_guid_is_refused(guid: bytes, bit: int) -> None:
    damaged = bytearray(packing.OCP_SMART_GUID)
    damaged[bit] ^= 1 << bit % 8
    for foreign in (bytes(damaged), guid):
        if foreign == packing.OCP_SMART_GUID:
            continue
        data = c0(guid=foreign)
        assert not is_ocp_smart(data)
        with pytest.raises(PowerError, match=f"C0h has the GUID {foreign.hex()}, not OCP"):
            decode_ocp_smart(data)


def test_log_is_read_under_the_uuid_index() -> None:
    device = Answers(logs={0xC0: c0(state_changes=7)})
    assert read_ocp_smart(device, uuid_index=3).power_state_changes == 7
    assert device.sent[0].cdw14 == 3


@settings(deadline=None)
@given(st.lists(st.binary(min_size=16, max_size=16).filter(any), max_size=126), st.data())
def test_index_of_ocp_counts_from_1(uuids: list[bytes], data: st.DataObject) -> None:
    others = [uuid for uuid in uuids if uuid != packing.OCP_UUID]
    place = data.draw(st.integers(0, len(others)))
    listed = packing.uuid_list([*others[:place], packing.OCP_UUID, *others[place:]])
    assert len(decode_uuid_list(listed)) == len(others) + 1
    controller = decode_controller(packing.controller(ctratt=1 << 9))
    assert read_ocp_uuid_index(Answers(identify={0x17: listed}), controller) == place + 1


def test_drive_without_uuids_is_asked_for_its_own_meaning() -> None:
    device = Answers()
    assert read_ocp_uuid_index(device, decode_controller(packing.controller())) == 0
    assert device.sent == []
    with_list = decode_controller(packing.controller(ctratt=1 << 9))
    other = packing.uuid_list([b"\x11" * 16])
    assert read_ocp_uuid_index(Answers(identify={0x17: other}), with_list) == 0


GB = 10**9


def test_group_is_asked_for_by_its_number() -> None:
    data = packing.pack(packing.ENDURANCE, 512, {"media_written": packing.wide(7)})
    device = Answers(logs={0x09: data})
    assert read_group_media_bytes(device, 3) == 7 * GB
    assert device.sent[0].cdw11 == 3 << 16


@pytest.mark.parametrize(("estimate", "rated"), [(14_000_000, 14_000_000 * GB), (0, None)])
def test_rated_bytes_are_the_endurance_estimate(estimate: int, rated: int | None) -> None:
    log = packing.pack(packing.ENDURANCE, 512, {"estimate": packing.wide(estimate)})
    namespace = bytes(102) + b"\x03\0" + bytes(26) + b"\x09"  # the group, and blocks of 2^9 bytes
    answers = Answers(logs={0x09: log}, identify={0x00: namespace, 0x02: (1).to_bytes(4, "little")})
    assert read_rated_bytes(answers, decode_controller(packing.controller(ctratt=1 << 4))) == rated
    assert read_rated_bytes(answers, decode_controller(packing.controller())) is None


def test_media_bytes_are_ocp_s_where_the_guid_proves_it() -> None:
    controller = decode_controller(packing.controller())
    group = packing.pack(packing.ENDURANCE, 512, {"media_written": packing.wide(7)})
    raw: dict[str, int | bytes] = {"written": packing.wide(123), "guid": packing.OCP_SMART_GUID}
    ocp = packing.pack(packing.OCP_SMART, 512, raw)
    log, read = media_counter(Answers(logs={0x09: group, 0xC0: ocp}), controller)
    assert (log, read()) == ("ocp", 123)
    foreign = Answers(logs={0x09: group, 0xC0: b"\x7f" * 512})
    with pytest.raises(PowerError, match="neither the OCP log C0h nor endurance groups"):
        media_counter(foreign, controller)


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 511), DWORD, max_size=40))
def test_effects_come_back_whatever_reserved_bits_say(raw: dict[int, int]) -> None:
    found = decode_freezing_commands(packing.words(raw, 512, 4096))
    disturbing = 0b11110 | 7 << 16
    assert found == {code for code, word in raw.items() if code < 256 and word & disturbing}


@pytest.mark.parametrize("bit", [1, 2, 3, 4, 16, 17, 18])
def test_command_with_any_effect_on_io_is_not_for_sampling(bit: int) -> None:
    words = packing.words({0x02: 1 | 1 << bit, 0x0A: 1, 256 + 0x0A: 1 << bit}, 512, 4096)
    assert decode_freezing_commands(words) == {0x02}


def test_effects_are_read_only_where_the_drive_has_the_log() -> None:
    words = packing.words({0x0A: 1 | 1 << 16}, 512, 4096)
    device = Answers(logs={0x05: words})
    without = decode_controller(packing.controller())
    assert read_freezing_commands(device, without) == frozenset()
    assert device.sent == []
    having = decode_controller(packing.controller(lpa=1 << 1))
    assert read_freezing_commands(device, having) == {0x0A}


@settings(deadline=None)
@given(st.dictionaries(BYTE, DWORD, max_size=40))
def test_supported_pages_come_back(raw: dict[int, int]) -> None:
    listed = decode_supported_pages(packing.words(raw, 256, 1024))
    assert listed == {page for page, word in raw.items() if word & 1}


def test_list_of_pages_is_read_only_where_the_drive_keeps_one() -> None:
    device = Answers(logs={0x00: packing.words({0x25: 1, 0x02: 3, 0x07: 2}, 256, 1024)})
    assert read_supported_pages(device, decode_controller(packing.controller())) is None
    having = decode_controller(packing.controller(lpa=1 << 5))
    assert read_supported_pages(device, having) == frozenset({0x25, 0x02})


@pytest.mark.parametrize(
    "decode", [decode_smart, decode_ocp_smart, decode_freezing_commands, decode_supported_pages]
)
def test_log_of_another_length_is_refused(decode: Callable[[bytes], object]) -> None:
    with pytest.raises(PowerError, match="bytes, got 8"):
        decode(bytes(8))
    assert not is_ocp_smart(c0() + b"\0")


def test_long_logs_and_specific_identifiers_use_dword_11() -> None:
    command = log_command(0x09, 4 * 0x1_0002, specific=3)
    assert command.cdw10 >> 16 == 1
    assert command.cdw11 == 1 | 3 << 16


def test_firmware_slot_is_the_active_one() -> None:
    assert read_firmware_slot(Answers(logs={0x03: b"\x32"})) == 2
    assert read_firmware_slot(Answers(logs={0x03: b"\x30"})) is None
