"""What the figures of a page rest on: its checks, the evidence of its energy, its hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.core.record.check import Check, Verdict
from wattload.core.record.host import HostFacts
from wattload.reports.blocks import Block, Cell, Fold, Paragraph, Section, Table, columns, row
from wattload.reports.energy import Energy, energy_text, phase_energies, whole
from wattload.reports.load import Run
from wattload.reports.quantity import MISSING, counted, listed, percent
from wattload.reports.sections.checks import figures_text
from wattload.reports.sections.wording import VERDICT_TONES, VERDICT_WORDS, unique
from wattload.reports.subject import Group, Subject

_WORST_FIRST: tuple[Verdict, ...] = ("fail", "warn", "not_checked", "pass")
_ALWAYS = ("name", "missing")
"""What of a host is its name, or is told where it stands."""


def trust_section(subject: Subject) -> Section | None:
    """Return the checks of all runs by name, the evidence of every energy figure, and the hosts."""
    parts = [
        Section(anchor="trust-checks", title="Checks", blocks=list(_checks(subject))),
        Section(anchor="trust-energy", title="Evidence of energy", blocks=[_evidence(subject)]),
        Section(anchor="trust-hosts", title="Hosts", blocks=[_hosts(subject)]),
    ]
    return Section(anchor="trust", title="What the figures rest on", parts=parts)


def _checks(subject: Subject) -> Iterator[Block]:
    """Yield the checks that did not pass in every run, then those that did in a fold."""
    found: dict[str, list[Check]] = {}
    for run in subject.runs:
        for check in (*run.record.checks, *_failed(subject.closures[run.id])):
            found.setdefault(check.name, []).append(check)
    rows = sorted(found.values(), key=lambda checks: _WORST_FIRST.index(_worst(checks).verdict))
    open_rows = [checks for checks in rows if _worst(checks).verdict != "pass"]
    passed = [checks for checks in rows if _worst(checks).verdict == "pass"]
    closures = sum(len(closures) for closures in subject.closures.values())
    yield Paragraph(
        f"{counted(sum(map(len, rows)), 'verdict')} on {counted(len(subject.runs), 'run')}, and "
        f"{counted(closures, 'closure check')} made before this page was drawn. Each compares "
        "counters that were kept apart; its figures stand with its sentence."
    )
    if open_rows:
        yield _check_table(open_rows, "Checks that did not pass in every run")
    if passed:
        table = _check_table(passed, "Checks that passed in every run")
        yield Fold(f"{counted(len(passed), 'check')} passed in every run", [table], looked_up=True)


def _failed(closures: Sequence[Check]) -> list[Check]:
    return [check for check in closures if check.verdict == "fail"]


def _worst(checks: Sequence[Check]) -> Check:
    return min(checks, key=lambda check: _WORST_FIRST.index(check.verdict))


def _check_table(rows: Sequence[Sequence[Check]], caption: str) -> Table:
    titles = columns("check", "worst verdict", "#runs", "what was found, with its figures")
    return Table(columns=titles, rows=[_check_row(checks) for checks in rows], caption=caption)


def _check_row(checks: Sequence[Check]) -> tuple[Cell, ...]:
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
    """Return how the energy of each arm and phase is known; what ranks nothing says so."""
    rows = [
        line
        for group in subject.groups
        for arm, runs in group.arms.items()
        for line in _evidence_rows(group, arm, runs)
    ]
    return Table(
        columns=columns("workload", "arm", "phase", "#energy", "#uncertainty, k = 2", "known how"),
        rows=rows,
        caption="How each energy figure is known",
        note=(
            f"Figures are of an arm's first run. A window takes its weakest evidence; {MISSING} is "
            "a figure that nobody has. Only what was measured, or told by the device itself, ranks."
        ),
        anchor="trust-evidence",
    )


def _evidence_rows(group: Group, arm: str, runs: Sequence[Run]) -> Iterator[tuple[Cell, ...]]:
    record = runs[0].record
    energies = [*phase_energies(record), *([total] if (total := whole(record)) else [])]
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
                remark=", ".join((*energy.keys, *(() if energy.ranks else ("ranks nothing",)))),
            ),
        )


def _uncertainty(energy: Energy) -> str:
    if energy.uncertainty_j is None or not energy.energy_j:
        return MISSING
    return f"± {percent(energy.uncertainty_j / energy.energy_j, 2)}"


def _hosts(subject: Subject) -> Block:
    """Return in what the hosts of all runs differ, by field."""
    by_name: dict[str, list[HostFacts]] = {}
    for run in subject.runs:
        for host in run.record.hosts:
            by_name.setdefault(host.facts.name, []).append(host.facts)
    if len(by_name) < 2:  # noqa: PLR2004 - one host has nothing beside it
        return Paragraph(_one_host(by_name))
    rows = [
        row(name.replace("_", " "), *(_values(facts, name) for facts in by_name.values()))
        for name in HostFacts.model_fields
        if name not in _ALWAYS and len({_values(facts, name) for facts in by_name.values()}) > 1
    ]
    if not rows:
        return Paragraph(f"{listed(list(by_name))} are alike in all that was read of them.")
    return Table(
        columns=columns("condition", *by_name),
        rows=rows,
        caption="What differs between the hosts",
        note="All else that was read of them is the same.",
    )


def _one_host(by_name: dict[str, list[HostFacts]]) -> str:
    name = next(iter(by_name), "no recorded host")
    changed = [
        field.replace("_", " ")
        for field in HostFacts.model_fields
        if field not in _ALWAYS
        and len({_values([facts], field) for facts in by_name.get(name, ())}) > 1
    ]
    if changed:
        return f"All runs were made on {name}; between runs it changed in {listed(changed)}."
    return f"All runs were made on {name}, which was the same in each as far as was read."


def _values(facts: Sequence[HostFacts], name: str) -> str:
    """Return every value that one host had of a field, each once, as text."""
    found = unique(_text(getattr(each, name)) for each in facts)
    return "; ".join(found)


def _text(value: object) -> str:
    return MISSING if value is None else str(value)
