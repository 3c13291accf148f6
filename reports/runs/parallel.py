"""Work on many files, shared among processes, because Python uses only one core."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

FILES_PER_PROCESS = 100
"""With fewer files, starting a process takes longer than it saves."""

_BATCH_FILES = 4


def share(files: Sequence[Path], work: Callable[[Path], Result]) -> Generator[Result, None, None]:
    """Yield the result of ``work`` for each file, in their order.

    ``work`` and its results must be picklable. Everything runs in this process if there is no
    second core or if there are few files; what is left also does if other processes fail to start
    or die. They end when the generator is exhausted or closed.
    """
    processes = min(len(os.sched_getaffinity(0)), len(files) // FILES_PER_PROCESS)
    done = 0
    if processes > 1:
        try:
            with ProcessPoolExecutor(processes, get_context("spawn"), _prepare) as pool:
                for result in pool.map(work, files, chunksize=_BATCH_FILES):
                    done += 1
                    yield result
        except (BrokenProcessPool, OSError):
            pass
    yield from map(work, files[done:])


def _prepare() -> None:
    gc.disable()  # results have no cycles, and a collection would traverse all of Arrow
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
