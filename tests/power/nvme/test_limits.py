from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.power.nvme.admin import Answers
from wattload.power.nvme.features import Select
from wattload.power.nvme.limits import (
    PowerThreshold,
    decode_power_limit,
    decode_power_threshold,
    read_dssd_power_w,
    read_power_limit,
    read_power_threshold,
)
from wattload.power.nvme.watts import ScaledPower

POWERS = st.builds(ScaledPower, value=st.integers(0, 0xFFFF), scale=st.integers(0, 3))


@settings(deadline=None)
@given(POWERS, st.integers(0, 0x3FFF))
def test_limit_comes_back(power: ScaledPower, high: int) -> None:
    raw = power.value | power.scale << 16
    assert power.dword == raw
    assert decode_power_limit(raw | high << 18) == power


def test_limit_of_0_is_none() -> None:
    device = Answers(features={(0x23, 0): (0, b""), (0x23, 1): (900 | 2 << 16, b"")})
    assert read_power_limit(device).watts is None
    assert read_power_limit(device, Select.DEFAULT).watts == 9.0


@settings(deadline=None)
@given(POWERS, st.integers(0, 15), st.booleans(), st.integers(0, 3), st.integers(0, 0x7F))
def test_threshold_comes_back(
    power: ScaledPower, kind: int, event: bool, low: int, high: int
) -> None:
    threshold = PowerThreshold(power=power, measurement_type=kind, event_enabled=event)
    raw = power.value | power.scale << 16 | kind << 20 | event << 31
    assert decode_power_threshold(raw | low << 18 | high << 24) == threshold
    assert read_power_threshold(Answers(features={(0x24, 0): (raw, b"")})) == threshold


@settings(deadline=None)
@given(st.integers(0, 255), st.integers(0, 127), st.integers(0, 0xFFFFFF))
def test_ocp_watts_come_back_under_the_uuid_index(watts: int, index: int, high: int) -> None:
    device = Answers(features={(0xC7, 0): (watts | high << 8, b"")})
    assert read_dssd_power_w(device, uuid_index=index) == watts
    assert device.sent[0].cdw14 == index
