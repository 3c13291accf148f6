"""Outside programs that own the loop: what the run tells them, and what comes back.

A ``Harness`` starts a program such as dlio-benchmark, is told when each timed stretch may begin,
and parses what the program leaves. Its I/O is accounted for as that of an engine (``core.io``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from wattload.core.io import IOResult


class HarnessWatch(Protocol):
    """Told of each stretch of an outside program that is timed, numbered from 0.

    A program that can wait does so while ``before`` runs: the page cache is emptied there, and the
    phase opened. One that can't is started when ``before`` of its only stretch has returned.
    """

    def before(self, stretch: int) -> None:
        """Return when the program may begin its stretch."""
        ...

    def moved(self, *, read_bytes: int = 0, written_bytes: int = 0) -> None:
        """Count bytes of the stretch under way, when the program says that they have moved."""
        ...

    def after(self, stretch: int) -> None:
        """The program has ended its stretch."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessResult:
    """What an outside program did: its I/O as we account for it, and what it says of itself.

    ``reported`` holds the program's own figures under its own names and in its own units;
    ``version`` is the program's, ``command`` the line that ran.
    """

    io: IOResult
    reported: Mapping[str, Any]
    version: str
    command: tuple[str, ...]


ResultT_co = TypeVar("ResultT_co", bound=HarnessResult, covariant=True)


class Harness(Protocol[ResultT_co]):
    """An outside program that owns the loop; its raw output is kept beside the record."""

    def command(self) -> Sequence[str]:
        """Return the command line that will run."""
        ...

    def run(self, folder: Path, watch: HarnessWatch) -> ResultT_co:
        """Run it, keep its raw output under ``folder`` and return the parsed result.

        Whatever ends the call also ends every process of the program.

        Raises:
            RunError: the program failed, or its output can't be read; its last words are in the
                message, and where the rest of them lies.
        """
        ...
