"""Runs from disk: records with their traces, checked to be different runs, masked if asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic_core import PydanticSerializationError

from wattload.core.errors import RecordError
from wattload.core.record.run import RECORD_FILE, RunRecord, read_record
from wattload.reports.redact import Masker
from wattload.reports.traces import Traces, read_traces


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run as the report knows it: the record and what lay beside it."""

    record: RunRecord
    traces: Traces

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
    records = [_readable(file) for file in files]
    _refuse_twins(files, records)
    masker = Masker(records) if redact else None
    runs = []
    for file, record in zip(files, records, strict=True):
        mask = masker.text if masker else str
        shown = masker.record(record) if masker else record
        runs.append(Run(record=shown, traces=read_traces(file.parent, record.traces, mask)))
    return tuple(runs)


def _readable(file: Path) -> RunRecord:
    """Return a record that can be written out again; free text in it may hold half a character."""
    record = read_record(file)
    try:
        record.model_dump_json()
    except PydanticSerializationError as error:
        raise RecordError(f"{file} holds text that is no Unicode: {error}") from error
    return record


def _refuse_twins(files: Sequence[Path], records: Sequence[RunRecord]) -> None:
    seen: dict[str, Path] = {}
    for file, record in zip(files, records, strict=True):
        if record.run_id in seen:
            raise RecordError(
                f"{seen[record.run_id]} and {file} hold one run, {record.run_id}; "
                "name each run once: a run that counts twice is no evidence"
            )
        seen[record.run_id] = file
