"""DLIO's own main, held before its first block and after each until its counts have been read.

Its caller learns of a block from DLIO's log. On a busy host that can be late: DLIO would have read
files before the count of a block begins, or read those of the next block before it ends, or ended,
and a process that has ended and was waited for has no counts left. ``python -m mpi4py -m
wattload.loaders.dlio.held`` takes DLIO's own arguments. This module imports nothing of ours, which
would count as DLIO's memory.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Any, BinaryIO

from dlio_benchmark import main as dlio

_LONGEST_S = 60.0
"""An unsupported version may log no line at which the caller reads the counts."""


class _Held(dlio.StatsCounter):  # type: ignore[misc]  # dlio_benchmark has no types
    """DLIO's statistics, which begin and end its blocks."""

    _passed = 0

    def start_block(self, *block: Any) -> None:
        if self._passed == 0:
            self._hold()
        super().start_block(*block)

    def end_block(self, *block: Any) -> None:
        super().end_block(*block)
        self._hold()

    def _hold(self) -> None:
        """Wait until the caller has written one byte more to its file, or has ended."""
        self._passed += 1
        give_up_s = time.monotonic() + _LONGEST_S
        with Path(os.environ["WATTLOAD_DLIO_COUNTED"]).open("rb") as file:
            while os.fstat(file.fileno()).st_size < self._passed:
                if _locks(file) or time.monotonic() > give_up_s:
                    break
                time.sleep(0.01)
        self.comm.barrier()


def _locks(file: BinaryIO) -> bool:
    """Lock a file, and return whether nobody else has locked it: its caller has ended."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    dlio.StatsCounter = _Held
    dlio.main()
