"""Folders that the kernel makes for one process, named so that a later one can tell whose they are.

Control groups and trace instances outlive a process that was killed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wattload.core.sysfs import LIVE, Roots, read_text


@dataclass(frozen=True, slots=True)
class LeftFolder:
    """A folder whose process has ended."""

    path: Path
    pid: int


def own_name(prefix: str, roots: Roots = LIVE) -> str:
    """Return ``prefix-PID-START``: with its start time, a process ID is unique since boot."""
    pid = os.getpid()
    return f"{prefix}-{pid}-{_start_ticks(pid, roots)}"


def left_folders(parent: Path, prefix: str, roots: Roots = LIVE) -> Iterator[LeftFolder]:
    """Yield the folders of processes that have ended, as far as this PID namespace shows.

    A process in another container may be alive: remove a folder only if the kernel, which refuses
    one in use, allows it.
    """
    for folder in parent.glob(f"{prefix}-*"):
        named = re.fullmatch(rf"{prefix}-(\d+)-(\d+)", folder.name)
        if named is not None and not _is_alive(int(named[1]), int(named[2]), roots):
            yield LeftFolder(folder, int(named[1]))


def _is_alive(pid: int, start_ticks: int, roots: Roots) -> bool:
    try:
        return _start_ticks(pid, roots) == start_ticks
    except OSError:
        return False


def _start_ticks(pid: int, roots: Roots) -> int:
    """Return when a process started, in clock ticks since boot (``proc_pid_stat(5)``, field 22)."""
    text = read_text(roots.proc / str(pid) / "stat")
    return int(text.rpartition(")")[2].split()[19])
