"""Host Controlled Thermal Management (feature 10h): where the drive begins to throttle itself.

Layout: NVMe Base Specification 2.0, section "Host Controlled Thermal Management": TMT1 in bits
31:16, TMT2 in bits 15:0, in kelvin.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattload.power.nvme.admin import AdminDevice, fetch
from wattload.power.nvme.features import Select, get_command

THERMAL_MANAGEMENT = 0x10

_HIGHEST_K = 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalManagement:
    """Temperatures in kelvin, ``None`` for a threshold that is off.

    From ``light_k`` (TMT1) on the drive throttles with little effect on performance, from
    ``heavy_k`` (TMT2) on regardless of it.
    """

    light_k: int | None
    heavy_k: int | None


def read_thermal_management(
    device: AdminDevice, select: Select = Select.CURRENT
) -> ThermalManagement:
    """Return feature 10h; refused by a drive that has none."""
    completion = fetch(device, get_command(THERMAL_MANAGEMENT, select))
    return decode_thermal_management(completion.result)


def decode_thermal_management(result: int) -> ThermalManagement:
    """Return TMT1 (bits 31:16) and TMT2 (bits 15:0) of feature 10h."""
    return ThermalManagement(
        light_k=result >> 16 & _HIGHEST_K or None, heavy_k=result & _HIGHEST_K or None
    )
