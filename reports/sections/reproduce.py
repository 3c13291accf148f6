"""What it takes to run a run again: command, software, data, configuration, the record itself."""

from __future__ import annotations

import json
import shlex

from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Block, Code, Facts, Fold, Notice, Section
from wattload.reports.load import Run
from wattload.reports.quantity import counted, quantity
from wattload.reports.sections.wording import anchor
from wattload.reports.subject import Subject

EMBEDDED_BYTES_MAX = 1_000_000


def reproduce_section(subject: Subject, run: Run) -> Section | None:
    """Return the command that reproduces a run, its configuration and its record."""
    record = run.record
    blocks: list[Block] = [
        Code(shlex.join(record.command), "The command that reproduces this run"),
        Facts(_facts(record)),
        Fold("Configuration", [Code(json.dumps(record.config, indent=2, ensure_ascii=False))]),
    ]
    if record.workload.details:
        details = json.dumps(record.workload.details, indent=2, ensure_ascii=False)
        blocks.append(Fold("What the workload says of its data and work", [Code(details)]))
    blocks.append(_record(record))
    return Section(anchor=anchor(run.id, "reproduce"), title="Reproduce", blocks=blocks)


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
                f"It is {size}, more than {quantity(EMBEDDED_BYTES_MAX, Unit.BYTES, 3)}; "
                f"record.json of run {record.run_id} holds it."
            ],
            "open",
        )
    return Fold(
        f"The whole record as JSON, {size}", [Code(text, name=f"record-{anchor(record.run_id)}")]
    )
