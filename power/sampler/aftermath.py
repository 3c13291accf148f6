"""The record of a run that could not write its own: its draft, and what the ranks' journals say.

The folder is its user's: what lies there is read only as far as a run of ours would have written.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wattload.core.clock import utc_text
from wattload.core.errors import RecordError
from wattload.core.record.energy import PowerStateRecord
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.run import RECORD_FILE, RunRecord, Status, decode_record, write_record
from wattload.power.sampler.runfolder import Rights, read_regular

DRAFT_FILE = "draft.json"
JOURNAL_PATTERN = "journal-*.jsonl"

MOST_DRAFT_BYTES = 16 << 20
MOST_JOURNAL_BYTES = 64 << 20
"""Of all journals together. A rank writes some 300 bytes a phase."""

MOST_JOURNALS = 4096

_SPAN_FIELDS = frozenset(PhaseSpan.model_fields)


@dataclass(slots=True)
class Told:
    """What the journals of all ranks tell: finished phases, and those that were open at the end."""

    spans: list[PhaseSpan] = field(default_factory=list)
    open_phases: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    failure: tuple[Status, str] | None = None
    """Why the run ended, by the rank that failed first: the others may only have missed it."""
    failed_ns: float = math.inf


def finish_aborted(
    run_folder: Path,
    status: Status,
    reason: str,
    *,
    states: Sequence[PowerStateRecord] = (),
    rights: Rights = nullcontext,
) -> None:
    """Write ``record.json`` of a run that has ended without one; leaves an existing one alone.

    ``states`` is what became of the power states, by controller; it replaces the draft's.
    ``rights`` are those of the run's user, in which the folder is read and written.

    Raises:
        RecordError: there is no draft to make a record of.
    """
    with rights():
        if (run_folder / RECORD_FILE).exists():
            return
    draft = _read_draft(run_folder / DRAFT_FILE, rights)
    told = read_journals(run_folder, rights)
    status, reason = told.failure or (status, reason)
    record = draft.model_copy(
        update={
            "status": status,
            "status_reason": reason,
            "finished_utc": utc_text(),
            "spans": (*draft.spans, *told.spans),
            "limits": (*draft.limits, *_limits(told)),
            "power": draft.power.model_copy(update={"states": _merged(draft.power.states, states)}),
        }
    )
    finished = RunRecord.model_validate(record.model_dump())
    with rights():
        write_record(finished, run_folder)


def read_journals(run_folder: Path, rights: Rights = nullcontext) -> Told:
    """Return what the ranks wrote down before they ended; a cut last line is left out."""
    told = Told()
    left_bytes = MOST_JOURNAL_BYTES
    with rights():
        paths = sorted(islice(run_folder.glob(JOURNAL_PATTERN), MOST_JOURNALS))
    for path in paths:
        try:
            with rights():
                text = read_regular(path, left_bytes)
        except OSError:
            told.unreadable.append(path.name)
            continue
        left_bytes -= len(text)
        _read_journal(path, text, told)
    return told


def _read_draft(path: Path, rights: Rights) -> RunRecord:
    try:
        with rights():
            text = read_regular(path, MOST_DRAFT_BYTES)
    except OSError as error:
        raise RecordError(f"the draft {path} can't be read: {error}") from error
    return decode_record(text, path)


def _read_journal(path: Path, text: str, told: Told) -> None:
    begun: Counter[tuple[str, str]] = Counter()
    for number, event in _events(path, text, told):
        kind = event.get("event")
        key = (str(event.get("name")), str(event.get("parent")))
        if kind == "failed":
            _take_failure(event, told)
        elif kind == "begin":
            begun[key] += 1
        elif kind == "span":
            try:
                span = PhaseSpan.model_validate(
                    {name: value for name, value in event.items() if name in _SPAN_FIELDS}
                )
            except ValidationError:
                told.unreadable.append(f"{path.name}, line {number}")
                continue
            told.spans.append(span)
            begun[key] = max(0, begun[key] - 1)
    rank = path.stem.removeprefix("journal-")
    told.open_phases.extend(f"rank {rank} in phase {name}" for name, _ in begun.elements())


def _take_failure(event: Mapping[str, Any], told: Told) -> None:
    time_ns = event.get("time_ns")
    failed_ns = time_ns if isinstance(time_ns, int) else math.inf
    if told.failure is not None and failed_ns >= told.failed_ns:
        return
    status: Status = "failed" if event.get("status") == "failed" else "aborted"
    told.failure, told.failed_ns = (status, str(event.get("reason"))), failed_ns


def _events(path: Path, text: str, told: Told) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            return
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict):
            yield number, event
        else:
            told.unreadable.append(f"{path.name}, line {number}")


def _limits(told: Told) -> Iterator[str]:
    if told.open_phases:
        yield (
            "The run ended with " + ", ".join(told.open_phases) + ": what moved there is unknown."
        )
    if told.unreadable:
        yield "Of the ranks' journals these could not be read: " + ", ".join(told.unreadable) + "."


def _merged(
    drafted: Sequence[PowerStateRecord], known: Sequence[PowerStateRecord]
) -> tuple[PowerStateRecord, ...]:
    replaced = {(state.host, state.serial) for state in known}
    kept = (state for state in drafted if (state.host, state.serial) not in replaced)
    return (*kept, *known)
