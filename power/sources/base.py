"""What a power source is, and how sources are found by name.

A meter's module offers ``find``: the sources of that kind on this host, one per device, not yet
opened. ``power.registry`` describes the rest of a meter.
"""

from __future__ import annotations

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, cast

from wattload.core.errors import ConfigError, PowerError
from wattload.core.power import (
    Channel,
    Evidence,
    PowerSource,
    Sample,
    Scope,
    SourceFacts,
    WindowEnergy,
)
from wattload.power.config import PlacedMeterConfig, PowerConfig
from wattload.power.control.journal import ChangeJournal
from wattload.power.registry import meter_module, meter_names

LARGEST_W = {Scope.DRIVE: 200.0, Scope.GPU: 3_000.0, Scope.NODE: 20_000.0}
"""More than any such device draws: a greater reading is of something else, or not in watts."""

_ATTRIBUTE_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDevice:
    """A leaf of a target's block stack, which a drive-scope source may read.

    ``key`` identifies it in every sample and record: the controller's serial, else the kernel's
    name. ``name`` is the kernel's (``nvme0``, ``vda``). ``is_nvme`` is true for an NVMe controller.
    A source that changes a feature of the drive needs ``journal`` and ``run_id``, and does so only
    through ``power.control.change.Change``.
    """

    key: str
    name: str
    is_nvme: bool
    journal: ChangeJournal | None = None
    run_id: str = ""


class Find(Protocol):
    """The function ``find`` of each meter's module."""

    def __call__(
        self, devices: Sequence[PowerDevice], config: PowerConfig
    ) -> Sequence[PowerSource]:
        """Return the sources of one kind, unopened; empty if there is no device for it.

        Raises:
            PowerError: the host lacks something the source needs, such as a driver.
            MissingExtraError: a module is not installed; the message names the extra.
        """
        ...


def find_sources(
    name: str, devices: Sequence[PowerDevice], config: PowerConfig
) -> Sequence[PowerSource]:
    """Return the sources of the meter ``name``, unopened; see ``Find``.

    Raises:
        ConfigError: the name is unknown.
    """
    if name not in meter_names():
        raise ConfigError(f"unknown power source {name!r}; available: {', '.join(meter_names())}")
    return cast("Find", meter_module(name).find)(devices, config)


def single_device(devices: Sequence[PowerDevice], wanted: str, *, setting: str) -> PowerDevice:
    """Return the device with that serial or kernel name; with ``""`` the only one.

    Raises:
        ConfigError: no device fits, or several do; the message names ``setting`` and the devices.
    """
    fitting = [device for device in devices if wanted in ("", device.key, device.name)]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(f"{device.name} ({device.key})" for device in devices) or "none"
    raise ConfigError(
        f"{setting} must be the serial or name of the measured drive, got {wanted!r}; "
        f"drives under the target: {names}"
    )


def placed_at(
    devices: Sequence[PowerDevice], own: PlacedMeterConfig, *, setting: str, otherwise: str
) -> tuple[str, str]:
    """Return key and name of what a meter measures: a drive's, the user's, or ``otherwise``.

    Raises:
        ConfigError: it measures a drive, and which is not clear; the message names ``setting``.
    """
    if own.scope == Scope.DRIVE:
        drive = single_device(devices, own.device, setting=setting)
        return drive.key, drive.name
    return own.device or otherwise, own.device or otherwise


def open_attribute(file: Path) -> int:
    """Open a file of sysfs to be read again and again: later reads need no permission."""
    return os.open(file, os.O_RDONLY | os.O_CLOEXEC)


def read_attribute(descriptor: int) -> int:
    """Return the whole number in an open file of sysfs; raises ``OSError`` or ``ValueError``."""
    return int(os.pread(descriptor, _ATTRIBUTE_BYTES, 0))


class PassiveSource:
    """A source that gives nothing and changes nothing; subclasses override what they do."""

    def __init__(self, facts: SourceFacts) -> None:
        self._facts = facts

    def facts(self) -> SourceFacts:
        return self._facts

    def open(self) -> None:
        """Nothing to open."""

    def start(self) -> None:
        """Nothing to start."""

    def read(self) -> Sequence[Sample]:
        return ()

    def stop(self) -> Sequence[WindowEnergy]:
        """Return nothing: the energy is integrated from the samples."""
        return ()

    def restore(self) -> None:
        """Nothing to undo."""

    def close(self) -> None:
        """Nothing to close."""

    def _sample(
        self,
        channel: Channel,
        value: float | None,
        time_ns: int,
        spread_ns: int = 0,
        evidence: Evidence | None = None,
    ) -> Sample:
        """Return a reading of this source; its evidence is that of the facts if not given."""
        return Sample(
            time_ns=time_ns,
            spread_ns=spread_ns,
            source=self._facts.name,
            device=self._facts.device,
            channel=channel,
            value=value,
            evidence=evidence or self._facts.evidence,
        )


class PolledSource(PassiveSource, ABC):
    """One quantity of one device, queried at every read.

    Joules if the sensor in the facts is a counter, else watts. ``is_slow`` means that an answer may
    take longer than a tick; the sampler then queries it in a separate thread, every ``period_s`` of
    the facts.
    """

    is_slow: ClassVar[bool] = False

    def __init__(self, facts: SourceFacts) -> None:
        """Store the facts known before the source is opened; the sensor is known afterwards."""
        super().__init__(facts)
        self._is_open = False

    @abstractmethod
    def _prepare(self) -> SourceFacts:
        """Find the device, query it once and return the facts; raises ``PowerError``."""

    @abstractmethod
    def _query(self) -> float | None:
        """Return joules or watts; ``None``, ``OSError``, ``ValueError``, ``PowerError``: no value.

        This may be called after the device has disappeared.
        """

    def _release(self) -> None:
        """Release what ``_prepare`` acquired; safe to call twice."""

    def open(self) -> None:
        """Find the device; raises ``PowerError`` if it can't be read."""
        try:
            self._facts = self._prepare()
        except BaseException:
            self._release()
            raise
        self._is_open = True

    def read(self) -> Sequence[Sample]:
        """Return one sample, without value if the device gave none."""
        if not self._is_open:
            raise PowerError(f"{self._facts.name} was read before it was opened")
        start_ns = time.monotonic_ns()
        value: float | None
        try:
            value = self._query()
        except (OSError, ValueError, PowerError):
            value = None
        end_ns = time.monotonic_ns()
        if value is not None and not math.isfinite(value):
            value = None
        middle_ns, spread_ns = (start_ns + end_ns) // 2, end_ns - start_ns
        return (self._sample(self._facts.figure_channel, value, middle_ns, spread_ns),)

    def close(self) -> None:
        """Close the device; safe to call twice."""
        self._is_open = False
        self._release()
