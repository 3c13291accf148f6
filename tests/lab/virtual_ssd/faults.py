"""Faults that a test asks for: which commands to answer wrongly, late or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class Fault:
    """For the next ``count`` commands of an opcode: a status, a delay, or silence.

    ``subject`` narrows it to one feature or log page. With a ``hold_s`` the right answer comes
    that many seconds late; with neither status nor ``hold_s`` none ever comes.
    """

    opcode: int
    subject: int | None = None
    status: int | None = None
    hold_s: float | None = None
    count: int = 1


@dataclass
class Faults:
    """What is wrong with the drive now."""

    armed: list[Fault] = field(default_factory=list)
    is_stale: bool = False
    """Log pages are reported as they were when this was set."""
    stuck_ipm_w: float | None = None

    def arm(self, **fields: Any) -> None:
        """Add a fault by the names of its fields."""
        self.armed.append(Fault(**fields))

    def heal(self) -> None:
        """Forget the faults that were added."""
        self.armed.clear()

    def take(self, opcode: int, subject: int) -> Fault | None:
        """Return the fault that meets a command, used up by one."""
        for fault in self.armed:
            if fault.opcode == opcode and fault.subject in (None, subject):
                fault.count -= 1
                if fault.count <= 0:
                    self.armed.remove(fault)
                return fault
        return None
