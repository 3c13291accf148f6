"""Power as NVMe codes it: a value of 16 bits and a scale of 2 bits.

The same coding serves IPM, AIPWR, MIPWR, the histogram's thresholds, the power limit and the power
threshold: value in bits 15:0, scale in bits 17:16 (TP4199, NVMe Base Specification 2.3).
"""

from __future__ import annotations

from dataclasses import dataclass

from wattload.core.errors import PowerError

UNITS_PER_WATT = {1: 10_000, 2: 100}
"""Scale 1 counts in 0.0001 W and 2 in 0.01 W; 0 means not reported, 3 is reserved."""

LARGEST_VALUE = 0xFFFF


def scaled_watts(value: int, scale: int) -> float | None:
    """Return a power in watts; ``None`` where value or scale is 0 or the scale is reserved."""
    units_per_watt = UNITS_PER_WATT.get(scale)
    return value / units_per_watt if value and units_per_watt is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPower:
    """A power as it is coded: ``value`` 0 to 65535, ``scale`` 0 to 3."""

    value: int
    scale: int

    @property
    def watts(self) -> float | None:
        """The power in watts, ``None`` where none is reported."""
        return scaled_watts(self.value, self.scale)

    @property
    def step_w(self) -> float | None:
        """The step that the scale counts in, in watts; ``None`` for scales without one."""
        units_per_watt = UNITS_PER_WATT.get(self.scale)
        return 1 / units_per_watt if units_per_watt is not None else None

    @property
    def dword(self) -> int:
        """Value in bits 15:0 and scale in bits 17:16."""
        return self.value | self.scale << 16


def decode_power(raw: int) -> ScaledPower:
    """Return value (bits 15:0) and scale (bits 17:16) of a double word; the rest is ignored."""
    return ScaledPower(value=raw & LARGEST_VALUE, scale=raw >> 16 & 3)


def encode_power(watts: float) -> ScaledPower:
    """Return the coding of a power: in steps of 0.01 W, else, up to 6.5535 W, of 0.0001 W.

    Raises:
        PowerError: the power is not positive, too large, or between two steps.
    """
    for scale in (2, 1):
        value = round(watts * UNITS_PER_WATT[scale])
        exact = abs(value - watts * UNITS_PER_WATT[scale]) < 1e-6  # noqa: PLR2004 - rounding only
        if exact and 0 < value <= LARGEST_VALUE:
            return ScaledPower(value=value, scale=scale)
    raise PowerError(
        f"{watts:g} W can't be coded: use a multiple of 0.01 W up to 655.35 W, or of 0.0001 W up "
        "to 6.5535 W"
    )
