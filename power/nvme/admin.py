"""The admin queue of one NVMe controller, by the kernel's passthrough ioctl.

Layout of ``struct nvme_passthru_cmd`` and the ioctl's number: ``include/uapi/linux/nvme_ioctl.h``.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wattload.core.errors import PowerError, PowerPermissionError
from wattload.power.nvme.cost import ADMIN_COST
from wattload.power.nvme.status import CODE_MASK, SUCCESS, describe_status

IOCTL_ADMIN_CMD = 0xC0484E41
"""``_IOWR('N', 0x41, struct nvme_passthru_cmd)``."""

GET_LOG_PAGE = 0x02
IDENTIFY = 0x06
SET_FEATURES = 0x09
GET_FEATURES = 0x0A

ALL_NAMESPACES = 0xFFFFFFFF

DEVICE_NAME = re.compile(r"nvme[0-9]{1,5}")

_COMMAND = struct.Struct("<BBHIIIQQIIIIIIIIII")
_RESULT_OFFSET = 68


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminCommand:
    """One admin command; ``data_bytes`` is how much the controller returns beside the result.

    ``payload`` is what it is given instead, for features with a buffer. ``name`` is how messages
    call it, e.g. ``Get Features 02h``.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What came back: the raw status (0 is success), dword 0 and the data."""

    status: int
    result: int
    data: bytes

    @property
    def code(self) -> int:
        """Status code type and code alone."""
        return self.status & CODE_MASK


class AdminDevice(Protocol):
    """Where admin commands go: a controller of this host, or a model of one in tests."""

    @property
    def name(self) -> str:
        """The kernel's name, e.g. ``nvme0``."""
        ...

    def submit(self, command: AdminCommand) -> Completion:
        """Send one command and wait for it.

        Raises:
            PowerPermissionError: the kernel closes this command to this process.
            PowerError: the command could not be sent.
        """
        ...

    def close(self) -> None:
        """Give the device back; safe to call twice."""
        ...


OpenDevice = Callable[[str], AdminDevice]
"""Opens a controller by its name, e.g. ``nvme0``."""


def fetch(device: AdminDevice, command: AdminCommand) -> Completion:
    """Send a command that must succeed and return its completion.

    Raises:
        PowerError: the controller refused it; the message spells out the status.
    """
    completion = device.submit(command)
    if completion.code != SUCCESS:
        raise PowerError(
            f"{device.name} refused {command.name}: {describe_status(completion.status)}"
        )
    return completion


class NvmeAdmin:
    """The admin queue behind ``/dev/nvmeX``.

    One command takes some 50 us on an idle drive. The kernel's own timeout (60 s) is kept: a
    shorter one would make the driver reset a drive that is merely busy.
    """

    def __init__(self, name: str, folder: Path = Path("/dev")) -> None:
        if not DEVICE_NAME.fullmatch(name):
            raise PowerError(
                f"{name!r} is no NVMe controller; name one like nvme0 (`wattload devices` lists)"
            )
        self.name = name
        path = folder / name
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise PowerPermissionError(
                f"{path} can't be opened by user {os.geteuid()}: run as root, or let a udev rule "
                "or the container hand the node over; model, serial, link and temperature stay "
                "readable from sysfs"
            ) from error
        except OSError as error:
            raise PowerError(
                f"{path} can't be opened ({error.strerror}); `wattload devices` lists what is there"
            ) from error

    def submit(self, command: AdminCommand) -> Completion:
        """Send one command and wait for it."""
        if self._descriptor < 0:
            raise PowerError(f"{self.name} is closed, so {command.name} was not sent")
        data = _buffer(command)
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
        """Give the descriptor back; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _buffer(command: AdminCommand) -> ctypes.Array[ctypes.c_char] | None:
    size_bytes = len(command.payload) or command.data_bytes
    return ctypes.create_string_buffer(command.payload, size_bytes) if size_bytes else None


def _pack(command: AdminCommand, address: int) -> bytes:
    return _COMMAND.pack(
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
        0,  # timeout: the kernel's own
        0,
    )


def _explained(name: str, command: AdminCommand, error: OSError) -> PowerError:
    if error.errno in (errno.EACCES, errno.EPERM):
        return PowerPermissionError(
            f"{name}: the kernel closes {command.name} to a process without CAP_SYS_ADMIN: run as "
            "root or, in a container, with cap_add: [SYS_ADMIN]; Identify, and so the table of "
            "power states, stays readable"
        )
    if error.errno == errno.ENOTTY:
        return PowerError(f"{name} is no NVMe controller: it knows no admin commands")
    if error.errno == errno.EINTR:
        # drivers/nvme/host/core.c gives EINTR for a command that it cancelled, and for no signal.
        return PowerError(
            f"{name} was reset while {command.name} ran, as Linux does with a drive that does not "
            "answer in time"
        )
    return PowerError(f"{name}: {command.name} could not be sent: {error.strerror}")
