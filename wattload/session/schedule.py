"""Schedules: which runs a session makes, and in which order. The interface, and the sweep's."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wattload.core.record.run import Comparison
from wattload.run.process import ProcessContext, Reporter
from wattload.session.journal import Point, SessionJournal
from wattload.session.search_result import Measurement, SearchResult


class SessionReporter(Reporter, Protocol):
    """Receives the events of a session; called on rank 0 only."""

    def run_finished(self, folder: Path) -> None:
        """Show the outcome of the run in ``folder``."""
        ...

    def run_reused(self, folder: Path, journal: Path) -> None:
        """Show that a run was not repeated because ``journal`` lists a valid one in ``folder``."""
        ...

    def trial_finished(self, run: Measurement, threshold: float, *, reused: bool) -> None:
        """Show what one run of a search measured."""
        ...

    def search_finished(self, result: SearchResult, path: Path) -> None:
        """Show the result of a search, stored in ``path``."""
        ...


@dataclass(slots=True, kw_only=True)
class Step:
    """One run of a session, and its place there for the record.

    The loop sets ``folder`` on rank 0 when the run is finished, and ``reused`` on every rank if it
    took a finished run from the journal instead of making one.
    """

    point: Point
    comparison: Comparison
    folder: Path | None = None
    reused: bool = False


class Schedule(ABC):
    """The runs of a session, in order. Every rank calls every method, in the same order.

    ``journal`` is ``None`` for a single run, which can't be resumed. ``planned`` are the runs that
    are known in advance; a search has none.
    """

    journal: SessionJournal | None
    planned: Sequence[Point] = ()

    def left(self, done: Mapping[str, Path]) -> Sequence[Point]:
        """Return the planned runs to make; ``done`` maps point keys to folders of valid runs."""
        return [point for point in self.planned if point.key not in done]

    def begin(  # noqa: B027 - a sweep has nothing to prepare
        self, process: ProcessContext, done: Mapping[str, Path]
    ) -> None:
        """Prepare for the first step; the guard against wear has allowed the planned runs."""

    @abstractmethod
    def steps(self) -> Iterator[Step]:
        """Yield each step; the loop takes the next one when the run of the last is finished."""

    def conclude(self) -> int:
        """Report the end of the session; returns the exit status of its result, 0 or 3."""
        return 0


class Sweep(Schedule):
    """Runs in a fixed order, or a single run, which has no journal."""

    def __init__(
        self, points: Sequence[Point], journal: SessionJournal | None, reporter: SessionReporter
    ) -> None:
        self.planned = points
        self.journal = journal
        self._reporter = reporter

    def steps(self) -> Iterator[Step]:
        """Yield the points as they are planned."""
        session_id = self.journal.session_id if self.journal else secrets.token_hex(4)
        for order, point in enumerate(self.planned):
            comparison = Comparison(
                session_id=session_id, arm="", block=point.repetition, order=order
            )
            step = Step(point=point, comparison=comparison)
            yield step
            if step.folder is not None and step.reused and self.journal is not None:
                self._reporter.run_reused(step.folder, self.journal.path)
            elif step.folder is not None:
                self._reporter.run_finished(step.folder)
