"""Namespaces of a drive: which there are, who else may write to one, and formatting one.

Layouts: NVMe Base Specification 2.0 (Identify, Format NVM, Reservation Report) and NVM Command Set
Specification 1.0 (Identify Namespace).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from pathlib import Path

from wattload.core.errors import PowerError
from wattload.power.nvme.admin import (
    ALL_NAMESPACES,
    COMMAND,
    SUCCESS,
    AdminCommand,
    AdminDevice,
    describe_status,
    fetch,
)
from wattload.power.nvme.identify import identify_command, identify_namespace

FORMAT_NVM = 0x80
FORMAT_TIMEOUT_MS = 6 * 3600 * 1000
"""Longer than any format takes: at its end Linux would reset the drive."""

USER_DATA_ERASE = 1
"""The Secure Erase Setting (SES) of Format NVM: afterwards no user data can be read."""

_CNS_CONTROLLER = 0x01
_CNS_ALLOCATED_NAMESPACES = 0x10
_CNS_SUBSYSTEM_CONTROLLERS = 0x13
_LISTED = 1024
_RESERVATION_REPORT = 0x0E
_REPORT_BYTES = 4096
_IOCTL_IO_CMD = 0xC0484E43
"""``_IOWR('N', 0x43, struct nvme_passthru_cmd)``."""


def read_allocated_namespaces(device: AdminDevice) -> tuple[int, ...]:
    """Return the identifiers of all namespaces of the drive, attached to a controller or not.

    Raises:
        PowerError: the drive does not list them.
    """
    found: list[int] = []
    while True:
        command = identify_command(
            _CNS_ALLOCATED_NAMESPACES, "Identify Allocated Namespaces", found[-1] if found else 0
        )
        listed = struct.unpack(f"<{_LISTED}I", fetch(device, command).data)
        page = listed[: listed.index(0)] if 0 in listed else listed
        if page and page[0] <= (found[-1] if found else 0):
            raise PowerError(f"{device.name} lists its namespaces out of order")
        found += page
        if len(page) < _LISTED:
            return tuple(found)


def read_controller_count(device: AdminDevice) -> int | None:
    """Return how many controllers the drive's subsystem has; ``None`` if it does not list them.

    A drive that says in CMIC that it has only one need not have a list.
    """
    completion = device.submit(
        identify_command(_CNS_SUBSYSTEM_CONTROLLERS, "Identify Controller List")
    )
    if completion.code == SUCCESS:
        return int.from_bytes(completion.data[:2], "little")
    data = fetch(device, identify_command(_CNS_CONTROLLER, "Identify Controller")).data
    several = bool(data[76] >> 1 & 1)
    return None if several else 1


def read_format_attributes(device: AdminDevice) -> int:
    """Return FNA: bit 0 is set if a format, bit 1 if an erase concerns all namespaces."""
    return fetch(device, identify_command(_CNS_CONTROLLER, "Identify Controller")).data[524]


def is_reserved(node: Path, namespace: int) -> bool:
    """Return whether a host has registered for a reservation of a namespace.

    Raises:
        PowerError: the drive refuses to tell.
        OSError: the command can't be sent.
    """
    data = ctypes.create_string_buffer(_REPORT_BYTES)
    dwords = _REPORT_BYTES // 4 - 1
    block = bytearray(
        COMMAND.pack(
            *(_RESERVATION_REPORT, 0, 0, namespace, 0, 0, 0, ctypes.addressof(data), 0),
            *(_REPORT_BYTES, dwords, 0, 0, 0, 0, 0, 0, 0),
        )
    )
    descriptor = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = fcntl.ioctl(descriptor, _IOCTL_IO_CMD, block, True)
    finally:
        os.close(descriptor)
    if status:
        raise PowerError(f"{node} refused Reservation Report: {describe_status(status)}")
    kind, registrants = data.raw[4], int.from_bytes(data.raw[5:7], "little")
    return bool(kind or registrants)


def require_alone(device: AdminDevice, namespace: int) -> None:
    """Return if a format with erase changes no other namespace.

    Raises:
        PowerError: it would change others too, or that can't be told.
    """
    others = [each for each in read_allocated_namespaces(device) if each != namespace]
    attributes = read_format_attributes(device)
    if others and attributes & 0b11:
        raise PowerError(
            f"{device.name} has {len(others)} more namespaces, whose data a format would erase too "
            f"(FNA 0x{attributes:02x})"
        )


def format_namespace(device: AdminDevice, namespace: int) -> AdminCommand:
    """Format one namespace in its current format, with an erase of its data; returns the command.

    It takes seconds to hours.

    Raises:
        PowerError: another namespace would lose its data too, that can't be told, or the drive
            refuses.
    """
    if namespace in (0, ALL_NAMESPACES):
        raise PowerError(f"a format needs one namespace, got {namespace:#x}")
    require_alone(device, namespace)
    current = identify_namespace(device, namespace)
    command = AdminCommand(
        name=f"Format NVM of namespace {namespace}",
        opcode=FORMAT_NVM,
        namespace=namespace,
        cdw10=current.format_dword | USER_DATA_ERASE << 9,
        timeout_ms=FORMAT_TIMEOUT_MS,
    )
    fetch(device, command)
    return command
