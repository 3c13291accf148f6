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
    decode_firmware_slot,
    decode_freezing_commands,
    decode_supported_pages,
    media_counter,
    read_freezing_commands,
    read_group_media_bytes,
    read_supported_pages,
)

WIDE = st.integers(0, 2**128 - 1)
BYTE = st.integers(0, 0xFF)
DWORD = st.integers(0, 2**32 - 1)
GB = 10**9


def test_group_is_asked_for_by_its_number() -> None:
    data = packing.pack(packing.ENDURANCE, 512, {"media_written": packing.wide(7)})
    device = Answers(logs={0x09: data})
    assert read_group_media_bytes(device, 3) == 7 * GB
    assert device.sent[0].cdw11 == 3 << 16


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


@pytest.mark.parametrize("decode", [decode_freezing_commands, decode_supported_pages])
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
