"""The null source: nothing is measured, and it says so."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.power import (
    Bounds,
    Evidence,
    PowerSource,
    Sample,
    Scope,
    SourceFacts,
    WindowEnergy,
)
from wattload.power.config import PowerConfig
from wattload.power.sources import PowerDevice

NAME = "none"


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the one source that reads nothing, whatever the devices."""
    return (NoneSource(period_s=config.period_s),)


class NoneSource:
    """Gives no sample at all: a run without figures of power, not a run of 0 W."""

    def __init__(self, *, period_s: float) -> None:
        self._period_s = period_s

    def facts(self) -> SourceFacts:
        """Return that there is no evidence."""
        return SourceFacts(
            name=NAME,
            device="",
            device_name="",
            scope=Scope.DRIVE,
            evidence=Evidence.NONE,
            sensor=Bounds(),
            period_s=self._period_s,
            detail="nothing is measured",
        )

    def open(self) -> None:
        """Nothing to find."""

    def start(self) -> None:
        """Nothing to begin."""

    def read(self) -> Sequence[Sample]:
        """Return nothing."""
        return ()

    def stop(self) -> Sequence[WindowEnergy]:
        """Return nothing."""
        return ()

    def restore(self) -> None:
        """Nothing to undo."""

    def close(self) -> None:
        """Nothing to give back."""
