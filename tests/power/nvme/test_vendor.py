from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model_host import packing
from tests.power.nvme.admin import Answers
from wattload.power.nvme.identify import Controller, decode_controller
from wattload.power.nvme.vendor import (
    decode_vendor_power,
    find_vendor_page,
    read_vendor_power,
    vendor_pages,
)

SOLIDIGM, INTEL, SCALEFLUX, INSPUR, DERA = 0x025E, 0x8086, 0xCC53, 0x1BD4, 0x1D78
DAPUSTOR, YMTC, MEMBLAZE = 0x1E3B, 0x1E49, 0x1C5F
ENABLED_POWER = 1 | 5 << 15
MAX_W = 25.0


def drive(vendor: int, max_raw: int = 2500) -> Controller:
    return decode_controller(packing.controller([packing.psd(mp=max_raw)], vid=vendor))


def words_at(size: int, **numbers: int) -> bytes:
    """Return ``size`` bytes with ``u32_<offset>`` and ``u16_<offset>`` packed there."""
    data = bytearray(size)
    for name, number in numbers.items():
        kind, offset = name.split("_")
        struct.pack_into({"u32": "<I", "u16": "<H"}[kind], data, int(offset), number)
    return bytes(data)


def ring(*microwatts: int, setting: int = ENABLED_POWER) -> bytes:
    entries = [(power, 0, 0, 0, 0, 0, 0, 0) for power in microwatts]
    return packing.workload(entries, config=setting, period_ms=1000, last_tick=100 * 25_000_000)


def memblaze(version: int, watts: int) -> bytes:
    items = packing.item(0xAB, 1, 2, 3) + packing.item(0xE8, 20, 5, watts)
    return items.ljust(511, b"\0") + bytes([version])


LOGS = {
    SOLIDIGM: (0xF9, ring(12_345_678, 1)),
    INTEL: (0xF9, ring(12_345_678)),
    SCALEFLUX: (0xC2, words_at(152, u32_108=12_345)),
    INSPUR: (0xC0, words_at(512, u32_0=20_000, u32_368=12_345)),
    DERA: (0xC0, words_at(512, u16_65=12_345)),
    DAPUSTOR: (
        0xCB,
        (packing.item(0xF6, 0, 0, 0) + packing.item(0xE8, 20, 5, 12)).ljust(240, b"\0"),
    ),
    YMTC: (0xCA, (bytes(60) + packing.item(0xE8, 20, 5, 12)).ljust(4096, b"\0")),
    MEMBLAZE: (0xCA, memblaze(2, 12)),
}
EXPECTED_W = {
    SOLIDIGM: 12.345678,
    INTEL: 12.345678,
    SCALEFLUX: 12.345,
    INSPUR: 12.345,
    DERA: 12.345,
    DAPUSTOR: 12.0,
    YMTC: 12.0,
    MEMBLAZE: 12.0,
}


@pytest.mark.parametrize("vendor", LOGS)
def test_vendor_s_log_gives_its_watts(vendor: int) -> None:
    page, data = LOGS[vendor]
    device, controller = Answers(logs={page: data}), drive(vendor)
    found = find_vendor_page(device, controller)
    assert found is not None
    assert (found.page, found.size_bytes) == (page, len(data))
    power = read_vendor_power(device, controller, found)
    assert power is not None
    assert power.power_w == pytest.approx(EXPECTED_W[vendor])


@pytest.mark.parametrize("vendor", LOGS)
def test_log_is_taken_only_of_its_vendor_and_length(vendor: int) -> None:
    page, data = LOGS[vendor]
    (entry, *_) = [each for each in vendor_pages(vendor) if each.page == page]
    assert decode_vendor_power(entry, data, drive(vendor)) is not None
    assert decode_vendor_power(entry, data, drive(0x1344)) is None
    assert decode_vendor_power(entry, data + bytes(4), drive(vendor)) is None
    assert decode_vendor_power(entry, data[:-4], drive(vendor)) is None
    assert vendor_pages(0x1344) == ()


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 0xFFFF))
def test_figure_counts_above_0_and_up_to_twice_the_maximum(milliwatts: int, max_raw: int) -> None:
    (page, *_) = vendor_pages(SCALEFLUX)
    data = words_at(152, u32_108=milliwatts)
    power = decode_vendor_power(page, data, drive(SCALEFLUX, max_raw))
    believable = 0 < milliwatts * 0.001 <= 2 * max_raw / 100
    assert (power is not None) is (believable and max_raw > 0)
    if power is not None:
        assert power.power_w == pytest.approx(milliwatts / 1000)


def test_without_a_maximum_nothing_bounds_the_figure() -> None:
    page, data = LOGS[SCALEFLUX]
    assert find_vendor_page(Answers(logs={page: data}), drive(SCALEFLUX, 0)) is None


@pytest.mark.parametrize("vendor", [INSPUR, DERA])
def test_ocp_log_is_not_read_as_the_vendor_s_own(vendor: int) -> None:
    page, data = LOGS[vendor]
    ocp = data[:496] + packing.OCP_SMART_GUID
    assert find_vendor_page(Answers(logs={page: ocp}), drive(vendor)) is None


def test_second_page_serves_where_the_first_is_refused() -> None:
    device = Answers(logs={0xD2: words_at(152, u32_108=9_000)})
    found = find_vendor_page(device, drive(SCALEFLUX))
    assert found is not None
    assert found.page == 0xD2
    assert find_vendor_page(Answers(), drive(SCALEFLUX)) is None


def test_extremes_and_means_are_told_apart() -> None:
    (page,) = vendor_pages(DAPUSTOR)
    mean = decode_vendor_power(page, LOGS[DAPUSTOR][1], drive(DAPUSTOR))
    assert mean is not None
    assert (mean.averaged, mean.lowest_w, mean.highest_w, mean.step_w) == (True, 5.0, 20.0, 1.0)
    (page,) = vendor_pages(INSPUR)
    current = decode_vendor_power(page, LOGS[INSPUR][1], drive(INSPUR))
    assert current is not None
    assert (current.averaged, current.lowest_w, current.highest_w) == (False, None, 20.0)


def test_newest_entry_of_the_tracker_is_the_power() -> None:
    (page,) = vendor_pages(SOLIDIGM)
    found = decode_vendor_power(page, ring(9_000_000, 5_000_000), drive(SOLIDIGM))
    assert found is not None
    assert found.power_w == 9.0


@pytest.mark.parametrize(
    ("vendor", "data"),
    [
        *((MEMBLAZE, memblaze(version, 12)) for version in (1, 3, 255)),
        (YMTC, packing.item(0xAB, 20, 5, 12).ljust(4096, b"\0")),  # no power attribute
        (SOLIDIGM, ring()),
        (SOLIDIGM, ring(9_000_000, setting=5 << 15)),  # off
        (SOLIDIGM, ring(9_000_000, setting=1)),  # another group
        (SOLIDIGM, packing.workload(count=127, config=ENABLED_POWER)),  # more than there is room
    ],
)
def test_log_of_another_layout_has_no_power(vendor: int, data: bytes) -> None:
    (page,) = vendor_pages(vendor)
    assert decode_vendor_power(page, data, drive(vendor)) is None
