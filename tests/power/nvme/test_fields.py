from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.errors import PowerError
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
