from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.power.nvme.admin import Answers
from wattload.power.nvme.features import decode_transitions, read_background_power, set_command
from wattload.power.nvme.thermal import decode_thermal_management, read_thermal_management
from wattload.power.nvme.timestamp import decode_timestamp, read_timestamp

ENTRIES = st.lists(
    st.tuples(st.integers(0, 31), st.integers(0, 0xFFFFFF)), min_size=32, max_size=32
)


@settings(deadline=None)
@given(ENTRIES, st.booleans(), st.integers(0, 7), st.integers(0, 2**32 - 1))
def test_table_of_transitions_comes_back_whatever_reserved_bits_say(
    entries: list[tuple[int, int]], enabled: bool, low: int, high: int
) -> None:
    words = [target << 3 | idle << 8 for target, idle in entries]
    clean = struct.pack("<32Q", *words)
    noisy = struct.pack("<32Q", *(word | low | high << 32 for word in words))
    table = decode_transitions(enabled | 0xFFFF_FFFE, noisy)
    assert table == decode_transitions(int(enabled), clean)
    # A target without an idle time means nothing.
    told = [(rule.state, rule.target, round(rule.idle_s * 1000)) for rule in table.transitions]
    assert told == [(at, target, idle) for at, (target, idle) in enumerate(entries) if idle]


@settings(deadline=None)
@given(
    st.integers(0, 0xFF),
    st.integers(0, 2**32 - 1),
    st.sampled_from([11, 12, 13]),
    st.integers(0, 127),
    st.binary(max_size=16),
)
def test_value_stands_in_the_dword_that_carries_it_and_saves_nothing(
    feature: int, value: int, dword: int, index: int, payload: bytes
) -> None:
    command = set_command(
        feature, "this", value=value, dword=dword, uuid_index=index, payload=payload
    )
    assert (command.opcode, command.cdw10) == (0x09, feature)
    carried = {11: command.cdw11, 12: command.cdw12, 13: command.cdw13}
    assert carried.pop(dword) == value
    assert set(carried.values()) == {0}
    assert (command.cdw14, command.payload) == (index, payload)
    assert command.name == f"Set Features {feature:02X}h (this)"


def test_value_goes_by_dword_11_unless_told() -> None:
    assert set_command(0x02, "power state 1", value=1).cdw11 == 1


@pytest.mark.parametrize("allowed", [True, False])
def test_background_power_comes_back(allowed: bool) -> None:
    device = Answers(features={(0x11, 0): (int(allowed) | 0xFFFF_FFFE, b"")})
    assert read_background_power(device) is allowed


@settings(deadline=None)
@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_thermal_thresholds_come_back(light: int, heavy: int) -> None:
    raw = light << 16 | heavy
    setting = decode_thermal_management(raw)
    assert (setting.light_k, setting.heavy_k) == (light or None, heavy or None)
    assert read_thermal_management(Answers(features={(0x10, 0): (raw, b"")})) == setting


@settings(deadline=None)
@given(st.integers(0, 2**48 - 1), st.integers(0, 7), st.booleans(), st.integers(0, 15))
def test_timestamp_comes_back(ms: int, origin: int, stopped: bool, high: int) -> None:
    raw = ms.to_bytes(6, "little") + bytes([stopped | origin << 1 | high << 4, 0xFF])
    stamp = decode_timestamp(raw)
    assert (stamp.ms, stamp.host_set, stamp.stopped) == (ms, origin == 1, stopped)
    assert read_timestamp(Answers(features={(0x0E, 0): (0, raw)})) == stamp
