"""Work on many files, shared with a second process: Python by itself keeps one core busy."""

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

from wattload.core.errors import RecordError

Result = TypeVar("Result")

SHARED_FROM = 200
"""With fewer files a second process takes longer to start than it would save."""

_AT_ONCE = 4
_AHEAD = 2
"""So many portions lie at the second process, that it never waits for the next."""


def share(
    files: Sequence[Path], work: Callable[[Path], Result], adopt: Callable[[Result], Result]
) -> Generator[Result, None, None]:
    """Yield what ``work`` makes of each file, in their order.

    Without a second core, with few files, or if the second process can't be started or is lost,
    this one does all. The second process ends when the generator is exhausted or closed.

    Args:
        files: what is worked on; the second process begins with the last.
        work: can be pickled, as can its results and the ``RecordError`` that it may raise.
        adopt: called on each result of the second process.

    Raises:
        RecordError: the one of the first file that has one.
    """
    todo = deque(range(len(files)))
    done: dict[int, Result | RecordError] = {}
    with _second(work, len(files)) as second:
        for index in range(len(files)):
            while index not in done:
                _hand_over(todo, files, second)
                if second.has_answer or not todo:
                    found, undone = second.answer()
                    for number, made in found.items():
                        done[number] = made if isinstance(made, RecordError) else adopt(made)
                    todo.extend(undone)
                else:
                    own = todo.popleft()
                    done[own] = _attempt(work, files[own])
            result = done.pop(index)
            if isinstance(result, RecordError):
                raise result
            yield result


def _hand_over(todo: deque[int], files: Sequence[Path], second: _Second[Result]) -> None:
    while second.has_room and todo:
        numbers = [todo.pop() for _ in range(min(_AT_ONCE, len(todo)))]
        second.ask({number: files[number] for number in numbers})


def _attempt(work: Callable[[Path], Result], file: Path) -> Result | RecordError:
    try:
        return work(file)
    except RecordError as error:
        return error


class _Second(Generic[Result]):
    """The second process as this one sees it; without a connection it is lost, or never was."""

    def __init__(self, connection: Connection | None) -> None:
        self._connection = connection
        self._asked: deque[list[int]] = deque()

    @property
    def has_room(self) -> bool:
        """Whether it can be asked for more."""
        return self._connection is not None and len(self._asked) < _AHEAD

    @property
    def has_answer(self) -> bool:
        """Whether ``answer`` would return at once."""
        return bool(self._asked) and (self._connection is None or self._connection.poll())

    def ask(self, files: dict[int, Path]) -> None:
        """Have these files worked on."""
        self._asked.append(list(files))
        try:
            if self._connection is not None:
                self._connection.send(files)
        except OSError:
            self._connection = None

    def answer(self) -> tuple[dict[int, Result | RecordError], list[int]]:
        """Return what it made of the files it was asked for first, and the numbers it lost."""
        numbers = self._asked.popleft()
        try:
            if self._connection is not None:
                return self._connection.recv(), []
        except (EOFError, OSError):
            self._connection = None
        return {}, numbers


@contextmanager
def _second(work: Callable[[Path], Any], count: int) -> Iterator[_Second[Any]]:
    """Start the second process where it pays; it ends with the block."""
    pays = count >= SHARED_FROM and len(os.sched_getaffinity(0)) >= 2  # noqa: PLR2004 - cores
    with ExitStack() as held:
        yield _Second(_started(work, held) if pays else None)


def _started(work: Callable[[Path], Any], held: ExitStack) -> Connection | None:
    """Return a connection to a new process that knows its work; both end with ``held``.

    ``None`` where there can be none, as for want of processes or open files: one is enough.
    """
    with ExitStack() as parts, suppress(OSError):
        ours, theirs = Pipe()
        with theirs:
            parts.enter_context(ours)
            parts.callback(_end, _spawn(theirs.fileno()))
        ours.send(work)
        held.push(parts.pop_all())
        return ours
    return None


def _spawn(number: int) -> subprocess.Popen[bytes]:
    """Start ``main`` with the open file of that number, which is lost where it is 0 or 2."""
    command = [sys.executable, "-P", "-m", "wattload.reports.sharing", str(number)]
    none = subprocess.DEVNULL
    return subprocess.Popen(command, pass_fds=[number], stdin=none, stderr=none)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def main() -> None:
    """Work on the files that the first process names, until it closes the connection."""
    gc.disable()  # results have no cycles, and a search for them would go through all of Arrow
    with Connection(int(sys.argv[1])) as connection:
        try:
            work = connection.recv()
            while True:
                files: dict[int, Path] = connection.recv()
                connection.send({number: _attempt(work, file) for number, file in files.items()})
        except (EOFError, OSError):
            return


if __name__ == "__main__":
    main()
