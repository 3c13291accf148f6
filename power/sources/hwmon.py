"""The kernel's own power sensors (hwmon): rails that feed a drive, and meters of the whole node.

Nothing in hwmon says what a rail feeds. A channel counts as a drive's only where
``power.hwmon.rails`` names it so; every other one is of scope ``node``, a graphics card's of scope
``gpu``. Several rails of one drive (12 V and 3.3 V) are read together and summed.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from wattload.core.errors import ConfigError, PowerError
from wattload.core.power import (
    Boxcar,
    Counter,
    Evidence,
    Instant,
    PowerSource,
    Scope,
    Sensor,
    SourceFacts,
)
from wattload.core.sysfs import LIVE, Roots, explain
from wattload.power.config import PowerConfig
from wattload.power.meterconfig import HwmonConfig
from wattload.power.sources import PowerDevice
from wattload.power.sources.hwmon_channels import HwmonChannel, channel_named, list_channels
from wattload.power.sources.polled import PolledSource

NAME = "hwmon"

_READ_ONLY = os.O_RDONLY | os.O_CLOEXEC
_ATTRIBUTE_BYTES = 64

NODE_PERIOD_S = 1.0
"""What nobody mapped is read no oftener: an ACPI meter asks the BMC."""
RAIL_PERIOD_LEAST_S = 0.01
"""A rail's means are read twice each, so that none is missed, but no oftener than this."""


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return one source per drive with rails, and one per channel that feeds none.

    Raises:
        ConfigError: a rail is named that is not here, or the rails of a drive don't go together.
        PowerError: the kernel shows no channel.
    """
    return find_channels(LIVE, devices, config.hwmon, period_s=config.period_s)


def find_channels(
    roots: Roots, devices: Sequence[PowerDevice], config: HwmonConfig, *, period_s: float
) -> Sequence[PowerSource]:
    """Return the sources of the channels that ``roots`` shows; see ``find``."""
    channels = list_channels(roots)
    rails = config.drives
    _check_rails(rails, channels)
    if not channels:
        raise PowerError(
            "the kernel shows no hwmon channel of power or energy; `sudo modprobe "
            "acpi_power_meter` loads the driver of most servers' own meter"
        )
    percent = config.accuracy_percent
    of_drives = [
        HwmonSource(own, device, accuracy_percent=percent, period_s=_rail_period_s(own, period_s))
        for device, own in _rails_by_drive(channels, devices, rails)
    ]
    of_node = [
        HwmonSource((channel,), None, accuracy_percent=None, period_s=max(period_s, NODE_PERIOD_S))
        for channel in channels
        if channel.key not in rails
    ]
    return [*of_drives, *of_node]


def _rail_period_s(rails: Sequence[HwmonChannel], period_s: float) -> float:
    """Return how often a drive's rails are read: oftener than asked where means would be missed."""
    windows_s = [each.sensor.window_s for each in rails if isinstance(each.sensor, Boxcar)]
    halves_s = [max(window_s / 2, RAIL_PERIOD_LEAST_S) for window_s in windows_s]
    return min([period_s, *halves_s])


def _check_rails(rails: Iterable[str], channels: Sequence[HwmonChannel]) -> None:
    for key in rails:
        if channel_named(key, channels) is None:
            shown = ", ".join(channel.key for channel in channels) or "no channel of power"
            raise ConfigError(
                f"power.hwmon.rails names {key!r}, which is not here; hwmon shows {shown}"
            )


def _rails_by_drive(
    channels: Sequence[HwmonChannel], devices: Sequence[PowerDevice], rails: Mapping[str, str]
) -> Sequence[tuple[PowerDevice, Sequence[HwmonChannel]]]:
    """Return each device with the channels that are named its own, by name or by serial."""
    found = []
    for device in devices:
        own = [each for each in channels if rails.get(each.key) in (device.name, device.key)]
        if not own:
            continue
        if len({each.is_counter for each in own}) > 1:
            raise ConfigError(
                f"power.hwmon.rails gives {device.name} energy and power channels, which can't be "
                "summed; name those of one kind"
            )
        found.append((device, own))
    return found


class HwmonSource(PolledSource):
    """The sum of a drive's rails, or one channel of the node where ``device`` is ``None``.

    A rail that fails makes the whole reading fail: a sum with a part missing is no sum.
    """

    is_slow: ClassVar[bool] = True

    def __init__(
        self,
        channels: Sequence[HwmonChannel],
        device: PowerDevice | None,
        *,
        accuracy_percent: float | None,
        period_s: float,
    ) -> None:
        self._channels = tuple(channels)
        self._files: list[list[int]] = []
        first = self._channels[0]
        is_rail = device is not None or first.is_rail_sensor
        scope = Scope.DRIVE if device is not None else first.scope
        stated = accuracy_percent if accuracy_percent is not None else _worst(self._channels)
        super().__init__(
            SourceFacts(
                name=NAME,
                device=device.key if device is not None else first.key,
                device_name=device.name if device is not None else first.key,
                scope=scope,
                evidence=Evidence.MEASURED if is_rail else Evidence.SELF_REPORTED,
                sensor=_joint_sensor(self._channels),
                period_s=period_s,
                resolution_w=_joint_resolution_w(self._channels),
                accuracy_percent=stated,
                detail=_detail(self._channels, stated, is_mapped=device is not None),
            )
        )

    def _prepare(self) -> SourceFacts:
        try:
            # Opened once: a read is a `pread` then, and asks for no permission again.
            for channel in self._channels:
                descriptors: list[int] = []
                self._files.append(descriptors)
                for file in channel.files:
                    descriptors.append(os.open(file, _READ_ONLY))  # noqa: PERF401 - may fail
            self._ask()
        except (OSError, ValueError) as error:
            keys = " and ".join(channel.key for channel in self._channels)
            raise PowerError(f"hwmon {keys} can't be read: {explain(error)}") from error
        return self._facts

    def _ask(self) -> float:
        return math.fsum(
            channel.unit * math.prod(map(_whole_number, descriptors))
            for channel, descriptors in zip(self._channels, self._files, strict=True)
        )

    def _release(self) -> None:
        for descriptor in itertools.chain.from_iterable(self._files):
            os.close(descriptor)
        self._files.clear()


def _whole_number(descriptor: int) -> int:
    return int(os.pread(descriptor, _ATTRIBUTE_BYTES, 0))


def _joint_sensor(channels: Sequence[HwmonChannel]) -> Sensor:
    """Return the sensor of a sum: what all rails share, else the moment of reading.

    Chips average on clocks of their own, so that the sum of two has no common update: it is taken
    as a sliding mean of the longest window.
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


def _joint_resolution_w(channels: Sequence[HwmonChannel]) -> float | None:
    steps = [channel.resolution_w for channel in channels if channel.resolution_w is not None]
    return sum(steps) if len(steps) == len(channels) else None


def _worst(channels: Sequence[HwmonChannel]) -> float | None:
    stated = [each.accuracy_percent for each in channels if each.accuracy_percent is not None]
    return max(stated) if len(stated) == len(channels) else None


def _detail(
    channels: Sequence[HwmonChannel], accuracy_percent: float | None, *, is_mapped: bool
) -> str:
    named = [
        f"{channel.key}, {channel.label}" if channel.label else channel.key for channel in channels
    ]
    kind = "energy" if channels[0].is_counter else "power"
    whose = "the drive's rails as power.hwmon.rails names them" if is_mapped else "no drive's"
    stated = "no accuracy is stated" if accuracy_percent is None else f"±{accuracy_percent:g} %"
    return f"{kind} of {' + '.join(named)} ({whose}; {stated})"
