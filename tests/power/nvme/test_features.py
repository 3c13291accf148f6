"""Features, and the encoding of power that they share with logs."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.power.nvme.admin import Answers
from wattload.core.errors import PowerError
from wattload.power.nvme.features import (
    AutonomousTransitions,
    PowerThreshold,
    Select,
    get_command,
    is_saveable,
    read_background_power,
    read_dssd_power_w,
    read_power_limit,
    read_power_state,
    read_power_threshold,
    read_thermal_thresholds_k,
    read_timestamp,
    read_transitions,
    set_command,
)
from wattload.power.nvme.fields import ScaledPower, decode_power, encode_power, scaled_watts


@settings(deadline=None)
@given(st.integers(0, 0xFFFF), st.integers(0, 3), st.integers(0, 0x3FFF))
def test_coding_comes_back_whatever_the_high_bits_say(value: int, scale: int, high: int) -> None:
    power = decode_power(value | scale << 16 | high << 18)
    assert power == ScaledPower(value=value, scale=scale)
    assert power.dword == value | scale << 16


@settings(deadline=None)
@given(st.integers(1, 0xFFFF), st.sampled_from((1, 2)))
def test_every_power_that_has_a_code_is_coded_exactly(value: int, scale: int) -> None:
    watts = scaled_watts(value, scale)
    assert watts is not None
    assert encode_power(watts).watts == pytest.approx(watts, abs=1e-9)


def test_whole_hundredths_are_coded_in_hundredths() -> None:
    assert encode_power(20.0) == ScaledPower(value=2000, scale=2)
    assert encode_power(1.2345) == ScaledPower(value=12345, scale=1)
    assert encode_power(655.35) == ScaledPower(value=65535, scale=2)


@pytest.mark.parametrize("watts", [0.0, -1.0, 655.36, 7.12345, 20.001, 0.00001])
def test_power_without_a_code_is_refused_with_what_has_one(watts: float) -> None:
    with pytest.raises(PowerError, match=r"use a multiple of 0\.01 W up to 655\.35 W"):
        encode_power(watts)


@pytest.mark.parametrize(("scale", "step_w"), [(0, None), (1, 1e-4), (2, 1e-2), (3, None)])
def test_step_is_that_of_the_scale(scale: int, step_w: float | None) -> None:
    assert ScaledPower(value=1, scale=scale).step_w == step_w


@settings(deadline=None)
@given(st.integers(0, 31), st.integers(0, 7))
def test_power_state_is_read_without_the_hint(state: int, hint: int) -> None:
    assert read_power_state(Answers(features={(0x02, 0): (state | hint << 5, b"")})) == state


@pytest.mark.parametrize("bits", [0b101, 0b110])
def test_capabilities_say_whether_a_feature_is_saveable(bits: int) -> None:
    assert is_saveable(Answers(features={(0x02, 3): (bits, b"")}), 0x02) is bool(bits & 1)


def test_select_stands_in_bits_10_to_8() -> None:
    assert get_command(0x02, Select.CAPABILITIES).cdw10 == 0x302
    assert get_command(0x02).cdw10 == 0x02
    assert get_command(0x02).data_bytes == 0
    assert get_command(0x0C).data_bytes == 256


def transitions(result: int, table: bytes) -> AutonomousTransitions:
    return read_transitions(Answers(features={(0x0C, 0): (result, table)}))


def test_transition_without_idle_time_is_off() -> None:
    table = transitions(0, struct.pack("<Q", 0xC818).ljust(256, b"\0"))
    assert not table.enabled
    assert len(table.transitions) == 1
    assert (table.transitions[0].target, table.transitions[0].idle_s) == (3, 0.2)


def test_cut_table_is_refused() -> None:
    with pytest.raises(PowerError, match="256 bytes, got 8"):
        transitions(1, bytes(8))


POWERS = st.builds(ScaledPower, value=st.integers(0, 0xFFFF), scale=st.integers(0, 3))
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
    table = transitions(enabled | 0xFFFF_FFFE, noisy)
    assert table == transitions(int(enabled), clean)
    # A target without an idle time means nothing.
    rules = [(rule.state, rule.target, round(rule.idle_s * 1000)) for rule in table.transitions]
    assert rules == [(at, target, idle) for at, (target, idle) in enumerate(entries) if idle]


@settings(deadline=None)
@given(
    st.integers(0, 0xFF),
    st.integers(0, 2**32 - 1),
    st.sets(st.sampled_from([11, 12, 13])),
    st.integers(0, 127),
    st.binary(max_size=16),
)
def test_value_is_in_the_dwords_that_carry_it_and_saves_nothing(
    feature: int, value: int, dwords: set[int], index: int, payload: bytes
) -> None:
    command = set_command(
        feature, "this", value=value, dwords=dwords, uuid_index=index, payload=payload
    )
    assert (command.opcode, command.cdw10) == (0x09, feature)
    carried = {11: command.cdw11, 12: command.cdw12, 13: command.cdw13}
    assert carried == {each: value if each in dwords else 0 for each in carried}
    assert (command.cdw14, command.payload) == (index, payload)
    assert command.name == f"Set Features {feature:02X}h (this)"


@pytest.mark.parametrize("allowed", [True, False])
def test_background_power_comes_back(allowed: bool) -> None:
    device = Answers(features={(0x11, 0): (int(allowed) | 0xFFFF_FFFE, b"")})
    assert read_background_power(device) is allowed


@settings(deadline=None)
@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_thermal_thresholds_come_back(light: int, heavy: int) -> None:
    raw = light << 16 | heavy
    device = Answers(features={(0x10, 0): (raw, b"")})
    assert read_thermal_thresholds_k(device) == (light or None, heavy or None)


@settings(deadline=None)
@given(st.integers(0, 2**48 - 1), st.integers(0, 7), st.booleans(), st.integers(0, 15))
def test_timestamp_comes_back(ms: int, origin: int, stopped: bool, high: int) -> None:
    raw = ms.to_bytes(6, "little") + bytes([stopped | origin << 1 | high << 4, 0xFF])
    assert read_timestamp(Answers(features={(0x0E, 0): (0, raw)})) == ms


def test_limit_of_0_is_none() -> None:
    assert read_power_limit(Answers(features={(0x23, 0): (0, b"")})).watts is None
    assert read_power_limit(Answers(features={(0x23, 0): (900 | 2 << 16, b"")})).watts == 9.0


@settings(deadline=None)
@given(POWERS, st.integers(0, 15), st.booleans(), st.integers(0, 3), st.integers(0, 0x7F))
def test_threshold_comes_back(
    power: ScaledPower, kind: int, event: bool, low: int, high: int
) -> None:
    raw = power.dword | low << 18 | kind << 20 | high << 24 | event << 31
    threshold = read_power_threshold(Answers(features={(0x24, 0): (raw, b"")}))
    assert threshold == PowerThreshold(power=power, event_enabled=event)


@settings(deadline=None)
@given(st.integers(0, 255), st.integers(0, 127), st.integers(0, 0xFFFFFF))
def test_ocp_watts_come_back_under_the_uuid_index(watts: int, index: int, high: int) -> None:
    device = Answers(features={(0xC7, 0): (watts | high << 8, b"")})
    assert read_dssd_power_w(device, uuid_index=index) == watts
    assert device.sent[0].cdw14 == index
