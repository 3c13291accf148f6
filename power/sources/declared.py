"""A data sheet as a source: the stated watts, repeated at every read.

This is not a measurement: an idle drive reads the same as a busy one. A typical power gives a
figure labelled ``declared``. A maximum and an idle power give an interval, a maximum alone an upper
bound.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from wattload.core.errors import ConfigError
from wattload.core.power import (
    Bounds,
    Channel,
    Evidence,
    PowerSource,
    Sample,
    Scope,
    SourceFacts,
)
from wattload.power.config import DeclaredProfile, PowerConfig
from wattload.power.registry import Meter
from wattload.power.sources.base import PassiveSource, PowerDevice

METER = Meter(scope=Scope.DRIVE)
"""Never in ``auto``: a data sheet is not a measurement."""

NAME = "declared"


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return one source per device, all with the configured profile.

    Raises:
        ConfigError: no profile is configured.
    """
    if config.profile is None:
        raise ConfigError("power=declared needs a profile; e.g. power/profile=micron_6550_ion")
    return [DeclaredSource(device, config.profile, period_s=config.period_s) for device in devices]


class DeclaredSource(PassiveSource):
    """The profile's watts for one device; the device itself is not read."""

    def __init__(self, device: PowerDevice, profile: DeclaredProfile, *, period_s: float) -> None:
        super().__init__(_facts(device, profile, period_s))
        self._profile = profile
        stated_w = {
            Channel.POWER_W: profile.typical_w,
            Channel.LOWER_W: profile.idle_w,
            Channel.UPPER_W: profile.max_w,
        }
        self._stated_w = {channel: watts for channel, watts in stated_w.items() if watts}

    def open(self) -> None:
        """Check the profile.

        Raises:
            ConfigError: it states no usable power.
        """
        self._profile.check()

    def read(self) -> Sequence[Sample]:
        """Return the stated watts, with the current time."""
        now_ns = time.monotonic_ns()
        return [self._sample(channel, watts, now_ns) for channel, watts in self._stated_w.items()]


def _facts(device: PowerDevice, profile: DeclaredProfile, period_s: float) -> SourceFacts:
    stated = {"typical": profile.typical_w, "idle": profile.idle_w, "maximum": profile.max_w}
    watts = ", ".join(f"{name} {value:g} W" for name, value in stated.items() if value)
    state = "" if profile.state is None else f" in power state {profile.state}"
    return SourceFacts(
        name=NAME,
        device=device.key,
        device_name=device.name,
        scope=Scope.DRIVE,
        evidence=Evidence.DECLARED,
        sensor=Bounds(),
        period_s=period_s,
        detail=f"{profile.name}, {watts}{state} ({profile.citation})",
    )
