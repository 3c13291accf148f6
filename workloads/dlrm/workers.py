"""The worker processes of one rank: the pool that starts them, and the loop of each.

They start before the timed window and never outlive their rank. Each takes tasks from its rank and
reports bytes as they move and the cost of each task.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from wattload.core import interrupts
from wattload.core.errors import RunError
from wattload.core.units import KIB, NS_PER_S

REPORT_NS = NS_PER_S // 20

END_S = 5.0
"""How long an idle worker may take to end before it is killed; usually milliseconds."""
T = TypeVar("T")
R = TypeVar("R")
MovedCallback = Callable[[int, int, int], None]


class WorkerPool:
    """A context manager of ``count`` processes that each run one task at a time.

    Workers are spawned and ignore Ctrl-C, which their rank handles. They end with their rank, even
    if it is killed. Leaving the block ends them; an exception kills them at once.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._connections: list[Connection] = []
        self._processes: list[SpawnProcess] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(self.count):
                self._start()
            for connection in self._connections:
                self._receive(connection)
        except BaseException:
            self._end(at_once=True)
            raise
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self._end(at_once=kind is not None)

    def as_completed(
        self,
        function: Callable[[T, MovedCallback], R],
        tasks: Sequence[T],
        moved: MovedCallback,
    ) -> Iterator[tuple[int, TaskResult[R]]]:
        """Yield the index and the result of ``function(task, moved)`` of each finished task.

        An idle worker takes the next task. ``moved`` is called in this process with the bytes read,
        bytes written and operations that workers report.

        Raises:
            RunError: a worker ended during a task.
            Exception: a task raised it; the other tasks are not stopped.
        """
        waiting = iter(enumerate(tasks))
        busy: dict[Connection, int] = {}
        idle = list(self._connections)
        while True:
            for connection, (index, task) in zip(idle, waiting, strict=False):
                self._send(connection, Work(function, task))
                busy[connection] = index
            idle = []
            if not busy:
                return
            ready = wait(list(busy))
            for connection in [each for each in busy if each in ready]:
                message = self._receive(connection)
                if isinstance(message, MovedBytes):
                    moved(message.read_bytes, message.written_bytes, message.operations)
                else:
                    idle.append(connection)
                    yield busy.pop(connection), TaskResult(message.result, message.cost)

    def run(
        self,
        function: Callable[[T, MovedCallback], R],
        tasks: Sequence[T],
        moved: MovedCallback,
    ) -> list[TaskResult[R]]:
        """Return the results of ``as_completed`` in the order of the tasks; raises the same."""
        done = dict(self.as_completed(function, tasks, moved))
        return [done[index] for index in range(len(tasks))]

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, os.getpid()), daemon=True)
        self._connections.append(ours)
        with theirs, interrupts.held(), _without_interrupts():
            process.start()
            self._processes.append(process)

    def _send(self, connection: Connection, work: Work) -> None:
        try:
            connection.send(work)
        except OSError as error:
            raise self._lost(connection) from error

    def _receive(self, connection: Connection) -> Any:  # noqa: ANN401 - a message of ``serve``
        """Return a worker's next message; raise the exception of its task."""
        try:
            message = connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost(connection) from error
        if isinstance(message, Failed):
            raise message.error
        return message

    def _lost(self, connection: Connection) -> RunError:
        process = self._processes[self._connections.index(connection)]
        process.join(END_S)
        code = process.exitcode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with status {code}"
        return RunError(
            f"worker {process.pid} ended {how} during a task; if the host ran out of memory, set "
            "a lower workload.workers or workload.block_bytes"
        )

    def _end(self, *, at_once: bool) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            if at_once:
                process.kill()
            process.join(END_S)
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()
        self._connections.clear()
        self._processes.clear()


@dataclass(frozen=True, slots=True)
class TaskResult(Generic[R]):
    """The result of a task and its cost."""

    result: R
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one task in seconds: wall time, CPU time, and time waiting for a core.

    ``run_queue_s`` is ``None`` if the kernel has no ``/proc/self/schedstat``. ``peak_bytes`` is the
    largest resident set of the worker since it started.
    """

    wall_s: float
    cpu_s: float
    run_queue_s: float | None
    peak_bytes: int


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C while a worker starts: it inherits this until it ignores Ctrl-C itself."""
    held = {signal.SIGINT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True, slots=True)
class Work:
    """One task: ``function(task, moved)``; the function has to be importable."""

    function: Callable[[Any, Callable[[int, int, int], None]], Any]
    task: Any


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has imported its libraries."""


@dataclass(frozen=True, slots=True)
class MovedBytes:
    """Bytes that have moved since the last message, and the number of system calls."""

    read_bytes: int
    written_bytes: int
    operations: int


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
    """Run tasks until the rank closes the connection or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts.end_with(parent)
    load_libraries()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        connection.send(Ready())
        while True:
            connection.send(_answer(connection.recv(), connection))


def load_libraries() -> None:
    """Import the tasks' libraries with one thread each: a worker uses one core.

    pyarrow's allocator keeps freed memory. If it returned memory after each block, the kernel would
    zero it again for the next one; this took 10 % of the CPU time on a virtual machine.
    """
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "-1")
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


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


class Reporter:
    """Sends counts of moved bytes to the rank, at most every 50 ms to limit the overhead.

    Any thread of the worker may count.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.RLock()
        self._read_bytes = self._written_bytes = self._operations = 0
        self._sent_ns = time.monotonic_ns()

    def moved(self, read_bytes: int, written_bytes: int, operations: int) -> None:
        with self._lock:
            self._read_bytes += read_bytes
            self._written_bytes += written_bytes
            self._operations += operations
            if time.monotonic_ns() - self._sent_ns >= REPORT_NS:
                self.send()

    def send(self) -> None:
        with self._lock:
            counts = MovedBytes(self._read_bytes, self._written_bytes, self._operations)
            self._connection.send(counts)
            self._read_bytes = self._written_bytes = self._operations = 0
            self._sent_ns = time.monotonic_ns()


def _portable(error: Exception) -> Exception:
    """Return the error, or a ``RunError`` with its text if it can't be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RunError(f"{type(error).__name__}: {error}")
    return error


def run_queue_s() -> float | None:
    """Return the seconds this thread waited for a core (``/proc/self/schedstat``, field 2)."""
    try:
        return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / NS_PER_S
    except (OSError, IndexError):
        return None


def peak_bytes() -> int:
    """Return the largest resident set of this process so far, in bytes (``VmHWM``).

    ``ru_maxrss`` survives exec and would include the peak of the rank.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * KIB
    return 0
