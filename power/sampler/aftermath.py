"""The record of a run that could not write its own: its draft, and what the ranks' journals say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wattload.core.clock import utc_text
from wattload.core.record.energy import PowerStateRecord
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.run import RECORD_FILE, RunRecord, Status, read_record, write_record

DRAFT_FILE = "draft.json"
JOURNAL_PATTERN = "journal-*.jsonl"

_SPAN_FIELDS = frozenset(PhaseSpan.model_fields)


@dataclass(slots=True)
class Told:
    """What the journals of all ranks tell: finished phases, and those that were open at the end."""

    spans: list[PhaseSpan] = field(default_factory=list)
    open_phases: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    failure: tuple[Status, str] | None = None
    """Why the run ended, as the first rank that failed wrote it down."""


def finish_aborted(
    run_folder: Path, status: Status, reason: str, *, states: Sequence[PowerStateRecord] = ()
) -> None:
    """Write ``record.json`` of a run that has ended without one; leaves an existing one alone.

    ``states`` is what became of the power states, by controller; it replaces the draft's.

    Raises:
        RecordError: there is no draft to make a record of.
    """
    if (run_folder / RECORD_FILE).exists():
        return
    draft = read_record(run_folder / DRAFT_FILE)
    told = read_journals(run_folder)
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
    write_record(RunRecord.model_validate(record.model_dump()), run_folder)


def read_journals(run_folder: Path) -> Told:
    """Return what the ranks wrote down before they ended; a cut last line is left out."""
    told = Told()
    for path in sorted(run_folder.glob(JOURNAL_PATTERN)):
        _read_journal(path, told)
    return told


def _read_journal(path: Path, told: Told) -> None:
    begun: list[tuple[str, str | None]] = []
    for number, event in _events(path, told):
        kind = event.get("event")
        key = (str(event.get("name")), event.get("parent"))
        if kind == "failed":
            told.failure = told.failure or _failure(event)
        elif kind == "begin":
            begun.append(key)
        elif kind == "span":
            try:
                span = PhaseSpan.model_validate(
                    {name: value for name, value in event.items() if name in _SPAN_FIELDS}
                )
            except ValidationError:
                told.unreadable.append(f"{path.name}, line {number}")
                continue
            told.spans.append(span)
            if key in begun:
                begun.remove(key)
    rank = path.stem.removeprefix("journal-")
    told.open_phases.extend(f"rank {rank} in phase {name}" for name, _ in begun)


def _failure(event: Mapping[str, Any]) -> tuple[Status, str]:
    return "failed" if event.get("status") == "failed" else "aborted", str(event.get("reason"))


def _events(path: Path, told: Told) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        told.unreadable.append(path.name)
        return
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            return
        try:
            event = json.loads(line)
        except ValueError:
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
