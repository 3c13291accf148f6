"""The null source: it measures nothing and reports no evidence."""

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
from wattload.power.registry import Meter
from wattload.power.sources.base import PowerDevice

METER = Meter(scope=Scope.DRIVE)

NAME = "none"


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the only source of this kind, whatever the devices are."""
    return (NoneSource(period_s=config.period_s),)


class NoneSource:
    """Returns no samples: a run without power figures, not a run at 0 W."""

    def __init__(self, *, period_s: float) -> None:
        self._period_s = period_s

    def facts(self) -> SourceFacts:
        """Return facts without evidence."""
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
        """Nothing to open."""

    def start(self) -> None:
        """Nothing to start."""

    def read(self) -> Sequence[Sample]:
        """Return nothing."""
        return ()

    def stop(self) -> Sequence[WindowEnergy]:
        """Return nothing."""
        return ()

    def restore(self) -> None:
        """Nothing to undo."""

    def close(self) -> None:
        """Nothing to close."""
