"""This host's controllers and journal, or a model's in tests.

What takes long to import is imported when it is needed, for a run waits for the sampler's socket.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wattload.power.journal import Journal, default_state_folder
from wattload.power.nvme.admin import OpenDevice
from wattload.power.nvme.patience import open_to_obey


def controllers_here() -> Sequence[str]:
    """Return the names of this host's NVMe controllers."""
    from wattload.core.nvme_sysfs import list_controllers

    return list_controllers()


def serial_here(name: str) -> str:
    """Return a controller's serial, which needs no permission; its name where there is none."""
    from wattload.core.sysfs import read_text

    try:
        return read_text(Path("/sys/class/nvme") / name / "serial") or name
    except OSError:
        return name


def holds_system_here(name: str) -> bool | None:
    """Return whether root or swap lies on a controller, ``None`` where that can't be told."""
    from wattload.core.stack import system_drives

    return system_drives().holds(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerHost:
    """How controllers are listed, opened and judged here, and where changes are journalled.

    A controller that hangs is waited for so long and no longer: others need what reads it.
    """

    journal: Journal = field(default_factory=lambda: Journal(default_state_folder()))
    name: str = field(default_factory=socket.gethostname)
    open_device: OpenDevice = open_to_obey
    list_names: Callable[[], Sequence[str]] = controllers_here
    serial_of: Callable[[str], str] = serial_here
    holds_system: Callable[[str], bool | None] = holds_system_here
