"""Write the record of a run that could not do so itself, from its draft and its ranks' journals.

The folder belongs to the run's user, so its files are read with limits on type and size.
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
from wattload.core.record.file import (
    DRAFT_FILE,
    JOURNAL_PATTERN,
    RECORD_FILE,
    decode_record,
    write_record,
)
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.run import RunRecord, Status
from wattload.power.sampler.access import Rights, read_regular

MAX_DRAFT_BYTES = 16 << 20
MAX_JOURNAL_BYTES = 64 << 20
"""For all journals together. A rank writes about 300 bytes per phase."""

MAX_JOURNALS = 4096

_SPAN_FIELDS = frozenset(PhaseSpan.model_fields)


@dataclass(slots=True)
class RankEvents:
    """The content of all ranks' journals: finished phases, and those still open at the end."""

    spans: list[PhaseSpan] = field(default_factory=list)
    open_phases: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    failure: tuple[Status, str] | None = None
    """Why the run ended, from the rank that failed first; others may have failed because of it."""
    failed_ns: float = math.inf


def finish_aborted(
    run_folder: Path,
    status: Status,
    reason: str,
    *,
    states: Sequence[PowerStateRecord] = (),
    rights: Rights = nullcontext,
) -> None:
    """Write ``record.json`` of a run that ended without one; keep an existing one.

    ``states`` are the power states by controller, as the sampler restored them; they replace the
    draft's. ``rights`` grants the rights of the run's user for reading and writing in the folder.

    Raises:
        RecordError: there is no valid draft.
    """
    with rights():
        if (run_folder / RECORD_FILE).exists():
            return
    draft = _read_draft(run_folder / DRAFT_FILE, rights)
    contents = read_journals(run_folder, rights)
    status, reason = contents.failure or (status, reason)
    record = draft.model_copy(
        update={
            "status": status,
            "status_reason": reason,
            "finished_utc": utc_text(),
            "spans": (*draft.spans, *contents.spans),
            "limits": (*draft.limits, *_limits(contents)),
            "power": draft.power.model_copy(update={"states": _merged(draft.power.states, states)}),
        }
    )
    finished = RunRecord.model_validate(record.model_dump())
    with rights():
        write_record(finished, run_folder)


def read_journals(run_folder: Path, rights: Rights = nullcontext) -> RankEvents:
    """Return what the ranks journalled before they ended, without a truncated last line."""
    contents = RankEvents()
    remaining_bytes = MAX_JOURNAL_BYTES
    with rights():
        paths = sorted(islice(run_folder.glob(JOURNAL_PATTERN), MAX_JOURNALS))
    for path in paths:
        try:
            with rights():
                text = read_regular(path, remaining_bytes)
        except OSError:
            contents.unreadable.append(path.name)
            continue
        remaining_bytes -= len(text)
        _read_journal(path, text, contents)
    return contents


def _read_draft(path: Path, rights: Rights) -> RunRecord:
    try:
        with rights():
            text = read_regular(path, MAX_DRAFT_BYTES)
    except OSError as error:
        raise RecordError(f"the draft {path} can't be read: {error}") from error
    return decode_record(text, path)


def _read_journal(path: Path, text: str, contents: RankEvents) -> None:
    begun: Counter[tuple[str, str]] = Counter()
    for number, event in _events(path, text, contents):
        kind = event.get("event")
        key = (str(event.get("name")), str(event.get("parent")))
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
                contents.unreadable.append(f"{path.name}, line {number}")
                continue
            contents.spans.append(span)
            begun[key] = max(0, begun[key] - 1)
    rank = path.stem.removeprefix("journal-")
    contents.open_phases.extend(f"rank {rank} in phase {name}" for name, _ in begun.elements())


def _take_failure(event: Mapping[str, Any], contents: RankEvents) -> None:
    time_ns = event.get("time_ns")
    failed_ns = time_ns if isinstance(time_ns, int) else math.inf
    if contents.failure is not None and failed_ns >= contents.failed_ns:
        return
    status: Status = "failed" if event.get("status") == "failed" else "aborted"
    contents.failure, contents.failed_ns = (status, str(event.get("reason"))), failed_ns


def _events(path: Path, text: str, contents: RankEvents) -> Iterator[tuple[int, Mapping[str, Any]]]:
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
            contents.unreadable.append(f"{path.name}, line {number}")


def _limits(contents: RankEvents) -> Iterator[str]:
    if contents.open_phases:
        yield (
            "The run ended with "
            + ", ".join(contents.open_phases)
            + ": how much moved there is unknown."
        )
    if contents.unreadable:
        yield "These journals of ranks could not be read: " + ", ".join(contents.unreadable) + "."


def _merged(
    drafted: Sequence[PowerStateRecord], known: Sequence[PowerStateRecord]
) -> tuple[PowerStateRecord, ...]:
    replaced = {(state.host, state.serial) for state in known}
    kept = (state for state in drafted if (state.host, state.serial) not in replaced)
    return (*kept, *known)
