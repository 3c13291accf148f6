"""Write the record of a run that could not do so itself, from its draft and its ranks' journals.

Its sampler does this for a run that died alone, ``finish_abandoned`` for one that died with it.

The folder belongs to the run's user, so its files are limited before anything in them is parsed:
their type and size, the number and length of lines, and the number of brackets in a line.
"""

from __future__ import annotations

import fnmatch
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pydantic import ValidationError

from wattload.core.clock import utc_text
from wattload.core.errors import DataError, RecordError, TargetError, WattloadError
from wattload.core.files import Folder, open_folder
from wattload.core.record.energy import PowerStateRecord
from wattload.core.record.file import (
    DRAFT_FILE,
    JOURNAL_PATTERN,
    RECORD_FILE,
    decode_record,
    write_record_in,
)
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.run import RunRecord, Status
from wattload.core.record.unfinished import (
    RESERVE_FILE,
    abandoned,
    remove_marks,
    remove_unborn,
    unfinished_runs,
)
from wattload.core.storage.raw_writes import RawWriteLog
from wattload.core.storage.targets import TargetKind
from wattload.power.control.journal import default_state_folder

REASON = "the run and its sampler ended without a record: they were killed, or the host stopped"
"""Why a run is aborted that nobody was left to finish, as after a power cut."""

LAST_PHASES = "The run ended with"
"""The start of the limit that names the phases which a run did not finish."""

MAX_DRAFT_BYTES = 4 << 20
"""A draft of 64 drives on 100 hosts has less than 1 MiB."""

MAX_JOURNAL_BYTES = 32 << 20
"""For all journals together. A rank writes about 300 bytes per phase."""

MAX_EVENTS = 100_000
"""Lines of all journals together; a record of as many spans has 20 MB."""

MAX_LINE_BYTES = 16 << 10
MAX_JOURNALS = 4096
MAX_BRACKETS = 64
"""In one line of a journal; an event has two."""

_MAX_NAME, _MAX_REASON = 100, 4000
_MAX_NAMED = 20
"""The most lines, files or phases that the record names; the others are counted."""

_SPAN_FIELDS = frozenset(PhaseSpan.model_fields)


@dataclass(slots=True)
class Listing:
    """The first names of many, and the number of the others."""

    names: list[str] = field(default_factory=list)
    other_count: int = 0

    def add(self, name: str) -> None:
        """Keep a name, or count it."""
        if len(self.names) < _MAX_NAMED:
            self.names.append(name)
        else:
            self.other_count += 1

    def text(self) -> str:
        """Return the names as text, with the number of those left out; empty if there are none."""
        others = [f"{self.other_count} more"] if self.other_count else []
        return ", ".join([*self.names, *others])


@dataclass(slots=True)
class RankEvents:
    """The content of all ranks' journals: finished phases, and those still open at the end."""

    spans: list[PhaseSpan] = field(default_factory=list)
    open_phases: Listing = field(default_factory=Listing)
    unreadable: Listing = field(default_factory=Listing)
    is_cut: bool = False
    """Whether more was journalled than is read."""
    failure: tuple[Status, str] | None = None
    """Why the run ended, from the rank that failed first; others may have failed because of it."""
    failed_ns: float = math.inf


def finish_aborted(
    run_folder: Path, status: Status, reason: str, *, states: Sequence[PowerStateRecord] = ()
) -> None:
    """Write ``record.json`` of a run that ended without one; keep an existing one.

    ``states`` are the power states by controller, as the sampler restored them; they replace the
    draft's.

    Raises:
        RecordError: there is no valid draft, or the folder is gone or not ours.
    """
    try:
        opened = open_folder(run_folder)
    except (OSError, DataError) as error:
        raise RecordError(f"the record can't be written to {run_folder}: {error}") from error
    with opened:
        finish_in(opened, status, reason, states=states)


def finish_in(
    folder: Folder, status: Status, reason: str, *, states: Sequence[PowerStateRecord] = ()
) -> None:
    """Write the record of a run in its open folder; see ``finish_aborted``."""
    if RECORD_FILE in folder.names():
        return
    folder.remove(RESERVE_FILE)
    draft = _read_draft(folder)
    contents = read_journals(folder)
    status, reason = contents.failure or (status, reason)
    raw_writes = _end_raw_writes(draft, "failed" if status == "failed" else "aborted")
    finished = draft.model_copy(
        update={
            "status": status,
            "status_reason": reason,
            "finished_utc": utc_text(),
            "spans": (*draft.spans, *contents.spans),
            "limits": (*draft.limits, *_limits(contents), *raw_writes),
            "power": draft.power.model_copy(update={"states": _merged(draft.power.states, states)}),
        }
    )
    write_record_in(folder, RunRecord.model_validate(dict(finished)))
    remove_marks(folder)


def _end_raw_writes(draft: RunRecord, status: Literal["failed", "aborted"]) -> list[str]:
    """Note in the log of raw writes what the run wrote to drives; return why that is impossible."""
    if all(target.facts.kind != TargetKind.BLOCK for target in draft.targets):
        return []
    try:
        RawWriteLog(default_state_folder()).end(draft.run_id, status)
    except TargetError as error:
        return [f"What the run wrote to whole drives is not in their log: {error}."]
    return []


def read_journals(folder: Folder) -> RankEvents:
    """Return what the ranks journalled before they ended, without a truncated last line."""
    contents = RankEvents()
    names = fnmatch.filter(folder.names(), JOURNAL_PATTERN)
    budget = _Budget(MAX_JOURNAL_BYTES, MAX_EVENTS)
    contents.is_cut = len(names) > MAX_JOURNALS
    for name in names[:MAX_JOURNALS]:
        try:
            with _opened(folder, name) as file:
                _read_journal(name, budget.lines_of(file), contents)
        except (OSError, DataError):
            contents.unreadable.add(name)
    contents.is_cut |= budget.is_spent
    return contents


@dataclass(slots=True)
class _Budget:
    """What may still be read of a run's journals."""

    left_bytes: int
    left_lines: int
    is_spent: bool = False

    def lines_of(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Yield the number and the text of each whole line; a longer one than allowed is empty."""
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            self.left_lines -= 1
            self.left_bytes -= len(line)
            if self.left_lines < 0 or self.left_bytes < 0:
                self.is_spent = True
                return
            if line.endswith(b"\n"):
                yield number, line
            elif len(line) > MAX_LINE_BYTES:
                yield number, b""
                self._skip_line(file)

    def _skip_line(self, file: BinaryIO) -> None:
        while (rest := file.readline(MAX_LINE_BYTES)) and self.left_bytes > 0:
            self.left_bytes -= len(rest)
            if rest.endswith(b"\n"):
                return


def _read_draft(folder: Folder) -> RunRecord:
    path = folder.path / DRAFT_FILE
    try:
        with _opened(folder, DRAFT_FILE) as file:
            data = file.read(MAX_DRAFT_BYTES + 1)
    except (OSError, DataError) as error:
        raise RecordError(f"the draft {path} can't be read: {error}") from error
    if len(data) > MAX_DRAFT_BYTES:
        raise RecordError(f"the draft {path} is longer than {MAX_DRAFT_BYTES} bytes")
    return decode_record(data.decode("utf-8", errors="replace"), path)


def _opened(folder: Folder, name: str) -> BinaryIO:
    """Open a file of ours; what was planted raises ``OSError`` or ``DataError``."""
    return os.fdopen(folder.update(name, os.O_RDONLY), "rb")


def _read_journal(name: str, lines: Iterator[tuple[int, bytes]], contents: RankEvents) -> None:
    begun: Counter[tuple[str, str]] = Counter()
    for number, line in lines:
        if not line.strip(b"\n"):
            contents.unreadable.add(f"{name}, line {number}")
            continue
        event = _event(line)
        if event is None or not _take_event(event, begun, contents):
            contents.unreadable.add(f"{name}, line {number}")
    rank = Path(name).stem.removeprefix("journal-")
    for phase, _ in begun.elements():
        contents.open_phases.add(f"rank {rank} in phase {phase}")


def _event(line: bytes) -> Mapping[str, Any] | None:
    """Return the event in a line, ``None`` if it has none."""
    if line.count(b"{") + line.count(b"[") > MAX_BRACKETS:
        return None
    try:
        event = json.loads(line.decode("utf-8", errors="replace"))
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _take_event(
    event: Mapping[str, Any], begun: Counter[tuple[str, str]], contents: RankEvents
) -> bool:
    """Note an event; return false if it is a span that is not valid."""
    kind = event.get("event")
    key = (_text(event.get("name")), _text(event.get("parent")))
    if kind == "failed":
        _take_failure(event, contents)
    elif kind == "begin":
        begun[key] += 1
    elif kind == "span":
        try:
            span = PhaseSpan.model_validate(
                {name: value for name, value in event.items() if name in _SPAN_FIELDS}
            )
        except ValidationError:
            return False
        contents.spans.append(span)
        begun[key] = max(0, begun[key] - 1)
    return True


def _text(value: object, max_length: int = _MAX_NAME) -> str:
    """Return a value as text that can be stored: JSON allows half a surrogate pair."""
    return str(value)[:max_length].encode(errors="replace").decode()


def _take_failure(event: Mapping[str, Any], contents: RankEvents) -> None:
    time_ns = event.get("time_ns")
    failed_ns = time_ns if isinstance(time_ns, int) else math.inf
    if contents.failure is not None and failed_ns >= contents.failed_ns:
        return
    status: Status = "failed" if event.get("status") == "failed" else "aborted"
    contents.failure = status, _text(event.get("reason"), _MAX_REASON)
    contents.failed_ns = failed_ns


def _limits(contents: RankEvents) -> Iterator[str]:
    if contents.open_phases.names:
        yield f"{LAST_PHASES} {contents.open_phases.text()}: how much moved there is unknown."
    if contents.unreadable.names:
        yield f"These journals of ranks could not be read: {contents.unreadable.text()}."
    if contents.is_cut:
        yield (
            f"The journals of ranks have more than {MAX_EVENTS} lines, {MAX_JOURNAL_BYTES} bytes "
            f"or {MAX_JOURNALS} files: the rest was not read, so spans are missing."
        )


def _merged(
    drafted: Sequence[PowerStateRecord], known: Sequence[PowerStateRecord]
) -> tuple[PowerStateRecord, ...]:
    replaced = {(state.host, state.serial) for state in known}
    kept = (state for state in drafted if (state.host, state.serial) not in replaced)
    return (*kept, *known)


def finish_abandoned(paths: Sequence[Path]) -> dict[Path, str]:
    """Write the records of those runs that nobody else will finish.

    ``paths`` are run folders, or folders of them. Runs that live, runs of other hosts and folders
    of other users are left alone. Returns each unfinished run's folder, and why it was left without
    a record; the reason is empty if it now has one.
    """
    found = {}
    for path in paths:
        remove_unborn(path)
    for folder in dict.fromkeys(unfinished_runs(paths)):
        with abandoned(folder) as opened:
            found[folder] = opened if isinstance(opened, str) else _finish(opened)
    return found


def _finish(folder: Folder) -> str:
    """Write the record of a run; return why that is impossible."""
    try:
        finish_in(folder, "aborted", REASON)
    except (DataError, OSError) as error:
        return f"it was interrupted, and its record can't be written: {error}"
    except (WattloadError, ValueError, RecursionError) as error:
        return f"it was interrupted, and its draft is unusable: {error}; delete its folder"
    return ""
