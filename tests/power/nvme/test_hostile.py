"""Drives that answer with damaged bytes: a figure less, never a crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.power.nvme.admin import Answers
from tests.power.nvme.dumps import DUMPS, Dump
from wattload.core.errors import PowerError
from wattload.core.record.target import ControllerState
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.identify import Controller, identify_controller, read_ocp_uuid_index
from wattload.power.nvme.logs import read_freezing_commands, read_ocp_smart, read_supported_pages
from wattload.power.nvme.measurement import read_power_measurement
from wattload.power.nvme.state import read_state
from wattload.power.nvme.vendor import find_vendor_page, read_vendor_power

SYSFS = ("pm_qos_latency_us", "aspm", "link_speed_gt_per_s", "link_width", "max_payload_bytes",
         "max_read_request_bytes", "aer_counts")  # fmt: skip
VENDORS = (0x025E, 0xCC53, 0x1BD4, 0x1D78, 0x1E3B, 0x1E49, 0x1C5F)
READERS: tuple[Callable[[AdminDevice, Controller], object], ...] = (
    lambda device, _: read_power_measurement(device),
    lambda device, _: read_ocp_smart(device),
    read_freezing_commands,
    read_supported_pages,
    read_ocp_uuid_index,
)


def damaged(data: bytes, chance: Random) -> bytes:
    """Return the bytes with some flipped, overwritten by ones or by zeros."""
    copy = bytearray(data)
    for _ in range(chance.randrange(1, 40)):
        place = chance.randrange(len(copy))
        copy[place] = chance.choice((0x00, 0xFF, copy[place] ^ 1 << chance.randrange(8)))
    return bytes(copy)


def drive(seed: int, number: int) -> Answers:
    chance, dump = Random(seed), DUMPS[number]
    return Answers(
        identify={key: damaged(data, chance) for key, data in dump.identify.items()},
        logs={key: damaged(data, chance) for key, data in dump.logs.items()},
        features={
            key: (chance.getrandbits(32), damaged(data, chance) if data else b"")
            for key, (_, data) in dump.features.items()
        },
    )


DRIVES = st.builds(drive, st.integers(0, 2**32), st.integers(0, len(DUMPS) - 1))


@settings(deadline=None)
@given(DRIVES)
def test_damaged_bytes_still_give_a_record_that_reads_back(device: Answers) -> None:
    fields, missing = read_state(device)
    elsewhere = dict.fromkeys(SYSFS, "read from sysfs")
    values: dict[str, Any] = {**dict.fromkeys((*missing, *SYSFS)), **fields}
    state = ControllerState(**values, missing={**missing, **elsewhere})
    assert ControllerState.model_validate(json.loads(state.model_dump_json())) == state
    controller = identify_controller(device)
    assert len(controller.power_states) in range(1, 33)


@settings(deadline=None)
@given(DRIVES, st.sampled_from(READERS))
def test_damaged_logs_are_decoded_or_refused_by_our_own_error(
    device: Answers, read: Callable[[AdminDevice, Controller], object]
) -> None:
    controller = identify_controller(device)
    with suppress(PowerError):
        read(device, controller)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(VENDORS), st.integers(0, 0xFFFF))
def test_damaged_vendor_logs_give_a_believable_figure_or_none(
    seed: int, vendor: int, limit: int
) -> None:
    chance = Random(seed)
    pages = {page: chance.randbytes(4096) for page in (0xC0, 0xC2, 0xCA, 0xCB, 0xD2, 0xF9)}
    identify = bytearray(4096)
    identify[0:2] = vendor.to_bytes(2, "little")
    identify[2048:2050] = limit.to_bytes(2, "little")
    device = Answers(identify={1: bytes(identify)}, logs=pages)
    controller = identify_controller(device)
    page = find_vendor_page(device, controller)
    if page is None:
        return
    power = read_vendor_power(device, controller, page)
    assert power is not None
    assert 0 < power.power_w <= 2 * limit / 100


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.name)
def test_drive_that_is_gone_is_a_reason_for_everything(dump: Dump) -> None:
    device = dump.device()
    device.broken = {0x02, 0x06, 0x0A}
    fields, missing = read_state(device)
    assert fields == {}
    assert all("could not be sent" in reason for reason in missing.values())
