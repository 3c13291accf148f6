"""Runs from disk: records with their traces, checked to be different runs, masked if asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from wattload.core.errors import RecordError
from wattload.core.record.run import RECORD_FILE, RunRecord, read_stored
from wattload.core.record.seal import SealState
from wattload.reports.distant import DistantTraces
from wattload.reports.redact import Masker
from wattload.reports.traces import Traces, read_traces

DETAILED_RUNS = 16
"""With more runs than this the page has a row for each, and their traces are not held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run as the report knows it: the record and what lay beside it.

    ``seal`` says whether the record is as it was written, ``sha256`` is the digest of its file
    (of the file before masking), empty for a run that was never on disk.
    """

    record: RunRecord
    traces: Traces
    seal: SealState = "none"
    sha256: str = ""

    @property
    def id(self) -> str:
        """The run's id."""
        return self.record.run_id


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
        below = sorted(path.glob(f"*/{RECORD_FILE}")) if path.is_dir() else []
        if not own.is_file() and not below:
            raise RecordError(f"{path} holds no {RECORD_FILE}; name a run folder such as runs/*")
        found.extend([own] if own.is_file() else below)
    return found


def load_runs(paths: Sequence[Path], *, redact: bool = False) -> tuple[Run, ...]:
    """Return the runs under the given paths, in that order.

    With ``redact``, host names, serials and paths are masked alike over all of them.

    Raises:
        RecordError: a record is missing, cut short, invalid, or two have the same id.
    """
    files = find_records(paths)
    stored = [read_stored(file) for file in files]
    records = [each.record for each in stored]
    _refuse_twins(files, records)
    masker = Masker(records) if redact else None
    latest = lru_cache(maxsize=1)(read_traces)
    runs = []
    for file, each in zip(files, stored, strict=True):
        mask = masker.text if masker else str
        shown = masker.record(each.record) if masker else each.record
        read = partial(latest, file.parent, each.record.traces, mask)
        traces = DistantTraces(read) if len(files) > DETAILED_RUNS else read()
        runs.append(Run(record=shown, traces=traces, seal=each.seal, sha256=each.sha256))
    return tuple(runs)


def _refuse_twins(files: Sequence[Path], records: Sequence[RunRecord]) -> None:
    seen: dict[str, Path] = {}
    for file, record in zip(files, records, strict=True):
        if record.run_id in seen:
            raise RecordError(
                f"{seen[record.run_id]} and {file} hold one run, {record.run_id}; "
                "name each run once: a run that counts twice is no evidence"
            )
        seen[record.run_id] = file
