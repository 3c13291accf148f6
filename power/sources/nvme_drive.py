"""One controller that several sources read: one device handle, and each log read once for all."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from wattload.core.errors import PowerError
from wattload.core.power import Accuracy, Channel, Evidence, Sample, Scope, Sensor, SourceFacts
from wattload.power.nvme.admin import GET_LOG_PAGE, AdminDevice, OpenDevice, open_with_timeout
from wattload.power.nvme.identify import Controller, identify_controller, read_ocp_uuid_index
from wattload.power.nvme.logs import (
    OcpSmartLog,
    SmartLog,
    read_freezing_commands,
    read_ocp_smart,
    read_smart,
)
from wattload.power.nvme.measurement import PowerMeasurementLog, read_measurement_header
from wattload.power.sources.base import PassiveSource, PowerDevice

T = TypeVar("T")

SLOW_PERIOD_S = 1.0
"""Shortest period for slowly changing values: some drives take long to gather a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedAnswer(Generic[T]):
    """One answer of a drive, with the times of its request and arrival in ns of CLOCK_MONOTONIC.

    ``value`` is ``None`` for a failed read, for the reason in ``trouble``.
    """

    start_ns: int
    end_ns: int
    value: T | None
    trouble: str = ""


def timed(read: Callable[[], T]) -> TimedAnswer[T]:
    """Return what ``read`` returns; without value if the drive refuses, hangs or is gone."""
    start_ns = time.monotonic_ns()
    try:
        value = read()
    except PowerError as error:
        return TimedAnswer(
            start_ns=start_ns, end_ns=time.monotonic_ns(), value=None, trouble=str(error)
        )
    return TimedAnswer(start_ns=start_ns, end_ns=time.monotonic_ns(), value=value)


class SharedRead(Generic[T]):
    """A log that several sources take figures from.

    The first reader in a round reads the log, the others get the same answer; no reader gets an
    answer twice. So readers that skip rounds must come after those that read in every round.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._latest: TimedAnswer[T] | None = None
        self._seen_by: set[object] = set()

    def take(self, reader: object) -> TimedAnswer[T]:
        """Return an answer that ``reader`` has not received yet."""
        if self._latest is None or reader in self._seen_by:
            self._latest = timed(self._read)
            self._seen_by.clear()
        self._seen_by.add(reader)
        return self._latest

    def forget(self) -> None:
        """Discard the answer, so that the next reader reads again."""
        self._latest = None
        self._seen_by.clear()


class SharedDrive:
    """One controller by its name, open as long as one of its sources is.

    ``measurement`` is the head of log 25h as found at ``open``, ``None`` if the drive has none.
    ``is_estimated`` is true if that log reports that the drive estimates its power (EPF). It is
    also true for a drive that has the log (CTRATT.PMS) but does not let it be read, since its
    evidence is then unknown.
    """

    def __init__(self, device: PowerDevice, open_device: OpenDevice = open_with_timeout) -> None:
        self.device = device
        self.measurement: PowerMeasurementLog | None = None
        self.is_estimated = False
        self.smart: SharedRead[SmartLog] = SharedRead(lambda: read_smart(self.admin))
        self.ocp: SharedRead[OcpSmartLog] = SharedRead(self._read_ocp)
        self._open_device = open_device
        self._users: set[object] = set()
        self._refusal: PowerError | None = None
        self._refused_users: set[object] = set()
        self._admin: AdminDevice | None = None
        self._controller: Controller | None = None
        self._freezing: frozenset[int] = frozenset()
        self._ocp_uuid_index = 0

    @property
    def admin(self) -> AdminDevice:
        """The device for commands; raises ``PowerError`` before ``open`` and after ``close``."""
        if self._admin is None:
            raise PowerError(f"{self.device.name} was read before it was opened")
        return self._admin

    @property
    def controller(self) -> Controller:
        """The controller's identification; raises ``PowerError`` before ``open``."""
        if self._controller is None:
            raise PowerError(f"{self.device.name} was read before it was opened")
        return self._controller

    def open(self, user: object) -> None:
        """Open the controller for one of its sources.

        A drive that hangs or denies access is tried only once for all its sources.

        Raises:
            PowerPermissionError: CAP_SYS_ADMIN or the device node is missing.
            PowerError: it does not exist, or does not answer.
        """
        if self._admin is None:
            if self._refusal is None or user in self._refused_users:
                self._try_open()
            if self._refusal is not None:
                self._refused_users.add(user)
                raise self._refusal
        self._users.add(user)

    def close(self, user: object) -> None:
        """Close the controller with its last source; safe to call twice."""
        self._users.discard(user)
        if self._users or self._admin is None:
            return
        self._admin.close()
        self._admin = self._controller = None
        self.smart.forget()
        self.ocp.forget()

    def freezes(self, opcode: int) -> bool:
        """Return whether Linux would stop I/O around a command (effects log 05h)."""
        return opcode in self._freezing

    def check_logs(self, what: str) -> None:
        """Raise ``PowerError`` if reading a log in every round would stop I/O."""
        if self.freezes(GET_LOG_PAGE):
            raise PowerError(
                f"{self.device.name} reports that Get Log Page holds up other commands "
                f"(effects log 05h): Linux would stop its I/O at every sample, so its {what} "
                "is not sampled"
            )

    def _try_open(self) -> None:
        self._refusal, admin = None, None
        self._refused_users.clear()
        try:
            admin = self._open_device(self.device.name)
            self._prepare(admin)
            self._admin = admin
        except PowerError as error:
            self._refusal = error
            if admin is not None:
                admin.close()

    def _prepare(self, admin: AdminDevice) -> None:
        controller = self._controller = identify_controller(admin)
        self._freezing = read_freezing_commands(admin, controller)
        self.measurement = None
        if controller.capabilities.power_measurement:
            self.measurement = timed(lambda: read_measurement_header(admin)).value
        self.is_estimated = controller.capabilities.power_measurement and (
            self.measurement is None or self.measurement.estimated
        )
        try:
            self._ocp_uuid_index = read_ocp_uuid_index(admin, controller)
        except PowerError:
            self._ocp_uuid_index = 0  # OCP's log is recognized by its GUID anyway

    def _read_ocp(self) -> OcpSmartLog:
        return read_ocp_smart(self.admin, uuid_index=self._ocp_uuid_index)


def stated_accuracy(log: PowerMeasurementLog | None) -> Accuracy | None:
    """Return the error that a drive states in log 25h, ``None`` if it states none."""
    if log is None or log.error_percent is None:
        return None
    return Accuracy(reading_percent=log.error_percent)


class NvmeTier(PassiveSource, ABC):
    """The common base of a drive's sources; each gives one kind of figure."""

    name: ClassVar[str]
    evidence: ClassVar[Evidence]
    """The best evidence it can have."""
    sensor: ClassVar[Sensor]
    """The model of the sensor behind the figure, as known before it is opened."""

    def __init__(self, drive: SharedDrive, *, period_s: float) -> None:
        super().__init__(
            SourceFacts(
                name=self.name,
                device=drive.device.key,
                device_name=drive.device.name,
                scope=Scope.DRIVE,
                evidence=self.evidence,
                sensor=self.sensor,
                period_s=period_s,
            )
        )
        self._drive = drive

    def open(self) -> None:
        """Open the drive and check that it reports the figure.

        Raises:
            PowerPermissionError: CAP_SYS_ADMIN or the device node is missing.
            PowerError: the drive does not report the figure, or would stop I/O at every read.
        """
        self._drive.open(self)
        try:
            evidence = self._evidence()
            found = {"evidence": evidence, **self._prepare()}
        except PowerError:
            self.close()
            raise
        self._facts = self._facts.model_copy(update=found)
        self._drive.smart.forget()  # reads during ``open`` belong to no round
        self._drive.ocp.forget()

    def close(self) -> None:
        """Close the drive; safe to call twice."""
        self._drive.close(self)

    @abstractmethod
    def _prepare(self) -> Mapping[str, object]:
        """Return what the drive reports, as fields of the facts; raises ``PowerError``."""

    def _evidence(self) -> Evidence:
        """Return the current evidence of the figure."""
        if self._drive.is_estimated and self.evidence is Evidence.SELF_REPORTED:
            return Evidence.ESTIMATED
        return self.evidence

    def _figure(self, answer: TimedAnswer[T], channel: Channel, value: float | None) -> Sample:
        """Return a figure in an answer of the drive, in the middle of its read."""
        middle_ns = (answer.start_ns + answer.end_ns) // 2
        spread_ns = answer.end_ns - answer.start_ns
        return self._sample(channel, value, middle_ns, spread_ns, self._evidence())
