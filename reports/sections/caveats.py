"""Caveats of a page: runs that do not count, gaps, missing seals and warnings.

Remarks of several runs that differ only in their numbers are merged into one with ranges.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.reports.blocks import Link, Notice, Words
from wattload.reports.quantity import THIN_SPACE, counted, label, listed
from wattload.reports.runs.energy import RANKS, is_simulated, phase_energies
from wattload.reports.runs.load import Run
from wattload.reports.runs.validity import WARM_UP
from wattload.reports.sections.wording import count_remarks, sentence_of, unique
from wattload.reports.stats.conditions import changed_together, compared_group, is_compared
from wattload.reports.stats.subject import LETTERS, Group, Subject, lettered
from wattload.reports.stats.sweeps import axes, axis_names, setting_values

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
_LONE_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
"""A number that is a word of its own: ``3648.91``, but not the 2 of ``nvme2``."""

NO_SEAL = "the record has no seal, so nothing says whether it was edited"
"""A record of version 1 never had a seal; one whose seal was removed looks the same."""
VIRTUAL_DRIVE = "a drive here is a virtual drive, whose joules rank nothing"
_NOT_VALID = "Shown, but not compared as valid"

Remarks = Sequence[tuple[Run, str]]
Kind = tuple[str, tuple[str, ...]]
"""A workload, and the text between the measured numbers of a sentence."""


@dataclass(frozen=True, slots=True)
class _Place:
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
    places = {
        run.id: _Place(subject.arm(run), setting_values(run.record, groups.get(_workload(run), ())))
        for run, _ in remarks
    }
    kinds: dict[Kind, list[tuple[Run, str]]] = {}
    for run, text in remarks:
        kinds.setdefault(_kind(run, text), []).append((run, text))
    merged = {
        kind: _merged_texts(own, places, groups.get(kind[0], ()), _arm_names(subject))
        for kind, own in kinds.items()
    }
    return [(run, merged[_kind(run, text)].get(places[run.id], text)) for run, text in remarks]


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
    remarks: Remarks, places: Mapping[str, _Place], keys: Sequence[str], names: Mapping[str, str]
) -> dict[_Place, str]:
    """Return the merged text of one kind by place; empty where remarks are left as they are."""
    texts: dict[_Place, list[str]] = {}
    for run, text in remarks:
        texts.setdefault(places[run.id], []).append(text)
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


def gaps_notice(subject: Subject) -> Notice:
    """Return the notice of what is missing on a page, or that nothing is."""
    gaps = [(run.record, text) for run in subject.runs for text in unique(_gaps(run))]
    gaps += _unchecked(subject)
    if not gaps:
        return Notice("Everything asked for was measured", ["No gap is recorded."], "good", "gaps")
    return Notice(
        "What could not be measured, and why", count_remarks(gaps, subject), "open", "gaps"
    )


def _gaps(run: Run) -> Iterator[str]:
    """Yield the gaps of a run: power, its own limits, headlines without a figure, lost traces."""
    record = run.record
    choice = record.power.choice.rstrip(".")
    energies = phase_energies(record)
    if not any(energy.evidence in RANKS and not energy.replayed for energy in energies):
        weak = unique(energy.words for energy in energies if energy.keys)
        if weak:
            yield f"Power was not measured. {choice}. Energy is {listed(weak)}, and ranks nothing."
        elif not any(choice in limit for limit in record.limits):
            yield f"Power was not measured. {choice}."
    yield from record.limits
    for metric in record.metrics:
        if metric.value is None and metric.headline:  # other figures have the reason in their table
            yield f"No {label(metric.name, metric.unit)}: {metric.missing['value']}"
    yield from run.traces.notes


def _unchecked(subject: Subject) -> list[tuple[RunRecord, str]]:
    """Return the checks that were not made, one sentence per reason, with the records it is from.

    Reasons that differ only in their figures are one, with the figures of the first run.
    """
    groups: defaultdict[str, list[tuple[RunRecord, Check]]] = defaultdict(list)
    for run in subject.runs:
        choice = run.record.power.choice.rstrip(".")
        for check in run.record.checks:
            if check.verdict == "not_checked" and choice not in check.sentence:
                groups[_LONE_NUMBER.sub("#", check.sentence)].append((run.record, check))
    gaps = []
    for group in groups.values():
        sources = {source.name for record, _ in group for source in record.power.sources}
        names = check_names(unique(check.name for _, check in group), sources)
        text = f"Not checked, {names}: {group[0][1].sentence}"
        records = {record.run_id: record for record, _ in group}
        gaps += [(record, text) for record in records.values()]
    return gaps


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


def unsealed_notices(group: Group) -> Iterator[Notice]:
    """Yield the number of runs of each arm without a seal; their figures are compared."""
    found = [
        f"{arm}: {sum(run.is_unsealed for run in runs)} of {counted(len(runs), 'run')}, for which "
        "nothing says whether the record was edited. The figures are compared all the same."
        for arm, runs in group.arms.items()
        if any(run.is_unsealed for run in runs)
    ]
    if found:
        yield Notice("Compared without a seal", found, "warn")


def limits_notices(subject: Subject) -> tuple[Notice, ...]:
    """Return the caveats of a page, the most serious first; that of gaps is always among them."""
    notices = (
        _left_out(subject),
        _broken(subject),
        _no_arm(subject),
        gaps_notice(subject),
        _warnings(subject),
    )
    return tuple(notice for notice in notices if notice is not None)


def limits_sentence(subject: Subject, notices: tuple[Notice, ...]) -> Words:
    """Return one sentence on how many caveats there are, with a link to each notice."""
    words: list[str | Link] = []
    if subject.forced:
        words += [Link("the comparison was forced despite its exclusions", "comparison"), "; "]
    together = unique(
        name
        for group in subject.groups
        for name in changed_together(compared_group(subject, group), subject.by)
    )
    if together:
        what = Link(f"arms differ in {listed(together)} at once", "comparison")
        words += [what, ", so no ratio shows the effect of one alone; "]
    if any(is_simulated(run.record) for run in subject.runs):
        words += [VIRTUAL_DRIVE, "; "]
    for notice in notices:
        if notice.tone != "good":
            words += [Link(_counts(notice, subject), notice.anchor), "; "]
    checks = Link("checks and evidence", "trust")
    if not words:
        return ("Nothing that was requested is missing; ", checks, " are below.")
    return ("Before use: ", *words, checks, " are below.")


def _counts(notice: Notice, subject: Subject) -> str:
    count = len(notice.sentences)
    every = counted(len(subject.runs), "run")
    if notice.anchor == "left-out":
        return f"{counted(len(subject.left_out), 'folder')} left out"
    if notice.anchor == "broken":
        let_through = sum(is_compared(subject, run) for run, _ in _faulty(subject))
        left_out = len(_faulty(subject)) - let_through
        texts = [f"{left_out} of {every} shown, but not compared as valid"] if left_out else []
        if let_through:
            texts.append(f"{let_through} of {every} included by force despite failed checks")
        return "; ".join(texts)
    if notice.anchor == "no-arm":
        return f"{_no_arm_count(subject)} of {every} excluded"
    if notice.anchor == "gaps":
        return f"{counted(count, 'thing')} not measured or not checked"
    return f"{counted(count, 'caveat')}"


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
    """Return the run folders that have no usable record."""
    if not subject.left_out:
        return None
    sentences = [f"{each.name}: {each.reason.rstrip('.')}." for each in subject.left_out]
    return Notice("Left out: no usable record", sentences, "open", "left-out")


def _broken(subject: Subject) -> Notice | None:
    sentences = [
        f"{run.record.workload.name}, run {run.id}: {fault.rstrip('.')}."
        for run, faults in _faulty(subject)
        for fault in faults
    ]
    if not sentences:
        return None
    is_through = subject.forced and any(is_compared(subject, run) for run, _ in _faulty(subject))
    title = "Excluded by checks, but included by force" if is_through else _NOT_VALID
    return Notice(title, sentences, "bad", "broken")


def _no_arm_count(subject: Subject) -> int:
    in_arms = sum(len(group.runs) for group in subject.groups)
    return len(subject.runs) - in_arms - len(subject.strays)


def _no_arm(subject: Subject) -> Notice | None:
    """Return the number of runs that are in no arm by design: warm-ups and A/A sessions."""
    count = _no_arm_count(subject)
    if not count:
        return None
    warm = sum(run.record.comparison.warm_up for run in subject.runs)
    every = counted(len(subject.runs), "run")
    texts = []
    if warm:
        texts.append(f"{warm} of {every} were warm-ups and are in no figure.")
    if count - warm:
        texts.append(
            f"{count - warm} of {every} compared one setting with itself and are in no figure of "
            "an arm. Their noise floor is below the comparison."
        )
    return Notice("Excluded runs", texts, "open", "no-arm")


def _warnings(subject: Subject) -> Notice | None:
    """Return remarks of workloads and targets, missing seals, and checks with a warning."""
    remarks: list[tuple[Run, str]] = []
    for run in subject.runs:
        record = run.record
        limits = {sentence_of(limit) for limit in record.limits}
        of_targets = [text for target in record.targets for text in target.facts.warnings]
        own = [text for text in of_targets if sentence_of(text) not in limits]
        own += record.workload.remarks
        if run.is_unsealed:
            own.append(NO_SEAL)
        warned = [
            check.name.replace("_", " ") for check in record.checks if check.verdict == "warn"
        ]
        if warned:
            own.append(f"checks warn of {listed(warned)}")
        remarks.extend((run, text) for text in unique(own))
    merged = [(run.record, text) for run, text in merge_remarks(remarks, subject)]
    sentences = count_remarks(merged, subject)
    if not sentences:
        return None
    return Notice("Caveats", sentences, "warn", "warnings")
