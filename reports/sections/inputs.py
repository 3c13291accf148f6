"""What a page was made from: each record with its digest and seal, and one digest over all."""

from __future__ import annotations

from wattload.core.record.seal import SEAL_COMMAND, SealState
from wattload.reports.blocks import Block, Cell, Code, Paragraph, Section, Table, Tone, columns, row
from wattload.reports.inputs import INPUTS_COMMAND, inputs_digest
from wattload.reports.load import DETAILED_RUNS, Run
from wattload.reports.quantity import MISSING, counted
from wattload.reports.subject import Subject

_SEALS: dict[SealState, tuple[str, Tone]] = {
    "holds": ("its seal fits its content", "good"),
    "broken": ("edited after the run", "bad"),
    "none": ("no seal: nothing says whether it was edited", "warn"),
}
_WHERE = (
    "What this page compares and concludes is in its source as JSON, in SI base units, in the "
    "element wattload-data: every run's figures and energy, every ratio with its intervals, p "
    "values and method, the noise floor, and published figures beside measured ones. What else it "
    "tells of a run is in the run's record, and what it draws over time is of the run's traces."
)
_COUNTED: dict[SealState, str] = {
    "holds": "with a seal that fits its content",
    "broken": "edited after the run",
    "none": "without a seal",
}


def inputs_section(subject: Subject) -> Section:
    """Return the digests of the records, how to check them, and where the page has its numbers."""
    masked = any(run.masked for run in subject.runs)
    digest = inputs_digest(subject.runs)
    of = "masked records' JSON, not of their files" if masked else "files record.json"
    listed_runs = [run for run in subject.runs if _is_listed(run, subject)]
    table = Table(
        columns=columns("run", "SHA-256", "seal"),
        rows=[_row(run) for run in listed_runs],
        caption="Records that this page was made from"
        if len(listed_runs) == len(subject.runs)
        else "Records that were edited after the run",
        note=(
            "A seal tells of slips and of hands that meant well; it is no signature, for who edits "
            "a record can seal it anew. An edited record is shown, and compared only with --force. "
            "One of version 1 has no seal: it is compared, and that is said beside it."
        ),
    )
    blocks: list[Block] = [
        Paragraph(
            f"{counted(len(subject.runs), 'record')}: {_seals(subject)}. The digests are of the "
            f"{of}. {_WHERE}"
        ),
        Code(digest, "SHA-256 over the sorted digests of all records"),
    ]
    if not masked:
        checks = f"{INPUTS_COMMAND}\n{SEAL_COMMAND}"
        caption = "To check the digest over a folder of runs, and the seal in a run's folder"
        blocks.append(Code(checks, caption))
    if listed_runs:
        blocks.append(table)
    return Section(anchor="inputs", title="Inputs", blocks=blocks)


def _is_listed(run: Run, subject: Subject) -> bool:
    """Return whether a record has a row: of many only those that were edited."""
    return len(subject.runs) <= DETAILED_RUNS or run.seal == "broken"


def _seals(subject: Subject) -> str:
    """Return how many seals hold, are broken, or were never made."""
    counts = {state: sum(run.seal == state for run in subject.runs) for state in _SEALS}
    return ", ".join(f"{count} {_COUNTED[state]}" for state, count in counts.items() if count)


def _row(run: Run) -> tuple[Cell, ...]:
    words, tone = _SEALS[run.seal]
    return row(run.id, run.sha256 or MISSING, Cell("", tone, words))
