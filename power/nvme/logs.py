"""Get Log Page: one log of the controller, whole, without disturbing its events."""

from __future__ import annotations

from wattload.power.nvme.admin import ALL_NAMESPACES, GET_LOG_PAGE, AdminCommand

_RETAIN_EVENTS = 1 << 15
_DWORD_BYTES = 4


def log_command(
    identifier: int, size_bytes: int, *, specific: int = 0, uuid_index: int = 0, name: str = ""
) -> AdminCommand:
    """Return the command that reads the first ``size_bytes`` (a multiple of 4) of a log page.

    Retain Asynchronous Event is set: without it each read would clear the events that the kernel
    and monitoring daemons wait for. ``specific`` is the Log Specific Identifier and
    ``uuid_index`` says whose log a vendor's identifier means, 0 for the drive's own.
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
