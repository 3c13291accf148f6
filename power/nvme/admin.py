"""The admin queue of one NVMe controller: commands, completion status, log pages, cost.

Commands go by the kernel's passthrough ioctl. Layout of ``struct nvme_passthru_cmd`` and the
ioctl's number: ``include/uapi/linux/nvme_ioctl.h``. Status codes and Get Log Page: NVMe Base
Specification 2.0.

Linux keeps the sender of an admin command in an uninterruptible wait until the drive answers or the
driver resets it, by default after 60 s. So commands are sent with a time limit: otherwise a hung
controller would delay the readings of others.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wattload.core.errors import PowerError, PowerPermissionError

CODE_MASK = 0x7FF
"""Status code type (bits 10:8) and status code (bits 7:0), without More and Do Not Retry."""
SUCCESS = 0x000
INVALID_FIELD = 0x002

_NAMES = {
    0x001: "Invalid Command Opcode",
    0x002: "Invalid Field in Command",
    0x004: "Data Transfer Error",
    0x005: "Commands Aborted due to Power Loss Notification",
    0x006: "Internal Error",
    0x007: "Command Abort Requested",
    0x00B: "Invalid Namespace or Format",
    0x00C: "Command Sequence Error",
    0x015: "Operation Denied",
    0x01D: "Sanitize In Progress",
    0x01F: "Command Not Supported for Queue in CMB",
    0x021: "Command Interrupted",
    0x022: "Transient Transport Error",
    0x024: "Admin Command Media Not Ready",
    0x03E: "Invalid Power Limit",
    0x082: "Namespace Not Ready",
    0x109: "Invalid Log Page",
    0x10D: "Feature Identifier Not Saveable",
    0x10E: "Feature Not Changeable",
    0x10F: "Feature Not Namespace Specific",
    0x370: "Host Pathing Error",
    0x371: "Command Aborted By Host",
}

IOCTL_ADMIN_CMD = 0xC0484E41
"""``_IOWR('N', 0x41, struct nvme_passthru_cmd)``."""

GET_LOG_PAGE = 0x02
IDENTIFY = 0x06
SET_FEATURES = 0x09
GET_FEATURES = 0x0A

ALL_NAMESPACES = 0xFFFFFFFF
DEVICE_NAME = re.compile(r"nvme[0-9]{1,5}")
COMMAND = struct.Struct("<BBHIIIQQIIIIIIIIII")
"""``struct nvme_passthru_cmd``, also of I/O commands."""

LIMIT_S = 2.0
"""Longer than a busy drive needs for a log, and shorter than a gap in the readings."""

CHANGE_LIMIT_S = 10.0
"""Longer than a drive needs for a change. A drive that hangs must not delay a run's record more."""

_RESULT_OFFSET = 68
_RETAIN_EVENTS = 1 << 15
_DWORD_BYTES = 4


@dataclass(slots=True)
class CommandCost:
    """The number of commands sent, and the total and longest time to completion in ns."""

    count: int = 0
    total_ns: int = 0
    max_ns: int = 0

    def add(self, spent_ns: int) -> None:
        self.count += 1
        self.total_ns += spent_ns
        self.max_ns = max(self.max_ns, spent_ns)

    def reset(self) -> None:
        """Set all counts to 0."""
        self.count = self.total_ns = self.max_ns = 0


ADMIN_COST = CommandCost()
"""The cost of all commands of this process. A sampler resets it at the start of each run."""


def describe_status(status: int) -> str:
    """Return a status as text: ``Feature Not Changeable (NVMe status 0x410E)``."""
    code = status & CODE_MASK
    name = _NAMES.get(code, f"status code type {code >> 8}, code {code & 0xFF:02X}h")
    return f"{name} (NVMe status 0x{status:04X})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminCommand:
    """One admin command; ``data_bytes`` is the size of the data that the controller returns.

    ``payload`` is the data sent instead, for features with a buffer. ``name`` is its name in
    messages, e.g. ``Get Features 02h``. ``timeout_ms`` is for commands that may take minutes; 0 is
    the kernel's own timeout.
    """

    name: str
    opcode: int
    namespace: int = 0
    cdw10: int = 0
    cdw11: int = 0
    cdw12: int = 0
    cdw13: int = 0
    cdw14: int = 0
    data_bytes: int = 0
    payload: bytes = b""
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The completion: the raw status (0 is success), dword 0 and the data."""

    status: int
    result: int
    data: bytes

    @property
    def code(self) -> int:
        return self.status & CODE_MASK


class AdminDevice(Protocol):
    """Sends admin commands to a controller of this host, or to a model of one in tests."""

    @property
    def name(self) -> str:
        """The kernel's name, e.g. ``nvme0``."""
        ...

    def submit(self, command: AdminCommand) -> Completion:
        """Send one command and wait for it.

        Raises:
            PowerPermissionError: the kernel does not permit this command to this process.
            PowerError: the command could not be sent.
        """
        ...

    def close(self) -> None:
        """Close the device; safe to call twice."""
        ...


OpenDevice = Callable[[str], AdminDevice]
"""Opens a controller by its kernel name, e.g. ``nvme0``."""


def fetch(device: AdminDevice, command: AdminCommand) -> Completion:
    """Send a command that must succeed and return its completion.

    Raises:
        PowerError: the controller refused it; the message contains the status.
    """
    completion = device.submit(command)
    if completion.code != SUCCESS:
        raise PowerError(
            f"{device.name} refused {command.name}: {describe_status(completion.status)}"
        )
    return completion


class NvmeAdmin:
    """The admin queue behind ``/dev/nvmeX``.

    One command takes some 50 us on an idle drive. The kernel's own timeout of 60 s is kept: with a
    shorter one, the driver would reset a drive that is only busy.
    """

    def __init__(self, name: str, folder: Path = Path("/dev")) -> None:
        if not DEVICE_NAME.fullmatch(name):
            raise PowerError(
                f"{name!r} is not an NVMe controller; use a name like nvme0, as "
                "`wattload devices` lists them"
            )
        self.name = name
        path = folder / name
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise PowerPermissionError(
                f"{path} can't be opened by user {os.geteuid()}: run as root, or grant access to "
                "the device node by a udev rule or to the container; model, serial, link and "
                "temperature are still read from sysfs"
            ) from error
        except OSError as error:
            raise PowerError(
                f"{path} can't be opened ({error.strerror}); `wattload devices` lists the devices"
            ) from error

    def submit(self, command: AdminCommand) -> Completion:
        if self._descriptor < 0:
            raise PowerError(f"{self.name} is closed, so {command.name} was not sent")
        size_bytes = len(command.payload) or command.data_bytes
        data = ctypes.create_string_buffer(command.payload, size_bytes) if size_bytes else None
        block = bytearray(_pack(command, ctypes.addressof(data) if data is not None else 0))
        sent_ns = time.monotonic_ns()
        try:
            status = fcntl.ioctl(self._descriptor, IOCTL_ADMIN_CMD, block, True)
        except OSError as error:
            raise _explained(self.name, command, error) from error
        finally:
            ADMIN_COST.add(time.monotonic_ns() - sent_ns)
        (result,) = struct.unpack_from("<I", block, _RESULT_OFFSET)
        returned = data.raw if data is not None and not command.payload else b""
        return Completion(status=status, result=result, data=returned)

    def close(self) -> None:
        """Close the descriptor; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _pack(command: AdminCommand, address: int) -> bytes:
    return COMMAND.pack(
        command.opcode,
        0,  # flags: the kernel refuses any
        0,
        command.namespace,
        0,
        0,
        0,
        address,
        0,
        len(command.payload) or command.data_bytes,
        command.cdw10,
        command.cdw11,
        command.cdw12,
        command.cdw13,
        command.cdw14,
        0,
        command.timeout_ms,
        0,
    )


def _explained(name: str, command: AdminCommand, error: OSError) -> PowerError:
    if error.errno in (errno.EACCES, errno.EPERM):
        return PowerPermissionError(
            f"{name}: the kernel does not permit {command.name} without CAP_SYS_ADMIN: run as root "
            "or, in a container, with cap_add: [SYS_ADMIN]; Identify, and so the table of power "
            "states, is still readable"
        )
    if error.errno == errno.ENOTTY:
        return PowerError(f"{name} is not an NVMe controller: it does not accept admin commands")
    if error.errno == errno.EINTR:
        # drivers/nvme/host/core.c returns EINTR for a cancelled command, never for a signal.
        return PowerError(
            f"{name} was reset during {command.name}: Linux resets a drive that does not answer "
            "in time"
        )
    return PowerError(f"{name}: {command.name} could not be sent: {error.strerror}")


def log_command(
    identifier: int, size_bytes: int, *, specific: int = 0, uuid_index: int = 0, name: str = ""
) -> AdminCommand:
    """Return the command that reads the first ``size_bytes`` (a multiple of 4) of a log page.

    Retain Asynchronous Event is set: otherwise each read would clear the events that the kernel
    and monitoring daemons wait for. ``specific`` is the Log Specific Identifier. ``uuid_index``
    selects whose log a vendor-specific identifier means, 0 for the drive's own.
    """
    dwords = size_bytes // _DWORD_BYTES - 1
    return AdminCommand(
        name=name or f"Get Log Page {identifier:02X}h",
        opcode=GET_LOG_PAGE,
        namespace=ALL_NAMESPACES,
        cdw10=identifier | _RETAIN_EVENTS | (dwords & 0xFFFF) << 16,
        cdw11=dwords >> 16 | specific << 16,
        cdw14=uuid_index,
        data_bytes=size_bytes,
    )


class DeviceWithTimeout:
    """An ``AdminDevice`` whose ``submit`` returns or raises within ``limit_s`` seconds.

    A command cannot be cancelled. Until it has ended, every further command fails immediately;
    then the device works as before. If a Set Features times out, it is unknown whether the drive
    will execute it; ``when_settled`` waits until it has ended. Not thread-safe.
    """

    def __init__(self, device: AdminDevice, *, limit_s: float = LIMIT_S) -> None:
        self._device = device
        self._limit_s = limit_s
        self._command: AdminCommand | None = None
        self._answer: Completion | BaseException = PowerError("no command was sent")
        # Locks, each released by the other thread: a future would take twice a command's time.
        self._requested, self._answered = threading.Lock(), threading.Lock()
        self._requested.acquire()
        self._answered.acquire()
        self._late: tuple[AdminCommand, float] | None = None
        self._is_setting = False
        self._postponed: deque[Callable[[], None]] = deque()
        self._closed = False
        self._worker = threading.Thread(target=self._work, name=f"{device.name}-admin", daemon=True)
        _OPEN.add(self)
        self._worker.start()

    @property
    def name(self) -> str:
        """The kernel's name, e.g. ``nvme0``."""
        return self._device.name

    def submit(self, command: AdminCommand) -> Completion:
        """Send one command and wait for it, at most ``limit_s``.

        Raises:
            PowerError: it could not be sent, or there is no answer yet to it or an earlier command.
        """
        if self._closed:
            raise PowerError(f"{self.name} is closed, so {command.name} was not sent")
        self._refuse_while_late()
        # Late until answered: a signal may also end the wait, and its answer would come next.
        self._late = (command, time.monotonic())
        self._command = command
        self._is_setting = command.opcode == SET_FEATURES
        self._requested.release()
        if not self._answered.acquire(timeout=self._limit_s):
            raise PowerError(f"{self.name} has not answered {command.name} for {self._limit_s:g} s")
        self._late = None
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    def close(self) -> None:
        """Close the device, if it hangs as soon as it answers; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._command = None
        if self._requested.locked():  # else the thread is still busy, and will see no command
            self._requested.release()
        if self._late is None or not self._answered.locked():
            self._worker.join(self._limit_s)

    def postpone(self, step: Callable[[], None]) -> bool:
        """Call ``step`` when a running Set Features has ended; return false if none is running."""
        if not self._is_setting:
            return False
        self._postponed.append(step)
        if not self._is_setting:  # it has just ended, and its thread may not have seen the step
            self._run_postponed()
        return True

    def _run_postponed(self) -> None:
        while self._postponed:
            try:
                step = self._postponed.popleft()
            except IndexError:  # the other thread has taken it
                return
            step()

    def _refuse_while_late(self) -> None:
        if self._late is None:
            return
        command, sent_s = self._late
        if not self._answered.acquire(blocking=False):
            raise PowerError(
                f"{self.name} has not answered {command.name} for {time.monotonic() - sent_s:.0f} s"
            )
        self._late = None

    def _work(self) -> None:
        while True:
            self._requested.acquire()
            command = self._command
            if command is None:
                break
            try:
                self._answer = self._device.submit(command)
            except BaseException as error:
                self._answer = error
            self._is_setting = False
            self._answered.release()
            self._run_postponed()
        self._is_setting = False
        self._run_postponed()
        self._device.close()
        _OPEN.discard(self)


_OPEN: set[DeviceWithTimeout] = set()
"""All devices of this process with a running thread."""


def when_settled(names: Collection[str], step: Callable[[], None]) -> None:
    """Call ``step`` when no Set Features of this process to these controllers is running.

    It is called immediately, or in the thread of the last such command. A drive may still change
    after a command that timed out, so its settings are not final before.
    """
    for device in tuple(_OPEN):
        if device.name in names and device.postpone(lambda: when_settled(names, step)):
            return
    step()


def open_with_timeout(name: str) -> DeviceWithTimeout:
    """Open a controller for reading without blocking; see ``NvmeAdmin``."""
    return DeviceWithTimeout(NvmeAdmin(name))


def open_for_changes(name: str) -> DeviceWithTimeout:
    """Open a controller to change or restore its settings, with the longer limit."""
    return DeviceWithTimeout(NvmeAdmin(name), limit_s=CHANGE_LIMIT_S)
