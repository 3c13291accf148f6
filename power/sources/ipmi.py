"""The power of the whole node, from its management controller (BMC) by IPMI DCMI.

The scope is ``node``, not a drive. Values have steps of 1 W and refresh about once a second. This
uses the kernel's IPMI device and starts no program: each command has a timeout, and an answer is
bytes with a completion code. Layouts: ``linux/ipmi.h`` and Documentation/driver-api/ipmi.rst.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from wattload.core.errors import PowerError, PowerPermissionError
from wattload.core.power import Evidence, Instant, PowerSource, Scope, SourceFacts
from wattload.power.config import PowerConfig
from wattload.power.registry import Meter
from wattload.power.sources.base import PolledSource, PowerDevice

METER = Meter(scope=Scope.NODE, is_companion=True)
"""Not in ``auto``: a BMC is slow, and the kernel polls its bus meanwhile."""

NAME = "ipmi"
DEVICE = Path("/dev/ipmi0")

PERIOD_S = 1.0
"""Shortest period: each query takes some milliseconds of the BMC and of the host's bus."""

RESOLUTION_W = 1.0
"""DCMI states whole watts."""

TIMEOUT_S = 5.0
"""The time after which the kernel itself gives up a command to the BMC."""

SEND_COMMAND = 0x8028690D
"""``IPMICTL_SEND_COMMAND``: ``_IOR('i', 13, struct ipmi_req)``."""

RECEIVE = 0xC030690B
"""``IPMICTL_RECEIVE_MSG_TRUNC``: ``_IOWR('i', 11, struct ipmi_recv)``."""

_SYSTEM_INTERFACE, _BMC_CHANNEL = 0x0C, 0x0F

_ANSWER_BYTES = 272
"""``IPMI_MAX_MSG_LENGTH``."""

_ADDRESS_BYTES = 40
"""More than ``struct ipmi_addr``."""

_GROUP_NETFN, _GET_POWER_READING = 0x2C, 0x02

_DCMI = 0xDC
"""The group extension's identification; request and answer start with it (DCMI 1.5, 6.2)."""

_SYSTEM_POWER = bytes((_DCMI, 0x01, 0x00, 0x00))
"""Mode 01h: system power statistics; the other bytes are reserved."""

_ANSWER = struct.Struct("<BHHHHIIB")
"""DCMI 1.5 table 6-16: DCh, current, minimum, maximum, average, timestamp, period, state."""

_IS_ACTIVE = 1 << 6

_REFUSALS = {
    0xC1: "its BMC offers no DCMI power reading",
    0xD4: "its BMC denies the privilege",
}
"""Completion codes of IPMI 2.0 table 5-2 with a known meaning here."""


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
        PowerError: it does not exist.
        PowerPermissionError: only root may open it.
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
            PowerError: the kernel refuses it, or the answer times out.
        """
        self._last_id += 1
        try:
            self._send(netfn, command, data)
            return self._answer()
        except OSError as error:
            raise PowerError(f"{self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the device; safe to call twice."""
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
        raise PowerError(f"{self._path}: the BMC did not answer within {self._timeout_s:g} s")

    def _receive(self) -> tuple[int, bytes]:
        address = ctypes.create_string_buffer(_ADDRESS_BYTES)
        buffer = ctypes.create_string_buffer(_ANSWER_BYTES)
        message = Message(0, 0, _ANSWER_BYTES, ctypes.addressof(buffer))
        received = Received(0, ctypes.addressof(address), _ADDRESS_BYTES, 0, message)
        fcntl.ioctl(self._descriptor, RECEIVE, received)
        return int(received.msgid), buffer.raw[: received.msg.data_len]


class IpmiLink(Protocol):
    """A connection to the BMC."""

    def command(self, netfn: int, command: int, data: bytes) -> bytes:
        """Return the answer, its completion code first; raises ``PowerError``."""
        ...

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        ...


OpenLink = Callable[[], IpmiLink]


def decode_power_reading(answer: bytes) -> int | None:
    """Return the watts in an answer to Get Power Reading, ``None`` if the BMC does not measure.

    The answer starts with a completion code. A running node does not draw 0 W.

    Raises:
        PowerError: the BMC refuses, or answers something else.
    """
    if not answer or answer[0]:
        found = f"completion code {answer[0]:#04x}" if answer else "no completion code"
        why = _REFUSALS.get(answer[0] if answer else 0, f"its BMC answers with {found}")
        raise PowerError(f"the node's power can't be read by IPMI: {why}")
    if len(answer) - 1 < _ANSWER.size or answer[1] != _DCMI:
        raise PowerError(
            "the node's power can't be read by IPMI: its BMC answers "
            f"{answer[1:].hex(' ') or 'nothing'}, which is not a DCMI power reading"
        )
    _, current_w, _, _, _, _, _, state = _ANSWER.unpack_from(answer, 1)
    return (current_w or None) if state & _IS_ACTIVE else None


def find(devices: Sequence[PowerDevice], config: PowerConfig) -> Sequence[PowerSource]:
    """Return the one source of this host, whatever the drives are.

    Raises:
        PowerError: the kernel shows no BMC.
    """
    if not DEVICE.exists():
        raise PowerError(
            f"{DEVICE} is missing: there is no BMC, or its driver is not loaded; `sudo "
            "modprobe -a ipmi_si ipmi_devintf` loads it"
        )
    return (IpmiSource(period_s=config.period_s),)


class IpmiSource(PolledSource):
    """The node's instantaneous power in watts; a busy BMC leaves a gap in the trace."""

    is_slow: ClassVar[bool] = True

    def __init__(self, *, period_s: float, open_link: OpenLink = IpmiDevice) -> None:
        super().__init__(
            SourceFacts(
                name=NAME,
                device="bmc",
                device_name="the node",
                scope=Scope.NODE,
                evidence=Evidence.SELF_REPORTED,
                sensor=Instant(),
                period_s=max(period_s, PERIOD_S),
                resolution_w=RESOLUTION_W,
                detail="power of the whole node by DCMI, in steps of 1 W; no accuracy is stated",
            )
        )
        self._open_link = open_link
        self._link: IpmiLink | None = None

    def _prepare(self) -> SourceFacts:
        self._link = self._open_link()
        if self._query() is None:
            raise PowerError(
                "the node's power can't be read by IPMI: its BMC reports that it is not measuring"
            )
        return self._facts

    def _query(self) -> float | None:
        if self._link is None:
            return None
        return decode_power_reading(
            self._link.command(_GROUP_NETFN, _GET_POWER_READING, _SYSTEM_POWER)
        )

    def _release(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
