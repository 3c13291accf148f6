"""The node's power through the kernel's own IPMI driver, in the guest of `make lab`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from wattload.core.power import PowerSource
from wattload.power.config import PowerConfig
from wattload.power.sources.ipmi import DEVICE, IpmiDevice, find

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        not os.environ.get("WATTLOAD_LAB_VIRTUAL") or not DEVICE.exists(),
        reason="runs in the guest of `make lab`, whose BMC tests/lab/bmc.py is",
    ),
]

OEM, HANG = 0x30, 0x01
LONGER_THAN_ANYONE_WAITS_S = 7


@pytest.fixture
def node() -> Iterator[PowerSource]:
    (source,) = find((), PowerConfig(source="ipmi"))
    source.open()
    yield source
    source.close()


def watts(node: PowerSource) -> float | None:
    (sample,) = node.read()
    return sample.value


def test_each_reading_is_a_new_one(node: PowerSource) -> None:
    first, second = watts(node), watts(node)
    assert first is not None
    assert first > 200
    assert second == first + 1


def test_command_that_the_bmc_does_not_know_is_refused_by_its_code() -> None:
    device = IpmiDevice()
    assert device.command(0x2C, 0x7F, b"\xdc") == b"\xc1"
    device.close()


def test_bmc_that_hangs_is_a_hole_and_answers_again(node: PowerSource) -> None:
    before = watts(node)
    device = IpmiDevice()
    device.command(OEM, HANG, bytes((LONGER_THAN_ANYONE_WAITS_S,)))
    device.close()
    assert watts(node) is None
    after = next(value for value in (watts(node) for _ in range(10)) if value is not None)
    assert before is not None
    assert after > before
