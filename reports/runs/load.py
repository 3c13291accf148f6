"""Runs from disk: records with their traces, checked for duplicates, masked on request.

They are searched for under the paths that a user names; what is left out has a reason.
One digest covers all of them. Results that many sections need are cached by object identity.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import signal
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from wattload.core.errors import DataError, RecordError
from wattload.core.files import read_bounded
from wattload.core.mlperf.tree import is_tree
from wattload.core.record.clocks import CommonClock, Offsets
from wattload.core.record.file import (
    DRAFT_FILE,
    LARGEST_RECORD_BYTES,
    RECORD_FILE,
    SealState,
    StoredRecord,
    read_record,
    unfinished_reason,
)
from wattload.core.record.phase import TRACE_NAMES, TraceFile
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.core.storage.targets import DATA_FOLDER_NAME
from wattload.reports.runs.redact import Masker
from wattload.reports.runs.traces import LazyTraces, Traces, read_traces
from wattload.reports.sanitize import file_name
from wattload.results.reading import read_judged
from wattload.results.registry import results_of

DETAILED_RUNS = 16
"""With more runs the page has only a row for each.

Their traces are not held in memory, and single operations are not read.
"""

INPUTS_COMMAND = "sha256sum */record.json | cut -d' ' -f1 | LC_ALL=C sort | sha256sum"
"""Prints the digest over all records of a folder of runs."""

FILES_PER_PROCESS = 100
"""With fewer files, starting a process takes longer than it saves."""

_BATCH_FILES = 4

JOURNAL_SUFFIX = ".jsonl"
"""The journals of sessions, which list their runs."""

DEEPEST = 4
"""Levels of folders that are searched for runs: ``runs/session/run`` needs two."""
MOST_ENTRIES = 200_000
"""Files and folders that a search looks at; a folder of 10,000 runs has 10,000."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Run:
    """One run of a report: the record and the traces stored with it.

    ``seal`` is whether the record's seal matches its content. ``sha256`` is the digest of its file,
    or of its JSON if ``masked``; it is empty for a run that was never on disk. ``file_checks``
    are those of its files, if they ran before parts of the record were dropped;
    ``highest_temperature_k`` is then from its trace. ``file`` is its record, ``None`` if ``masked``
    or if it was never on disk, and ``link`` leads from a page to it.
    """

    record: RunRecord
    traces: Traces
    seal: SealState = "holds"
    sha256: str = ""
    masked: bool = False
    file_checks: tuple[Check, ...] | None = None
    highest_temperature_k: float | None = None
    file: Path | None = None
    link: str = ""

    @property
    def id(self) -> str:
        return self.record.run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A run folder without a usable record: its name, a clause on why, and its path.

    The path is not for reports: it depends on the working folder, and is never masked.
    """

    name: str
    reason: str
    path: Path


@dataclass(slots=True, kw_only=True)
class FoundRecords:
    """What a search for records found.

    Records, unfinished runs, folders not searched, and the paths named by the user in which there
    is no record, with the error of each.
    """

    files: list[Path] = field(default_factory=list)
    unfinished: list[Path] = field(default_factory=list)
    unsearched: list[Path] = field(default_factory=list)
    faults: dict[Path, RecordError] = field(default_factory=dict)

    def add(self, other: FoundRecords) -> None:
        self.files += other.files
        self.unfinished += other.unfinished
        self.unsearched += other.unsearched

    def left_out(self) -> list[LeftOut]:
        """Return what has no record: named paths, unfinished runs and folders not searched."""
        reasons = [(path, record_fault(path, error)) for path, error in self.faults.items()]
        reasons += [(each, unfinished_reason(each)) for each in self.unfinished]
        reasons += [(each, _unsearched(each)) for each in self.unsearched]
        return [
            LeftOut(name=file_name(each.name), reason=reason, path=each) for each, reason in reasons
        ]


def record_fault(path: Path, error: RecordError) -> str:
    """Return an error without its path, which depends on the working folder."""
    return file_name(str(error).removeprefix(f"{path} "))


def find_records(paths: Sequence[Path]) -> FoundRecords:
    """Return the records under paths: runs, records, journals, or folders of runs and sessions.

    Raises:
        RecordError: a path does not exist.
    """
    found = FoundRecords()
    for path in paths:
        if not os.path.lexists(path):
            raise RecordError(f"{path} does not exist; name a run folder such as runs/*")
    for path in paths:
        try:
            found.add(_find(path))
        except RecordError as error:
            found.faults[path] = error
    return found


def _find(path: Path) -> FoundRecords:
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir() raises without permission
        is_journal = path.suffix == JOURNAL_SUFFIX
        return FoundRecords(files=journal_runs(path) if is_journal else [path])
    if os.path.lexists(path / RECORD_FILE):
        return FoundRecords(files=[path / RECORD_FILE])
    if os.path.lexists(path / DRAFT_FILE):
        return FoundRecords(unfinished=[path])
    found = search_records(path)
    if not found.files and not found.unfinished:
        remedy = (
            f"import it: wattload import {path}"
            if is_tree(path)
            else "name a run folder such as runs/*"
        )
        raise RecordError(f"{path} contains no {RECORD_FILE}; {remedy}")
    return found


def journal_runs(journal: Path) -> list[Path]:
    """Return the records of a session's runs, in the order of its journal; the last of each run.

    The runs are next to the journal, or next to its folder; a record that was written elsewhere,
    because that was full, is where the journal says. A line that is not a run's is skipped:
    a crash may have truncated it.

    Raises:
        RecordError: the journal can't be read, or none of its runs exists.
    """
    names: dict[str, Path] = {}
    try:
        content = read_bounded(journal, LARGEST_RECORD_BYTES)
    except (DataError, OSError) as error:
        raise RecordError(f"{journal} can't be read as a journal: {error}") from error
    for line in content.decode("utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
            names[str(entry["point"])] = Path(str(entry["folder"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
    near = [
        [folder / name.name / RECORD_FILE for name in names.values()]
        for folder in (journal.parent, journal.parent.parent)
    ]
    files = next((each for each in near if any(file.is_file() for file in each)), near[0])
    found = [
        file if file.is_file() else name / RECORD_FILE
        for file, name in zip(files, names.values(), strict=True)
        if file.is_file() or (name.is_absolute() and (name / RECORD_FILE).is_file())
    ]
    if found:
        return found
    raise RecordError(f"{journal} lists no run of which there is a {RECORD_FILE}")


def search_records(folder: Path) -> FoundRecords:
    """Return the records of the run folders below a folder, by path, including broken links.

    Sessions keep their runs in folders of their own, so folders are searched ``DEEPEST`` levels
    deep. A link may lead to a run, but not to further folders: it could lead in a circle.

    Raises:
        RecordError: the folder can't be listed, or holds far more than runs.
    """
    found = FoundRecords()
    level, count = [folder], 0
    for _ in range(DEEPEST):
        below: list[Path] = []
        for each in level:
            try:
                entries = sorted(os.listdir(each))  # noqa: PTH208 - names alone, and fast
            except OSError as error:
                if each == folder:
                    raise RecordError(
                        f"can't list {folder}: {error.strerror}; name a readable folder"
                    ) from error
                found.unsearched.append(each)
                continue
            count += len(entries)
            if count > MOST_ENTRIES:
                raise RecordError(
                    f"{folder} has more than {MOST_ENTRIES} files and folders; name the folder of "
                    "the runs"
                )
            names = [name for name in entries if name != DATA_FOLDER_NAME and name[:1] != "."]
            below += _sort_in([each / name for name in names], found)
        level = below
    found.unsearched += [each for each in level if _has_folders(each)]
    found.files.sort()
    return found


def _sort_in(paths: Sequence[Path], found: FoundRecords) -> list[Path]:
    """Add runs to what was found, and return the folders that may contain runs."""
    folders = []
    for path in paths:
        if os.path.lexists(path / RECORD_FILE):
            found.files.append(path / RECORD_FILE)
        elif os.path.lexists(path / DRAFT_FILE):
            found.unfinished.append(path)
        elif os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - never raise
            folders.append(path)
    return folders


def _has_folders(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.is_dir(follow_symlinks=False) for entry in entries)
    except OSError:
        return True


def _unsearched(folder: Path) -> str:
    is_readable = os.access(folder, os.R_OK | os.X_OK)
    why = f"it is {DEEPEST} levels below the folder named" if is_readable else "it is unreadable"
    return f"not searched for runs: {why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRuns:
    """The runs under some paths, in that order, and the run folders that are left out."""

    runs: tuple[Run, ...]
    left_out: tuple[LeftOut, ...] = ()

    def require_run(self) -> None:
        """Raise ``RecordError`` with the first reason if there is no readable record."""
        if not self.runs:
            first, *others = self.left_out
            more = f" ({len(others)} more have none either)" if others else ""
            raise RecordError(f"{first.path} has no usable record: {first.reason}{more}")


def load_runs(
    paths: Sequence[Path], *, redact: bool = False, keep: Callable[[Run], Run] | None = None
) -> tuple[Run, ...]:
    """Return the runs under the given paths, in that order; see ``load_readable``.

    Raises:
        RecordError: a record is missing, truncated or invalid, or two are of the same run.
    """
    found = find_records(paths)
    runs, faults = _load(found.files, redact=redact, keep=keep, strict=True)
    for error in (*found.faults.values(), *faults.values()):
        raise error
    loaded = LoadedRuns(runs=tuple(runs), left_out=tuple(found.left_out()))
    loaded.require_run()
    return loaded.runs


def load_readable(
    paths: Sequence[Path], *, redact: bool = False, keep: Callable[[Run], Run] | None = None
) -> LoadedRuns:
    """Return the runs under the given paths, in that order, and what is left out, even if all are.

    Of several records of one run, the first is kept. With ``redact``, host names, serials and paths
    are masked consistently over all runs. ``keep`` makes runs compact if there are more than
    ``DETAILED_RUNS``; their traces stay on disk. It must be picklable, and idempotent except for
    sharing parts between runs.

    Raises:
        RecordError: a path does not exist.
    """
    found = find_records(paths)
    runs, faults = _load(found.files, redact=redact, keep=keep, strict=False)
    left_out = [
        LeftOut(name=file_name(path.name), reason=record_fault(f, error), path=path)
        for f, error in faults.items()
        for path in [f.parent if f.name == RECORD_FILE else f]
    ]
    left_out += found.left_out()
    if redact:  # names of folders and messages are not known to be masked
        left_out = [
            LeftOut(name="unnamed run", reason="no readable record", path=each.path)
            for each in left_out
        ]
    return LoadedRuns(runs=tuple(runs), left_out=tuple(left_out))


def _load(
    files: Sequence[Path], *, redact: bool, keep: Callable[[Run], Run] | None, strict: bool
) -> tuple[list[Run], dict[Path, RecordError]]:
    """Return the runs of files, and the errors of the others; if ``strict``, only the first."""
    masker = Masker(readable_records(files)) if redact else None
    several = len(files) > DETAILED_RUNS
    work = _Work(masker, several=several, keep=keep if several else None)
    if work.keep is not None and masker is None:  # masks are numbered in order
        loaded = (work.adopt(run) for run in share(files, work))
    else:
        loaded = (work(file) for file in files)
    runs: list[Run] = []
    faults: dict[Path, RecordError] = {}
    places: dict[Hashable, Path] = {}
    with closing(loaded):  # ends the second process here, even after an error
        for file, run in zip(files, loaded, strict=True):
            try:
                if isinstance(run, RecordError):
                    raise run
                refuse_duplicate(run.record, file, places)
            except RecordError as error:
                faults[file] = error
                if strict:
                    break
            else:
                runs.append(work.with_traces(run, file) if work.keep is not None else run)
    return runs, faults


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


def readable_records(files: Sequence[Path]) -> Iterator[RunRecord]:
    for file in files:
        with suppress(RecordError):
            yield read_record(file)


class _Work:
    """The work on each record file; in another process it starts without cached traces."""

    def __init__(
        self, masker: Masker | None, *, several: bool, keep: Callable[[Run], Run] | None
    ) -> None:
        self.keep = keep
        self._masker = masker
        self._several = several
        self._named: dict[Path, tuple[tuple[TraceFile, ...], Offsets, str]] = {}
        self._latest = lru_cache(maxsize=1)(self._read)

    def __reduce__(self) -> tuple[Callable[[], _Work], tuple[()]]:
        return partial(_Work, self._masker, several=self._several, keep=self.keep), ()

    def __call__(self, file: Path) -> Run | RecordError:
        """Return the run, or why it is unreadable; the traces of a compact run stay on disk."""
        try:
            return self._run(read_judged(file), file)
        except RecordError as error:
            return error

    def adopt(self, made: Run | RecordError) -> Run | RecordError:
        """Return a result of another process; equal parts are shared between runs."""
        return self.keep(made) if self.keep is not None and isinstance(made, Run) else made

    def _run(self, stored: StoredRecord, file: Path) -> Run:
        self._named[file.parent] = _named(stored.record)
        read = partial(self._latest, file.parent)
        traces = LazyTraces(read) if self._several else read()
        run = Run(
            record=stored.record,
            traces=traces,
            seal=stored.seal,
            sha256=stored.sha256,
            file=None if self._masker else file,
        )
        run = _masked(run, self._masker) if self._masker else run
        if self.keep is None:
            return run
        kept = self.keep(run)
        known = Traces(throughput=None, power=None, notes=traces.notes, digests=traces.digests)
        return replace(kept, traces=known)

    def with_traces(self, run: Run, file: Path) -> Run:
        """Return a compact run that reads its traces on demand."""
        self._named[file.parent] = _named(run.record)
        known = (run.traces.notes, run.traces.digests)
        return replace(run, traces=LazyTraces(partial(self._latest, file.parent), known))

    def _read(self, folder: Path) -> Traces:
        files, offsets, workload = self._named[folder]
        results = results_of(workload)
        mask = self._masker.text if self._masker else str
        return read_traces(
            folder,
            files,
            mask,
            clock=CommonClock({mask(host): readings for host, readings in offsets.items()}),
            declared=results.tables if results is not None else (),
            operations=not self._several,
        )


def _named(record: RunRecord) -> tuple[tuple[TraceFile, ...], Offsets, str]:
    """Return a run's traces, the offsets of its hosts' clocks and its workload."""
    offsets = {host.facts.name: host.offsets for host in record.hosts}
    return record.traces, offsets, record.workload.name


def _masked(run: Run, masker: Masker) -> Run:
    """Return a run masked, with a new digest: the original could be used to test guesses."""
    record = masker.record(run.record)
    digest = hashlib.sha256(record.model_dump_json().encode()).hexdigest()
    return replace(run, record=record, sha256=digest, masked=True)


def refuse_duplicate(record: RunRecord, file: Path, seen: dict[Hashable, Path]) -> None:
    """Refuse a run that is in ``seen``, by its id, its place and time, or its traces; else add it.

    Raises:
        RecordError: it is the same run as one that was seen before; the message names both.
    """
    if (first := seen.get(record.run_id)) is not None:
        raise RecordError(
            f"{file} is a second record of the run {record.run_id}; the first is in "
            f"{first.parent.name}"
        )
    identities = tuple(_identities(record))
    for what, key in identities:
        if key in seen:
            raise RecordError(
                f"{file} is a second record of the run in {seen[key].parent.name} under another "
                f"id: both have the same {what}"
            )
    seen.update(dict.fromkeys([record.run_id, *(key for _, key in identities)], file))


def _identities(record: RunRecord) -> Iterator[tuple[str, Hashable]]:
    """Yield what no two runs share, whatever their names: what it is, and its key.

    Windows are in nanoseconds since the start of each host, and so are the rows of traces. A copy
    under another id has the same windows and traces; its label, session or place in a session do
    not make it another run.
    """
    windows = tuple((each.name, each.host, each.start_ns, each.end_ns) for each in record.windows)
    if windows:
        yield "start and phase times", (record.started_utc, windows)
    yield from (
        (f"{each.name} trace", (each.name, each.sha256))
        for each in record.traces
        if each.rows and each.name in TRACE_NAMES
    )


def inputs_digest(runs: Sequence[Run]) -> str:
    """Return the SHA-256, in hex, of the sorted digests of the records' files, one per line.

    The line of a run that was never on disk is empty. The order of the files makes no difference.
    """
    lines = sorted(run.sha256 for run in runs)
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
