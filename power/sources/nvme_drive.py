"""One controller that several sources read: one device handle, and one read of a log for all."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from wattload.core.errors import PowerError
from wattload.core.power import (
    Channel,
    Evidence,
    Sample,
    Scope,
    Sensor,
    SourceFacts,
    WindowEnergy,
)
from wattload.power.nvme.admin import GET_LOG_PAGE, AdminDevice, OpenDevice
from wattload.power.nvme.effects import read_freezing_commands
from wattload.power.nvme.identify import Controller, identify_controller
from wattload.power.nvme.measurement import PowerMeasurementLog, read_measurement_header
from wattload.power.nvme.ocp import OcpSmartLog, read_ocp_smart
from wattload.power.nvme.patience import open_patient
from wattload.power.nvme.smart import SmartLog, read_smart
from wattload.power.nvme.uuids import read_ocp_uuid_index
from wattload.power.sources import PowerDevice

T = TypeVar("T")

SLOW_PERIOD_S = 1.0
"""What moves in seconds is read no oftener: some drives gather a log slowly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Generic[T]):
    """One answer of a drive and when it was asked, in ns of CLOCK_MONOTONIC.

    ``value`` is ``None`` for a read that failed, for the reason that ``trouble`` gives.
    """

    start_ns: int
    end_ns: int
    value: T | None
    trouble: str = ""


def timed(read: Callable[[], T]) -> Reading[T]:
    """Return what ``read`` returns; a drive that refuses, hangs or is gone makes a hole."""
    start_ns = time.monotonic_ns()
    try:
        value = read()
    except PowerError as error:
        return Reading(
            start_ns=start_ns, end_ns=time.monotonic_ns(), value=None, trouble=str(error)
        )
    return Reading(start_ns=start_ns, end_ns=time.monotonic_ns(), value=value)


class SharedRead(Generic[T]):
    """A log that several sources take figures from.

    Whoever asks first in a round reads it, the others get the same answer: nobody gets one twice.
    So a reader that asks in few rounds comes after those that ask in all.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._latest: Reading[T] | None = None
        self._seen_by: set[object] = set()

    def take(self, reader: object) -> Reading[T]:
        """Return an answer that ``reader`` has not had yet."""
        if self._latest is None or reader in self._seen_by:
            self._latest = timed(self._read)
            self._seen_by.clear()
        self._seen_by.add(reader)
        return self._latest

    def forget(self) -> None:
        """Let the next reader read."""
        self._latest = None
        self._seen_by.clear()


class SharedDrive:
    """One controller by its name, open as long as one of its sources is.

    ``measurement`` is the head of log 25h as it was found, ``None`` for a drive that has none.
    ``is_estimated`` is true once that log says that the drive reckons its power (EPF), and as long
    as a drive that has one (CTRATT.PMS) does not let it be read: what it would say is not known.
    """

    def __init__(self, device: PowerDevice, open_device: OpenDevice = open_patient) -> None:
        self.device = device
        self.measurement: PowerMeasurementLog | None = None
        self.is_estimated = False
        self.smart: SharedRead[SmartLog] = SharedRead(lambda: read_smart(self.admin))
        self.ocp: SharedRead[OcpSmartLog] = SharedRead(self._read_ocp)
        self._open_device = open_device
        self._users: set[object] = set()
        self._refusal: PowerError | None = None
        self._refused: set[object] = set()
        self._admin: AdminDevice | None = None
        self._controller: Controller | None = None
        self._freezing: frozenset[int] = frozenset()
        self._ocp_uuid_index = 0

    @property
    def admin(self) -> AdminDevice:
        """Where commands go; raises ``PowerError`` before it was opened and after a close."""
        if self._admin is None:
            raise PowerError(f"{self.device.name} is read before it was opened")
        return self._admin

    @property
    def controller(self) -> Controller:
        """What the controller says of itself; raises ``PowerError`` before it was opened."""
        if self._controller is None:
            raise PowerError(f"{self.device.name} is read before it was opened")
        return self._controller

    def open(self, user: object) -> None:
        """Open the controller for one of its sources.

        A drive that hangs or is closed to us is tried for all its sources once.

        Raises:
            PowerPermissionError: CAP_SYS_ADMIN or the device node is missing.
            PowerError: it is not there, or does not answer.
        """
        if self._admin is None:
            if self._refusal is None or user in self._refused:
                self._try_open()
            if self._refusal is not None:
                self._refused.add(user)
                raise self._refusal
        self._users.add(user)

    def close(self, user: object) -> None:
        """Give the controller back when its last source does; safe to call twice."""
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
        """Raise ``PowerError`` where reading a log in every round would stop I/O."""
        if self.freezes(GET_LOG_PAGE):
            raise PowerError(
                f"{self.device.name} says that Get Log Page holds up other commands (effects log "
                f"05h): Linux would stop its I/O at every sample, so its {what} is not sampled"
            )

    def _try_open(self) -> None:
        self._refusal, admin = None, None
        self._refused.clear()
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
        if controller.power_measurement:
            self.measurement = timed(lambda: read_measurement_header(admin)).value
        self.is_estimated = controller.power_measurement and (
            self.measurement is None or self.measurement.estimated
        )
        try:
            self._ocp_uuid_index = read_ocp_uuid_index(admin, controller)
        except PowerError:
            self._ocp_uuid_index = 0  # OCP's log proves by its GUID whose it is

    def _read_ocp(self) -> OcpSmartLog:
        return read_ocp_smart(self.admin, uuid_index=self._ocp_uuid_index)


class NvmeTier(ABC):
    """What the sources of a drive have in common; each gives one kind of figure."""

    name: ClassVar[str]
    evidence: ClassVar[Evidence]
    """The evidence at best."""

    def __init__(self, drive: SharedDrive, *, period_s: float) -> None:
        self._drive = drive
        self._period_s = period_s
        self._stated = self.evidence
        self._detail = ""
        self._accuracy_percent: float | None = None
        self._resolution_w: float | None = None

    def facts(self) -> SourceFacts:
        """Return what the source is; valid after ``open``."""
        return SourceFacts(
            name=self.name,
            device=self._drive.device.key,
            device_name=self._drive.device.name,
            scope=Scope.DRIVE,
            evidence=self._stated,
            sensor=self._sensor(),
            period_s=self._period_s,
            resolution_w=self._resolution_w,
            accuracy_percent=self._accuracy_percent,
            detail=self._detail,
        )

    def open(self) -> None:
        """Open the drive and find out whether it has the figure.

        Raises:
            PowerPermissionError: CAP_SYS_ADMIN or the device node is missing.
            PowerError: the drive does not report the figure, or would stop I/O at every read.
        """
        self._drive.open(self)
        try:
            self._stated = self._evidence()
            self._prepare()
        except PowerError:
            self.close()
            raise
        self._drive.smart.forget()  # what was read while opening belongs to no round
        self._drive.ocp.forget()

    def start(self) -> None:  # noqa: B027 - few sources have anything to begin
        """Nothing to begin: the drive reports at any time."""

    @abstractmethod
    def read(self) -> Sequence[Sample]:
        """Return the figures of this round; a failed read is a sample without value."""

    def stop(self) -> Sequence[WindowEnergy]:
        """Return nothing: the figures are integrated from the samples."""
        return ()

    def restore(self) -> None:  # noqa: B027 - few sources change anything
        """Nothing to undo: this source only reads."""

    def close(self) -> None:
        """Give the drive back; safe to call twice."""
        self._drive.close(self)

    @abstractmethod
    def _prepare(self) -> None:
        """Find out what the drive reports; raises ``PowerError`` where it reports nothing."""

    @abstractmethod
    def _sensor(self) -> Sensor:
        """Return the model of the sensor behind the figure."""

    def _evidence(self) -> Evidence:
        """Return the evidence of a figure that is taken now."""
        if self._drive.is_estimated and self.evidence is Evidence.SELF_REPORTED:
            return Evidence.ESTIMATED
        return self.evidence

    def _sample(self, reading: Reading[T], channel: Channel, value: float | None) -> Sample:
        return Sample(
            time_ns=(reading.start_ns + reading.end_ns) // 2,
            spread_ns=reading.end_ns - reading.start_ns,
            source=self.name,
            device=self._drive.device.key,
            channel=channel,
            value=value,
            evidence=self._evidence(),
        )
