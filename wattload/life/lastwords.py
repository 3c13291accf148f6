"""Last words: a line that the launcher has read before the process that said it is killed.

``MPI_Abort`` has the launcher kill every rank, and what then still lies in a rank's stderr pipe is
lost with it: a busy launcher would swallow the one sentence that says why.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import termios
import time

PATIENCE_S = 2.0
INTERVAL_S = 0.005


def say_and_wait(words: str) -> None:
    """Print a line on stderr; if that is a pipe, return once it was read, or after 2 seconds."""
    print(words, file=sys.stderr, flush=True)
    try:
        descriptor = sys.stderr.fileno()
    except OSError:  # a stream without a file, which nobody has to fetch
        return
    deadline_s = time.monotonic() + PATIENCE_S
    while unread_bytes(descriptor) and time.monotonic() < deadline_s:
        time.sleep(INTERVAL_S)


def unread_bytes(descriptor: int) -> int:
    """Return how many bytes lie in a pipe, from either end; 0 for what is not a pipe."""
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        return 0
    count = bytearray(4)
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return int.from_bytes(count, sys.byteorder)
