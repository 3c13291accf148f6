"""CPU seconds of this process and all below it, the living and the reaped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ProcessTree:
    """The process tree of one rank, without the processes named in ``excluded``.

    The sampler is a child of the run but no part of its cost.
    """

    def __init__(self, excluded: frozenset[int] = frozenset()) -> None:
        self._excluded = excluded

    def cpu_s(self) -> float:
        """Return user plus system seconds of the tree (``proc(5)``, stat fields 14 to 17)."""
        return sum(_own_and_reaped_s(pid) for pid in self._members(os.getpid()))

    def _members(self, pid: int) -> Iterator[int]:
        yield pid
        for child in _children(pid):
            if child not in self._excluded:
                yield from self._members(child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found.extend(int(word) for word in (task / "children").read_text().split())
    except OSError:
        return found  # the process ended while it was looked at: nothing more to count
    return found


def _own_and_reaped_s(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0  # ended in between; its parent's reaped time has it at the next look
    fields = text.rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / _TICKS_PER_S
