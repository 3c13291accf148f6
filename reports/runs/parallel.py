"""Work on many files, shared with a second process, because Python uses only one core."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")

SHARED_FROM = 200
"""With fewer files, starting a second process takes longer than it saves."""

_BATCH_FILES = 4
_BATCHES_AHEAD = 2
"""Batches queued at the second process, so that it never waits for the next."""


def share(
    files: Sequence[Path], work: Callable[[Path], Result], adopt: Callable[[Result], Result]
) -> Generator[Result, None, None]:
    """Yield the result of ``work`` for each file, in their order.

    Everything runs in this process if there is no second core, if there are few files, or if the
    second process fails to start or dies. The second process ends when the generator is exhausted
    or closed.

    Args:
        files: the files; the second process starts with the last.
        work: picklable, as are its results.
        adopt: called on each result of the second process.
    """
    todo = deque(range(len(files)))
    done: dict[int, Result] = {}
    with _worker(work, len(files)) as worker:
        for index in range(len(files)):
            while index not in done:
                _send_files(todo, files, worker)
                if worker.has_results or not todo:
                    found, undone = worker.receive()
                    for number, made in found.items():
                        done[number] = adopt(made)
                    todo.extend(undone)
                else:
                    own = todo.popleft()
                    done[own] = work(files[own])
            yield done.pop(index)


def _send_files(todo: deque[int], files: Sequence[Path], worker: _Worker[Result]) -> None:
    while worker.has_room and todo:
        numbers = [todo.pop() for _ in range(min(_BATCH_FILES, len(todo)))]
        worker.send({number: files[number] for number in numbers})


class _Worker(Generic[Result]):
    """The second process, seen from this one; without a connection it failed or never ran."""

    def __init__(self, connection: Connection | None) -> None:
        self._connection = connection
        self._pending: deque[list[int]] = deque()

    @property
    def has_room(self) -> bool:
        return self._connection is not None and len(self._pending) < _BATCHES_AHEAD

    @property
    def has_results(self) -> bool:
        """Whether ``receive`` returns at once."""
        return bool(self._pending) and (self._connection is None or self._connection.poll())

    def send(self, files: dict[int, Path]) -> None:
        self._pending.append(list(files))
        try:
            if self._connection is not None:
                self._connection.send(files)
        except OSError:
            self._connection = None

    def receive(self) -> tuple[dict[int, Result], list[int]]:
        """Return the results of the first batch sent, and the numbers of lost files."""
        numbers = self._pending.popleft()
        try:
            if self._connection is not None:
                return self._connection.recv(), []
        except (EOFError, OSError):
            self._connection = None
        return {}, numbers


@contextmanager
def _worker(work: Callable[[Path], Any], count: int) -> Iterator[_Worker[Any]]:
    """Start the second process if that is worthwhile; it ends with the block."""
    pays = count >= SHARED_FROM and len(os.sched_getaffinity(0)) >= 2  # noqa: PLR2004 - cores
    with ExitStack() as held:
        yield _Worker(_start_worker(work, held) if pays else None)


def _start_worker(work: Callable[[Path], Any], held: ExitStack) -> Connection | None:
    """Return a connection to a new process that has received its work; both end with ``held``.

    ``None`` if it can't be started, for example because of limits on processes or open files.
    """
    with ExitStack() as parts, suppress(OSError):
        own_end, worker_end = Pipe()
        with worker_end:
            parts.enter_context(own_end)
            parts.callback(_end, _spawn(worker_end.fileno()))
        own_end.send(work)
        held.push(parts.pop_all())
        return own_end
    return None


def _spawn(number: int) -> subprocess.Popen[bytes]:
    """Start ``main`` with an inherited descriptor, which is lost if it is 0 or 2."""
    command = [sys.executable, "-P", "-m", "wattload.reports.runs.parallel", str(number)]
    none = subprocess.DEVNULL
    return subprocess.Popen(command, pass_fds=[number], stdin=none, stderr=none)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def main() -> None:
    """Work on the files received from the first process until it closes the connection."""
    gc.disable()  # results have no cycles, and a collection would traverse all of Arrow
    with Connection(int(sys.argv[1])) as connection:
        try:
            work = connection.recv()
            while True:
                files: dict[int, Path] = connection.recv()
                connection.send({number: work(file) for number, file in files.items()})
        except (EOFError, OSError):
            return


if __name__ == "__main__":
    main()
