"""What a page was made from: each record with its digest and seal, and one digest over all."""

from __future__ import annotations

from wattload.core.record.seal import SEAL_COMMAND, SealState
from wattload.reports.blocks import Block, Cell, Code, Paragraph, Section, Table, Tone, columns, row
from wattload.reports.inputs import INPUTS_COMMAND, inputs_digest
from wattload.reports.load import Run
from wattload.reports.quantity import MISSING, counted
from wattload.reports.subject import Subject

_SEALS: dict[SealState, tuple[str, Tone]] = {
    "holds": ("seal holds", "good"),
    "broken": ("edited after the run", "bad"),
    "none": ("no seal (older record)", "open"),
}


def inputs_section(subject: Subject) -> Section:
    """Return the digests of the records, how to check them, and where the page has its numbers."""
    masked = any(run.masked for run in subject.runs)
    digest = inputs_digest(subject.runs)
    of = "masked records' JSON, not of their files" if masked else "files record.json"
    table = Table(
        columns=columns("run", "SHA-256", "seal"),
        rows=[_row(run) for run in subject.runs],
        caption="Records that this page was made from",
        note=(
            "A seal tells of slips and of hands that meant well; it is no signature. An edited "
            "record is shown, and compared only with --force."
        ),
    )
    blocks: list[Block] = [
        Paragraph(
            f"{counted(len(subject.runs), 'record')}; the digests are of the {of}. Every number on "
            "this page is in its source as JSON, in SI base units, in the element wattload-data."
        ),
        Code(digest, "SHA-256 over the sorted digests of all records"),
    ]
    if not masked:
        checks = f"{INPUTS_COMMAND}\n{SEAL_COMMAND}"
        caption = "To check the digest over a folder of runs, and the seal in a run's folder"
        blocks.append(Code(checks, caption))
    return Section(anchor="inputs", title="Inputs", blocks=[*blocks, table])


def _row(run: Run) -> tuple[Cell, ...]:
    words, tone = _SEALS[run.seal]
    return row(run.id, run.sha256 or MISSING, Cell("", tone, words))
