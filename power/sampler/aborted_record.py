"""Write the record of a run that could not do so itself, from its draft and its ranks' journals.

Its sampler does this for a run that died alone, ``finish_abandoned`` for one that died with it.
"""

from __future__ import annotations

import fnmatch
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from wattload.core.clock import utc_text
from wattload.core.errors import DataError, RecordError, TargetError, WattloadError
from wattload.core.files import Folder
from wattload.core.leftovers import remove_leftovers
from wattload.core.record.energy import PowerStateRecord
from wattload.core.record.file import (
    DRAFT_FILE,
    JOURNAL_PATTERN,
    RECORD_FILE,
    RESERVE_FILE,
    abandoned,
    decode_record,
    remove_marks,
    unfinished_runs,
    write_record_in,
)
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.run import RunRecord, Status
from wattload.core.storage.raw_writes import RawWriteLog
from wattload.core.storage.targets import TargetKind
from wattload.power.control.journal import default_state_folder

REASON = (
    "the run and its sampler ended without a record: they were killed, or the host stopped; run "
    "the same command again"
)
"""Why a run is aborted that nobody was left to finish, as after a power cut."""

LAST_PHASES = "The run ended with"
"""The start of the limit that names the phases which a run did not finish."""

_MAX_NAMED = 20
"""The most lines, files or phases that the record names; the others are counted."""

_SPAN_FIELDS = frozenset(PhaseSpan.model_fields)


@dataclass(slots=True)
class RankEvents:
    """The content of all ranks' journals: finished phases, and those still open at the end.

    ``failures`` are the ranks' reasons why the run ended, with their times: the first rank to fail
    may have made the others fail. ``ranks`` are the ranks that have a journal here.
    """

    spans: list[PhaseSpan] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    open_phases: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    failures: list[tuple[int, Status, str]] = field(default_factory=list)


def finish_in(
    folder: Folder, status: Status, reason: str, *, states: Sequence[PowerStateRecord] = ()
) -> None:
    """Write ``record.json`` of a run that ended without one; keep an existing one.

    ``states`` are the power states by controller, as the sampler restored them; they replace the
    draft's.

    Raises:
        RecordError: there is no valid draft.
        OSError: the record can't be written.
    """
    if RECORD_FILE in folder.names():
        return
    folder.remove(RESERVE_FILE)
    draft = _read_draft(folder)
    contents = read_journals(folder)
    if contents.failures:
        _, status, reason = min(contents.failures)
    outcomes = " ".join(state.sentence for state in states if state.knob is not None)
    raw_writes = _end_raw_writes(draft, "failed" if status == "failed" else "aborted")
    finished = draft.model_copy(
        update={
            "status": status,
            "status_reason": f"{reason.rstrip('.')}. {outcomes}" if outcomes else reason,
            "finished_utc": utc_text(),
            "spans": (*draft.spans, *contents.spans),
            "limits": (*draft.limits, *_limits(draft, contents), *raw_writes),
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
    for name in fnmatch.filter(folder.names(), JOURNAL_PATTERN):
        try:
            data = folder.read(name) or b""
        except (OSError, DataError):
            contents.unreadable.append(name)
        else:
            _read_journal(name, data.splitlines(keepends=True), contents)
    return contents


def _read_draft(folder: Folder) -> RunRecord:
    path = folder.path / DRAFT_FILE
    try:
        data = folder.read(DRAFT_FILE)
    except (OSError, DataError) as error:
        raise RecordError(f"the draft {path} can't be read: {error}") from error
    if data is None:
        raise RecordError(f"the draft {path} can't be read: it does not exist")
    return decode_record(data.decode("utf-8", errors="replace"), path)


def _read_journal(name: str, lines: Sequence[bytes], contents: RankEvents) -> None:
    begun: Counter[tuple[str, str | None]] = Counter()
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            break
        try:
            _take_event(json.loads(line), begun, contents)
        except (ValueError, TypeError, KeyError, RecursionError):
            contents.unreadable.append(f"{name}, line {number}")
    rank = Path(name).stem.removeprefix("journal-")
    if rank.isdecimal():
        contents.ranks.add(int(rank))
    contents.open_phases += [f"rank {rank} in phase {phase}" for phase, _ in begun.elements()]


def _take_event(
    event: Mapping[str, Any], begun: Counter[tuple[str, str | None]], contents: RankEvents
) -> None:
    match event["event"]:
        case "failed":
            status: Status = "failed" if event["status"] == "failed" else "aborted"
            time_ns, reason = event["time_ns"], event["reason"]
            if not isinstance(time_ns, int) or not isinstance(reason, str):
                raise TypeError("a failure needs a time and a reason")
            contents.failures.append((time_ns, status, reason))
        case "begin":
            begun[event["name"], event["parent"]] += 1
        case "span":
            fields = {name: event[name] for name in _SPAN_FIELDS & event.keys()}
            contents.spans.append(PhaseSpan.model_validate(fields))
            key = event["name"], event["parent"]
            begun[key] = max(0, begun[key] - 1)


def _limits(draft: RunRecord, contents: RankEvents) -> Iterator[str]:
    here = {each.host for each in draft.ranks if each.rank in contents.ranks}
    elsewhere = sorted({each.host for each in draft.ranks} - here) if here else []
    if elsewhere:
        yield f"What the ranks on {_listed(elsewhere)} did is in this run's folder there."
    if contents.open_phases:
        yield f"{LAST_PHASES} {_listed(contents.open_phases)}: how much moved there is unknown."
    if contents.unreadable:
        yield f"These journals of ranks could not be read: {_listed(contents.unreadable)}."


def _listed(names: Sequence[str]) -> str:
    """Return the first names as text, with the number of the others."""
    others = [f"{len(names) - _MAX_NAMED} more"] if len(names) > _MAX_NAMED else []
    return ", ".join([*names[:_MAX_NAMED], *others])


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
    for path in paths:
        remove_leftovers(path)
    folders = dict.fromkeys(unfinished_runs(paths))  # each once, before the first is recorded
    return {folder: finish_dead(folder, REASON) for folder in folders}


def recorded_texts(found: Mapping[Path, str]) -> list[str]:
    """Return a line for each run that ``finish_abandoned`` has recorded."""
    folders = (folder for folder, why_not in found.items() if not why_not)
    return [f"recorded as aborted: {folder}; {REASON}" for folder in folders]


def finish_dead(folder: Path, reason: str, states: Sequence[PowerStateRecord] = ()) -> str:
    """Write the record of a run if no process works in its folder; return why not, else nothing."""
    with abandoned(folder) as opened:
        if isinstance(opened, str):
            return opened
        try:
            finish_in(opened, "aborted", reason, states=states)
        except (DataError, OSError) as error:
            return f"it was interrupted, and its record can't be written: {error}"
        except (WattloadError, ValueError, RecursionError) as error:
            return f"it was interrupted, and its draft is unusable: {error}; delete its folder"
    return ""
