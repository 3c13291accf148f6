"""Caveats, checks of a run and of all runs, and the evidence of energy."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile

from wattload.core.record.results import Check, Verdict
from wattload.core.units import Unit
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
from wattload.reports.runs.energy import Energy, energy_text, every_energy, phase_energies
from wattload.reports.runs.load import Run
from wattload.reports.sections.caveats import limits_notices
from wattload.reports.sections.wording import (
    TALLY_WORDS,
    VERDICT_TONES,
    VERDICT_WORDS,
    checks_tally,
    count_remarks,
    unique,
)
from wattload.reports.stats.subject import Subject
from wattload.results.quantity import MISSING, counted, listed, number, percent, scale_for

_JOULES_TEXT = re.compile(r"[\d#] J\b")
_JOULES = "Findings are quoted from the records, with energies in J: 1 Wh is 3600 J."

_WORST_FIRST: tuple[Verdict, ...] = ("fail", "warn", "not_checked", "pass")
_LONE_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
"""A number that is a word of its own: ``3648.91``, but not the 2 of ``nvme2``."""


def check_blocks(subject: Subject, run: Run) -> list[Block]:
    """Return a run's checks and those of its files, worst first."""
    blocks: list[Block] = []
    if run.record.checks:
        blocks.append(check_table(run.record.checks, "Checks of the run"))
    else:
        blocks.append(Notice("No check was made", ["The run ended before its checks."], "open"))
    blocks.append(check_table(subject.file_checks[run.id], "Seal and digests of its files"))
    return blocks


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


def trust_section(subject: Subject) -> Section:
    """Return the caveats of a page, the checks of all runs, and the evidence of every energy."""
    evidence = _evidence(subject)
    blocks: list[Block] = [*limits_notices(subject), *_checks(subject)]
    if evidence is not None:
        blocks.append(evidence)
    return Section(
        anchor="trust", title="Evidence and checks", blocks=blocks, remark=checks_tally(subject)
    )


def _checks(subject: Subject) -> Iterator[Block]:
    """Yield the checks that did not pass in every run, and the names of those that did."""
    found: dict[str, list[Check]] = {}
    for run in subject.runs:
        failed = [check for check in subject.file_checks[run.id] if check.verdict == "fail"]
        for check in (*run.record.checks, *failed):
            found.setdefault(check.name, []).append(check)
    same: dict[tuple[Verdict, str], list[list[Check]]] = {}
    for checks in found.values():
        worst = _worst(checks)
        if worst.verdict != "pass":
            same.setdefault((worst.verdict, _LONE_NUMBER.sub("#", worst.sentence)), []).append(
                checks
            )
    ordered = sorted(same.items(), key=lambda item: _WORST_FIRST.index(item[0][0]))
    if ordered:
        sources = {source.name for run in subject.runs for source in run.record.power.sources}
        is_in_joules = any(_JOULES_TEXT.search(worst) for (_, worst), _ in ordered)
        yield Table(
            columns=columns("check", "result", "finding"),
            rows=[_verdict_row(checks, sources) for _, checks in ordered],
            caption="Checks that did not pass in every run",
            note=_JOULES
            if is_in_joules and scale_for(Unit.JOULES, 1.0).unit.endswith("Wh")
            else "",
            anchor="trust-checks",
        )
    passed = [name for name, checks in found.items() if _worst(checks).verdict == "pass"]
    if passed:
        names = ", ".join(name.replace("_", " ") for name in passed)
        yield Fold(
            f"{counted(len(passed), 'check')} passed in every run",
            [Paragraph(f"{names}.")],
            data=True,
        )


def _worst(checks: Sequence[Check]) -> Check:
    return min(checks, key=lambda check: _WORST_FIRST.index(check.verdict))


def _verdict_row(same: Sequence[Sequence[Check]], sources: Collection[str]) -> tuple[Cell, ...]:
    """Return checks with one finding over all runs, with the figures of the first worst verdict."""
    worst = _worst(same[0])
    verdicts = [check.verdict for checks in same for check in checks]
    counts = [
        f"{verdicts.count(verdict)} {TALLY_WORDS[verdict]}"
        for verdict in _WORST_FIRST
        if verdict in verdicts
    ]
    names = check_names(unique(each[0].name for each in same), sources)
    return row(
        Cell(names, remark="mandatory" if worst.mandatory else ""),
        Cell(
            "",
            badge=VERDICT_WORDS[worst.verdict],
            tone=VERDICT_TONES[worst.verdict],
            remark=", ".join(counts),
        ),
        Cell(worst.sentence, remark=figures_text(worst) if len(same) == 1 else ""),
    )


def check_names(names: Sequence[str], sources: Collection[str]) -> str:
    """Return the names of checks in words, with their common beginning once.

    Args:
        names: those of the checks.
        sources: names of power sources, which are kept; two in a row are "one with other".
    """
    words = [_words(name, sources) for name in names]
    columns = zip(*words, strict=False)
    common = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    rests = [_join(each[common:], sources) for each in words]
    if not common or not all(rests):  # a single name has no rest
        return listed([_join(each, sources) for each in words])
    return f"{' '.join(words[0][:common])} ({listed(rests)})"


def _words(name: str, sources: Collection[str]) -> list[str]:
    longest_first = sorted(sources, key=len, reverse=True)
    whole = "|".join(f"(?<![^_]){re.escape(source)}(?![^_])" for source in longest_first)
    return re.findall(f"{whole}|[^_]+" if whole else "[^_]+", name)


def _join(words: Sequence[str], sources: Collection[str]) -> str:
    are_pair = len(words) == 2 and all(word in sources for word in words)  # noqa: PLR2004 - A, B
    return (" with " if are_pair else " ").join(words)


def _evidence(subject: Subject) -> Table | None:
    """Return how the energy of each arm and phase is known; ``None`` where no run has any."""
    if not any(energy.keys for run in subject.runs for energy in phase_energies(run.record)):
        return None
    found = [
        (group.workload, arm, energy)
        for group in subject.groups
        for arm, runs in group.arms.items()
        for energy in every_energy(runs[0].record)
    ]
    known = {_known(energy) for *_, energy in found}
    shared = known.pop() if len(known) == 1 else ""
    notes = [f"Figures of an arm's first run{f', all {shared}' if shared else ''}."]
    notes.append("Only measured or self-reported energy is ranked, and none of simulated drives.")
    again = [
        (run.record, words) for run in subject.runs if (words := run.record.power.recomputed_text)
    ]
    return Table(
        columns=columns("workload", "arm", "phase", "#energy", "#uncertainty, k = 2", "evidence"),
        rows=[_evidence_row(*each, is_known=bool(shared)) for each in found],
        caption="How each energy figure is known",
        note=" ".join([*notes, *count_remarks(again, subject)]),
        anchor="trust-evidence",
    )


def _known(energy: Energy) -> str:
    """Return how an energy is known, or why there is none."""
    if energy_text(energy) == MISSING:
        return energy.reason
    return energy.words if energy.ranks else f"{energy.words}, not ranked"


def _evidence_row(workload: str, arm: str, energy: Energy, *, is_known: bool) -> tuple[Cell, ...]:
    """Return an energy's row; ``is_known`` is whether the note says how all are known."""
    keys = ", ".join(energy.keys)
    return row(
        workload,
        arm,
        energy.phase,
        Cell(energy_text(energy), "" if energy.ranks else "quiet"),
        _uncertainty(energy),
        Cell(keys) if is_known else Cell(_known(energy), remark=keys),
    )


def _uncertainty(energy: Energy) -> str:
    if energy.uncertainty_j is None or not energy.energy_j:
        return MISSING
    return f"± {percent(energy.uncertainty_j / energy.energy_j, 2)}"
