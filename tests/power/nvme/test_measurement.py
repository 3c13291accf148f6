from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model_host import packing
from tests.power.nvme.admin import Answers
from wattload.core.errors import PowerError
from wattload.core.power import PowerBin
from wattload.power.nvme.admin import AdminCommand, Completion
from wattload.power.nvme.measurement import (
    START,
    STOP,
    decode_measurement_header,
    decode_power_measurement,
    read_measurement_header,
    read_measurement_setting,
    read_power_measurement,
)

BYTE = st.integers(0, 0xFF)
WORD = st.integers(0, 0xFFFF)
DWORD = st.integers(0, 2**32 - 1)
BINS = st.lists(st.tuples(DWORD, st.integers(0, 0xFFFF)), max_size=40)


@settings(deadline=None)
@given(
    pmgn=BYTE, pma=WORD, pmc=DWORD, smtr=WORD, nphds=WORD, phdoc=DWORD, ipwrpe=BYTE, phbs=WORD,
    average=st.integers(0, 0x3FFFF), maximum=st.integers(0, 0x3FFFF), high=st.integers(0, 0x3FFF),
)  # fmt: skip
def test_header_comes_back(
    *, pmgn: int, pma: int, pmc: int, smtr: int, nphds: int, phdoc: int, ipwrpe: int, phbs: int,
    average: int, maximum: int, high: int,
) -> None:  # fmt: skip
    data = packing.measurement(
        pmgn=pmgn, pma=pma, pmc=pmc, smtr=smtr, nphds=nphds, phdoc=phdoc, ipwrpe=ipwrpe, phbs=phbs,
        aipwr=average | high << 18, mipwr=maximum | high << 18,
    )  # fmt: skip
    log = decode_measurement_header(data)
    assert (log.generation, log.count) == (pmgn, pmc)
    assert (log.active, log.contiguous, log.estimated) == (
        bool(pma & 1), not pma & 2, bool(pma & 4),
    )  # fmt: skip
    assert log.measurement_type == pma >> 12
    assert (log.average.dword, log.maximum.dword) == (average, maximum)
    is_stated = ipwrpe <= 100 and (ipwrpe > 0 or pmc > 0)
    assert log.error_percent == (ipwrpe if is_stated else None)
    assert log.histogram is None


@settings(deadline=None)
@given(BINS, st.integers(8, 24), st.binary(max_size=20))
def test_histogram_comes_back_past_longer_descriptors_and_the_vendor_s_bytes(
    bins: list[tuple[int, int]], stride: int, tail: bytes
) -> None:
    raw = [(count, lower | 2 << 16) for count, lower in bins]
    data = packing.measurement(raw, stride=stride, tail=tail, vss=len(tail))
    histogram = decode_power_measurement(data).histogram
    assert histogram is not None
    ascending = sorted(bins, key=lambda each: each[1])
    assert [each.count for each in histogram] == [count for count, _ in ascending]
    assert [each.lower_w for each in histogram] == [
        pytest.approx(lower / 100) for _, lower in ascending
    ]


def test_error_of_a_log_that_was_never_started_is_not_0() -> None:
    assert decode_measurement_header(bytes(64)).error_percent is None
    assert decode_measurement_header(packing.measurement(pmc=1, ipwrpe=0)).error_percent == 0
    assert decode_measurement_header(packing.measurement(ipwrpe=2)).error_percent == 2


def test_lowest_bin_begins_at_0_watts() -> None:
    data = packing.measurement([(5, 0 | 2 << 16), (6, 25 | 2 << 16), (7, 0)])
    assert decode_power_measurement(data).histogram == (
        PowerBin(lower_w=0.0, count=5),
        PowerBin(lower_w=0.25, count=6),
    )


def test_average_of_no_measurement_is_no_power() -> None:
    log = decode_measurement_header(packing.measurement(pmc=0, aipwr=0 | 2 << 16))
    assert (log.count, log.average.watts) == (0, None)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes(63), "at least 64 bytes, got 63"),
        (packing.measurement([(1, 1)])[:70], "with 1 bins must have at least 72 bytes, got 70"),
        (packing.measurement(nphd=3, phds=4) + bytes(50), "at least 8 bytes, got 4"),
        (packing.measurement(nphd=3, phds=0) + bytes(50), "at least 8 bytes, got 0"),
    ],
)
def test_cut_or_impossible_logs_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(PowerError, match=message):
        decode_power_measurement(data)


@settings(deadline=None)
@given(st.binary(min_size=64, max_size=256))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    try:
        log = decode_power_measurement(data)
    except PowerError:
        return
    assert log.histogram is not None
    assert len(log.histogram) * 8 + 64 <= len(data)


def test_header_costs_64_bytes_and_the_whole_log_its_size() -> None:
    device = Answers(logs={0x25: packing.measurement([(1, 1 | 2 << 16)] * 9)})
    assert read_measurement_header(device).histogram is None
    log = read_power_measurement(device)
    assert log.histogram is not None
    assert len(log.histogram) == 9
    assert [command.data_bytes for command in device.sent] == [64, 64, 136]
    assert all(command.cdw10 >> 15 & 1 for command in device.sent)


def test_size_that_is_no_multiple_of_4_is_rounded_up() -> None:
    device = Answers(logs={0x25: packing.measurement(sze=65, vss=1)})
    read_power_measurement(device)
    assert device.sent[-1].data_bytes == 68


def test_log_without_bins_is_read_once() -> None:
    device = Answers(logs={0x25: packing.measurement()})
    assert read_power_measurement(device).histogram == ()
    assert len(device.sent) == 1


def test_size_beyond_belief_is_refused_unread() -> None:
    device = Answers(logs={0x25: packing.measurement(sze=0xFFFF_FFFF)})
    with pytest.raises(PowerError, match="reports 4294967295 bytes, more than the allowed 1048576"):
        read_power_measurement(device)
    assert len(device.sent) == 1


class Growing(Answers):
    """A drive that opens a new bin before every read."""

    def submit(self, command: AdminCommand) -> Completion:
        self.logs[0x25] = packing.measurement([(1, 1 | 2 << 16)] * (len(self.sent) + 1))
        return super().submit(command)


def test_log_that_always_grows_is_given_up() -> None:
    with pytest.raises(PowerError, match="grew during each of 3 reads"):
        read_power_measurement(Growing())


def test_drive_without_the_log_is_refused_in_words() -> None:
    with pytest.raises(PowerError, match=r"Get Log Page 25h \(power measurement\): Invalid Field"):
        read_power_measurement(Answers())


@settings(deadline=None)
@given(st.integers(0, 0xFFFF), st.integers(0, 15))
def test_setting_comes_back(minutes: int, kind: int) -> None:
    for action, is_active in ((START, True), (STOP, False)):
        raw = action | kind << 4 | minutes << 16
        setting = read_measurement_setting(Answers(features={(0x25, 0): (raw, b"")}))
        assert setting.active is is_active
        assert setting.stop_after_minutes == (minutes or None)
