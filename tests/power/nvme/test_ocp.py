from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model_host import packing
from tests.power.nvme.admin import Answers
from wattload.core.errors import PowerError
from wattload.power.nvme.identify import decode_controller, decode_uuid_list, read_ocp_uuid_index
from wattload.power.nvme.logs import decode_ocp_smart, is_ocp_smart, read_ocp_smart

WIDE = st.integers(0, 2**128 - 1)
BYTE = st.integers(0, 0xFF)
WORD = st.integers(0, 0xFFFF)


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


def test_log_of_another_length_is_refused() -> None:
    assert not is_ocp_smart(c0() + b"\0")
    with pytest.raises(PowerError, match="OCP log C0h has 512 bytes, got 513"):
        decode_ocp_smart(c0() + b"\0")


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
