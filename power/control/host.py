"""This host's controllers and journal; tests pass models of them.

Slow imports are made where they are needed.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wattload.power.control.journal import ChangeJournal, default_state_folder
from wattload.power.nvme.admin import OpenDevice, open_for_changes

HoldsSystem = Callable[[str], bool | None]
"""Whether a controller, given by its name, holds root or swap; ``None`` if unknown."""


def controllers_here() -> Sequence[str]:
    from wattload.core.storage.controllers import list_controllers

    return list_controllers()


def serial_here(name: str) -> str:
    """Return a controller's serial, or its name if it has none; needs no permission."""
    from wattload.core.sysfs import text_or_empty

    return text_or_empty(Path("/sys/class/nvme") / name / "serial") or name


def holds_system_here(name: str) -> bool | None:
    """Return whether a controller holds root or swap; ``None`` if unknown."""
    from wattload.core.storage.block_stack import system_drives

    return system_drives().holds(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerHost:
    """How to list, open and check controllers on this host, and where to journal changes.

    A controller that hangs times out: other drives must not wait for it. ``devices`` are the
    controllers that may be opened (``None``: all); the others are left alone whatever a journal
    says.
    """

    journal: ChangeJournal = field(default_factory=lambda: ChangeJournal(default_state_folder()))
    name: str = field(default_factory=socket.gethostname)
    open_device: OpenDevice = open_for_changes
    list_names: Callable[[], Sequence[str]] = controllers_here
    serial_of: Callable[[str], str] = serial_here
    holds_system: HoldsSystem = holds_system_here
    devices: frozenset[str] | None = None

    def served_names(self) -> list[str]:
        """Return the names of the controllers that may be opened."""
        return [name for name in self.list_names() if self.devices is None or name in self.devices]
