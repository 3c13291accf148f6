"""What an NVMe completion status means, in the words of the specification.

The kernel returns status code type and code in bits 10:0, with More (0x2000) and Do Not Retry
(0x4000) above them: NVMe Base Specification 2.0, figure "Completion Queue Entry: Status Field".
"""

from __future__ import annotations

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


def describe_status(status: int) -> str:
    """Return a status as a reader needs it: ``Feature Not Changeable (NVMe status 0x410E)``."""
    code = status & CODE_MASK
    name = _NAMES.get(code, f"status code type {code >> 8}, code {code & 0xFF:02X}h")
    return f"{name} (NVMe status 0x{status:04X})"
