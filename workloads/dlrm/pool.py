"""Worker processes of one rank: started before the timed window, and never left over."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from wattload.core.errors import RunError
from wattload.workloads.dlrm.worker import Cost, Failed, Moved, Work, serve

END_S = 5.0
"""A worker that has nothing to do ends within milliseconds; after this it is killed."""

T = TypeVar("T")
R = TypeVar("R")

MovedCallback = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """One finished task: what it returned and what it cost."""

    result: R
    cost: Cost


class WorkerPool:
    """``count`` processes that take tasks one at a time; a context manager.

    Workers are spawned, ignore Ctrl-C (the rank that owns them decides) and die with their rank,
    even if that is killed. Leaving the block ends them; leaving it by an exception kills them at
    once, whatever they are doing.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(at_once=kind is not None)

    def as_completed(
        self,
        function: Callable[[T, MovedCallback], R],
        tasks: Sequence[T],
        moved: MovedCallback,
    ) -> Iterator[tuple[int, Done[R]]]:
        """Yield the index of each task and what ``function(task, moved)`` gave, as they finish.

        A free worker takes the next task. ``moved`` is called here, as the workers report bytes
        read, bytes written and operations.

        Raises:
            RunError: a worker ended in the middle of its work.
            Exception: whatever a task raised; the other tasks are left as they are.
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
            for connection in _readable(busy):
                message = self._receive(connection)
                if isinstance(message, Moved):
                    moved(message.read_bytes, message.written_bytes, message.operations)
                else:
                    idle.append(connection)
                    yield busy.pop(connection), Done(message.result, message.cost)

    def run(
        self,
        function: Callable[[T, MovedCallback], R],
        tasks: Sequence[T],
        moved: MovedCallback,
    ) -> list[Done[R]]:
        """Return what ``as_completed`` yields in the order of the tasks; raises as it does."""
        done = dict(self.as_completed(function, tasks, moved))
        return [done[index] for index in range(len(tasks))]

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, os.getpid()), daemon=True)
        self._connections.append(ours)
        with theirs, _without_interrupts():
            process.start()
            self._processes.append(process)

    def _send(self, connection: Connection, work: Work) -> None:
        try:
            connection.send(work)
        except OSError as error:
            raise self._lost(connection) from error

    def _receive(self, connection: Connection) -> Any:  # noqa: ANN401 - a message of worker.py
        """Return a worker's next message; raises what its task raised."""
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
            f"worker {process.pid} ended {how} in the middle of its work; if the host ran out of "
            "memory, use fewer workers or a smaller workload.block_bytes"
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


def _readable(busy: dict[Connection, int]) -> list[Connection]:
    """Wait for messages and return the connections that have one."""
    return [connection for connection in wait(list(busy)) if isinstance(connection, Connection)]


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back while a worker starts: it inherits that until it ignores it by itself."""
    held = {signal.SIGINT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
