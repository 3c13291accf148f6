"""Trees of ``/sys`` after the kernel's documentation, for sensors that no test machine has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.data.sysfs.tree import write
from wattload.core.sysfs import Roots

Chip = Mapping[str, str | int]

INA226: Chip = {
    "name": "ina226",
    "in0_input": 1,
    "in1_input": 12000,
    "curr1_input": 950,
    "power1_input": 11_400_000,
    "shunt_resistor": 10000,
    "update_interval": 35,
}
"""Documentation/hwmon/ina2xx.rst: shunt voltage, bus voltage, current, power."""
INA3221: Chip = {
    "name": "ina3221",
    "in1_input": 12000,
    "in1_label": "P12V_SSD",
    "in2_input": 3300,
    "in2_label": "P3V3_SSD",
    "in3_input": 5000,
    "in4_input": 4,
    "in5_input": 2,
    "in6_input": 0,
    "curr1_input": 1000,
    "curr2_input": 200,
    "curr3_input": 0,
    "update_interval": 8,
}
"""Documentation/hwmon/ina3221.rst: three rails without power files; in4 to in6 are the shunts."""
LTC2947: Chip = {
    "name": "ltc2947",
    "in0_input": 12100,
    "in1_input": 900,
    "curr1_input": 800,
    "power1_input": 9_680_000,
    "energy1_input": 5_000_000,
    "energy2_input": 70_000_000,
}
"""Documentation/hwmon/ltc2947.rst: ``in0`` is the voltage of the supply, two energy registers."""
ACPI: Chip = {
    "name": "power_meter",
    "power1_average": 212_000_000,
    "power1_average_interval": 1000,
    "power1_accuracy": "95.0%",
    "power1_is_battery": 0,
    "power1_model_number": "",
}
"""Documentation/hwmon/acpi_power_meter.rst."""
AMD_ENERGY: Chip = {
    "name": "amd_energy",
    "energy1_input": 1_000_000,
    "energy1_label": "Ecore000",
    "energy2_input": 2_000_000,
    "energy2_label": "Ecore001",
    "energy3_input": 9_000_000,
    "energy3_label": "Esocket0",
}
"""Documentation/hwmon/amd_energy.rst: each core, and each socket with all its cores."""
AMDGPU: Chip = {
    "name": "amdgpu",
    "freq1_input": 800_000_000,
    "freq1_label": "sclk",
    "in0_input": 806,
    "in0_label": "vddgfx",
    "power1_average": 90_000_000,
    "power1_cap": 500_000_000,
    "power1_cap_default": 500_000_000,
    "power1_cap_max": 500_000_000,
    "power1_cap_min": 0,
    "power1_label": "PPT",
    "temp1_input": 38000,
    "temp1_label": "edge",
}
"""Documentation/gpu/amdgpu/thermal.rst and the attributes of drivers/gpu/drm/amd/pm/amdgpu_pm.c."""
NVME: Chip = {"name": "nvme", "temp1_input": 49850}


def hwmon_tree(folder: Path, *chips: Chip, addresses: tuple[str, ...] = ()) -> Roots:
    """Write the chips as hwmon0, hwmon1 and so on, each with its device."""
    for index, chip in enumerate(chips):
        at = folder / f"sys/class/hwmon/hwmon{index}"
        for name, value in chip.items():
            write(at / name, f"{value}\n")
        if addresses:
            device = folder / "sys/devices" / addresses[index]
            device.mkdir(parents=True, exist_ok=True)
            (at / "device").symlink_to(device)
    return Roots(sys=folder / "sys", proc=folder / "proc")


def powercap_tree(
    folder: Path, zones: Mapping[str, str], *, vendor: str = "GenuineIntel", energy_uj: int = 10**6
) -> Roots:
    """Write zones by folder and name, as in Documentation/power/powercap/powercap.rst."""
    top = folder / "sys/class/powercap"
    write(top / "intel-rapl/enabled", "1\n")
    for zone, name in zones.items():
        write(top / zone / "name", f"{name}\n")
        write(top / zone / "energy_uj", f"{energy_uj}\n")
        write(top / zone / "max_energy_range_uj", "262143328850\n")
    write(folder / "proc/cpuinfo", f"processor\t: 0\nvendor_id\t: {vendor}\n")
    return Roots(sys=folder / "sys", proc=folder / "proc")
