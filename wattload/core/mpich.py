"""What MPICH loses and leaves behind when a job is ended: its last words and its shared memory.

``MPI_Abort`` makes the launcher kill every rank; what it has not yet read from a rank's stderr pipe
is lost. A rank therefore waits until the launcher has read the error.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import termios
import time
from pathlib import Path
from typing import Literal

SHARED_MEMORY = "/dev/shm/mpich_shm_"

FLUSH_TIMEOUT_S = 2.0

FLUSH_POLL_S = 0.005


def unlink_shared_memory(pid: int | Literal["self"] = "self") -> None:
    """Unlink MPICH's shared memory of a rank's job; call it once every rank has mapped it.

    MPICH unlinks it in ``MPI_Finalize`` alone, so a job that is ended would leave it in memory.
    """
    for line in Path(f"/proc/{pid}/maps").read_text("utf-8", "replace").splitlines():
        if SHARED_MEMORY in line:
            Path(line[line.index(SHARED_MEMORY) :]).unlink(missing_ok=True)


def wait_for_reader() -> None:
    """Return when stderr was read if it is a pipe, or after 2 seconds."""
    sys.stderr.flush()
    try:
        descriptor = sys.stderr.fileno()
    except OSError:  # a stream without a file: there is no reader to wait for
        return
    deadline_s = time.monotonic() + FLUSH_TIMEOUT_S
    while unread_bytes(descriptor) and time.monotonic() < deadline_s:
        time.sleep(FLUSH_POLL_S)


def unread_bytes(descriptor: int) -> int:
    """Return the number of unread bytes in a pipe, from either end; 0 if it is not a pipe."""
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return 0
    count = bytearray(4)
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return int.from_bytes(count, sys.byteorder)
