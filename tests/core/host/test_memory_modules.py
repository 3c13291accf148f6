"""The rate of memory modules, from tables made up by the layout of SMBIOS type 17."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattload.core.host.memory_traffic import memory_rate
from wattload.core.sysfs import Roots


def module(locator: str, bank: str = "", *, speed: int = 3200, size: int = 0x4000) -> bytes:
    body = bytearray(0x5C)
    body[0:2] = 17, len(body)
    body[0x08:0x0C] = (72).to_bytes(2, "little") + (64).to_bytes(2, "little")
    body[0x0C:0x0E] = size.to_bytes(2, "little")
    texts = [text.encode() for text in (locator, bank) if text]
    body[0x10], body[0x11] = 1, 2 if bank else 0
    body[0x20:0x22] = speed.to_bytes(2, "little")
    return bytes(body) + b"\0".join(texts) + b"\0\0"


def roots(folder: Path, *structures: bytes) -> Roots:
    table = folder / "firmware/dmi/tables/DMI"
    table.parent.mkdir(parents=True)
    other = bytes((1, 27, *[0] * 25)) + b"Maker\0Product\0\0"
    end = bytes((127, 4, 0, 0)) + b"\0\0"
    table.write_bytes(other + b"".join(structures) + end)
    return Roots(sys=folder)


@pytest.mark.parametrize(
    "locators",
    [
        [("DIMM 0", f"P{socket} CHANNEL {letter}") for socket in "01" for letter in "ABCDEFGH"],
        [(f"CPU{socket}_DIMM_{letter}1", "") for socket in "12" for letter in "ABCDEFGH"],
        [(f"P{s}_Node0_Channel{c}_Dimm0", "") for s in "01" for c in range(8)],
    ],
)
def test_two_sockets_with_eight_channels_each(
    tmp_path: Path, locators: list[tuple[str, str]]
) -> None:
    rate, _ = memory_rate(roots(tmp_path, *(module(*names) for names in locators)))
    assert rate == 409.6e9  # 2 x 8 x 25.6 GB/s, DDR4-3200


def test_two_modules_of_a_channel_count_once_and_empty_slots_never(tmp_path: Path) -> None:
    made = roots(
        tmp_path,
        module("DIMM_A1", speed=4800),
        module("DIMM_A2", speed=4400),
        module("DIMM_B1", size=0),
    )
    assert memory_rate(made)[0] == 4400e6 * 8


def test_locators_without_channels_give_no_rate(tmp_path: Path) -> None:
    rate, reason = memory_rate(roots(tmp_path, module("RAM slot #0")))
    assert rate is None
    assert reason == "the locators of memory modules, 'RAM slot #0', name no channel"


def test_a_module_without_a_speed_gives_no_rate(tmp_path: Path) -> None:
    rate, reason = memory_rate(roots(tmp_path, module("DIMM_A1", speed=0)))
    assert rate is None
    assert "does not say how fast" in reason


@pytest.mark.parametrize("table", [b"\x11\x01", bytes((17, 40)) + b"\0" * 10, bytes((1, 2, 0, 0))])
def test_a_damaged_table_gives_no_rate(tmp_path: Path, table: bytes) -> None:
    made = roots(tmp_path)
    (tmp_path / "firmware/dmi/tables/DMI").write_bytes(table)
    assert memory_rate(made)[0] is None


def test_a_table_that_is_not_there_gives_no_rate(tmp_path: Path) -> None:
    rate, reason = memory_rate(Roots(sys=tmp_path))
    assert rate is None
    assert reason.endswith("the kernel does not show DMI")
