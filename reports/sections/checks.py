"""Checks of a run and of all runs, the evidence of energy, and what differs between hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.core.record.host import HostFacts
from wattload.core.record.results import Check, Verdict
from wattload.reports.blocks import (
    Block,
    Cell,
    Fold,
    Notice,
    Paragraph,
    Section,
    Table,
    columns,
    row,
)
from wattload.reports.quantity import MISSING, counted, listed, number, percent
from wattload.reports.runs.energy import Energy, energy_text, phase_energies, whole_energy
from wattload.reports.runs.load import Run
from wattload.reports.sections.wording import (
    VERDICT_TONES,
    VERDICT_WORDS,
    anchor,
    sentence_of,
    unique,
)
from wattload.reports.stats.subject import Group, Subject

_WORST_FIRST: tuple[Verdict, ...] = ("fail", "warn", "not_checked", "pass")
_NOT_COMPARED = ("name", "missing")
"""The fields of a host that are its name, or reasons for other fields."""


def checks_section(subject: Subject, run: Run) -> Section | None:
    """Return a run's checks, worst first, and its closure checks."""
    blocks: list[Block] = []
    if faults := subject.faults(run):
        blocks.append(Notice("Not compared as valid", list(map(sentence_of, faults)), "bad"))
    if run.record.checks:
        blocks.append(check_table(run.record.checks, "Checks of the run"))
    else:
        blocks.append(Notice("No check was made", ["The run ended before its checks."], "open"))
    closures = subject.closures[run.id]
    failed = [check for check in closures if check.verdict == "fail"]
    if failed:
        blocks.append(check_table(failed, "Inconsistent figures"))
    passed = sum(check.verdict == "pass" for check in closures)
    summary = f"{passed} of {counted(len(closures), 'closure check')} passed before this was drawn"
    blocks.append(Fold(summary, [check_table(closures, "Closure checks")]))
    return Section(anchor=anchor(run.id, "checks"), title="Checks", blocks=blocks)


def check_table(checks: Sequence[Check], caption: str) -> Table:
    """Return checks with verdict, sentence and figures, worst first."""
    ordered = sorted(checks, key=lambda check: _WORST_FIRST.index(check.verdict))
    rows = [
        row(
            Cell("", badge=VERDICT_WORDS[check.verdict], tone=VERDICT_TONES[check.verdict]),
            Cell(check.name.replace("_", " "), remark="mandatory" if check.mandatory else ""),
            Cell(check.sentence, remark=figures_text(check)),
        )
        for check in ordered
    ]
    return Table(columns=columns("verdict", "check", "what was found"), rows=rows, caption=caption)


def figures_text(check: Check) -> str:
    """Return the figures that decided a check, by name."""
    parts = []
    for name, value in check.figures.items():
        text = number(value, 6) if isinstance(value, float) else str(value)
        parts.append(f"{name} = {'missing' if value is None else text}")
    return ", ".join(parts)


def trust_section(subject: Subject) -> Section | None:
    """Return the checks of all runs by name, the evidence of every energy, and the hosts."""
    parts = [
        Section(anchor="trust-checks", title="Checks", blocks=list(_checks(subject))),
        Section(anchor="trust-energy", title="Evidence of energy", blocks=[_evidence(subject)]),
        Section(anchor="trust-hosts", title="Hosts", blocks=[_hosts(subject)]),
    ]
    return Section(anchor="trust", title="Checks and evidence", parts=parts)


def _checks(subject: Subject) -> Iterator[Block]:
    """Yield the checks that did not pass in every run, then those that did in a fold."""
    found: dict[str, list[Check]] = {}
    for run in subject.runs:
        failed = [check for check in subject.closures[run.id] if check.verdict == "fail"]
        for check in (*run.record.checks, *failed):
            found.setdefault(check.name, []).append(check)
    rows = sorted(found.values(), key=lambda checks: _WORST_FIRST.index(_worst(checks).verdict))
    open_rows = [checks for checks in rows if _worst(checks).verdict != "pass"]
    passed = [checks for checks in rows if _worst(checks).verdict == "pass"]
    closures = sum(len(closures) for closures in subject.closures.values())
    yield Paragraph(
        f"{counted(sum(map(len, rows)), 'verdict')} on {counted(len(subject.runs), 'run')}, and "
        f"{counted(closures, 'closure check')} made before this page was drawn. Each compares "
        "independent counters and shows their values."
    )
    if open_rows:
        yield _verdict_table(open_rows, "Checks that did not pass in every run")
    if passed:
        table = _verdict_table(passed, "Checks that passed in every run")
        yield Fold(f"{counted(len(passed), 'check')} passed in every run", [table], looked_up=True)


def _worst(checks: Sequence[Check]) -> Check:
    return min(checks, key=lambda check: _WORST_FIRST.index(check.verdict))


def _verdict_table(rows: Sequence[Sequence[Check]], caption: str) -> Table:
    titles = columns("check", "worst verdict", "#runs", "what was found, with its figures")
    return Table(columns=titles, rows=[_verdict_row(checks) for checks in rows], caption=caption)


def _verdict_row(checks: Sequence[Check]) -> tuple[Cell, ...]:
    """Return a check over all runs, with the sentence and figures of the first worst verdict."""
    worst = _worst(checks)
    verdicts = [check.verdict for check in checks]
    counts = [
        f"{verdicts.count(verdict)} {VERDICT_WORDS[verdict]}"
        for verdict in _WORST_FIRST
        if verdict in verdicts
    ]
    return row(
        Cell(worst.name.replace("_", " "), remark="mandatory" if worst.mandatory else ""),
        Cell("", badge=VERDICT_WORDS[worst.verdict], tone=VERDICT_TONES[worst.verdict]),
        Cell(str(len(checks)), remark=", ".join(counts) if len(counts) > 1 else ""),
        Cell(worst.sentence, remark=figures_text(worst)),
    )


def _evidence(subject: Subject) -> Table:
    """Return how the energy of each arm and phase is known, and which energies are not ranked."""
    rows = [
        line
        for group in subject.groups
        for arm, runs in group.arms.items()
        for line in _evidence_rows(group, arm, runs)
    ]
    return Table(
        columns=columns("workload", "arm", "phase", "#energy", "#uncertainty, k = 2", "evidence"),
        rows=rows,
        caption="How each energy figure is known",
        note=(
            "Figures are those of an arm's first run. A window has its weakest evidence; "
            f"{MISSING} means unknown. Only energy that was measured, or that the device "
            "itself measured or estimated, is ranked."
        ),
        anchor="trust-evidence",
    )


def _evidence_rows(group: Group, arm: str, runs: Sequence[Run]) -> Iterator[tuple[Cell, ...]]:
    record = runs[0].record
    energies = [*phase_energies(record), *([total] if (total := whole_energy(record)) else [])]
    for energy in energies:
        reason = energy.reason if energy_text(energy) == MISSING else ""
        yield row(
            group.workload,
            arm,
            energy.phase,
            Cell(energy_text(energy), "" if energy.ranks else "quiet"),
            _uncertainty(energy),
            Cell(
                reason or energy.words,
                remark=", ".join((*energy.keys, *(() if energy.ranks else ("not ranked",)))),
            ),
        )


def _uncertainty(energy: Energy) -> str:
    if energy.uncertainty_j is None or not energy.energy_j:
        return MISSING
    return f"± {percent(energy.uncertainty_j / energy.energy_j, 2)}"


def _hosts(subject: Subject) -> Block:
    """Return the fields in which the hosts of all runs differ."""
    by_name: dict[str, list[HostFacts]] = {}
    for run in subject.runs:
        for host in run.record.hosts:
            by_name.setdefault(host.facts.name, []).append(host.facts)
    if len(by_name) < 2:  # noqa: PLR2004 - nothing to compare
        return Paragraph(_one_host(by_name))
    rows = [
        row(name.replace("_", " "), *(_values(facts, name) for facts in by_name.values()))
        for name in HostFacts.model_fields
        if name not in _NOT_COMPARED
        and len({_values(facts, name) for facts in by_name.values()}) > 1
    ]
    if not rows:
        return Paragraph(f"{listed(list(by_name))} are the same in all recorded fields.")
    return Table(
        columns=columns("condition", *by_name),
        rows=rows,
        caption="What differs between the hosts",
        note="All other recorded fields are the same.",
    )


def _one_host(by_name: dict[str, list[HostFacts]]) -> str:
    name = next(iter(by_name), "no recorded host")
    changed = [
        field.replace("_", " ")
        for field in HostFacts.model_fields
        if field not in _NOT_COMPARED
        and len({_values([facts], field) for facts in by_name.get(name, ())}) > 1
    ]
    if changed:
        return f"All runs were made on {name}; it changed between runs in {listed(changed)}."
    return f"All runs were made on {name}; no recorded field changed between runs."


def _values(facts: Sequence[HostFacts], name: str) -> str:
    """Return the values that one host had in a field, as text without repetition."""
    values = [getattr(each, name) for each in facts]
    return "; ".join(unique(MISSING if value is None else str(value) for value in values))
