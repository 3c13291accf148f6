"""The power and energy channels that the kernel's hwmon class shows, and the sensor behind each.

Files and units: Documentation/ABI/testing/sysfs-class-hwmon of the Linux kernel (uW, uJ, mV, mA,
ms). Which voltage belongs to which current is known per chip only, from its driver's page under
Documentation/hwmon/.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattload.core.power import Boxcar, Counter, Instant, Scope, Sensor
from wattload.core.sysfs import LIVE, Roots, read_int, read_text

MICRO = 1e-6
MILLI = 1e-3

_INA_OF_ONE_RAIL = (
    "ina209", "ina219", "ina220", "ina226", "ina230", "ina231", "ina233", "ina237", "ina238",
    "ina260",
)  # fmt: skip
_BUS_BY_CURRENT: dict[str, dict[int, int]] = {
    **{name: {1: 1} for name in _INA_OF_ONE_RAIL},
    "ina3221": {1: 1, 2: 2, 3: 3},
    "ltc2947": {1: 0},
}
"""Chip to {currN: inM}; an INA's ``in0`` and an INA3221's ``in4`` to ``in7`` are shunt voltages."""

_POWER_STEP: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("ina219", "ina220"), (20.0, 10e-6)),
    **dict.fromkeys(("ina226", "ina230", "ina231"), (25.0, 2.5e-6)),
}
"""Chip to (volts that one step of power is worth per step of current, volts per step at the shunt).

The driver's steps of current were 1 mA once and follow the shunt today: the coarser of both is
taken (drivers/hwmon/ina2xx.c).
"""
_STEP_OF_OLD_DRIVER_A = 1e-3

_AVERAGING = frozenset(_BUS_BY_CURRENT)
"""Chips that convert without pause and average over ``update_interval``; of others it only says
how often the driver asks them."""

_GPU_CHIPS = frozenset(("amdgpu", "i915", "xe", "nouveau"))

_INPUT = re.compile(r"(power|energy)(\d+)_(input|average)|(curr)(\d+)_input")
_PART_OF_A_WHOLE = re.compile(r"Ecore\d+")
"""``amd_energy`` counts each core, and ``Esocket`` all of them."""
_ACCURACY_MIN_PERCENT = 80
"""ACPI states how accurate a meter is, 80 % to 100 %; 100 % less that is its error (10.4.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HwmonChannel:
    """A channel by its ``key``, ``chip/channel``: ``ina226/power1``, ``ina3221/curr2``.

    Where several chips have one name the bus address tells them apart: ``ina226@1-0040/power1``.
    ``files`` are read and multiplied, each in ``unit`` of watts, joules, volts or amperes.
    """

    key: str
    chip: str
    label: str
    files: tuple[Path, ...]
    unit: float
    sensor: Sensor
    scope: Scope
    resolution_w: float | None
    accuracy_percent: float | None

    @property
    def is_counter(self) -> bool:
        """Whether it counts joules."""
        return isinstance(self.sensor, Counter)

    @property
    def is_rail_sensor(self) -> bool:
        """Whether the chip is one that measures at a shunt, and no firmware's figure."""
        return self.chip.partition("@")[0] in _BUS_BY_CURRENT


def list_channels(roots: Roots = LIVE) -> tuple[HwmonChannel, ...]:
    """Return every channel that tells power or energy, in the order of chips and names."""
    folders = sorted(roots.sys.glob("class/hwmon/hwmon*"), key=_number)
    named = [(folder, name) for folder in folders if (name := _text(folder / "name"))]
    tally = Tally(name for _, name in named)
    return tuple(
        channel
        for folder, name in named
        for channel in _channels(folder, name, is_alone=tally[name] == 1)
    )


def _number(folder: Path) -> int:
    digits = folder.name.removeprefix("hwmon")
    return int(digits) if digits.isdecimal() else -1


def _text(file: Path) -> str:
    try:
        return read_text(file)
    except OSError:
        return ""


def _whole(file: Path) -> int | None:
    try:
        return read_int(file)
    except (OSError, ValueError):
        return None


def _channels(folder: Path, name: str, *, is_alone: bool) -> Iterator[HwmonChannel]:
    chip = name if is_alone else f"{name}@{(folder / 'device').resolve().name}"
    kinds: dict[tuple[str, int], str] = {}
    for file in sorted(folder.iterdir()):
        found = _INPUT.fullmatch(file.name)
        if found:
            kind, number = found.group(1) or "curr", int(found.group(2) or found.group(5))
            # `_input` sorts behind `_average` and replaces it: the moment is the finer figure.
            kinds[kind, number] = file.name
    for (kind, number), file_name in kinds.items():
        if kind == "curr":
            if ("power", number) not in kinds:
                yield from _product(folder, name, chip, number)
        elif kind == "energy":
            yield from _energy(folder, name, chip, number)
        else:
            yield _power(folder, name, chip, number, file_name)


def _scope(name: str) -> Scope:
    return Scope.GPU if name in _GPU_CHIPS else Scope.NODE


def _power(folder: Path, name: str, chip: str, number: int, file_name: str) -> HwmonChannel:
    is_average = file_name.endswith("_average")
    return HwmonChannel(
        key=f"{chip}/power{number}",
        chip=chip,
        label=_text(folder / f"power{number}_label"),
        files=(folder / file_name,),
        unit=MICRO,
        sensor=_averaged(folder, number) if is_average else _sampled(folder, name),
        scope=_scope(name),
        resolution_w=_power_step_w(folder, name),
        accuracy_percent=_accuracy_percent(folder, number),
    )


def _product(folder: Path, name: str, chip: str, number: int) -> Iterator[HwmonChannel]:
    """Yield current times its own bus voltage, where the chip is known."""
    bus = _BUS_BY_CURRENT.get(name, {}).get(number)
    volts_file, amperes_file = folder / f"in{bus}_input", folder / f"curr{number}_input"
    volts = None if bus is None else _whole(volts_file)
    if volts is None:
        return
    yield HwmonChannel(
        key=f"{chip}/curr{number}",
        chip=chip,
        label=_text(folder / f"in{bus}_label") or _text(folder / f"curr{number}_label"),
        files=(volts_file, amperes_file),
        unit=MILLI * MILLI,
        sensor=_sampled(folder, name),
        scope=_scope(name),
        resolution_w=abs(volts) * MILLI * MILLI or None,
        accuracy_percent=None,
    )


def _energy(folder: Path, name: str, chip: str, number: int) -> Iterator[HwmonChannel]:
    label = _text(folder / f"energy{number}_label")
    if _PART_OF_A_WHOLE.fullmatch(label):
        return
    interval_ms = _whole(folder / "update_interval") or 0
    yield HwmonChannel(
        key=f"{chip}/energy{number}",
        chip=chip,
        label=label,
        files=(folder / f"energy{number}_input",),
        unit=MICRO,
        sensor=Counter(quantum_j=MICRO, update_period_s=interval_ms * MILLI),
        scope=_scope(name),
        resolution_w=None,
        accuracy_percent=None,
    )


def _sampled(folder: Path, name: str) -> Sensor:
    """Return the sensor behind ``_input``: a mean over each update interval, or the moment."""
    interval_ms = _whole(folder / "update_interval")
    if name in _AVERAGING and interval_ms:
        interval_s = interval_ms * MILLI
        return Boxcar(window_s=interval_s, update_period_s=interval_s)
    return Instant()


def _averaged(folder: Path, number: int) -> Sensor:
    """Return the sensor behind ``_average``: a mean over the interval that its file states."""
    interval_ms = _whole(folder / f"power{number}_average_interval")
    return Boxcar(window_s=interval_ms * MILLI) if interval_ms else Instant()


def _power_step_w(folder: Path, name: str) -> float | None:
    if name not in _POWER_STEP:
        return None
    volts, volts_per_step = _POWER_STEP[name]
    shunt_uohm = _whole(folder / "shunt_resistor")
    if not shunt_uohm:
        return None
    return volts * max(_STEP_OF_OLD_DRIVER_A, volts_per_step / (shunt_uohm * MICRO))


def _accuracy_percent(folder: Path, number: int) -> float | None:
    """Return the greatest error in percent that an ACPI meter states, ``None`` where none does.

    The kernel prints ``99.5%`` for 99.005 % as well as 99.5 %: the whole percents alone are taken.
    """
    found = re.match(r"(\d+)", _text(folder / f"power{number}_accuracy"))
    stated = int(found.group(1)) if found else 0
    return 100.0 - stated if _ACCURACY_MIN_PERCENT <= stated <= 100 else None  # noqa: PLR2004


def channel_named(key: str, channels: Sequence[HwmonChannel]) -> HwmonChannel | None:
    """Return the channel with that key, ``None`` where there is none."""
    return next((channel for channel in channels if channel.key == key), None)
