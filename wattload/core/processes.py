"""The processes of this host: who started whom, and the end of those below this one.

A program may start others and end before them. The kernel gives such orphans to init, out of reach
of who started the program, unless a process above them adopts them (``prctl(2)``,
PR_SET_CHILD_SUBREAPER), or they are known by a variable of their environment, which they inherit.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")

END_S = 5.0
"""How long killed processes are waited for: one in a system call that hangs does not end."""

_POLL_S = 0.01
_SET_CHILD_SUBREAPER = 36
_STATE, _PARENT, _SESSION, _THREADS = 0, 1, 3, 17
"""Where they are in what ``stat_fields`` returns."""
_HOST_PROCESSES = "pid:[4026531836]"
"""The PID namespace of the host: ``PROC_PID_INIT_INO`` of ``linux/proc_ns.h``, 0xEFFFFFFC."""
_INIT = 1


class Family(NamedTuple):
    """The process that a process belongs to, and its session."""

    parent: int
    session: int


def stat_fields(process: int | str, proc: Path = PROC) -> list[str]:
    """Return the fields of proc_pid_stat(5) from the third on, which is the state.

    The name before them, in parentheses, may have spaces and parentheses.

    Raises:
        OSError: the process has ended.
    """
    text = (proc / str(process) / "stat").read_text("utf-8", "replace")
    return text.rpartition(")")[2].split()


def ancestry(process: int, proc: Path = PROC) -> Iterator[int]:
    """Yield a process and its ancestors, without init, up to the first that can't be seen."""
    with suppress(OSError):
        while process > _INIT:
            yield process
            process = int(stat_fields(process, proc)[_PARENT])


def sees_all_processes(proc: Path = PROC) -> bool:
    """Return whether this process is in the host's own PID namespace."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _HOST_PROCESSES
    except OSError:
        return False


def running(*, or_unreaped: bool = False) -> Mapping[int, Family]:
    """Return the processes of this host that have not ended, by their ids.

    One whose main thread has ended runs on while another of its threads does. ``or_unreaped`` adds
    those that nobody has waited for: their counts are in no other process yet.
    """
    ended = "X" if or_unreaped else "ZX"
    found = {}
    for entry in PROC.glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            fields = stat_fields(entry.name)
            if fields[_STATE] not in ended or int(fields[_THREADS]) > 1:
                found[int(entry.name)] = Family(int(fields[_PARENT]), int(fields[_SESSION]))
    return found


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def end_descendants(*, grace_s: float = 0.0) -> None:
    """Kill every process below this one, which has adopted orphans, until none runs.

    Before that, each gets a SIGTERM and ``grace_s`` to end. Its children are left to be waited for.
    Returns 5 s after the grace at the latest.
    """
    _end(lambda: _descendants(os.getpid()), grace_s)


def end_marked(variable: str) -> None:
    """Kill every process with ``variable``, as ``NAME=VALUE``, in its environment, until none runs.

    Not one that was started with another environment, nor one whose environment this user may not
    read. Returns after 5 s at the latest.
    """
    _end(lambda: _marked(variable.encode()))


def _end(find: Callable[[], Collection[int]], grace_s: float = 0.0) -> None:
    kill_s, asked = time.monotonic() + grace_s, set[int]()
    while found := set(find()):
        is_over = time.monotonic() >= kill_s
        for pid in found if is_over else found - asked:  # a second SIGTERM might cut off the first
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL if is_over else signal.SIGTERM)
        asked |= found
        if time.monotonic() > kill_s + END_S:
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


def _marked(variable: bytes) -> list[int]:
    found = []
    for entry in PROC.glob("[0-9]*/environ"):
        with suppress(OSError):  # it ended meanwhile, or is another user's
            if variable in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found
