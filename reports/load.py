"""Runs from disk: records with their traces, checked to be different runs, masked if asked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from wattload.core.errors import RecordError
from wattload.core.record.check import Check
from wattload.core.record.phase import TraceFile
from wattload.core.record.run import RECORD_FILE, RunRecord, read_record, read_stored
from wattload.core.record.seal import SealState
from wattload.reports.distant import DistantTraces
from wattload.reports.redact import Masker
from wattload.reports.sharing import share
from wattload.reports.traces import Traces, read_traces

DETAILED_RUNS = 16
"""With more runs than this the page has a row for each, and their traces are not held."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Run:
    """One run as the report knows it: the record and what lay beside it.

    ``seal`` says whether the record's seal fits its content. ``sha256`` is the digest of its file,
    where it is ``masked`` of its masked JSON; empty for a run that was never on disk. ``closures``
    are its closure checks, where they were made before parts of the record were let go;
    ``highest_k`` is then what ``sections.heat`` makes of its trace.
    """

    record: RunRecord
    traces: Traces
    seal: SealState = "none"
    sha256: str = ""
    masked: bool = False
    closures: tuple[Check, ...] | None = None
    highest_k: float | None = None

    @property
    def id(self) -> str:
        """The run's id."""
        return self.record.run_id

    @property
    def is_unsealed(self) -> bool:
        """Whether its file has no seal, so that nothing says whether it was edited."""
        return self.seal == "none" and bool(self.sha256)


def find_records(paths: Sequence[Path]) -> list[Path]:
    """Return the record files that were named: run folders, records, or folders of run folders.

    Raises:
        RecordError: a path does not exist, or holds no record.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise RecordError(f"{path} does not exist; name a run folder such as runs/*")
        own = path / RECORD_FILE if path.is_dir() else path
        below = record_files(path) if path.is_dir() else []
        if not own.is_file() and not below:
            raise RecordError(f"{path} holds no {RECORD_FILE}; name a run folder such as runs/*")
        found.extend([own] if own.is_file() else below)
    return found


def record_files(folder: Path) -> list[Path]:
    """Return the record of each run folder in a folder, by name; links that lead nowhere too.

    Raises:
        RecordError: the folder can't be listed.
    """
    try:
        files = [run / RECORD_FILE for run in folder.iterdir()]
    except OSError as error:
        raise RecordError(
            f"{folder} can't be listed: {error.strerror}; name a folder that you may read"
        ) from error
    return sorted(file for file in files if os.path.lexists(file))


def load_runs(
    paths: Sequence[Path], *, redact: bool = False, keep: Callable[[Run], Run] | None = None
) -> tuple[Run, ...]:
    """Return the runs under the given paths, in that order.

    With ``redact``, host names, serials and paths are masked alike over all of them. ``keep`` says
    what is kept of each of more than ``DETAILED_RUNS`` runs, whose traces stay on disk; it can be
    pickled, and leaves what it returned as it is but for sharing what other runs say too.

    Raises:
        RecordError: a record is missing, cut short, invalid, or two are of the same run.
    """
    files = find_records(paths)
    masker = Masker(read_record(file) for file in files) if redact else None
    several = len(files) > DETAILED_RUNS
    work = _Work(masker, several=several, keep=keep if several else None)
    if work.keep is not None and masker is None:  # masks are numbered as they come: by one process
        made: Generator[Run, None, None] = share(files, work, work.keep)
    else:
        made = (work(file) for file in files)
    runs: list[Run] = []
    places: dict[Hashable, Path] = {}
    with closing(made):  # a second process ends here, not when nobody holds the error any more
        for file, run in zip(files, made, strict=True):
            _refuse_twin(run.record, file, places)
            runs.append(work.with_traces(run, file) if work.keep is not None else run)
    return tuple(runs)


class _Work:
    """What is done to each record file; in another process it begins with nothing read."""

    def __init__(
        self, masker: Masker | None, *, several: bool, keep: Callable[[Run], Run] | None
    ) -> None:
        self.keep = keep
        self._masker = masker
        self._several = several
        self._named: dict[Path, tuple[TraceFile, ...]] = {}
        self._latest = lru_cache(maxsize=1)(self._read)

    def __reduce__(self) -> tuple[Callable[[], _Work], tuple[()]]:
        return partial(_Work, self._masker, several=self._several, keep=self.keep), ()

    def __call__(self, file: Path) -> Run:
        """Return the run; what is kept of one is parted from its traces, which stay on disk."""
        stored = read_stored(file)
        self._named[file.parent] = stored.record.traces
        read = partial(self._latest, file.parent)
        traces = DistantTraces(read) if self._several else read()
        run = Run(record=stored.record, traces=traces, seal=stored.seal, sha256=stored.sha256)
        run = _masked(run, self._masker) if self._masker else run
        if self.keep is None:
            return run
        kept = self.keep(run)
        said = Traces(throughput=None, power=None, notes=traces.notes, digests=traces.digests)
        return replace(kept, traces=said)

    def with_traces(self, run: Run, file: Path) -> Run:
        """Return a kept run that reads its traces anew when they are asked for."""
        self._named[file.parent] = run.record.traces
        said = (run.traces.notes, run.traces.digests)
        return replace(run, traces=DistantTraces(partial(self._latest, file.parent), said))

    def _read(self, folder: Path) -> Traces:
        return read_traces(folder, self._named[folder], self._masker.text if self._masker else str)


def _masked(run: Run, masker: Masker) -> Run:
    """Return a run masked, its digest too: that of the file could be tried against guesses."""
    record = masker.record(run.record)
    digest = hashlib.sha256(record.model_dump_json().encode()).hexdigest()
    return replace(run, record=record, sha256=digest, masked=True)


def _refuse_twin(record: RunRecord, file: Path, seen: dict[Hashable, Path]) -> None:
    """Refuse a run that was named before, by its id or by where and when it was made."""
    made = _when_made(record)
    first = seen.get(record.run_id) or (seen.get(made) if made is not None else None)
    if first is not None:
        raise RecordError(
            f"{first} and {file} hold one run, {record.run_id}; "
            "name each run once: a run that counts twice is no evidence"
        )
    seen[record.run_id] = file
    if made is not None:
        seen[made] = file


def _when_made(record: RunRecord) -> Hashable:
    """Return what no two runs have in common, whatever they are called; ``None`` without a window.

    Windows are told in nanoseconds since each host began: a copy under another id has them too,
    and no label, session or place in one makes another run of it.
    """
    windows = tuple((each.name, each.host, each.start_ns, each.end_ns) for each in record.windows)
    return (record.started_utc, windows) if windows else None
