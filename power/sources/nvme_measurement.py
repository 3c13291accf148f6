"""The drive's own power measurement over a whole run: feature 25h starts it, log 25h tells.

No polling: the drive takes an interval power each second and keeps their mean. It is of the whole
run, from the sampler's start to its end less a quiet at either, and never split into phases.
"""

from __future__ import annotations

import math
import time
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

from wattload.core.errors import PowerError
from wattload.core.power import Evidence, Integral, Sample, Sensor, WindowEnergy
from wattload.core.units import NS_PER_S
from wattload.power.change import FeatureChange
from wattload.power.control import HoldsSystem, check_no_system
from wattload.power.journal import Setting
from wattload.power.nvme.admin import SET_FEATURES, AdminCommand, AdminDevice, Completion
from wattload.power.nvme.measurement import (
    START,
    STOP,
    PowerMeasurementLog,
    read_measurement_header,
    read_power_measurement,
)
from wattload.power.settings import POWER_MEASUREMENT
from wattload.power.sources.nvme_drive import NvmeTier, SharedDrive
from wattload.power.sources.nvme_integral import INTERVAL_S, Answers, integrated

_START = Setting(value=START)
"""No stop time: nobody knows how long a run takes, and the journal knows of a start to undo."""
_STOP = Setting(value=STOP)

SETTLED_S = 0.05
"""How long after the end of an interval a drive with a good clock has counted it."""
CUT_OFF_S = 0.2
"""So much of an interval may be cut off unwaited for: of several drives few are waited for then."""
LOOK_S = 0.05
"""How often the log is read for the interval that a slower clock still owes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A measurement under way: when Start was completed, and the log that proves it."""

    start_ns: int
    log: PowerMeasurementLog


class PowerMeasurementSource(NvmeTier):
    """Mean power of the run times its length, by Start, Stop and log 25h; gives no samples.

    Start is journalled, so that a run which dies leaves nothing running for ever. What another
    program has started is left alone. A drive measures itself once, whichever of its controllers is
    asked: ``claims`` tells by serial which one has it, for all sources that are found together.
    """

    name = "nvme_25h"
    evidence = Evidence.SELF_REPORTED

    def __init__(
        self,
        drive: SharedDrive,
        *,
        period_s: float,
        holds_system: HoldsSystem,
        allow_system_drive: bool,
        claims: MutableMapping[str, str],
    ) -> None:
        super().__init__(drive, period_s=period_s)
        self._claims = claims
        self._holds_system = holds_system
        self._allow_system_drive = allow_system_drive
        self._change: FeatureChange | None = None
        self._admin: _Stamped | None = None
        self._begun: _Begun | None = None
        self._trouble = ""
        self._asked_ns = 0

    def start(self) -> None:
        """Start the drive's measurement; what prevents it is told by ``stop``."""
        self._begun, self._trouble, self._asked_ns = None, "", time.monotonic_ns()
        if self._change is None or self._admin is None:
            raise PowerError(f"{self._drive.device.name} is started before it was opened")
        try:
            self._change.set(_START, old=_STOP)
            log = read_measurement_header(self._admin)
        except PowerError as error:
            self._trouble = str(error)
            return
        self._drive.is_estimated = self._drive.is_estimated or log.estimated
        self._begun = _Begun(start_ns=self._admin.completed_ns, log=log)

    def read(self) -> Sequence[Sample]:
        """Return nothing: the drive integrates by itself."""
        return ()

    def stop(self) -> Sequence[WindowEnergy]:
        """Stop the measurement; return the run's energy, or why the drive's answer is not it.

        Waits for the end of the drive's interval, up to a second by our clock and up to another by
        the drive's: what of one is cut off would be billed at the mean of the whole run, though it
        is of the drive's idle time.
        """
        admin, begun = self._admin, self._begun
        if admin is None:
            return ()
        self._begun = None
        if begun is None:
            return [self._without(self._asked_ns, time.monotonic_ns(), self._trouble)]
        try:
            running = _after_an_interval(admin, begun.start_ns)
            self.restore()
            answers = Answers(begun=begun.log, running=running, ended=read_power_measurement(admin))
        except PowerError as error:
            return [self._without(begun.start_ns, time.monotonic_ns(), str(error))]
        return [
            integrated(
                answers,
                source=self.name,
                device=self._drive.device.key,
                start_ns=begun.start_ns,
                end_ns=admin.completed_ns,
            )
        ]

    def restore(self) -> None:
        """Stop what was started; safe to call twice.

        Raises:
            PowerError: the drive does not stop; the journal keeps it for the next start.
        """
        if self._change is not None:
            self._change.restore()

    def close(self) -> None:
        """Give the drive back; safe to call twice."""
        if self._change is not None:
            self._claims.pop(self._drive.controller.serial, None)
        self._change = self._admin = self._begun = None
        super().close()

    def _prepare(self) -> None:
        device, controller = self._drive.device, self._drive.controller
        self._check_may_measure()
        admin = _Stamped(self._drive.admin)
        log = read_measurement_header(admin)
        if log.active:
            raise PowerError(
                f"{device.name} is measuring its power already; whoever has started that is left "
                "alone (feature 25h with ACT=0 stops it)"
            )
        if device.journal is None:
            raise PowerError(
                f"{device.name} can measure a whole run's power by itself; nothing is started "
                "outside a run"
            )
        if not self._allow_system_drive:
            check_no_system(device.name, controller.serial, self._holds_system)
        self._accuracy_percent = log.error_percent
        self._detail = "the drive's own mean over the whole run, by feature and log 25h"
        self._admin = admin
        self._claims[controller.serial] = device.name
        self._change = FeatureChange(
            admin, controller, device.journal, POWER_MEASUREMENT, run_id=device.run_id
        )

    def _check_may_measure(self) -> None:
        """Raise ``PowerError`` where the drive can't, or another of its controllers does."""
        device, controller = self._drive.device, self._drive.controller
        if not controller.power_measurement:
            raise PowerError(
                f"{device.name} has no power measurement of its own (bit 21 of CTRATT, NVMe 2.3)"
            )
        claimed_by = self._claims.get(controller.serial)
        if claimed_by not in (None, device.name):
            raise PowerError(
                f"{device.name} is another controller of the drive whose whole power {claimed_by} "
                "measures already; it is left alone, for a second start would spoil the first"
            )

    def _sensor(self) -> Sensor:
        return Integral()

    def _without(self, start_ns: int, end_ns: int, reason: str) -> WindowEnergy:
        return WindowEnergy(
            source=self.name,
            device=self._drive.device.key,
            start_ns=start_ns,
            end_ns=end_ns,
            energy_j=None,
            evidence=Evidence.NONE,
            reason=f"{self.name}: {reason}",
        )


def _after_an_interval(admin: AdminDevice, start_ns: int) -> PowerMeasurementLog:
    """Return the head of the log just after the drive has counted a whole number of intervals."""
    over_s = (_passed_s(start_ns) - SETTLED_S) % INTERVAL_S
    if over_s > CUT_OFF_S:
        time.sleep(INTERVAL_S - over_s)
    due = math.floor(_passed_s(start_ns) / INTERVAL_S)
    log = read_measurement_header(admin)
    for _ in range(round(INTERVAL_S / LOOK_S)):
        if log.count != due - 1:  # counted; or further off, and no waiting will mend that
            break
        time.sleep(LOOK_S)
        log = read_measurement_header(admin)
    return log


def _passed_s(start_ns: int) -> float:
    return (time.monotonic_ns() - start_ns) / NS_PER_S


class _Stamped:
    """Passes commands on, and keeps when the last Set Features was completed, in ns."""

    def __init__(self, device: AdminDevice) -> None:
        self._device = device
        self.completed_ns = 0

    @property
    def name(self) -> str:
        return self._device.name

    def submit(self, command: AdminCommand) -> Completion:
        completion = self._device.submit(command)
        if command.opcode == SET_FEATURES:
            self.completed_ns = time.monotonic_ns()
        return completion

    def close(self) -> None:
        """Nothing to close: the device is shared."""
