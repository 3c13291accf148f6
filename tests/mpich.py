"""MPICH's shared memory, by the job that it belongs to: other jobs may run at the same time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


def shared_memory_of(pids: Iterable[int]) -> set[Path]:
    """Return the shared memory that processes have mapped, even if it is unlinked by now."""
    found: set[Path] = set()
    for pid in pids:
        try:
            maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        except OSError:
            continue  # it has ended
        found.update(map(Path, re.findall(r"/dev/shm/mpich_shm_\w+", maps)))
    return found
