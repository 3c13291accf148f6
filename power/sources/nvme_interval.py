"""The drive's own interval power: the mean of its last second, in every SMART log (NVMe 2.3)."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.errors import PowerError
from wattload.core.power import Boxcar, Channel, Evidence, Sample, Sensor
from wattload.power.nvme.measurement import SUBSYSTEM_TOTAL
from wattload.power.nvme.smart import SmartLog
from wattload.power.sources.nvme_drive import NvmeTier

WINDOW_S = 1.0
"""IPM: "the most recent one second" (TP4199)."""


class IntervalPowerSource(NvmeTier):
    """IPM, bytes 240 to 243 of the SMART log, at every read.

    The accuracy is the error that the drive's own measurement states (IPWRPE of log 25h), where it
    has one. Evidence falls to ``estimated`` once that log says that the drive reckons (EPF).
    """

    name = "nvme_ipm"
    evidence = Evidence.SELF_REPORTED

    def read(self) -> Sequence[Sample]:
        """Return the mean power of the last second."""
        reading = self._drive.smart.take(self)
        watts = None if reading.value is None else _subsystem_w(reading.value)
        return [self._sample(reading, Channel.POWER_W, watts)]

    def _prepare(self) -> None:
        drive = self._drive
        drive.check_logs("interval power")
        reading = drive.smart.take(self)
        if reading.value is None:
            raise PowerError(reading.trouble)
        if _subsystem_w(reading.value) is None:
            raise PowerError(
                f"{drive.device.name} reports no interval power in its SMART log (bytes 240 to "
                "243, NVMe 2.3)"
            )
        self._resolution_w = reading.value.interval_power_step_w
        if drive.measurement is not None:
            self._accuracy_percent = drive.measurement.error_percent
        self._detail = self._described()

    def _sensor(self) -> Sensor:
        return Boxcar(window_s=WINDOW_S)

    def _described(self) -> str:
        interval_s = self._drive.controller.power_sample_interval_s
        often = "" if interval_s is None else f", taken every {interval_s:g} s or oftener"
        error = self._accuracy_percent
        stated = "error not stated" if error is None else f"off by {error:g} % at most"
        reckoned = ", which it says are estimates" if self._drive.is_estimated else ""
        return f"mean of the drive's own samples of the last second{often}{reckoned}; {stated}"


def _subsystem_w(log: SmartLog) -> float | None:
    """Return the power of the whole NVM subsystem; a vendor's type may mean anything."""
    return log.interval_power_w if log.interval_power_type == SUBSYSTEM_TOTAL else None
