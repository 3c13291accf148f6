"""DLIO's own main, in processes that live until their CPU time and bytes have been read.

A process that has ended and was waited for has no counts left, and on a busy host DLIO can end
before its caller has seen the line of the last block. ``python -m mpi4py -m
wattload.loaders.dlio.held`` takes DLIO's own arguments. This module imports nothing of ours, which
would count as DLIO's memory.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import BinaryIO

from dlio_benchmark import main as dlio

_LONGEST_S = 60.0
"""An unsupported version may log no line at which the caller reads the counts."""


class _Held(dlio.DLIOBenchmark):  # type: ignore[misc]  # dlio_benchmark has no types
    def finalize(self) -> None:
        if counted := os.environ.get("WATTLOAD_DLIO_COUNTED"):
            _wait_for(Path(counted))
        super().finalize()


def _wait_for(path: Path) -> None:
    """Wait until the caller, who has locked this file, has read the counts or has ended."""
    give_up_s = time.monotonic() + _LONGEST_S
    with path.open("rb") as file:
        while time.monotonic() < give_up_s and not _locks(file):
            time.sleep(0.01)


def _locks(file: BinaryIO) -> bool:
    """Lock a file, and return whether nobody else has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    dlio.DLIOBenchmark = _Held
    dlio.main()
