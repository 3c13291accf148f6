"""One worker process: it takes tasks from its rank and reports bytes as they move, and its cost."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from wattload.core.errors import RunError
from wattload.core.units import KIB, NS_PER_S

REPORT_NS = NS_PER_S // 20
_SET_PARENT_DEATH_SIGNAL = 1  # prctl(2), PR_SET_PDEATHSIG


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has loaded all it needs."""


@dataclass(frozen=True, slots=True)
class Work:
    """One task: ``function(task, moved)``, a function of a module."""

    function: Callable[[Any, Callable[[int, int, int], None]], Any]
    task: Any


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that have just moved, and the system calls that moved them."""

    read_bytes: int
    written_bytes: int
    operations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one task took: seconds by the wall, on a core, and waiting for a core.

    ``run_queue_s`` is ``None`` where the kernel keeps no ``/proc/self/schedstat``.
    ``peak_bytes`` is the worker's largest resident set since it started.
    """

    wall_s: float
    cpu_s: float
    run_queue_s: float | None
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A task is done."""

    result: Any
    cost: Cost


@dataclass(frozen=True, slots=True)
class Failed:
    """A task raised ``error``."""

    error: Exception


def serve(connection: Connection, parent: int) -> None:
    """Work until the rank closes the connection or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with(parent)
    load_libraries()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        connection.send(Ready())
        while True:
            connection.send(_answer(connection.recv(), connection))


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its rank dies, however that comes about."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)


def load_libraries() -> None:
    """Import what tasks need, one thread each: a worker stands for one core.

    pyarrow's allocator keeps freed memory: giving it back after each block makes the kernel zero it
    again for the next one, which cost 10 % of the CPU time on a virtual machine.
    """
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "-1")
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


class Reporter:
    """Sends the bytes that moved to the rank, gathered over 50 ms so that telling costs little."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read_bytes = self._written_bytes = self._operations = 0
        self._sent_ns = time.monotonic_ns()

    def moved(self, read_bytes: int, written_bytes: int, operations: int) -> None:
        """Count bytes that have just moved."""
        self._read_bytes += read_bytes
        self._written_bytes += written_bytes
        self._operations += operations
        if time.monotonic_ns() - self._sent_ns >= REPORT_NS:
            self.send()

    def send(self) -> None:
        """Tell what was not told yet."""
        self._connection.send(Moved(self._read_bytes, self._written_bytes, self._operations))
        self._read_bytes = self._written_bytes = self._operations = 0
        self._sent_ns = time.monotonic_ns()


def _answer(work: Work, connection: Connection) -> Finished | Failed:
    reporter = Reporter(connection)
    start_ns, cpu_s, queued_s = time.monotonic_ns(), time.process_time(), run_queue_s()
    try:
        result = work.function(work.task, reporter.moved)
    except Exception as error:
        return Failed(_portable(error))
    reporter.send()
    cost = Cost(
        wall_s=(time.monotonic_ns() - start_ns) / NS_PER_S,
        cpu_s=time.process_time() - cpu_s,
        run_queue_s=None if queued_s is None else (run_queue_s() or 0.0) - queued_s,
        peak_bytes=peak_bytes(),
    )
    return Finished(result, cost)


def _portable(error: Exception) -> Exception:
    """Return the error, or one of ours with its text where it can't travel to the rank."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RunError("".join(traceback.format_exception(error)).strip())
    return error


def run_queue_s() -> float | None:
    """Return the seconds this thread waited for a core (``/proc/self/schedstat``, field 2)."""
    try:
        return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / NS_PER_S
    except (OSError, IndexError):
        return None


def peak_bytes() -> int:
    """Return the largest resident set of this process so far, in bytes (``VmHWM``).

    Not ``ru_maxrss``: that one survives exec and would tell the rank's own peak.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * KIB
    return 0
