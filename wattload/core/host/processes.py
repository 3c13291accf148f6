"""The processes below this one, and their end.

A program may start others and end before them. The kernel gives such orphans to init, out of reach
of who started the program, unless a process above them adopts them (``prctl(2)``,
PR_SET_CHILD_SUBREAPER).
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

END_S = 5.0
"""How long killed processes are waited for: one in a system call that hangs does not end."""

_POLL_S = 0.01
_SET_CHILD_SUBREAPER = 36
_THREADS = 16
"""Where ``num_threads`` of proc_pid_stat(5) is, counted from the parent's id."""


class Family(NamedTuple):
    """The process that a process belongs to, and its session."""

    parent: int
    session: int


def running(*, or_unreaped: bool = False) -> Mapping[int, Family]:
    """Return the processes of this host that have not ended, by their ids.

    One whose main thread has ended runs on while another of its threads does. ``or_unreaped`` adds
    those that nobody has waited for: their counts are in no other process yet.
    """
    ended = "X" if or_unreaped else "ZX"
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            state, *fields = entry.read_text("utf-8", "replace").rpartition(")")[2].split()
            if state not in ended or int(fields[_THREADS]) > 1:
                found[int(entry.parent.name)] = Family(int(fields[0]), int(fields[2]))
    return found


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def end_descendants() -> None:
    """Kill every process below this one, which has adopted orphans, until none runs.

    Its children are left to be waited for. Returns after 5 s at the latest.
    """
    give_up_s = time.monotonic() + END_S
    while below := _descendants(os.getpid()):
        for pid in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > give_up_s:
            return
        time.sleep(_POLL_S)


def _descendants(pid: int) -> set[int]:
    processes = running()
    found = {pid}
    while True:
        more = {each for each, family in processes.items() if family.parent in found} - found
        if not more:
            return found - {pid}
        found |= more
