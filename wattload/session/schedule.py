"""Schedules: which runs a session makes, in which order, and which of them are finished and valid.

The interface of a schedule, the sweep's, and the journal from which a session resumes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import secrets
import statistics
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self

from pydantic_core import from_json

from wattload.core.errors import ForeignFileError, RecordError, TargetError
from wattload.core.files import FOLDER_MODE, choose_folder
from wattload.core.host.facts import software_facts
from wattload.core.record.file import RECORD_FILE
from wattload.core.record.run import Comparison
from wattload.power.control.journal import default_state_folder
from wattload.results.quantity import counted
from wattload.run.compose import require_target_kind
from wattload.run.config import RunConfig
from wattload.run.process import ProcessContext, Reporter
from wattload.session.axes import GROUPS
from wattload.session.search_result import Measurement, SearchOutcome

ARMS = 2
"""What a verdict is between."""

JOURNAL_NAME = "sweep-{key}.jsonl"


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a session: its overrides, and which repetition of them it is.

    ``key`` identifies it in the journal; see ``point_key``. ``arm`` is what a report compares it
    as, and ``name`` is for the reader.
    """

    overrides: tuple[str, ...]
    repetition: int
    key: str
    arm: str = ""
    name: str = ""


def point_key(config: RunConfig, config_values: Mapping[str, Any], repetition: int) -> str:
    """Return a digest that identifies a run: its settings, the drives under its targets, the code.

    Another drive at the same mount point, another directory behind the same variable or a new
    commit gives another key. That of targets which can't be used matters to nobody.
    """
    require_target_kind(config)
    where: list[tuple[Any, ...]] = []
    with suppress(TargetError):  # the run raises it, with all else that is wrong
        where = [
            (str(target.path), target.facts.devices, target.facts.controllers)
            + ((target.facts.file_system.source,) if target.facts.file_system else ())
            for target in config.target.resolve(host="", try_direct_io=False)
        ]
    software = software_facts()
    code = (software.wattload, software.git_commit)
    settings = {key: value for key, value in config_values.items() if key != "repeat"}
    document = json.dumps([settings, where, code, repetition], sort_keys=True, default=str)
    return hashlib.sha256(document.encode()).hexdigest()


def keyed_on_all_hosts(points: Sequence[Point], process: ProcessContext) -> list[Point]:
    """Return points whose keys identify all hosts, their ranks and drives, the same on every rank.

    Every rank has to call this with the same runs, each with the drives of its host in their keys.
    """
    if len(process.hosts) == 1:
        return list(points)
    by_rank = process.communicator.gather([(process.host, point.key) for point in points])
    keys = [
        hashlib.sha256(json.dumps(ranks).encode()).hexdigest()
        for ranks in zip(*by_rank, strict=True)
    ]
    keyed = zip(points, process.communicator.broadcast(keys), strict=True)
    return [replace(point, key=key) for point, key in keyed]


class SessionJournal:
    """The finished runs of a session: one line per run, fsynced.

    Where the runs folder can't be written, further lines go to ``spare`` in the state folder, as
    the run's own record does. They move to the journal as soon as it can be written again.
    """

    def __init__(self, runs: Path, session_id: str, path: Path) -> None:
        self.runs = runs
        self.session_id = session_id
        self.path = path
        self.spare = _spare_path(path)
        self._done = dict(self._read())
        self._seen: dict[Hashable, Path] = {}

    @classmethod
    def of_sweep(cls, runs: Path, overrides: Sequence[str]) -> Self:
        key = hashlib.sha256("\x1f".join(overrides).encode()).hexdigest()[:8]
        return cls(runs, key, runs / JOURNAL_NAME.format(key=key))

    @classmethod
    def of_session(cls, runs: Path, given: Sequence[str]) -> Self:
        """Return the journal of the interleaved session that ``given`` identifies.

        The session's name is in the journal's first line; a new session gets a new one.
        """
        key = hashlib.sha256("\x1f".join(given).encode()).hexdigest()[:8]
        path = runs / JOURNAL_NAME.format(key=key)
        return cls(runs, _session_id(path) or secrets.token_hex(4), path)

    def begin(self) -> None:
        """Write the session's name into its journal, so that a resumed session keeps it."""
        if _session_id(self.path) is None:
            self._append({"session": self.session_id})

    def _read(self) -> Iterator[tuple[str, str]]:
        for entry in _entries_with_spare(self.path):
            if "point" in entry and "folder" in entry:
                yield entry["point"], entry["folder"]

    def done(self, points: Iterable[Point]) -> tuple[dict[str, Path], list[str]]:
        """Return the folders of finished, valid runs, by point key, and why others are repeated.

        A run that is not valid by its record and traces, or is a copy of another run, is repeated;
        nothing is deleted.
        """
        self._take_spare_lines()
        found: dict[str, Path] = {}
        refused: list[str] = []
        for point in points:
            if (name := self._done.get(point.key)) is None:
                continue
            reason = self._refused(name)
            if reason:
                refused.append(f"{self._folder(name)} is not reused, its run is repeated: {reason}")
            else:
                found[point.key] = self._folder(name)
        return found, refused

    def _folder(self, name: str) -> Path:
        """Return the folder of a run in the journal; a record in the state folder has a path."""
        moved = self.runs / Path(name).name
        return moved if (moved / RECORD_FILE).exists() else self.runs / name

    def _refused(self, name: str) -> str:
        """Return why a run in the journal can't be reused; empty if it can."""
        from wattload.reports.runs.load import load_runs, refuse_duplicate
        from wattload.reports.runs.validity import checks_of_files

        folder = self._folder(name)
        try:
            (run,) = load_runs([folder / RECORD_FILE])
        except RecordError as error:
            return str(error)
        if run.id != folder.name:
            return f"its record is of the run {run.id}"
        try:
            refuse_duplicate(run.record, folder / RECORD_FILE, self._seen)
        except RecordError as error:
            return str(error)
        failed = (c for c in (*run.record.checks, *checks_of_files(run)) if c.fails_run)
        if run.record.status != "complete":
            return f"it is {run.record.status}"
        return next((f"{check.name} failed: {check.sentence}" for check in failed), "")

    def add(self, point: Point, folder: Path) -> None:
        """Add a finished run; ``folder`` is in the runs folder, or has the record that is not."""
        is_here = folder.parent.absolute() == self.runs.absolute()
        self._append({"point": point.key, "folder": folder.name if is_here else str(folder)})

    def _append(self, entry: Mapping[str, str]) -> None:
        line = json.dumps(entry).encode()
        try:
            _append_line(self.path, line)
        except (OSError, ForeignFileError):  # full, gone, or replaced by somebody
            _append_line(self.spare, line)

    def _take_spare_lines(self) -> None:
        """Move the lines in the state folder to the journal, if it can be written again."""
        entries = list(_entries(self.spare))
        with suppress(OSError, ForeignFileError):
            for entry in entries:
                _append_line(self.path, json.dumps(entry).encode())
            with choose_folder(self.spare.parent) as folder:
                folder.remove(self.spare.name)


def _spare_path(path: Path) -> Path:
    """Return the place for a journal's lines in the state folder; runs folders have one each."""
    of_folder = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:8]
    return default_state_folder() / "records" / f"{path.stem}-{of_folder}.jsonl"


def _append_line(path: Path, line: bytes) -> None:
    """Add a line, fsynced; end a torn last line first, so that it does not spoil the new one."""
    path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    with choose_folder(path.parent) as folder:
        descriptor = folder.append(path.name)
    with os.fdopen(descriptor, "ab+") as file:
        file.write(line + b"\n" if _is_at_line_start(file) else b"\n" + line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _is_at_line_start(file: BinaryIO) -> bool:
    """Return whether the file is empty or ends with a newline."""
    if not file.seek(0, os.SEEK_END):
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _session_id(path: Path) -> str | None:
    named = (entry["session"] for entry in _entries_with_spare(path) if "session" in entry)
    return next(named, None)


def _entries_with_spare(path: Path) -> Iterator[dict[str, str]]:
    return chain(_entries(path), _entries(_spare_path(path)))


def _entries(path: Path) -> Iterator[dict[str, str]]:
    """Yield the journal's entries; a line torn by a crash is skipped, and that run is repeated.

    The journal of somebody else is refused: in a shared folder, it could name made-up runs.
    """
    try:
        with choose_folder(path.parent) as runs:
            content = runs.read(path.name)
    except FileNotFoundError:
        return
    for line in (content or b"").decode(errors="replace").splitlines():
        try:
            entry = from_json(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and all(isinstance(text, str) for text in entry.values()):
            yield entry


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
        """Show what one run of a search for accelerators measured."""
        ...

    def search_finished(self, result: SearchOutcome, path: Path, journal: Path, host: str) -> None:
        """Show the result of a search, stored in ``path``; ``journal`` lists its runs.

        ``host`` has both, in a search over several hosts.
        """
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
    """One run of a session, and its place there for the record.

    ``calibrates`` is whether meters may be calibrated within its idle time: in no run that is
    compared with runs of other settings. The loop sets ``folder`` on rank 0 when the
    run is finished, and ``reused`` on every rank if it took a finished run from the journal instead
    of making one.
    """

    point: Point
    comparison: Comparison
    calibrates: bool
    folder: Path | None = None
    reused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Whether runs suffice for a verdict between two arms, and why in words."""

    can_decide: bool
    words: str


class Schedule(ABC):
    """The runs of a session, in order. Every rank calls every method, in the same order.

    ``journal`` is ``None`` for a single run, which can't be resumed. ``planned`` are the runs that
    are known in advance; a search has none. ``compares_drives`` is whether its verdict is meant to
    be between different drives.
    """

    journal: SessionJournal | None
    planned: Sequence[Point] = ()
    compares_drives = False

    @property
    def outlook(self) -> Outlook:
        """Whether the planned runs suffice for a verdict, as a report will judge them."""
        return Outlook(can_decide=False, words="a search chooses its runs")

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
        self,
        points: Sequence[Point],
        arms_by: Collection[str],
        journal: SessionJournal | None,
        reporter: SessionReporter,
    ) -> None:
        """Take the runs in order; ``arms_by`` are the swept keys whose values are the arms."""
        self.planned = points
        self.journal = journal
        self._reporter = reporter
        self.compares_drives = set(arms_by) == {"target.path"} and self.outlook.can_decide

    @property
    def outlook(self) -> Outlook:
        from wattload.reports.stats.effects import MINIMUM_PAIRS, MINIMUM_RUNS

        arms = {point.arm for point in self.planned}
        each = min(Counter(point.overrides for point in self.planned).values())
        if len(arms) == 1:
            points = len({point.overrides for point in self.planned})
            words = "one arm; compare it with the runs of another command"
            if points > 1:
                words = f"one arm at {points} points, which a report draws as a curve"
            return Outlook(can_decide=False, words=words)
        if len(arms) > ARMS:
            words = f"a verdict is between two arms, and these runs are {len(arms)} arms"
            return Outlook(can_decide=False, words=words)
        in_turns = f"interleave=abba repeat={MINIMUM_PAIRS}"
        if each < MINIMUM_RUNS:
            words = (
                f"{counted(each, 'run')} of each arm can't show a difference: that takes at least "
                f"{MINIMUM_RUNS}, or {MINIMUM_PAIRS} pairs in turns ({in_turns})"
            )
            return Outlook(can_decide=False, words=words)
        words = f"{each} runs of each arm; taken in turns ({in_turns}), drift would cancel"
        return Outlook(can_decide=True, words=words)

    def begin(self, process: ProcessContext, done: Mapping[str, Path]) -> None:
        """Warn that the runs of two arms are too few for a verdict."""
        is_pair = len({point.arm for point in self.planned}) == ARMS
        if is_pair and not self.outlook.can_decide:
            process.note(self.outlook.words)

    def steps(self) -> Iterator[Step]:
        session_id = self.journal.session_id if self.journal else secrets.token_hex(4)
        for order, point in enumerate(self.planned):
            comparison = Comparison(
                session_id=session_id, arm="", block=point.repetition, order=order
            )
            step = Step(
                point=point,
                comparison=comparison,
                calibrates=order == 0 and len({each.overrides for each in self.planned}) == 1,
            )
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
