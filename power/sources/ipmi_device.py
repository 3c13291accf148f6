"""Commands to the host's own management controller through the kernel's IPMI device.

Layout and numbers: ``linux/ipmi.h`` and Documentation/driver-api/ipmi.rst.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import time
from pathlib import Path

from wattload.core.errors import PowerError, PowerPermissionError

DEVICE = Path("/dev/ipmi0")

TIMEOUT_S = 5.0
"""As long as the kernel itself waits for a BMC before it gives a command up."""

SEND_COMMAND = 0x8028690D
"""``IPMICTL_SEND_COMMAND``: ``_IOR('i', 13, struct ipmi_req)``."""
RECEIVE = 0xC030690B
"""``IPMICTL_RECEIVE_MSG_TRUNC``: ``_IOWR('i', 11, struct ipmi_recv)``."""

_SYSTEM_INTERFACE, _BMC_CHANNEL = 0x0C, 0x0F
_ANSWER_BYTES = 272
"""``IPMI_MAX_MSG_LENGTH``."""
_ADDRESS_BYTES = 40
"""More than ``struct ipmi_addr``."""


class Address(ctypes.Structure):
    """``struct ipmi_system_interface_addr``."""

    _fields_ = (
        ("addr_type", ctypes.c_int),
        ("channel", ctypes.c_short),
        ("lun", ctypes.c_ubyte),
    )


class Message(ctypes.Structure):
    """``struct ipmi_msg``."""

    _fields_ = (
        ("netfn", ctypes.c_ubyte),
        ("cmd", ctypes.c_ubyte),
        ("data_len", ctypes.c_ushort),
        ("data", ctypes.c_void_p),
    )


class Request(ctypes.Structure):
    """``struct ipmi_req``."""

    _fields_ = (
        ("addr", ctypes.c_void_p),
        ("addr_len", ctypes.c_uint),
        ("msgid", ctypes.c_long),
        ("msg", Message),
    )


class Received(ctypes.Structure):
    """``struct ipmi_recv``."""

    _fields_ = (
        ("recv_type", ctypes.c_int),
        ("addr", ctypes.c_void_p),
        ("addr_len", ctypes.c_uint),
        ("msgid", ctypes.c_long),
        ("msg", Message),
    )


class IpmiDevice:
    """The kernel's device, opened; one command at a time.

    Raises:
        PowerError: there is none.
        PowerPermissionError: it is for root alone.
    """

    def __init__(self, path: Path = DEVICE, *, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._last_id = 0
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except PermissionError as error:
            raise PowerPermissionError(
                f"{path} can't be opened by user {os.geteuid()}: start the sampler as root"
            ) from error
        except OSError as error:
            raise PowerError(f"{path} can't be opened: {error.strerror}") from error

    def command(self, netfn: int, command: int, data: bytes) -> bytes:
        """Return the answer to a command, its completion code first.

        Raises:
            PowerError: the kernel refuses it, or no answer came in time.
        """
        self._last_id += 1
        try:
            self._send(netfn, command, data)
            return self._answer()
        except OSError as error:
            raise PowerError(f"{self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Give the device back; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _send(self, netfn: int, command: int, data: bytes) -> None:
        address = Address(_SYSTEM_INTERFACE, _BMC_CHANNEL, 0)
        buffer = ctypes.create_string_buffer(data, len(data))
        message = Message(netfn, command, len(data), ctypes.addressof(buffer))
        request = Request(ctypes.addressof(address), ctypes.sizeof(address), self._last_id, message)
        fcntl.ioctl(self._descriptor, SEND_COMMAND, request)

    def _answer(self) -> bytes:
        """Return the answer to the last command; late answers to earlier ones are dropped."""
        deadline_s = time.monotonic() + self._timeout_s
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while (left_s := deadline_s - time.monotonic()) > 0:
            if not poll.poll(left_s * 1000):
                break
            number, answer = self._receive()
            if number == self._last_id:
                return answer
        raise PowerError(f"{self._path}: the BMC gave no answer within {self._timeout_s:g} s")

    def _receive(self) -> tuple[int, bytes]:
        address = ctypes.create_string_buffer(_ADDRESS_BYTES)
        buffer = ctypes.create_string_buffer(_ANSWER_BYTES)
        message = Message(0, 0, _ANSWER_BYTES, ctypes.addressof(buffer))
        received = Received(0, ctypes.addressof(address), _ADDRESS_BYTES, 0, message)
        fcntl.ioctl(self._descriptor, RECEIVE, received)
        return int(received.msgid), buffer.raw[: received.msg.data_len]
