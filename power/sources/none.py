"""The null source: it measures nothing and reports no evidence."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.power import (
    Bounds,
    Evidence,
    PowerSource,
    Scope,
    SourceFacts,
)
from wattload.power.config import PowerConfig
from wattload.power.registry import Meter
from wattload.power.sources.base import PassiveSource, PowerDevice

METER = Meter(scope=Scope.DRIVE)

NAME = "none"


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the only source of this kind, whatever the devices are."""
    return (NoneSource(period_s=config.period_s),)


class NoneSource(PassiveSource):
    """Returns no samples: a run without power figures, not a run at 0 W."""

    def __init__(self, *, period_s: float) -> None:
        super().__init__(
            SourceFacts(
                name=NAME,
                device="",
                device_name="",
                scope=Scope.DRIVE,
                evidence=Evidence.NONE,
                sensor=Bounds(),
                period_s=period_s,
                detail="nothing is measured",
            )
        )
