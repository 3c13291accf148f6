"""A process that reads samples until Ctrl-C; prints where it is, and what it left at the end.

Its argument is a file with the pickled configuration of a loader and its samples. It imports
nothing of the tests, whose name other distributions take too.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

GRACE_S = 10.0
HELPERS = ("resource_tracker", "forkserver")
"""Processes of multiprocessing's own, which end with this one."""


def worker_processes() -> list[str]:
    """Return the command lines of this process's children, but for helpers."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    lines = []
    for child in children:
        with suppress(OSError):
            lines.append(Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode())
    return [line for line in lines if line and not any(helper in line for helper in HELPERS)]


def left_behind(before: set[threading.Thread]) -> tuple[list[str], list[str]]:
    """Return threads and processes that stay: queues that were closed end theirs a moment later."""
    give_up_s = time.monotonic() + GRACE_S
    while True:
        threads = [thread.name for thread in set(threading.enumerate()) - before]
        left = (threads, worker_processes())
        if not any(left) or time.monotonic() > give_up_s:
            return left
        time.sleep(0.02)


def main() -> None:
    """Read for ever."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config, samples = pickle.loads(Path(sys.argv[1]).read_bytes())
    before = set(threading.enumerate())
    loader = config.sample_loader(samples, lambda _: None)
    try:
        for number, _ in enumerate(loader.epoch([1, 2, 3] * 1_000_000)):
            if number == 1:
                print("reading", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    finally:
        loader.close()
    print(json.dumps(left_behind(before)), flush=True)


if __name__ == "__main__":
    main()
