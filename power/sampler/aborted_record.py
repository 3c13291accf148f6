"""Write the record of a run that could not do so itself, from its draft and its ranks' journals.

Its sampler does this for a run that died alone, ``finish_abandoned`` for one that died with it.

The folder belongs to the run's user, so its files are limited before anything in them is parsed:
their type and size, the number and length of lines, and the number of brackets in a line.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from wattload.core.clock import utc_text
from wattload.core.errors import DataError, RecordError, WattloadError
from wattload.core.record.energy import PowerStateRecord
from wattload.core.record.file import (
    DRAFT_FILE,
    JOURNAL_PATTERN,
    RECORD_FILE,
    decode_record,
    write_record,
)
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.run import RunRecord, Status
from wattload.core.record.unfinished import (
    abandoned,
    release_space,
    remove_marks,
    remove_unborn,
    unfinished_runs,
)

REASON = "the run and its sampler ended without a record: they were killed, or the host stopped"
"""Why a run is aborted that nobody was left to finish, as after a power cut."""

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
        RecordError: there is no valid draft.
    """
    if (run_folder / RECORD_FILE).exists():
        return
    release_space(run_folder)
    draft = _read_draft(run_folder / DRAFT_FILE)
    contents = read_journals(run_folder)
    status, reason = contents.failure or (status, reason)
    finished = draft.model_copy(
        update={
            "status": status,
            "status_reason": reason,
            "finished_utc": utc_text(),
            "spans": (*draft.spans, *contents.spans),
            "limits": (*draft.limits, *_limits(contents)),
            "power": draft.power.model_copy(update={"states": _merged(draft.power.states, states)}),
        }
    )
    write_record(RunRecord.model_validate(dict(finished)), run_folder)
    remove_marks(run_folder)


def read_journals(run_folder: Path) -> RankEvents:
    """Return what the ranks journalled before they ended, without a truncated last line."""
    contents = RankEvents()
    paths = list(islice(run_folder.glob(JOURNAL_PATTERN), MAX_JOURNALS + 1))
    budget = _Budget(MAX_JOURNAL_BYTES, MAX_EVENTS)
    contents.is_cut = len(paths) > MAX_JOURNALS
    for path in sorted(paths[:MAX_JOURNALS]):
        try:
            with _opened(path) as file:
                _read_journal(path, budget.lines_of(file), contents)
        except OSError:
            contents.unreadable.add(path.name)
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


def _read_draft(path: Path) -> RunRecord:
    try:
        with _opened(path) as file:
            data = file.read(MAX_DRAFT_BYTES + 1)
    except OSError as error:
        raise RecordError(f"the draft {path} can't be read: {error}") from error
    if len(data) > MAX_DRAFT_BYTES:
        raise RecordError(f"the draft {path} is longer than {MAX_DRAFT_BYTES} bytes")
    return decode_record(data.decode("utf-8", errors="replace"), path)


def _opened(path: Path) -> BinaryIO:
    """Open a regular file; a link, a pipe or a device that was planted raises ``OSError``."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")


def _read_journal(path: Path, lines: Iterator[tuple[int, bytes]], contents: RankEvents) -> None:
    begun: Counter[tuple[str, str]] = Counter()
    for number, line in lines:
        if not line.strip(b"\n"):
            contents.unreadable.add(f"{path.name}, line {number}")
            continue
        event = _event(line)
        if event is None or not _take_event(event, begun, contents):
            contents.unreadable.add(f"{path.name}, line {number}")
    rank = path.stem.removeprefix("journal-")
    for name, _ in begun.elements():
        contents.open_phases.add(f"rank {rank} in phase {name}")


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
        yield f"The run ended with {contents.open_phases.text()}: how much moved there is unknown."
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
        with abandoned(folder) as why_not:
            found[folder] = why_not or _finish(folder)
    return found


def _finish(folder: Path) -> str:
    """Write the record of a run; return why that is impossible."""
    try:
        finish_aborted(folder, "aborted", REASON)
    except (DataError, OSError) as error:
        return f"it was interrupted, and its record can't be written: {error}"
    except (WattloadError, ValueError, RecursionError) as error:
        return f"it was interrupted, and its draft is unusable: {error}; delete its folder"
    return ""
