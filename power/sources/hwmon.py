"""The kernel's power sensors (hwmon): rails that feed a drive, and meters of the whole node.

hwmon does not report what a rail feeds. A channel belongs to a drive only if ``power.hwmon.rails``
says so; every other one has the scope ``node``, or ``gpu`` on a graphics card. The rails of one
drive (12 V and 3.3 V) are read together and summed. Files and units:
Documentation/ABI/testing/sysfs-class-hwmon of the Linux kernel (uW, uJ, mV, mA, ms). Which voltage
belongs to which current is known only per chip, from its driver's page.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wattload.core.errors import ConfigError, PowerError
from wattload.core.power import (
    Accuracy,
    Boxcar,
    Counter,
    Evidence,
    Instant,
    PowerSource,
    Scope,
    Sensor,
    SourceFacts,
)
from wattload.core.sysfs import LIVE, Roots, explain, read_int, text_or_empty
from wattload.core.units import MICRO, MILLI
from wattload.power.config import HwmonConfig, PowerConfig
from wattload.power.registry import Meter
from wattload.power.sources.base import (
    PolledSource,
    PowerDevice,
    open_attribute,
    read_attribute,
)

METER = Meter(scope=Scope.NODE, auto_rank=2, is_companion=True)
"""It measures a drive for the rails that ``power.hwmon.rails`` assigns to one."""

NAME = "hwmon"
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
"""Chip to (volts that one step of power equals per step of current, volts per step at the shunt).

The driver's step of current used to be 1 mA and now follows the shunt; the coarser of both is
used (drivers/hwmon/ina2xx.c)."""

_STEP_OF_OLD_DRIVER_A = 1e-3

_AVERAGING = frozenset(_BUS_BY_CURRENT)
"""Chips that convert continuously and average over ``update_interval``. On others this is only the
interval at which the driver reads them."""

_GPU_CHIPS = frozenset(("amdgpu", "i915", "xe", "nouveau"))
_INPUT = re.compile(r"(power|energy)(\d+)_(input|average)|(curr)(\d+)_input")

_PART_OF_A_WHOLE = re.compile(r"Ecore\d+")
"""``amd_energy`` counts each core, and all of them in ``Esocket``."""

_FILTERED = Instant(lag_s=0.5)
"""The sensor of a mean over a time that no file states, such as amdgpu's ``power1_average``.

The firmware's filter is not documented; ROCm's developers say "around 100ms or so"
(github.com/ROCm/ROC-smi/issues/89). The energy model takes a declared delay as uncertain by itself
or by the time between reads, 1 s for a GPU. In simulations of steady work this covers filters with
time constants up to 1.2 s. A mean of a declared length would be trusted far more than that."""

_WHOLE_PERCENT = 100
_ACCURACY_MIN_PERCENT = 80
"""ACPI states a meter's accuracy as 80 % to 100 %; its error is 100 % minus that (10.4.1)."""

NODE_PERIOD_S = 1.0
"""Shortest period for channels without a drive: an ACPI meter queries the BMC."""

MIN_RAIL_PERIOD_S = 0.01
"""A rail's means are read twice each, so that none is missed, but no faster than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HwmonChannel:
    """A channel by its ``key``, ``chip/channel``: ``ina226/power1``, ``ina3221/curr2``.

    If several chips share a name, the key has the bus address: ``ina226@1-0040/power1``. The
    product of ``files`` times ``unit`` is in watts, or joules for a counter.
    """

    key: str
    chip: str
    label: str
    files: tuple[Path, ...]
    unit: float
    sensor: Sensor
    scope: Scope
    resolution_w: float | None = None
    accuracy: Accuracy | None = None

    @property
    def is_counter(self) -> bool:
        return isinstance(self.sensor, Counter)

    @property
    def is_rail_sensor(self) -> bool:
        """Whether the chip measures at a shunt, rather than reporting a firmware's figure."""
        return self.chip.partition("@")[0] in _BUS_BY_CURRENT


def list_channels(roots: Roots = LIVE) -> tuple[HwmonChannel, ...]:
    """Return every channel of power or energy, in the order of chips and names."""
    folders = sorted(roots.sys.glob("class/hwmon/hwmon*"), key=_number)
    named = [(folder, name) for folder in folders if (name := text_or_empty(folder / "name"))]
    tally = Tally(name for _, name in named)
    return tuple(
        channel
        for folder, name in named
        for channel in _channels(folder, name, is_alone=tally[name] == 1)
    )


def _number(folder: Path) -> int:
    digits = folder.name.removeprefix("hwmon")
    return int(digits) if digits.isdecimal() else -1


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
            # `_input` sorts after `_average` and replaces it, as the instantaneous value is more
            # precise.
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
        label=text_or_empty(folder / f"power{number}_label"),
        files=(folder / file_name,),
        unit=MICRO,
        sensor=_averaged(folder, number) if is_average else _sampled(folder, name),
        scope=_scope(name),
        resolution_w=_power_step_w(folder, name),
        accuracy=_accuracy(folder, number),
    )


def _product(folder: Path, name: str, chip: str, number: int) -> Iterator[HwmonChannel]:
    """Yield current times its own bus voltage, if the chip is known."""
    bus = _BUS_BY_CURRENT.get(name, {}).get(number)
    volts_file, amperes_file = folder / f"in{bus}_input", folder / f"curr{number}_input"
    volts = None if bus is None else _whole(volts_file)
    if volts is None:
        return
    yield HwmonChannel(
        key=f"{chip}/curr{number}",
        chip=chip,
        label=text_or_empty(folder / f"in{bus}_label")
        or text_or_empty(folder / f"curr{number}_label"),
        files=(volts_file, amperes_file),
        unit=MILLI * MILLI,
        sensor=_sampled(folder, name),
        scope=_scope(name),
        resolution_w=abs(volts) * MILLI * MILLI or None,
    )


def _energy(folder: Path, name: str, chip: str, number: int) -> Iterator[HwmonChannel]:
    label = text_or_empty(folder / f"energy{number}_label")
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
    )


def _sampled(folder: Path, name: str) -> Sensor:
    """Return the sensor of ``_input``: a mean per update interval, or an instantaneous value."""
    interval_ms = _whole(folder / "update_interval")
    if name in _AVERAGING and interval_ms:
        interval_s = interval_ms * MILLI
        return Boxcar(window_s=interval_s, update_period_s=interval_s)
    return Instant()


def _averaged(folder: Path, number: int) -> Sensor:
    """Return the sensor of ``_average``: a mean over the interval in its own file, if any."""
    interval_ms = _whole(folder / f"power{number}_average_interval")
    return Boxcar(window_s=interval_ms * MILLI) if interval_ms else _FILTERED


def _power_step_w(folder: Path, name: str) -> float | None:
    if name not in _POWER_STEP:
        return None
    volts, volts_per_step = _POWER_STEP[name]
    shunt_uohm = _whole(folder / "shunt_resistor")
    if not shunt_uohm:
        return None
    return volts * max(_STEP_OF_OLD_DRIVER_A, volts_per_step / (shunt_uohm * MICRO))


def _accuracy(folder: Path, number: int) -> Accuracy | None:
    """Return the largest error that an ACPI meter states, ``None`` if it states none.

    The kernel prints ``99.5%`` for 99.005 % as well as for 99.5 %, so only whole percents are used.
    """
    found = re.match(r"(\d+)", text_or_empty(folder / f"power{number}_accuracy"))
    stated = int(found.group(1)) if found else 0
    if not _ACCURACY_MIN_PERCENT <= stated <= _WHOLE_PERCENT:
        return None
    return Accuracy(reading_percent=_WHOLE_PERCENT - stated)


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return one source per drive with rails, and one per channel that feeds no drive.

    Raises:
        ConfigError: a configured rail does not exist, or the rails of a drive can't be summed.
        PowerError: the kernel shows no channel.
    """
    return find_channels(LIVE, devices, config.hwmon, period_s=config.period_s)


def find_channels(
    roots: Roots, devices: Sequence[PowerDevice], config: HwmonConfig, *, period_s: float
) -> Sequence[PowerSource]:
    """Return the sources of the channels in ``roots``; see ``find``."""
    channels = list_channels(roots)
    rails = config.drives
    _check_rails(rails, channels)
    if not channels:
        raise PowerError(
            "the kernel shows no hwmon channel of power or energy; `sudo modprobe "
            "acpi_power_meter` loads the driver of most servers' own meter"
        )
    of_drives = [
        HwmonSource(own, device, config, period_s=_rail_period_s(own, period_s))
        for device, own in _rails_by_drive(channels, devices, rails)
    ]
    of_node = [
        HwmonSource((channel,), None, None, period_s=max(period_s, NODE_PERIOD_S))
        for channel in channels
        if channel.key not in rails
    ]
    return [*of_drives, *of_node]


def _rail_period_s(rails: Sequence[HwmonChannel], period_s: float) -> float:
    """Return the read period of a drive's rails, shortened if means would be missed."""
    windows_s = [each.sensor.window_s for each in rails if isinstance(each.sensor, Boxcar)]
    halves_s = [max(window_s / 2, MIN_RAIL_PERIOD_S) for window_s in windows_s]
    return min([period_s, *halves_s])


def _check_rails(rails: Iterable[str], channels: Sequence[HwmonChannel]) -> None:
    keys = [channel.key for channel in channels]
    for key in rails:
        if key not in keys:
            shown = ", ".join(keys) or "no channel of power"
            raise ConfigError(
                f"power.hwmon.rails names {key!r}, which does not exist; hwmon shows {shown}"
            )


def _rails_by_drive(
    channels: Sequence[HwmonChannel], devices: Sequence[PowerDevice], rails: Mapping[str, str]
) -> Sequence[tuple[PowerDevice, Sequence[HwmonChannel]]]:
    """Return each device with the channels that the configuration assigns to it."""
    found = []
    for device in devices:
        own = [each for each in channels if rails.get(each.key) in (device.name, device.key)]
        if len({each.is_counter for each in own}) > 1:
            raise ConfigError(
                f"power.hwmon.rails gives {device.name} energy and power channels, which "
                "can't be summed; name channels of one kind"
            )
        if own:
            found.append((device, own))
    return found


class HwmonSource(PolledSource):
    """The sum of a drive's rails, or one channel of the node if ``device`` is ``None``.

    ``config`` has the accuracy and the range of a drive's rails. If one rail fails, the whole
    reading fails: a partial sum would be too low.
    """

    is_slow: ClassVar[bool] = True

    def __init__(
        self,
        channels: Sequence[HwmonChannel],
        device: PowerDevice | None,
        config: HwmonConfig | None,
        *,
        period_s: float,
    ) -> None:
        self._channels = tuple(channels)
        self._files: list[list[int]] = []
        first = self._channels[0]
        is_rail = device is not None or first.is_rail_sensor
        scope = Scope.DRIVE if device is not None else first.scope
        stated = None if config is None else config.accuracy.stated
        if stated is None and len(self._channels) == 1:
            stated = first.accuracy
        super().__init__(
            SourceFacts(
                name=NAME,
                device=device.key if device is not None else first.key,
                device_name=device.name if device is not None else first.key,
                scope=scope,
                evidence=Evidence.MEASURED if is_rail else Evidence.SELF_REPORTED,
                sensor=_joint_sensor(self._channels),
                period_s=period_s,
                resolution_w=sum(_known(each.resolution_w for each in self._channels)) or None,
                accuracy=stated,
                range_w=None if config is None else config.range_w,
                detail=_detail(self._channels, stated, is_mapped=device is not None),
                meter=" and ".join(channel.key for channel in self._channels) if is_rail else "",
            )
        )

    def _prepare(self) -> SourceFacts:
        try:
            for channel in self._channels:
                descriptors: list[int] = []
                self._files.append(descriptors)
                for file in channel.files:
                    descriptors.append(open_attribute(file))  # noqa: PERF401 - may fail
            self._query()
        except (OSError, ValueError) as error:
            keys = " and ".join(channel.key for channel in self._channels)
            raise PowerError(f"hwmon {keys} can't be read: {explain(error)}") from error
        return self._facts

    def _query(self) -> float:
        return math.fsum(
            channel.unit * math.prod(map(read_attribute, descriptors))
            for channel, descriptors in zip(self._channels, self._files, strict=True)
        )

    def _release(self) -> None:
        for descriptor in itertools.chain.from_iterable(self._files):
            os.close(descriptor)
        self._files.clear()


def _joint_sensor(channels: Sequence[HwmonChannel]) -> Sensor:
    """Return the sensor of a sum: the model that all rails share, else an instantaneous one.

    Chips average on their own clocks, so the sum of two has no common update. It is treated as a
    sliding mean over the longest window.
    """
    sensors = [channel.sensor for channel in channels]
    if len(sensors) == 1:
        return sensors[0]
    counters = [sensor for sensor in sensors if isinstance(sensor, Counter)]
    if counters:
        return Counter(
            quantum_j=sum(sensor.quantum_j for sensor in counters),
            update_period_s=max(sensor.update_period_s for sensor in counters),
        )
    boxcars = [sensor for sensor in sensors if isinstance(sensor, Boxcar)]
    if len(boxcars) == len(sensors):
        return Boxcar(window_s=max(sensor.window_s for sensor in boxcars), update_period_s=0.0)
    return Instant()


def _known(values: Iterable[float | None]) -> list[float]:
    """Return the values if all are known, else none of them."""
    given = list(values)
    known = [value for value in given if value is not None]
    return known if len(known) == len(given) else []


def _detail(channels: Sequence[HwmonChannel], accuracy: Accuracy | None, *, is_mapped: bool) -> str:
    named = [
        f"{channel.key}, {channel.label}" if channel.label else channel.key for channel in channels
    ]
    kind = "energy" if channels[0].is_counter else "power"
    assignment = (
        "the drive's rails according to power.hwmon.rails" if is_mapped else "not of a drive"
    )
    stated = "no accuracy is stated" if accuracy is None else f"±({accuracy.text})"
    if any(channel.sensor == _FILTERED for channel in channels):
        stated += "; a mean over a time that is not stated, so its delay is uncertain"
    return f"{kind} of {' + '.join(named)} ({assignment}; {stated})"
