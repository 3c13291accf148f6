"""What a page rests on: caveats, the checks of a run and of all runs, and the evidence of energy.

Remarks of several runs that differ only in their numbers are merged into one with ranges.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from wattload.reports.runs.energy import (
    RANKS,
    Energy,
    energy_text,
    every_energy,
    phase_energies,
    tail_text,
)
from wattload.reports.runs.load import Run
from wattload.reports.runs.validity import WARM_UP, ending, of_hosts
from wattload.reports.sections.wording import (
    check_counts,
    checks_tally,
    count_remarks,
    result_cell,
    sentence_of,
    unique,
)
from wattload.reports.stats.conditions import is_compared
from wattload.reports.stats.subject import LETTERS, Subject, lettered
from wattload.reports.stats.sweeps import axes, axis_names, setting_values
from wattload.results.labels import label
from wattload.results.quantity import (
    MISSING,
    THIN_SPACE,
    counted,
    listed,
    number,
    percent,
    quantity,
    scale_for,
)

_JOULES_TEXT = re.compile(r"[\d#] J\b")
_JOULES = "Findings are quoted from the records, with energies in J: 1 Wh is 3600 J."

_WORST_FIRST: tuple[Verdict, ...] = ("fail", "warn", "not_checked", "pass")
_NAMES_MAX = 6
"""The most checks of one finding that are listed singly; more are counted."""
_LONE_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
"""A number that is a word of its own: ``3648.91``, but not the 2 of ``nvme2``."""


def check_blocks(subject: Subject, run: Run) -> list[Block]:
    """Return the checks of a run and its files that did not pass, and the names of the others."""
    blocks: list[Block] = []
    if not run.record.checks:
        blocks.append(Notice("No check was made", ["The run ended before its checks."], "open"))
    checks = [*of_hosts(run.record, run.record.checks), *subject.file_checks[run.id]]
    others = [check for check in checks if check.verdict != "pass"]
    if others:
        blocks.append(check_table(others, "Checks that did not pass"))
    if passed := [check.name for check in checks if check.verdict == "pass"]:
        blocks.append(Paragraph(f"Passed: {names_text(passed)}"))
    return blocks


def names_text(names: Iterable[str]) -> str:
    """Return the names of checks as a list of words, each once."""
    return f"{', '.join(name.replace('_', ' ') for name in unique(names))}."


def check_table(checks: Sequence[Check], caption: str) -> Table:
    """Return checks with verdict, sentence and figures, worst first."""
    ordered = sorted(checks, key=lambda check: _WORST_FIRST.index(check.verdict))
    rows = [
        row(
            result_cell(check),
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
        anchor="trust",
        title="Evidence and checks",
        blocks=blocks,
        remark=checks_tally(subject.all_checks),
    )


def _checks(subject: Subject) -> Iterator[Block]:
    """Yield the checks that did not pass in every run, and the names of those that did."""
    found: dict[str, list[Check]] = {}
    for check in subject.all_checks:
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
    passed = {name for name, checks in found.items() if _worst(checks).verdict == "pass"}
    if passed:
        of_runs = [
            of_hosts(record, (check for check in record.checks if check.name in passed))
            for record in (run.record for run in subject.runs)
        ]
        names = names_text(check.name for own in of_runs for check in own)
        yield Fold(
            f"{counted(len(passed), 'check')} passed in every run",
            [Paragraph(names)],
            data=True,
        )


def _worst(checks: Sequence[Check]) -> Check:
    return min(checks, key=lambda check: _WORST_FIRST.index(check.verdict))


def _verdict_row(same: Sequence[Sequence[Check]], sources: Collection[str]) -> tuple[Cell, ...]:
    """Return checks with one finding over all runs, with the figures of the first worst verdict."""
    worst = _worst(same[0])
    names = check_names(unique(each[0].name for each in same), sources)
    return row(
        Cell(names, remark="mandatory" if worst.mandatory else ""),
        result_cell(worst, check_counts([check for of in same for check in of], causes=False)),
        Cell(worst.sentence, remark=figures_text(worst) if len(same) == 1 else ""),
    )


def check_names(names: Sequence[str], sources: Collection[str]) -> str:
    """Return the names of checks in words, with their common beginning once.

    Args:
        names: those of the checks.
        sources: names of power sources, which are kept; two in a row are "one with other".
    """
    words = [_name_parts(name, sources) for name in names]
    columns = zip(*words, strict=False)
    common = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    rests = [_join(each[common:], sources) for each in words]
    if len(rests) > _NAMES_MAX:
        rests = [*rests[: _NAMES_MAX - 1], f"{len(rests) - _NAMES_MAX + 1} more"]
    if not common or not all(rests):  # a single name has no rest
        return listed([_join(each, sources) for each in words])
    return f"{' '.join(words[0][:common])} ({listed(rests)})"


def _name_parts(name: str, sources: Collection[str]) -> list[str]:
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
    notes.append("±: uncertainty, k = 2.")
    notes.append("Only measured or self-reported energy is ranked, and none of simulated drives.")
    again = [
        (run.record, words) for run in subject.runs if (words := run.record.power.recomputed_text)
    ]
    return Table(
        columns=columns(
            "workload",
            "arm",
            "phase",
            "#energy in the window",
            "#tail",
            "#energy for the work",
            "evidence",
        ),
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
        Cell(
            energy_text(energy),
            "" if energy.ranks else "quiet",
            remark=_uncertainty(energy.energy_j, energy.uncertainty_j),
        ),
        Cell(tail_text(energy), remark="" if energy.energy_j is None else energy.no_tail),
        Cell(
            quantity(energy.work_j, Unit.JOULES),
            remark=_uncertainty(energy.work_j, energy.work_uncertainty_j),
        ),
        Cell(keys) if is_known else Cell(_known(energy), remark=keys),
    )


def _uncertainty(energy_j: float | None, uncertainty_j: float | None) -> str:
    if uncertainty_j is None or not energy_j:
        return ""
    return f"± {percent(uncertainty_j / abs(energy_j), 2)}"


_MEASURED_UNIT = (
    r"(?:%|times|(?:[kKMGTP]i?B|[kMGTP]?bit)(?:/s)?|B/s|[kM]?IOPS|[num\u00b5\u03bc]?s|min|h"
    r"|[mk]?Wh?|[mk]?J|[kMG]?Hz|K|\u00b0C)"
)
_MEASURED_NUMBER = re.compile(
    rf"(?<![\w./:,\u2013\u00b1-])(?<!\d\s)(?<!to )[0-9]+(?:{THIN_SPACE}[0-9]{{3}})*(?:\.[0-9]+)?"
    rf"(?=\s?{_MEASURED_UNIT}(?![\w/-])(?! to [0-9]))"
)
"""A measured number: one that is followed by a unit or ``%``.

It matches no count, rank, state, version or list, no part of ``1,234``, and no end of a range
that the sentence already has.
"""
_NOT_VALID = "Excluded runs"
_NAMED_RUNS = 5
"""Runs with the same fault that are named; the section of runs has all of them."""

Remarks = Sequence[tuple[Run, str]]
Kind = tuple[str, tuple[str, ...]]
"""A workload, and the text between the measured numbers of a sentence."""


@dataclass(frozen=True, slots=True)
class _ArmPoint:
    """An arm and a point of a sweep; ``values`` has one for each axis."""

    arm: str
    values: tuple[str, ...]


def merge_remarks(remarks: Remarks, subject: Subject) -> list[tuple[Run, str]]:
    """Return the remarks of runs, with one text for those that differ only in measured numbers.

    Remarks are merged within a workload, an arm and a point of its sweep: each measured number
    becomes the range over these runs. Where other arms or points have the remark with other
    numbers, the text begins with the arm and the point. A remark that all runs have with the same
    numbers is left as it is, and so is one that a run has twice.
    """
    groups = {group.workload: axes(group) for group in subject.groups}
    arm_points = {
        run.id: _ArmPoint(
            subject.arm(run), setting_values(run.record, groups.get(_workload(run), ()))
        )
        for run, _ in remarks
    }
    kinds: dict[Kind, list[tuple[Run, str]]] = {}
    for run, text in remarks:
        kinds.setdefault(_kind(run, text), []).append((run, text))
    merged = {
        kind: _merged_texts(own, arm_points, groups.get(kind[0], ()), _arm_names(subject))
        for kind, own in kinds.items()
    }
    return [(run, merged[_kind(run, text)].get(arm_points[run.id], text)) for run, text in remarks]


def _workload(run: Run) -> str:
    return run.record.workload.name


def _kind(run: Run, text: str) -> Kind:
    return _workload(run), tuple(_MEASURED_NUMBER.split(text))


def _arm_names(subject: Subject) -> dict[str, str]:
    """Return the names of arms before a sentence; empty where there is one arm."""
    arms = unique([*subject.arms, *(subject.arm(run) for run in subject.runs)])
    letters = zip(LETTERS, subject.arms, strict=False)
    names = {arm: lettered(letter, arm) for letter, arm in letters}
    return {arm: names.get(arm, arm) for arm in arms} if len(arms) > 1 else {}


def _merged_texts(
    remarks: Remarks,
    arm_points: Mapping[str, _ArmPoint],
    keys: Sequence[str],
    names: Mapping[str, str],
) -> dict[_ArmPoint, str]:
    """Return the merged text of one kind by arm and point; empty where remarks stay as they are."""
    texts: dict[_ArmPoint, list[str]] = {}
    for run, text in remarks:
        texts.setdefault(arm_points[run.id], []).append(text)
    has_repeats = len({run.id for run, _ in remarks}) < len(remarks)
    if has_repeats or len({text for _, text in remarks}) == 1:
        return {}
    is_swept = len({each.values for each in texts}) > 1
    found = {}
    for each, own in texts.items():
        prefix = [names[each.arm]] if each.arm in names else []
        if is_swept:
            prefix += map(" ".join, zip(axis_names(keys), each.values, strict=True))
        text = _with_ranges(own)
        found[each] = ": ".join([", ".join(prefix), text]) if prefix else text
    return found


def _with_ranges(texts: Sequence[str]) -> str:
    """Return texts of one kind as one, with a range for each measured number."""
    figures = zip(*(_MEASURED_NUMBER.findall(text) for text in texts), strict=True)
    ranges = iter([_range(each) for each in figures])
    return _MEASURED_NUMBER.sub(lambda _: next(ranges), texts[0])


def _range(figures: Sequence[str]) -> str:
    low, high = min(figures, key=_value), max(figures, key=_value)
    return low if low == high else f"{low} to {high}"


def _value(figure: str) -> float:
    return float(figure.replace(THIN_SPACE, ""))


def gaps_notice(subject: Subject) -> Notice | None:
    """Return the notice of what is missing on a page; ``None`` where nothing is."""
    gaps = [(run.record, text) for run in subject.runs for text in unique(_gaps(run))]
    if not gaps:
        return None
    return Notice("Not measured, and why", count_remarks(gaps, subject), "open", "gaps")


def _gaps(run: Run) -> Iterator[str]:
    """Yield the gaps of a run: power, its own limits, headlines without a figure, lost traces."""
    record = run.record
    choice = record.power.choice.rstrip(".")
    reason = record.power.unmeasured_text.rstrip(".")
    energies = phase_energies(record)
    if not any(energy.evidence in RANKS and not energy.replayed for energy in energies):
        weak = unique(energy.words for energy in energies if energy.keys)
        if weak:
            is_read = any(energy.has_declared_readings for energy in energies)
            start = "" if is_read else "Power was not measured. "
            yield f"{start}{choice}. Energy is {listed(weak)}, and ranks nothing."
        elif not any(reason in limit for limit in record.limits):
            yield f"Power was not measured. {reason}."
    # The table of evidence says which energies were recomputed.
    yield from (limit for limit in record.limits if limit != record.power.recomputed_text)
    for metric in record.metrics:
        if metric.value is None and metric.headline:  # other figures have the reason in their table
            yield f"No {label(metric.name, metric.unit)}: {metric.missing['value']}"
    yield from run.traces.notes


def limits_notices(subject: Subject) -> tuple[Notice, ...]:
    """Return the caveats of a page, the most serious first."""
    notices = (
        _broken(subject),
        _left_out(subject),
        _no_arm(subject),
        _energy(subject),
        gaps_notice(subject),
        _warnings(subject),
    )
    return tuple(notice for notice in notices if notice is not None)


def _faulty(subject: Subject) -> list[tuple[Run, list[str]]]:
    """Return the runs that do not count, with the reasons; to be in no arm is not one of them."""
    of_arms = {run.id for group in subject.groups for run in group.runs}
    found = []
    for run in subject.runs:
        faults = subject.faults(run)
        own = [fault for fault in faults if fault != WARM_UP or run.id in of_arms]
        if own:
            found.append((run, own))
    return found


def _left_out(subject: Subject) -> Notice | None:
    if not subject.left_out:
        return None
    sentences = [f"{each.name}: {each.reason.rstrip('.')}." for each in subject.left_out]
    return Notice("Left out: no usable record", sentences, "open", "left-out")


def _broken(subject: Subject) -> Notice | None:
    found: dict[tuple[str, str], list[str]] = {}
    for run, faults in _faulty(subject):
        for fault in faults:
            found.setdefault((run.record.workload.name, fault.rstrip(".")), []).append(run.id)
    if not found:
        return None
    sentences = [f"{workload}, {_runs(ids)}: {fault}." for (workload, fault), ids in found.items()]
    is_through = subject.forced and any(is_compared(subject, run) for run, _ in _faulty(subject))
    title = "Excluded by checks, but included by force" if is_through else _NOT_VALID
    if not has_complete(subject):
        title = _ended(subject)
    return Notice(title, sentences, "bad", "excluded")


def has_complete(subject: Subject) -> bool:
    """Return whether a run is complete; otherwise no figure of the page is a result."""
    return any(run.record.status == "complete" for run in subject.runs)


def _ended(subject: Subject) -> str:
    """Return how the runs of a page without a complete one ended."""
    count = len(subject.runs)
    if count == 1:
        how, _ = ending(subject.runs[0].record)
        return how.capitalize()
    have_failed = all(run.record.status == "failed" for run in subject.runs)
    return f"All {count} runs {'failed' if have_failed else 'ended early'}"


def _runs(ids: Sequence[str]) -> str:
    """Return runs by their ids; of many only the first, and how many others there are."""
    if len(ids) <= _NAMED_RUNS:
        return f"run{'s' if len(ids) > 1 else ''} {listed(list(ids))}"
    return f"{counted(len(ids), 'run')}: {', '.join(ids[:_NAMED_RUNS])} and others"


def _no_arm(subject: Subject) -> Notice | None:
    """Return the number of runs that compared a setting with itself; warm-ups are only counted."""
    of_arms = {run.id for group in subject.groups for run in group.runs}
    count = sum(run.id not in of_arms and not run.record.comparison.warm_up for run in subject.runs)
    if not count:
        return None
    text = f"{counted(count, 'run')} compared one setting with itself: they set the noise floor."
    return Notice("Runs in no arm", [text], "open", "no-arm")


def _energy(subject: Subject) -> Notice | None:
    """Return why the energies of valid runs are not compared."""
    reasons = [
        (run.record, reason)
        for group in subject.groups
        for run in group.runs
        if len(group.arms) > 1 and not subject.forced
        for reason in subject.energy_faults(run)
    ]
    if not reasons:
        return None
    return Notice("Energy is not compared", count_remarks(reasons, subject), "open", "no-energy")


def _warnings(subject: Subject) -> Notice | None:
    """Return remarks of workloads and targets, and checks with a warning."""
    remarks: list[tuple[Run, str]] = []
    for run in subject.runs:
        record = run.record
        limits = {sentence_of(limit) for limit in record.limits}
        of_targets = [text for target in record.targets for text in target.facts.warnings]
        own = [text for text in of_targets if sentence_of(text) not in limits]
        own += record.workload.remarks
        remarks.extend((run, text) for text in unique(own))
    merged = [(run.record, text) for run, text in merge_remarks(remarks, subject)]
    sentences = count_remarks(merged, subject)
    if not sentences:
        return None
    return Notice("Caveats", sentences, "warn", "warnings")
