"""The drive's own interval power: the mean of its last second, in every SMART log (NVMe 2.3)."""

from __future__ import annotations

import time
from collections.abc import Sequence

from wattload.core.errors import PowerError
from wattload.core.power import Boxcar, Channel, Evidence, Sample, Sensor
from wattload.power.nvme.measurement import SUBSYSTEM_TOTAL
from wattload.power.nvme.smart import SmartLog
from wattload.power.sources.nvme_drive import NvmeTier

WINDOW_S = 1.0
"""IPM: "the most recent one second" (TP4199)."""

FIRST_MEAN_S = 1.5
"""How long a drive that was just reset may take until it has a mean to tell."""

_POLL_S = 0.1
_COARSE_W = 0.01
_FINE_LIMIT_W = 6.5535
"""Up to here a drive may count in steps of 0.0001 W, above it in 0.01 W: the value has 16 bits."""


class IntervalPowerSource(NvmeTier):
    """IPM, bytes 240 to 243 of the SMART log, at every read.

    The accuracy is the error that the drive's own measurement states (IPWRPE of log 25h), where it
    has one. Evidence falls to ``estimated`` where that log says that the drive reckons (EPF), or
    could not be read.
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
        log = self._first_log()
        if _subsystem_w(log) is None:
            raise PowerError(
                f"{drive.device.name} reports no interval power in its SMART log (bytes 240 to "
                "243, NVMe 2.3)"
            )
        self._resolution_w = self._coarsest_w(log)
        if drive.measurement is not None:
            self._accuracy_percent = drive.measurement.error_percent
        self._detail = self._described()

    def _sensor(self) -> Sensor:
        return Boxcar(window_s=WINDOW_S)

    def _first_log(self) -> SmartLog:
        """Return a log with power in it, as soon as a drive that samples its power has one."""
        samples_power = self._drive.controller.power_sample_interval_s is not None
        deadline_s = time.monotonic() + (FIRST_MEAN_S if samples_power else 0.0)
        while True:
            reading = self._drive.smart.take(self)
            if reading.value is None:
                raise PowerError(reading.trouble)
            if _subsystem_w(reading.value) is not None or time.monotonic() >= deadline_s:
                return reading.value
            time.sleep(_POLL_S)

    def _coarsest_w(self, log: SmartLog) -> float | None:
        """Return the step of the largest power to come: an idle drive's may be finer."""
        limit_w = self._drive.controller.power_states[0].max_w
        step_w = log.interval_power_step_w
        if step_w is None or (limit_w is not None and limit_w <= _FINE_LIMIT_W):
            return step_w
        return max(step_w, _COARSE_W)

    def _described(self) -> str:
        interval_s = self._drive.controller.power_sample_interval_s
        often = "" if interval_s is None else f", taken every {interval_s:g} s or oftener"
        error = self._accuracy_percent
        stated = "error not stated" if error is None else f"off by {error:g} % at most"
        reckoned = self._reckoned()
        return f"mean of the drive's own samples of the last second{often}{reckoned}; {stated}"

    def _reckoned(self) -> str:
        if not self._drive.is_estimated:
            return ""
        if self._drive.measurement is None:
            return ", taken for estimates, as its log 25h that would tell was not readable"
        return ", which it says are estimates"


def _subsystem_w(log: SmartLog) -> float | None:
    """Return the power of the whole NVM subsystem; a vendor's type may mean anything."""
    return log.interval_power_w if log.interval_power_type == SUBSYSTEM_TOTAL else None
