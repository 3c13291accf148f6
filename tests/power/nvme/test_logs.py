from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model_host import packing
from tests.power.nvme.admin import Answers
from wattload.core.errors import PowerError
from wattload.power.nvme.admin import log_command
from wattload.power.nvme.identify import decode_controller
from wattload.power.nvme.logs import (
    decode_effects,
    decode_firmware_slot,
    decode_supported_pages,
    freezing_commands,
    read_freezing_commands,
    read_supported_pages,
)
from wattload.power.nvme.smart import (
    decode_endurance_group,
    read_endurance_group,
    read_media_written_bytes,
)

WIDE = st.integers(0, 2**128 - 1)
BYTE = st.integers(0, 0xFF)
DWORD = st.integers(0, 2**32 - 1)
GB = 10**9

COUNTERS = ("estimate", "read", "written", "media_written", "reads", "writes", "media_errors",
            "log_entries", "capacity", "unallocated")  # fmt: skip


@settings(deadline=None)
@given(
    counters=st.fixed_dictionaries(dict.fromkeys(COUNTERS, WIDE)), warning=BYTE, spare=BYTE,
    threshold=BYTE, used=BYTE, fill=st.sampled_from((0, 0xFF)),
)  # fmt: skip
def test_endurance_group_comes_back(
    *, counters: dict[str, int], warning: int, spare: int, threshold: int, used: int, fill: int
) -> None:
    raw: dict[str, int | bytes] = {
        "warning": warning, "spare": spare, "threshold": threshold, "used": used,
        **{name: packing.wide(value) for name, value in counters.items()},
    }  # fmt: skip
    group = decode_endurance_group(packing.pack(packing.ENDURANCE, 512, raw, fill=fill))
    assert (group.critical_warning, group.percentage_used) == (warning, used)
    assert (group.available_spare_percent, group.spare_threshold_percent) == (spare, threshold)
    assert group.endurance_estimate_bytes == (counters["estimate"] * GB or None)
    assert group.read_bytes == counters["read"] * GB
    assert group.written_bytes == counters["written"] * GB
    assert group.media_written_bytes == counters["media_written"] * GB
    assert (group.read_commands, group.write_commands) == (counters["reads"], counters["writes"])
    assert group.media_errors == counters["media_errors"]
    assert group.error_log_entries == counters["log_entries"]
    assert group.capacity_bytes == (counters["capacity"] or None)
    expected = counters["unallocated"] if counters["capacity"] else None
    assert group.unallocated_bytes == expected


def test_group_is_asked_for_by_its_number() -> None:
    data = packing.pack(packing.ENDURANCE, 512, {"media_written": packing.wide(7)})
    device = Answers(logs={0x09: data})
    assert read_endurance_group(device, 3).media_written_bytes == 7 * GB
    assert device.sent[0].cdw11 == 3 << 16


def test_media_bytes_are_ocp_s_where_the_guid_proves_it() -> None:
    group = packing.pack(packing.ENDURANCE, 512, {"media_written": packing.wide(7)})
    raw: dict[str, int | bytes] = {"written": packing.wide(123), "guid": packing.OCP_SMART_GUID}
    ocp = packing.pack(packing.OCP_SMART, 512, raw)
    both = Answers(logs={0x09: group, 0xC0: ocp})
    assert read_media_written_bytes(both, 1, ocp_uuid_index=2) == 123
    assert both.sent[0].cdw14 == 2
    foreign = Answers(logs={0x09: group, 0xC0: b"\x7f" * 512})
    assert read_media_written_bytes(foreign, 1) == 7 * GB
    with pytest.raises(PowerError, match="neither the OCP log C0h nor endurance groups"):
        read_media_written_bytes(foreign, 0)


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 511), DWORD, max_size=40))
def test_effects_come_back_whatever_reserved_bits_say(raw: dict[int, int]) -> None:
    log = decode_effects(packing.words(raw, 512, 4096))
    assert (len(log.admin), len(log.io)) == (256, 256)
    for number, effects in enumerate((*log.admin, *log.io)):
        word = raw.get(number, 0)
        assert (
            effects.supported, effects.changes_data, effects.changes_namespace,
            effects.changes_namespace_list, effects.changes_controller, effects.takes_uuid,
        ) == tuple(bool(word & 1 << bit) for bit in (0, 1, 2, 3, 4, 19))  # fmt: skip
        assert (effects.relaxations, effects.restriction) == (word >> 14 & 3, word >> 16 & 7)
        assert effects.disturbs_io == bool(word & (0b11110 | 7 << 16))


@pytest.mark.parametrize("bit", [1, 2, 3, 4, 16, 17, 18])
def test_command_with_any_effect_on_io_is_not_for_sampling(bit: int) -> None:
    words = packing.words({0x02: 1 | 1 << bit, 0x0A: 1, 256 + 0x0A: 1 << bit}, 512, 4096)
    assert freezing_commands(decode_effects(words)) == {0x02}


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


@pytest.mark.parametrize("decode", [decode_endurance_group, decode_effects, decode_supported_pages])
def test_log_of_another_length_is_refused(decode: object) -> None:
    assert callable(decode)
    with pytest.raises(PowerError, match="bytes, got 8"):
        decode(bytes(8))


def test_long_logs_and_specific_identifiers_use_dword_11() -> None:
    command = log_command(0x09, 4 * 0x1_0002, specific=3)
    assert command.cdw10 >> 16 == 1
    assert command.cdw11 == 1 | 3 << 16


def test_firmware_slot_is_the_active_one() -> None:
    assert decode_firmware_slot(b"\x32") == 2
    assert decode_firmware_slot(b"\x30") is None
