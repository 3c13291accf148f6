"""Sentences that several sections share: what a run ran on, and what it is called."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from wattload.core.record.check import Verdict
from wattload.core.record.run import RunRecord
from wattload.core.record.target import BlockNode, TargetFacts
from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Tone
from wattload.reports.load import Run
from wattload.reports.quantity import counted, listed, quantity
from wattload.reports.subject import Subject

VERDICT_TONES: dict[Verdict, Tone] = {
    "pass": "good",
    "warn": "warn",
    "fail": "bad",
    "not_checked": "open",
}
VERDICT_WORDS = {
    "pass": "passed",
    "warn": "warning",
    "fail": "failed",
    "not_checked": "not checked",
}


_ANCHOR = 96
"""Characters of an anchor, so that what sections and charts add to it stays under what is cut."""


def anchor(*parts: str) -> str:
    """Return an id for a place on the page, from any text; a long one ends in its digest."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(parts)).strip("-").lower()
    if len(name) <= _ANCHOR:
        return name
    digest = hashlib.sha256("-".join(parts).encode()).hexdigest()[:16]
    return f"{name[: _ANCHOR - 17]}-{digest}"


def moment(utc: str | None) -> str:
    """Return a record's time of day for people: ``2026-11-20 23:01:05 UTC``."""
    if utc is None:
        return "unknown"
    return f"{utc[:19].replace('T', ' ')} UTC"


def target_words(facts: TargetFacts) -> str:
    """Return what a target is: path, file system and the disk under it."""
    place = facts.path or f"a {facts.kind} target"
    system = facts.file_system.type if facts.file_system else "unknown file system"
    leaf = _leaf(facts.stack)
    if leaf is None:
        return f"{place} ({system})"
    disk = leaf.model or f"{leaf.kind.replace('_', ' ')} {leaf.name}"
    virtual = ", a virtual disk" if facts.virtual and "virt" not in disk else ""
    return f"{place} ({system} on {disk}{virtual})"


def _leaf(node: BlockNode | None) -> BlockNode | None:
    while node is not None and node.children:
        node = node.children[0]
    return node


def host_words(record: RunRecord) -> str:
    """Return the hosts of a run: name, CPUs, memory and whether they are guests."""
    words = []
    for host in record.hosts:
        facts = host.facts
        parts = [counted(facts.cpu_count, "CPU")]
        if facts.memory_bytes is not None:
            parts.append(f"{quantity(facts.memory_bytes, Unit.BYTES, 3)} of memory")
        if facts.hypervisor not in (None, "none", ""):
            parts.append(f"a guest under {facts.hypervisor}")
        words.append(f"{facts.name} ({', '.join(parts)})")
    return listed(words) or "no recorded host"


def unique(texts: Iterable[str]) -> list[str]:
    """Return texts without repetition, in order."""
    return list(dict.fromkeys(texts))


def sentence_of(text: str) -> str:
    """Return a clause as a sentence: a capital first, but for a setting, and a stop last."""
    if not text:
        return text
    first = text[:1] if "=" in text.partition(" ")[0] else text[:1].upper()
    return f"{first}{text[1:].rstrip('.')}."


def tallied(said: Sequence[tuple[RunRecord, str]], subject: Subject) -> list[str]:
    """Return each sentence once, with who said it where not all runs did."""
    speakers: dict[str, list[RunRecord]] = {}
    for record, text in said:
        speakers.setdefault(sentence_of(text), []).append(record)
    return [
        text + ("" if len(records) == len(subject.runs) else f" ({_speakers(records, subject)})")
        for text, records in speakers.items()
    ]


def _speakers(records: Sequence[RunRecord], subject: Subject) -> str:
    """Return the workloads whose runs these are, counted where not all of a workload's are.

    All of a workload's runs on the page are counted, those that are no run of an arm too.
    """
    own = [record.workload.name for record in records]
    every = [run.record.workload.name for run in subject.runs]
    return listed(
        [
            workload
            if own.count(workload) == every.count(workload)
            else f"{own.count(workload)} of {counted(every.count(workload), 'run')} of {workload}"
            for workload in unique(every)
            if workload in own
        ]
    )


def run_badges(run: Run, faults: Sequence[str]) -> tuple[Cell, ...]:
    """Return the run's state and how its checks went, as badges."""
    record = run.record
    verdicts = [check.verdict for check in record.checks]
    badges = [Cell(record.status, "good" if record.status == "complete" else "bad")]
    for verdict, tone in VERDICT_TONES.items():
        if count := verdicts.count(verdict):
            plural = "s" if verdict == "warn" and count > 1 else ""
            badges.append(Cell(f"{count} {VERDICT_WORDS[verdict]}{plural}", tone))
    if faults:
        badges.append(Cell("not compared as valid", "bad"))
    return tuple(badges)
