"""The drive's lifetime energy: whole watt-hours in its SMART log, for runs of hours (NVMe 2.3)."""

from __future__ import annotations

import time
from collections.abc import Sequence

from wattload.core.errors import PowerError
from wattload.core.power import Channel, Counter, Evidence, Sample, Sensor
from wattload.core.units import NS_PER_S
from wattload.power.sources import nvme_drive
from wattload.power.sources.nvme_drive import NvmeTier, SharedDrive

JOULES_PER_WH = 3600.0


class LifetimeEnergySource(NvmeTier):
    """OLEC, bytes 232 to 239 of the SMART log, once a second.

    It counts whole watt-hours: at 20 W one in three minutes, so it says nothing of a short run.
    """

    name = "nvme_olec"
    evidence = Evidence.SELF_REPORTED

    def __init__(self, drive: SharedDrive, *, period_s: float) -> None:
        super().__init__(drive, period_s=max(period_s, nvme_drive.SLOW_PERIOD_S))
        self._due_ns = 0

    def read(self) -> Sequence[Sample]:
        """Return the energy counted so far, when it is due."""
        if time.monotonic_ns() < self._due_ns:
            return ()
        reading = self._drive.smart.take(self)
        self._due_ns = reading.start_ns + int(nvme_drive.SLOW_PERIOD_S * NS_PER_S)
        count = None if reading.value is None else reading.value.lifetime_energy_wh
        joules = None if count is None else count * JOULES_PER_WH
        return [self._sample(reading, Channel.ENERGY_J, joules)]

    def _prepare(self) -> None:
        self._drive.check_logs("lifetime energy")
        reading = self._drive.smart.take(self)
        if reading.value is None:
            raise PowerError(reading.trouble)
        if reading.value.lifetime_energy_wh is None:
            raise PowerError(
                f"{self._drive.device.name} reports no lifetime energy in its SMART log (bytes "
                "232 to 239, NVMe 2.3)"
            )
        self._due_ns = 0
        self._detail = "the drive's count of the energy in its life, in steps of 1 Wh (3600 J)"

    def _sensor(self) -> Sensor:
        return Counter(quantum_j=JOULES_PER_WH)
