"""Encoding of fields in NVMe structures: little-endian integers, text, and scaled power.

Power is a value in bits 15:0 with a scale in bits 17:16 (TP4199, NVMe Base Specification 2.3).
This applies to IPM, AIPWR, MIPWR, the histogram's thresholds, the power limit and the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattload.core.errors import PowerError

UNITS_PER_WATT = {1: 10_000, 2: 100}
"""The unit of scale 1 is 0.0001 W, that of 2 is 0.01 W; 0 means not reported, 3 is reserved."""
LARGEST_VALUE = 0xFFFF


def u16(data: bytes, offset: int) -> int:
    """Return the word at ``offset``."""
    return int.from_bytes(data[offset : offset + 2], "little")


def u32(data: bytes, offset: int) -> int:
    """Return the double word at ``offset``."""
    return int.from_bytes(data[offset : offset + 4], "little")


def u64(data: bytes, offset: int) -> int:
    """Return the quadruple word at ``offset``."""
    return int.from_bytes(data[offset : offset + 8], "little")


def u128(data: bytes, offset: int) -> int:
    """Return the counter of 16 bytes at ``offset``."""
    return int.from_bytes(data[offset : offset + 16], "little")


def text(data: bytes, offset: int, length: int) -> str:
    """Return an ASCII field without its padding; other than printable ASCII becomes U+FFFD.

    Names are printed on terminals and used in file names, so control characters must not pass.
    """
    raw = data[offset : offset + length].decode("ascii", "replace").strip(" \0")
    return "".join(each if " " <= each <= "~" else "\ufffd" for each in raw)


def require_bytes(data: bytes, size_bytes: int, name: str) -> None:
    """Check the length of a structure of fixed size.

    Raises:
        PowerError: ``data`` is shorter or longer; ``name`` is its name in the message.
    """
    if len(data) != size_bytes:
        raise PowerError(f"{name} has {size_bytes} bytes, got {len(data)}")


def scaled_watts(value: int, scale: int) -> float | None:
    """Return a power in watts; ``None`` if value or scale is 0 or the scale is reserved."""
    units_per_watt = UNITS_PER_WATT.get(scale)
    return value / units_per_watt if value and units_per_watt is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPower:
    """An encoded power: ``value`` 0 to 65535, ``scale`` 0 to 3."""

    value: int
    scale: int

    @property
    def watts(self) -> float | None:
        """The power in watts, ``None`` if not reported."""
        return scaled_watts(self.value, self.scale)

    @property
    def step_w(self) -> float | None:
        """The unit of the scale in watts; ``None`` for scales without one."""
        units_per_watt = UNITS_PER_WATT.get(self.scale)
        return 1 / units_per_watt if units_per_watt is not None else None

    @property
    def dword(self) -> int:
        """Value in bits 15:0 and scale in bits 17:16."""
        return self.value | self.scale << 16


def decode_power(raw: int) -> ScaledPower:
    """Return value (bits 15:0) and scale (bits 17:16) of a double word; other bits are ignored."""
    return ScaledPower(value=raw & LARGEST_VALUE, scale=raw >> 16 & 3)


def encode_power(watts: float) -> ScaledPower:
    """Return the encoding of a power: in steps of 0.01 W, else of 0.0001 W up to 6.5535 W.

    Raises:
        PowerError: the power is not positive, is too large, or is between two steps.
    """
    for scale in (2, 1):
        value = round(watts * UNITS_PER_WATT[scale])
        exact = abs(value - watts * UNITS_PER_WATT[scale]) < 1e-6  # noqa: PLR2004 - rounding only
        if exact and 0 < value <= LARGEST_VALUE:
            return ScaledPower(value=value, scale=scale)
    raise PowerError(
        f"{watts:g} W can't be encoded: use a multiple of 0.01 W up to 655.35 W, or of 0.0001 W up "
        "to 6.5535 W"
    )
