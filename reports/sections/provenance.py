"""What a page was made from, and how to make a run again."""

from __future__ import annotations

import json
import shlex

from wattload.core.record.file import SEAL_COMMAND, SealState
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import (
    Block,
    Cell,
    Code,
    Facts,
    Fold,
    Notice,
    Paragraph,
    Section,
    Table,
    Tone,
    columns,
    row,
)
from wattload.reports.runs.load import DETAILED_RUNS, INPUTS_COMMAND, Run, inputs_digest
from wattload.reports.sections.wording import anchor
from wattload.reports.stats.subject import Subject
from wattload.results.quantity import MISSING, counted, quantity

EMBEDDED_BYTES_MAX = 1_000_000
"""The largest record that a page embeds."""

_SEALS: dict[SealState, tuple[str, Tone]] = {
    "holds": ("seal matches the content", "good"),
    "broken": ("edited after the run", "bad"),
}
_DATA_LOCATION = (
    "The page's source has all results as JSON in SI base units, in the element wattload-data."
)
_SEAL_COUNTS: dict[SealState, str] = {
    "holds": "with a matching seal",
    "broken": "edited after the run",
}


def inputs_section(subject: Subject) -> Section:
    """Return the digests of the records, how to check them, and where the page's data are."""
    masked = any(run.masked for run in subject.runs)
    digest = inputs_digest(subject.runs)
    of = "masked records' JSON, not of their files" if masked else "files record.json"
    is_long = len(subject.runs) > DETAILED_RUNS
    listed_runs = [run for run in subject.runs if not is_long or run.seal == "broken"]
    table = Table(
        columns=columns("run", "SHA-256", "seal"),
        rows=[_row(run) for run in listed_runs],
        caption="Records that this page was made from"
        if len(listed_runs) == len(subject.runs)
        else "Records that were edited after the run",
        note=(
            "A seal detects accidental edits; it is not a signature, because anyone who edits a "
            "record can seal it again. An edited record is shown, and compared only with --force."
        ),
    )
    blocks: list[Block] = [
        Paragraph(
            f"{counted(len(subject.runs), 'record')}: {_seals(subject)}. The digests are of the "
            f"{of}. {_DATA_LOCATION}"
        ),
        Code(digest, "SHA-256 over the sorted digests of all records"),
    ]
    details: list[Block] = [table] if listed_runs else []
    if not masked:
        checks = f"{INPUTS_COMMAND}\n{SEAL_COMMAND}"
        caption = "Commands to check the digest of a folder of runs, and the seal in a run's folder"
        details.append(Code(checks, caption))
    if details:
        blocks.append(Fold("Digests and seals", details, data=True))
    return Section(anchor="inputs", title="Inputs", blocks=blocks, remark=_seals(subject))


def _seals(subject: Subject) -> str:
    """Return how many records have a seal that fits, or a broken one."""
    counts = {state: sum(run.seal == state for run in subject.runs) for state in _SEALS}
    return ", ".join(f"{count} {_SEAL_COUNTS[state]}" for state, count in counts.items() if count)


def _row(run: Run) -> tuple[Cell, ...]:
    words, tone = _SEALS[run.seal]
    return row(run.id, run.sha256 or MISSING, Cell("", tone, words))


def reproduce_blocks(run: Run) -> list[Block]:
    """Return the command that reproduces a run, its configuration and its record."""
    record = run.record
    blocks: list[Block] = [
        Code(shlex.join(record.command), "The command that reproduces this run"),
        Facts(_facts(record)),
        Fold("Configuration", [_json(record.config)], data=True),
    ]
    if record.workload.facts:
        facts = "The workload's facts"
        blocks.append(Fold(facts, [_json(record.workload.facts)], data=True))
    blocks.append(_record(record))
    return blocks


def _json(value: object) -> Code:
    return Code(json.dumps(value, indent=2, ensure_ascii=False))


def _facts(record: RunRecord) -> list[tuple[str, str]]:
    software = record.software
    commit = (software.git_commit or "")[:12] or software.missing["git_commit"]
    dirty = " with changes not committed" if software.git_dirty else ""
    facts = [
        ("run", record.run_id),
        ("wattload", f"{software.wattload}, commit {commit}{dirty}"),
        ("Python", software.python),
        ("libraries", ", ".join(f"{name} {is_}" for name, is_ in software.libraries.items())),
        (
            "session, block, order",
            f"{record.comparison.session_id}, {record.comparison.block}, {record.comparison.order}",
        ),
    ]
    if (data := record.workload.data) is not None:
        made = "reused" if data.reused else "made by this run"
        facts.append(
            (
                "data",
                f"{data.key}: {counted(data.file_count, 'file')}, "
                f"{quantity(data.data_bytes, Unit.BYTES)}, {made}",
            )
        )
    return facts


def _record(record: RunRecord) -> Block:
    text = record.model_dump_json(indent=1)
    size = quantity(len(text.encode()), Unit.BYTES, 3)
    if len(text.encode()) > EMBEDDED_BYTES_MAX:
        return Notice(
            "The record is not embedded",
            [
                f"It has {size}, more than {quantity(EMBEDDED_BYTES_MAX, Unit.BYTES, 3)}; "
                f"see record.json of run {record.run_id}."
            ],
            "open",
        )
    name = f"record-{anchor(record.run_id)}"
    return Fold(f"The whole record as JSON, {size}", [Code(text, name=name)], data=True)
