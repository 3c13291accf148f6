"""The drive's own power measurement over a whole run: feature 25h and log 25h.

There is no polling: the drive measures an interval power each second and keeps the mean. It covers
the whole run, from the sampler's start to its end without the quiet times, and is never split into
phases.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from wattload.core.errors import PowerError
from wattload.core.power import Evidence, Integral, WindowEnergy
from wattload.core.units import NS_PER_S
from wattload.power.control.change import Change, check_no_system
from wattload.power.control.host import HoldsSystem
from wattload.power.control.journal import Setting
from wattload.power.control.power_settings import POWER_MEASUREMENT, DriveFeature, Plan
from wattload.power.nvme.admin import SET_FEATURES, AdminCommand, AdminDevice, Completion
from wattload.power.nvme.measurement import (
    START,
    STOP,
    SUBSYSTEM_TOTAL,
    PowerMeasurementLog,
    read_measurement_header,
    read_power_measurement,
)
from wattload.power.sources.nvme_drive import NvmeTier, SharedDrive, stated_accuracy

INTERVAL_S = 1.0
"""Length of an interval measurement, assumed to be that of the SMART log."""

COUNT_TOLERANCE = 1.0
"""Largest difference between the count of intervals and the elapsed seconds."""

CLOCK_TOLERANCE = 2e-4
"""Largest relative drift of the two clocks; it matters only in runs of more than an hour."""

SETTLED_S = 0.05
"""A drive with an accurate clock has counted an interval this long after its end."""

CUT_OFF_S = 0.2
"""Up to this part of an interval is cut off without waiting, so that few of several drives need a
wait."""

POLL_S = 0.05
"""How often the log is read while an interval of a slower clock is missing."""

_STOP = Setting(value=STOP)

_MEASUREMENT = Plan(
    option="power.source",
    feature=POWER_MEASUREMENT,
    requested=START,
    before=_STOP,
    old=_STOP,
    new=Setting(value=START),
)
"""Without stop time: the length of a run is unknown, and the journal has the start to be undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """A running measurement: when Start was completed, and the log that confirms it."""

    start_ns: int
    log: PowerMeasurementLog


class PowerMeasurementSource(NvmeTier):
    """Mean power of the run times its length, by Start, Stop and log 25h; gives no samples.

    Start is journalled, so that a run that dies does not leave a measurement running. A measurement
    that another program has started is not touched. A drive measures itself only once, through one
    of its controllers: ``claims`` maps its serial to that controller, for all sources that are
    found together.
    """

    name = "nvme_25h"
    evidence = Evidence.SELF_REPORTED
    sensor = Integral()

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
        self._change: Change | None = None
        self._admin: _TimedDevice | None = None
        self._running: _Running | None = None
        self._trouble = ""
        self._requested_ns = 0

    def start(self) -> None:
        """Start the drive's measurement; ``stop`` reports a failure."""
        self._running, self._trouble, self._requested_ns = None, "", time.monotonic_ns()
        if self._change is None or self._admin is None:
            raise PowerError(f"{self._drive.device.name} was started before it was opened")
        try:
            self._change.make()
            log = read_measurement_header(self._admin)
        except PowerError as error:
            self._trouble = str(error)
            return
        self._drive.is_estimated = self._drive.is_estimated or log.estimated
        self._running = _Running(start_ns=self._admin.completed_ns, log=log)

    def stop(self) -> Sequence[WindowEnergy]:
        """Stop the measurement; return the run's energy, or the reason why there is none.

        Waits for the end of the drive's interval, up to a second by our clock plus up to another
        for the drive's. The drive drops an incomplete interval, which would then count with the
        mean power of the whole run, although the drive was idle.
        """
        admin, begun = self._admin, self._running
        if admin is None:
            return ()
        self._running = None
        if begun is None:
            return [self._no_energy(self._requested_ns, time.monotonic_ns(), self._trouble)]
        try:
            running = _read_at_interval_end(admin, begun.start_ns)
            self.restore()
            answers = Answers(begun=begun.log, running=running, ended=read_power_measurement(admin))
        except PowerError as error:
            return [self._no_energy(begun.start_ns, time.monotonic_ns(), str(error))]
        return [
            window_energy(
                answers,
                source=self.name,
                device=self._drive.device.key,
                start_ns=begun.start_ns,
                end_ns=admin.completed_ns,
            )
        ]

    def restore(self) -> None:
        """Stop a started measurement; safe to call twice.

        Raises:
            PowerError: the drive does not stop; the journal entry stays for the next start.
        """
        if self._change is not None:
            self._change.restore()

    def close(self) -> None:
        """Close the drive; safe to call twice."""
        if self._change is not None:
            self._claims.pop(self._drive.controller.serial, None)
        self._change = self._admin = self._running = None
        super().close()

    def _prepare(self) -> Mapping[str, object]:
        device, controller = self._drive.device, self._drive.controller
        self._check_available()
        admin = _TimedDevice(self._drive.admin)
        log = read_measurement_header(admin)
        if log.active:
            raise PowerError(
                f"{device.name} is already measuring its power; a measurement started by "
                "another program is not touched (feature 25h with ACT=0 stops it)"
            )
        if device.journal is None:
            raise PowerError(
                f"{device.name} can measure the power of a whole run itself; this is started "
                "only in a run"
            )
        if not self._allow_system_drive:
            check_no_system(device.name, controller.serial, self._holds_system)
        self._admin = admin
        self._claims[controller.serial] = device.name
        self._change = Change(
            drive=DriveFeature(admin, controller, POWER_MEASUREMENT),
            plan=_MEASUREMENT,
            journal=device.journal,
            run_id=device.run_id,
        )
        return {
            "accuracy": stated_accuracy(log),
            "detail": "the drive's own mean over the whole run, by feature and log 25h",
        }

    def _check_available(self) -> None:
        """Raise ``PowerError`` if the drive can't measure, or another of its controllers does."""
        device, controller = self._drive.device, self._drive.controller
        if not controller.capabilities.power_measurement:
            raise PowerError(
                f"{device.name} has no power measurement of its own (bit 21 of CTRATT, NVMe 2.3)"
            )
        claimed_by = self._claims.get(controller.serial)
        if claimed_by not in (None, device.name):
            raise PowerError(
                f"{device.name} is another controller of a drive that already measures its "
                f"whole power through {claimed_by}; a second start would invalidate the first"
            )

    def _no_energy(self, start_ns: int, end_ns: int, reason: str) -> WindowEnergy:
        return WindowEnergy(
            source=self.name,
            device=self._drive.device.key,
            start_ns=start_ns,
            end_ns=end_ns,
            energy_j=None,
            evidence=Evidence.NONE,
            reason=f"{self.name}: {reason}",
        )


def _read_at_interval_end(admin: AdminDevice, start_ns: int) -> PowerMeasurementLog:
    """Return the head of the log just after the drive has counted a whole number of intervals."""
    over_s = (_elapsed_s(start_ns) - SETTLED_S) % INTERVAL_S
    if over_s > CUT_OFF_S:
        time.sleep(INTERVAL_S - over_s)
    due = math.floor(_elapsed_s(start_ns) / INTERVAL_S)
    log = read_measurement_header(admin)
    for _ in range(round(INTERVAL_S / POLL_S)):
        if log.count != due - 1:  # counted, or further off than waiting could correct
            break
        time.sleep(POLL_S)
        log = read_measurement_header(admin)
    return log


def _elapsed_s(start_ns: int) -> float:
    return (time.monotonic_ns() - start_ns) / NS_PER_S


class _TimedDevice:
    """Forwards commands, and records when the last Set Features was completed, in ns."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Log 25h after Start, just before Stop (both without histogram), and after Stop."""

    begun: PowerMeasurementLog
    running: PowerMeasurementLog
    ended: PowerMeasurementLog

    @property
    def all(self) -> tuple[PowerMeasurementLog, ...]:
        return self.begun, self.running, self.ended

    @property
    def evidence(self) -> Evidence:
        """Estimated if the drive has reported estimates at any time: evidence never improves."""
        is_estimated = any(log.estimated for log in self.all)
        return Evidence.ESTIMATED if is_estimated else Evidence.SELF_REPORTED

    @property
    def error_percent(self) -> int | None:
        """The largest stated error; ``None`` if the final log states none."""
        if self.ended.error_percent is None:
            return None
        return max(log.error_percent or 0 for log in self.all)


def window_energy(
    answers: Answers, *, source: str, device: str, start_ns: int, end_ns: int
) -> WindowEnergy:
    """Return AIPWR times the seconds from Start to Stop, or the reason why that is not valid."""
    log = answers.ended
    seconds = (end_ns - start_ns) / NS_PER_S
    mean_w = log.average.watts
    trouble = _trouble(answers, seconds)
    return WindowEnergy(
        source=source,
        device=device,
        start_ns=start_ns,
        end_ns=end_ns,
        energy_j=None if trouble or mean_w is None else mean_w * seconds,
        evidence=Evidence.NONE if trouble else answers.evidence,
        accuracy_percent=answers.error_percent,
        resolution_w=log.average.step_w,
        uncovered_s=max(0.0, seconds - log.count * INTERVAL_S),
        max_w=log.maximum.watts,
        reason=trouble and f"{source}: {trouble}",
        histogram=() if trouble else log.histogram or (),
    )


def _trouble(answers: Answers, seconds: float) -> str:
    """Return why the log does not describe the window; empty if it does."""
    begun, running, ended = answers.begun, answers.running, answers.ended
    # Both are whole numbers: an incomplete interval has not been counted.
    drift_s = abs(ended.count - math.floor(seconds / INTERVAL_S)) * INTERVAL_S
    troubles = {
        "another program restarted the drive's measurement during the run": (
            {running.generation, ended.generation} != {begun.generation}
        ),
        "the drive's measurement ended before the run did": not running.active,
        f"the drive measured type {ended.measurement_type}, not the whole drive": (
            ended.measurement_type != SUBSYSTEM_TOTAL
        ),
        "the drive's measurement has gaps (NCPDF)": not (running.contiguous and ended.contiguous),
        "the drive reports no mean power": ended.average.watts is None,
        (
            f"the drive counted {ended.count} intervals of {INTERVAL_S:g} s in "
            f"{seconds:.3f} s, so its mean covers another time"
        ): drift_s > max(COUNT_TOLERANCE, CLOCK_TOLERANCE * seconds),
    }
    return next((trouble for trouble, is_so in troubles.items() if is_so), "")
