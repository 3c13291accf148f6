from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.errors import PowerError
from wattload.power.nvme.features import (
    Select,
    decode_capabilities,
    decode_power_management,
    decode_transitions,
    get_command,
)


@settings(deadline=None)
@given(st.integers(0, 31), st.integers(0, 7))
def test_power_management_is_state_and_hint(state: int, hint: int) -> None:
    power = decode_power_management(state | hint << 5)
    assert (power.state, power.workload_hint) == (state, hint)


def test_capabilities_are_three_bits() -> None:
    capabilities = decode_capabilities(0b101)
    assert capabilities.saveable
    assert not capabilities.namespace_specific
    assert capabilities.changeable


def test_select_stands_in_bits_10_to_8() -> None:
    assert get_command(0x02, Select.CAPABILITIES).cdw10 == 0x302
    assert get_command(0x02).cdw10 == 0x02
    assert get_command(0x02).data_bytes == 0
    assert get_command(0x0C).data_bytes == 256


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 31), st.integers(1, 0xFFFFFF)), min_size=32, max_size=32))
def test_transitions_come_back(entries: list[tuple[int, int]]) -> None:
    data = struct.pack("<32Q", *(target << 3 | idle << 8 for target, idle in entries))
    table = decode_transitions(1, data)
    assert table.enabled
    assert [rule.state for rule in table.transitions] == list(range(32))
    assert [rule.target for rule in table.transitions] == [target for target, _ in entries]
    assert [rule.idle_s for rule in table.transitions] == [idle / 1000 for _, idle in entries]


def test_transition_without_idle_time_is_off() -> None:
    table = decode_transitions(0, struct.pack("<Q", 0xC818).ljust(256, b"\0"))
    assert not table.enabled
    assert len(table.transitions) == 1
    assert (table.transitions[0].target, table.transitions[0].idle_s) == (3, 0.2)


def test_cut_table_is_refused() -> None:
    with pytest.raises(PowerError, match="256 bytes, got 8"):
        decode_transitions(1, bytes(8))
