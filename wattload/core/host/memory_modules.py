"""The rate of a host's memory modules, from its firmware (SMBIOS type 17)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wattload.core.sysfs import LIVE, Roots, explain

_TYPE, _HEADER_BYTES = 17, 4
_SIZE, _DATA_WIDTH, _LOCATOR, _BANK = 0x0C, 0x0A, 0x10, 0x11
_SPEED, _LONG_SPEED = 0x20, 0x58
_LONG = 0xFFFF
_TRANSFERS = 1_000_000
"""A speed is in millions of transfers per second."""

_CHANNEL = re.compile(r"(.*?CHANNEL[ _-]?[0-9A-Z]+)(?![0-9A-Z])|(.*?CHANNEL[ _-]?[A-Z])(?=[0-9])")
_LETTERED = re.compile(r"(.*?DIMM[ _-]?[A-Z])[0-9]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModule:
    """An installed module: where it is, its configured transfers per second, its data width."""

    locator: str
    bank: str
    transfers_per_s: int
    width_bytes: int

    @property
    def channel(self) -> str | None:
        """The name of the module's channel, with its socket's; ``None`` if none is named.

        Boards name channels in the locator of the device or of the bank: ``P0 CHANNEL A``,
        ``CPU1_DIMM_B2``, ``P0_Node1_Channel3_Dimm0``.
        """
        for text in (self.bank.upper(), self.locator.upper()):
            found = _CHANNEL.match(text)
            if found:
                return found[1] or found[2]
        found = _LETTERED.match(self.locator.upper())
        return found[1] if found else None


def memory_rate(roots: Roots = LIVE) -> tuple[float | None, str]:
    """Return the bytes per second that all memory channels can move, or ``None`` and the reason.

    It is the sum over channels of configured transfers per second times data width.
    """
    try:
        modules = list(_modules(roots))
    except (OSError, ValueError, IndexError) as error:
        return None, f"the firmware's table of memory modules can't be read: {explain(error)}"
    if not modules:
        return None, "the firmware's table has no memory modules"
    rates: dict[str, int] = {}
    for module in modules:
        channel = module.channel
        if channel is None:
            return None, f"the locators of memory modules, {module.locator!r}, name no channel"
        if not module.transfers_per_s or not module.width_bytes:
            return None, f"the firmware does not say how fast module {module.locator!r} runs"
        rate = module.transfers_per_s * module.width_bytes
        rates[channel] = min(rate, rates.get(channel, rate))
    return float(sum(rates.values())), ""


def _modules(roots: Roots) -> Iterator[MemoryModule]:
    table = (roots.sys / "firmware/dmi/tables/DMI").read_bytes()
    at = 0
    while at + _HEADER_BYTES <= len(table):
        kind, length = table[at], table[at + 1]
        if length < _HEADER_BYTES:
            raise ValueError("a structure of it is too short")
        body = table[at : at + length]
        end = table.find(b"\0\0", at + length)
        if end < 0:
            raise ValueError("it is cut short")
        texts = table[at + length : end].split(b"\0")
        if kind == _TYPE and length > _SPEED and int.from_bytes(body[_SIZE : _SIZE + 2], "little"):
            yield _module(body, [text.decode("latin-1").strip() for text in texts])
        at = end + 2


def _module(body: bytes, texts: list[str]) -> MemoryModule:
    def text(place: int) -> str:
        number = body[place]
        return texts[number - 1] if number else ""

    speed = int.from_bytes(body[_SPEED : _SPEED + 2], "little")
    if speed == _LONG:
        speed = int.from_bytes(body[_LONG_SPEED : _LONG_SPEED + 4], "little")
    width = int.from_bytes(body[_DATA_WIDTH : _DATA_WIDTH + 2], "little")
    return MemoryModule(
        locator=text(_LOCATOR),
        bank=text(_BANK),
        transfers_per_s=speed * _TRANSFERS,
        width_bytes=0 if width == _LONG else width // 8,
    )
