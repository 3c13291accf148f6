"""Schedules: which runs a session makes, and in which order. The interface, and the sweep's."""

from __future__ import annotations

import itertools
import re
import secrets
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wattload.core.record.run import Comparison
from wattload.run.process import ProcessContext, Reporter
from wattload.session.axes import GROUPS
from wattload.session.journal import Point, SessionJournal
from wattload.session.search_result import Measurement, SearchResult


class SessionReporter(Reporter, Protocol):
    """Receives the events of a session; called on rank 0 only."""

    def session_resumed(self, finished: int, planned: int, journal: Path) -> None:
        """Show how many runs are not repeated because ``journal`` lists valid ones."""
        ...

    def run_begins(self, position: SessionPosition) -> None:
        """Show which run of a session is next."""
        ...

    def run_finished(self, folder: Path) -> None:
        """Show the outcome of the run in ``folder``."""
        ...

    def session_finished(self, runs: Sequence[Path], journal: Path) -> None:
        """Show the comparison of a session's runs, which ``journal`` lists."""
        ...

    def trial_finished(self, run: Measurement, threshold: float, *, reused: bool) -> None:
        """Show what one run of a search measured."""
        ...

    def search_finished(self, result: SearchResult, path: Path, journal: Path) -> None:
        """Show the result of a search, stored in ``path``; ``journal`` lists its runs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPosition:
    """The position of a run in its session.

    ``number`` counts from 1 to ``count``, which is ``None`` in a search. ``left_s`` is the
    estimated time until the end of the session, ``None`` before a run of it was timed.
    """

    number: int
    count: int | None
    left_s: float | None
    name: str


class Pace:
    """The mean time of a session's runs, with the waits between them."""

    def __init__(self, seconds: Sequence[float] = ()) -> None:
        """Start with the seconds of finished runs, whose waits are unknown."""
        self._finished_s = list(seconds)
        self._starts_s: list[float] = []

    def begin(self) -> None:
        """Count the beginning of a run, and so the end of the one before it."""
        self._starts_s.append(time.monotonic())

    def left_s(self, runs: int) -> float | None:
        """Return the estimated seconds of this many further runs, ``None`` before the first end."""
        own_s = [after - before for before, after in itertools.pairwise(self._starts_s)]
        known_s = own_s or self._finished_s
        return statistics.fmean(known_s) * runs if known_s else None


@dataclass(slots=True, kw_only=True)
class Step:
    """One run of a session, its place there for the record, and its name for the reader.

    The loop sets ``folder`` on rank 0 when the run is finished, and ``reused`` on every rank if it
    took a finished run from the journal instead of making one.
    """

    point: Point
    comparison: Comparison
    name: str
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
        self._names = names_of([point.overrides for point in points])

    def steps(self) -> Iterator[Step]:
        session_id = self.journal.session_id if self.journal else secrets.token_hex(4)
        for order, point in enumerate(self.planned):
            comparison = Comparison(
                session_id=session_id, arm="", block=point.repetition, order=order
            )
            step = Step(point=point, comparison=comparison, name=self._names[point.overrides])
            yield step
            if step.folder is not None and not step.reused:
                self._reporter.run_finished(step.folder)


def names_of(runs: Sequence[Sequence[str]]) -> dict[tuple[str, ...], str]:
    """Return a name for the overrides of each run, from those that not all runs share.

    It is empty if all runs have the same overrides.
    """
    different = [tuple(run) for run in dict.fromkeys(map(tuple, runs))]
    shared = set.intersection(*map(set, different)) if different else set()
    return {run: _name([text for text in run if text not in shared]) for run in different}


def _name(texts: Sequence[str]) -> str:
    """Return the label, which names the values of an arm, and the other values."""
    labels = [text.partition("=")[2] for text in texts if text.startswith("label=")]
    others = [text for text in texts if not text.startswith("label=")]
    if labels:
        others = [text for text in others if re.split(r"[.=]", text)[0] not in GROUPS]
    return ", ".join([*labels, *others])
