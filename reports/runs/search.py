"""The run folders under the paths that a user names, and those that are left out, with reasons."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wattload.core.errors import DataError, RecordError
from wattload.core.files import read_bounded
from wattload.core.record.file import (
    DRAFT_FILE,
    LARGEST_RECORD_BYTES,
    RECORD_FILE,
    unfinished_reason,
)
from wattload.core.storage.targets import DATA_FOLDER_NAME
from wattload.reports.sanitize import file_name

JOURNAL_SUFFIX = ".jsonl"
"""The journals of sessions, which list their runs."""

DEEPEST = 4
"""Levels of folders that are searched for runs: ``runs/session/run`` needs two."""
MOST_ENTRIES = 200_000
"""Files and folders that a search looks at; a folder of 10,000 runs has 10,000."""


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
        raise RecordError(f"{path} contains no {RECORD_FILE}; name a run folder such as runs/*")
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
