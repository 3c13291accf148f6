from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.power.nvme.admin import Answers
from wattload.core.errors import PowerError
from wattload.power.nvme.features import Select
from wattload.power.nvme.limits import (
    LimitDword,
    PowerThreshold,
    decode_power_limit,
    decode_power_threshold,
    read_dssd_power_w,
    read_power_limit,
    read_power_threshold,
    set_dssd_power_command,
    set_power_limit_command,
    set_power_threshold_command,
)
from wattload.power.nvme.watts import ScaledPower

POWERS = st.builds(ScaledPower, value=st.integers(0, 0xFFFF), scale=st.integers(0, 3))
SAVE = 1 << 31


@settings(deadline=None)
@given(POWERS, st.integers(0, 0x3FFF))
def test_limit_comes_back_from_either_dword_and_saves_nothing(
    power: ScaledPower, high: int
) -> None:
    for dword in LimitDword:
        command = set_power_limit_command(power, dword=dword)
        assert (command.opcode, command.cdw10) == (0x09, 0x23)
        carried = {11: command.cdw11, 13: command.cdw13}
        assert carried.pop(int(dword)) == power.value | power.scale << 16
        assert set(carried.values()) == {0}
    assert decode_power_limit(power.dword | high << 18) == power


def test_limit_goes_by_dword_11_unless_told() -> None:
    command = set_power_limit_command(ScaledPower(value=1500, scale=2))
    assert (command.cdw11, command.cdw13) == (1500 | 2 << 16, 0)
    assert command.name == "Set Features 23h (power limit 15 W)"


def test_limit_of_0_is_none() -> None:
    device = Answers(features={(0x23, 0): (0, b""), (0x23, 1): (900 | 2 << 16, b"")})
    assert read_power_limit(device).watts is None
    assert read_power_limit(device, Select.DEFAULT).watts == 9.0
    assert set_power_limit_command(read_power_limit(device)).name.endswith("(power limit none)")


@settings(deadline=None)
@given(POWERS, st.integers(0, 15), st.booleans(), st.integers(0, 3), st.integers(0, 0x7F))
def test_threshold_comes_back(
    power: ScaledPower, kind: int, event: bool, low: int, high: int
) -> None:
    threshold = PowerThreshold(power=power, measurement_type=kind, event_enabled=event)
    command = set_power_threshold_command(threshold)
    raw = power.value | power.scale << 16 | kind << 20 | event << 31
    assert (command.opcode, command.cdw10, command.cdw11) == (0x09, 0x24, raw)
    assert decode_power_threshold(raw | low << 18 | high << 24) == threshold
    assert read_power_threshold(Answers(features={(0x24, 0): (raw, b"")})) == threshold


@settings(deadline=None)
@given(st.integers(0, 255), st.integers(0, 127), st.integers(0, 0xFFFFFF))
def test_ocp_watts_come_back_under_the_uuid_index(watts: int, index: int, high: int) -> None:
    command = set_dssd_power_command(watts, uuid_index=index)
    assert (command.opcode, command.cdw10, command.cdw11, command.cdw14) == (
        0x09, 0xC7, watts, index,
    )  # fmt: skip
    device = Answers(features={(0xC7, 0): (watts | high << 8, b"")})
    assert read_dssd_power_w(device, uuid_index=index) == watts
    assert device.sent[0].cdw14 == index


@pytest.mark.parametrize(
    ("watts", "index", "message"),
    [(-1, 0, "0 to 255 whole watts, got -1"), (256, 0, "got 256"), (20, 128, "UUID index is 0")],
)
def test_ocp_watts_out_of_range_are_refused(watts: int, index: int, message: str) -> None:
    with pytest.raises(PowerError, match=message):
        set_dssd_power_command(watts, uuid_index=index)


def test_no_command_here_sets_the_save_bit() -> None:
    power = ScaledPower(value=0xFFFF, scale=3)
    threshold = PowerThreshold(power=power, measurement_type=15, event_enabled=True)
    commands = (
        set_power_limit_command(power),
        set_power_threshold_command(threshold),
        set_dssd_power_command(255, uuid_index=127),
    )
    assert not any(command.cdw10 & SAVE for command in commands)
