"""What the drive answers, and the status codes it answers with."""

from __future__ import annotations

from dataclasses import dataclass

DNR = 0x4000
INVALID_OPCODE = 0x0001 | DNR
INVALID_FIELD = 0x0002 | DNR
INVALID_LOG = 0x0109 | DNR
NOT_SAVEABLE = 0x010D | DNR
LIMIT_TOO_LOW = 0x013E | DNR
LBA_OUT_OF_RANGE = 0x0080 | DNR


@dataclass(frozen=True, kw_only=True)
class Reply:
    """Status, dword 0 and data; sent ``delay_ns`` from now, ``None``: never."""

    status: int = 0
    result: int = 0
    data: bytes = b""
    delay_ns: int | None = 0


@dataclass(frozen=True, kw_only=True)
class Command:
    """An admin command's fields; ``data`` is what the host sends with it."""

    opcode: int
    namespace: int = 0
    cdw10: int = 0
    cdw11: int = 0
    cdw12: int = 0
    data: bytes = b""

    @property
    def subject(self) -> int:
        """The feature, log page or structure that is meant."""
        return self.cdw10 & 0xFF
