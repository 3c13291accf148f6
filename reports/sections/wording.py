"""Wording and anchors that several sections share."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from wattload.core.record.results import Check, Verdict
from wattload.core.record.run import RunRecord
from wattload.core.record.target import TargetFacts
from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Tone
from wattload.reports.runs.hosts import names_text
from wattload.reports.runs.load import Run
from wattload.reports.runs.validity import split_name
from wattload.reports.stats.conditions import is_compared
from wattload.reports.stats.confidence import GradeWord
from wattload.reports.stats.subject import LETTERS, Subject
from wattload.reports.stats.summary import FirstScreen, first_screen
from wattload.results.quantity import counted, listed, quantity, whole

_NOT_APPLICABLE = "not applicable"
_WORDS: dict[Verdict, str] = {
    "fail": "failed",
    "pass": "passed",
    "warn": "warned",
    "not_checked": "not checked",
}
_TONES: dict[str, Tone] = {
    "failed": "bad",
    "passed": "good",
    "warned": "warn",
    "not checked": "open",
    _NOT_APPLICABLE: "quiet",
}
"""Tones of the results of checks, in the order in which they are counted."""

_CAVEATS: Mapping[str, str] = {
    "bottleneck": "host near its ceiling",
    "data_path": "indirect data path",
    "delivered_bytes": "contents unverified",
    "device_bytes": "other traffic on the devices",
    "energy_remarks": "remarks on a meter",
    "files_verified": "contents unverified",
    "queue_depth": "low queue depth",
    "short_run": "short phases",
    "steady": "not steady",
}
"""What checks warn of, by what they are of; other names are words already."""

_CAVEATS_MAX = 5
"""Caveats that are listed in one line; more are counted."""

_CONFIDENCE: Sequence[GradeWord] = ("high", "medium", "low")
_GRADES: Sequence[GradeWord] = ("high", "single run", "medium", "low", "none", "")
"""Grades from the best; the last ones are of figures without any confidence."""

_ANCHOR_MAX = 96
"""Characters of an anchor; sections and charts append to it."""


def anchor(*parts: str) -> str:
    """Return an id for a place on the page, from any text; a long one is cut and gets a digest."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(parts)).strip("-").lower()
    if len(name) <= _ANCHOR_MAX:
        return name
    digest = hashlib.sha256("-".join(parts).encode()).hexdigest()[:16]
    return f"{name[: _ANCHOR_MAX - 17]}-{digest}"


def moment(utc: str) -> str:
    """Return a record's time in a readable form: ``2026-11-20 23:01:05 UTC``."""
    return f"{utc[:19].replace('T', ' ')} UTC"


def target_text(facts: TargetFacts) -> str:
    """Return a target's path, file system and disk; a raw target is a whole device instead."""
    place = facts.path or f"a {facts.kind} target"
    top = leaf = facts.stack
    while leaf is not None and leaf.children:
        leaf = leaf.children[0]
    system = facts.file_system.type if facts.file_system else "unknown file system"
    if top is None or leaf is None:
        return f"{place} ({system})"
    disk = leaf.model or f"{leaf.kind.replace('_', ' ')} {leaf.name}"
    virtual = ", a virtual disk" if facts.virtual and "virt" not in disk else ""
    if facts.kind != "block":
        return f"{place} ({system} on {disk}{virtual})"
    if top.kind == "loop" and leaf is not top:
        return f"{place} (whole device: loop device on {disk}{virtual})"
    words = {"loop": "loop device", "ram": "device in memory"}.get(top.kind, f"{disk}{virtual}")
    return f"{place} (whole device: {words})"


def targets_text(record: RunRecord) -> str:
    """Return the targets of a run; in one of several hosts, on which of them each is."""
    hosts: dict[str, list[str]] = {}
    for target in record.targets:
        hosts.setdefault(target_text(target.facts), []).append(target.facts.host)
    if len(record.hosts) > 1:
        return listed([f"{text} on {names_text(own)}" for text, own in hosts.items()])
    return listed([*hosts])


def hosts_text(record: RunRecord) -> str:
    """Return the hosts of a run: name, CPUs, memory and hypervisor; equal ones together."""
    names: dict[str, list[str]] = {}
    for host in record.hosts:
        facts = host.facts
        parts = [counted(facts.cpu_count, "CPU")]
        if facts.memory_bytes is not None:
            parts.append(f"{quantity(facts.memory_bytes, Unit.BYTES, 3)} of memory")
        if facts.hypervisor not in (None, "none", ""):
            parts.append(f"a guest under {facts.hypervisor}")
        names.setdefault(", ".join(parts), []).append(facts.name)
    words = [f"{names_text(own)} ({'each ' * (len(own) > 1)}{text})" for text, own in names.items()]
    return listed(words) or "no recorded host"


def device_text(record: RunRecord, host: str, device: str) -> str:
    """Return a device of a host, which is named in a run of several."""
    return device if len(record.hosts) == 1 else f"{device} of {host}"


def unique(texts: Iterable[str]) -> list[str]:
    """Return texts without repetition, in order."""
    return list(dict.fromkeys(texts))


def sentence_of(text: str) -> str:
    """Return a clause as a sentence, with a full stop and, except for a setting, a capital."""
    if not text:
        return text
    first = text[:1] if "=" in text.partition(" ")[0] else text[:1].upper()
    return f"{first}{text[1:].rstrip('.')}."


def count_remarks(remarks: Sequence[tuple[RunRecord, str]], subject: Subject) -> list[str]:
    """Return each remark once, with the runs that have it unless all do."""
    owners: dict[str, list[RunRecord]] = {}
    for record, text in remarks:
        owners.setdefault(sentence_of(text), []).append(record)
    return [
        text + ("" if len(records) == len(subject.runs) else f" ({_owners(records, subject)})")
        for text, records in owners.items()
    ]


def _owners(records: Sequence[RunRecord], subject: Subject) -> str:
    """Return the workloads of these runs, with a count where other runs of the workload exist.

    The count is of all of a workload's runs on the page, in an arm or not.
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


def _tally(checks: Iterable[Check]) -> dict[str, int]:
    """Return the number of checks by result in words, without zeros."""
    found = Counter(map(_result, checks))
    return {word: found[word] for word in _TONES if found[word]}


def _result(check: Check) -> str:
    return _NOT_APPLICABLE if check.cause else _WORDS[check.verdict]


def result_cell(check: Check, remark: str = "") -> Cell:
    """Return the badge of a check."""
    word = _result(check)
    return Cell("", badge=word, tone=_TONES[word], remark=remark)


def check_counts(checks: Sequence[Check], *, causes: bool = True) -> str:
    """Return the checks in one line: ``15 passed, 2 warned, 9 not applicable: no NVMe drive``.

    Without ``causes``, that some do not apply is said without the reason.
    """
    text = ", ".join(f"{whole(count)} {word}" for word, count in _tally(checks).items()) or "none"
    reasons = Counter(check.cause for check in checks if check.cause)
    if not causes or not reasons:
        return text
    if len(reasons) == 1:
        return f"{text}: {next(iter(reasons))}"
    each = [f"{whole(count)} {cause}" for cause, count in reasons.most_common()]
    return f"{text} ({', '.join(each)})"


def checks_tally(checks: Sequence[Check]) -> str:
    """Return how many checks there are and their results; each is one check of one run."""
    count = counted(len(checks), "check")
    return f"{count}: {check_counts(checks, causes=False)}" if checks else count


def trust_text(subject: Subject) -> str:
    """Return how far to trust a finding: the least confidence of its workloads, and the checks.

    ``low confidence: power not measured; 8 failed checks; 2 caveats: not steady and drift``. That
    there are no caveats is left out where confidence is not high, or a check failed.
    """
    screen = first_screen(subject)
    grades = [(row.grade, row.name) for row in screen.rows]
    least, name = max(grades, key=lambda each: _GRADES.index(each[0].word), default=(None, ""))
    parts = []
    if least is not None:
        of = f" in {name}" if any(each.text != least.text for each, _ in grades) else ""
        word = f"{least.word} confidence" if least.word in _CONFIDENCE else least.label
        parts.append(": ".join(filter(None, (f"{word}{of}", least.reason))))
    if screen.failed:
        parts.append(counted(len(screen.failed), "failed check"))
    count, which = caveats_of(subject)
    if which or is_sound(screen):
        parts.append(": ".join(filter(None, (count, which))))
    return "; ".join(parts)


def demo_text(screen: FirstScreen) -> str:
    """Return what to know of a demo of drives that are not simulated; empty for other runs."""
    return "demo scale, no drive test" if screen.scale == "demo" and not screen.banner else ""


def is_sound(screen: FirstScreen) -> bool:
    """Return whether every confidence is high and no check failed."""
    return not screen.failed and {row.grade.word for row in screen.rows} == {"high"}


def caveats_of(subject: Subject) -> tuple[str, str]:
    """Return ``caveats_text`` of the runs that are compared, or of all if none is."""
    runs = [run for run in subject.runs if is_compared(subject, run)] or subject.runs
    return caveats_text((run.record, subject.checks(run)) for run in runs)


def caveats_text(runs: Iterable[tuple[RunRecord, Sequence[Check]]]) -> tuple[str, str]:
    """Return how many things the checks of runs warn of, and which: ``2 caveats``, ``a and b``.

    A check of several phases, drives or meters is one caveat; those of most runs come first.
    """
    found: Counter[str] = Counter()
    for record, checks in runs:
        warned = [_topic(record, check) for check in checks if check.verdict == "warn"]
        found.update([*dict.fromkeys(warned)])
    words = [topic for topic, _ in found.most_common()]
    rest = len(words) - _CAVEATS_MAX
    more = [f"{rest} more"] if rest > 0 else []
    shown = listed([*words[:_CAVEATS_MAX], *more])
    return (counted(len(words), "caveat") if words else "no caveats"), shown


def _topic(record: RunRecord, check: Check) -> str:
    """Return what a check warns of, without the phase, the drive or the figure that it is about."""
    name, _ = split_name(record, check.name)
    subjects = {"read", "write"} | {span.name for span in record.spans}
    subjects |= {each.name for each in record.metrics}
    subjects |= {each.facts.serial for each in record.controllers}
    subjects |= {part for each in record.power.energy for part in (each.device, each.source)}
    for each in sorted(subjects, key=len, reverse=True):
        name = re.sub(rf"(?:_{re.escape(each)})+(?=_|$)", "", name)
    return _CAVEATS.get(name) or name.replace("_", " ")


def run_badges(subject: Subject, run: Run) -> tuple[Cell, ...]:
    """Return badges for the run's status and the results of its checks."""
    status = run.record.status
    badges = [Cell(status, "good" if status == "complete" else "bad")]
    for word, count in _tally(subject.checks(run)).items():
        badges.append(Cell(f"{whole(count)} {word}", _TONES[word]))
    if subject.faults(run):
        badges.append(Cell("not valid", "bad"))
    return tuple(badges)


def letter_of(subject: Subject, run: Run) -> str:
    """Return the letter of a run's arm on its page; the first where no arm with a letter has it."""
    for letter, arm in zip(LETTERS, subject.arms, strict=False):
        if any(run.id == each.id for group in subject.groups for each in group.arms.get(arm, ())):
            return letter
    return LETTERS[0]
