from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.power.nvme.admin import Answers
from wattload.core.errors import PowerError
from wattload.power.nvme.features import (
    AutonomousTransitions,
    Transition,
    decode_transitions,
    encode_transitions,
    read_background_power,
    set_background_power_command,
    set_power_state_command,
    set_transitions_command,
)
from wattload.power.nvme.thermal import (
    ThermalManagement,
    decode_thermal_management,
    read_thermal_management,
    set_thermal_management_command,
)
from wattload.power.nvme.timestamp import (
    decode_timestamp,
    read_timestamp,
    set_timestamp_command,
)

ENTRIES = st.lists(
    st.tuples(st.integers(0, 31), st.integers(0, 0xFFFFFF)), min_size=32, max_size=32
)


@settings(deadline=None)
@given(ENTRIES, st.booleans(), st.integers(0, 7), st.integers(0, 2**32 - 1))
def test_table_of_transitions_comes_back_whatever_reserved_bits_say(
    entries: list[tuple[int, int]], enabled: bool, low: int, high: int
) -> None:
    # An empty entry is packed as zero: a target without an idle time means nothing.
    words = [target << 3 | idle << 8 if idle else 0 for target, idle in entries]
    clean = struct.pack("<32Q", *words)
    noisy = struct.pack("<32Q", *(word | low | high << 32 for word in words))
    table = decode_transitions(enabled | 0xFFFF_FFFE, noisy)
    assert table == decode_transitions(int(enabled), clean)
    assert encode_transitions(table) == clean
    command = set_transitions_command(table)
    assert (command.opcode, command.cdw10, command.cdw11) == (0x09, 0x0C, int(enabled))
    assert command.payload == clean


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([(32, 0, 1.0)], "0 to 31, got a transition from 32 to 0"),
        ([(0, 32, 1.0)], "0 to 31, got a transition from 0 to 32"),
        ([(0, 3, 0.0)], "0.001 to 16777.215 s of idleness, got 0 s"),
        ([(0, 3, 16778.0)], "got 16778 s"),
        ([(0, 3, 1.0), (0, 4, 1.0)], "power state 0 has two transitions"),
    ],
)
def test_table_without_a_code_is_refused(rules: list[tuple[int, int, float]], message: str) -> None:
    table = AutonomousTransitions(
        enabled=True,
        transitions=tuple(Transition(state=a, target=b, idle_s=c) for a, b, c in rules),
    )
    with pytest.raises(PowerError, match=message):
        encode_transitions(table)


@settings(deadline=None)
@given(st.integers(0, 31), st.integers(0, 7))
def test_state_and_hint_come_back(state: int, hint: int) -> None:
    command = set_power_state_command(state, workload_hint=hint)
    assert (command.cdw10, command.cdw11) == (0x02, state | hint << 5)


@pytest.mark.parametrize(("state", "hint"), [(32, 0), (-1, 0), (0, 8), (0, -1)])
def test_state_that_would_spill_into_the_hint_is_refused(state: int, hint: int) -> None:
    with pytest.raises(PowerError, match=f"got {state} and {hint}"):
        set_power_state_command(state, workload_hint=hint)


@pytest.mark.parametrize("allowed", [True, False])
def test_background_power_comes_back(allowed: bool) -> None:
    command = set_background_power_command(allowed=allowed)
    assert (command.opcode, command.cdw10, command.cdw11) == (0x09, 0x11, int(allowed))
    device = Answers(features={(0x11, 0): (int(allowed) | 0xFFFF_FFFE, b"")})
    assert read_background_power(device) is allowed


@settings(deadline=None)
@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_thermal_thresholds_come_back(light: int, heavy: int) -> None:
    raw = light << 16 | heavy
    setting = decode_thermal_management(raw)
    assert (setting.light_k, setting.heavy_k) == (light or None, heavy or None)
    assert read_thermal_management(Answers(features={(0x10, 0): (raw, b"")})) == setting
    if not (light and heavy and light >= heavy):
        command = set_thermal_management_command(setting)
        assert (command.opcode, command.cdw10, command.cdw11) == (0x09, 0x10, raw)


@pytest.mark.parametrize(
    ("light", "heavy", "message"),
    [(350, 350, "must be the lower one"), (360, 350, "360 K and 350 K"), (70_000, None, "or off")],
)
def test_thermal_thresholds_in_the_wrong_order_are_refused(
    light: int, heavy: int | None, message: str
) -> None:
    with pytest.raises(PowerError, match=message):
        set_thermal_management_command(ThermalManagement(light_k=light, heavy_k=heavy))


@settings(deadline=None)
@given(st.integers(0, 2**48 - 1), st.integers(0, 7), st.booleans(), st.integers(0, 15))
def test_timestamp_comes_back(ms: int, origin: int, stopped: bool, high: int) -> None:
    raw = ms.to_bytes(6, "little") + bytes([stopped | origin << 1 | high << 4, 0xFF])
    stamp = decode_timestamp(raw)
    assert (stamp.ms, stamp.host_set, stamp.stopped) == (ms, origin == 1, stopped)
    assert read_timestamp(Answers(features={(0x0E, 0): (0, raw)})) == stamp
    command = set_timestamp_command(ms)
    assert (command.opcode, command.cdw10) == (0x09, 0x0E)
    assert command.payload == ms.to_bytes(8, "little")


@pytest.mark.parametrize("ms", [-1, 2**48])
def test_time_beyond_the_drive_s_clock_is_refused(ms: int) -> None:
    with pytest.raises(PowerError, match=f"got {ms}"):
        set_timestamp_command(ms)


def test_no_command_here_sets_the_save_bit() -> None:
    empty = AutonomousTransitions(enabled=True, transitions=())
    commands = (
        set_power_state_command(31, workload_hint=7),
        set_transitions_command(empty),
        set_background_power_command(allowed=True),
        set_thermal_management_command(ThermalManagement(light_k=1, heavy_k=0xFFFF)),
        set_timestamp_command(2**48 - 1),
    )
    assert [command.cdw10 >> 8 for command in commands] == [0] * 5
