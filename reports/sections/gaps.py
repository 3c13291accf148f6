"""What could not be measured, and why: each reason once, with all that it is a reason for."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile

from wattload.core.record.check import Check
from wattload.core.record.run import RunRecord
from wattload.reports.blocks import Notice
from wattload.reports.energy import RANKS, phase_energies
from wattload.reports.load import Run
from wattload.reports.quantity import label, listed
from wattload.reports.sections.wording import tallied, unique
from wattload.reports.subject import Subject

_FIGURE = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
"""A number by itself: ``3648.91``, but not that in ``nvme2``."""


def gaps_notice(subject: Subject) -> Notice:
    """Return the box that says what is missing on a page, or that nothing is."""
    said = [(run.record, text) for run in subject.runs for text in unique(_gaps(run))]
    said += _unchecked(subject)
    if not said:
        return Notice("Everything asked for was measured", ["No gap is recorded."], "good", "gaps")
    return Notice("What could not be measured, and why", tallied(said, subject), "open", "gaps")


def _gaps(run: Run) -> Iterator[str]:
    """Yield each gap of a run but its checks: power, its own limits, headlines without a figure."""
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
        if metric.value is None and metric.headline:  # the others say it where they stand
            yield f"No {label(metric.name, metric.unit)}: {metric.missing['value']}"
    yield from run.traces.notes


def _unchecked(subject: Subject) -> list[tuple[RunRecord, str]]:
    """Return who says why which checks were not made, one sentence for each reason.

    Reasons that differ by their figures alone are one, told with the figures of the first run.
    """
    groups: defaultdict[str, list[tuple[RunRecord, Check]]] = defaultdict(list)
    for run in subject.runs:
        choice = run.record.power.choice.rstrip(".")
        for check in run.record.checks:
            if check.verdict == "not_checked" and choice not in check.sentence:
                groups[_FIGURE.sub("#", check.sentence)].append((run.record, check))
    said = []
    for group in groups.values():
        sources = {source.name for record, _ in group for source in record.power.sources}
        named = check_names(unique(check.name for _, check in group), sources)
        text = f"Not checked, {named}: {group[0][1].sentence}"
        speakers = {record.run_id: record for record, _ in group}
        said += [(record, text) for record in speakers.values()]
    return said


def check_names(names: Sequence[str], sources: Collection[str]) -> str:
    """Return checks by name in words; what the names begin with alike is said once.

    Power sources keep their names, and two of them in a row are a pair that was to be compared.
    """
    words = [_words(name, sources) for name in names]
    columns = zip(*words, strict=False)
    alike = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    rests = [_joined(each[alike:], sources) for each in words]
    if not alike or not all(rests):  # a single name is alike to its end
        return listed([_joined(each, sources) for each in words])
    return f"{' '.join(words[0][:alike])} ({listed(rests)})"


def _words(name: str, sources: Collection[str]) -> list[str]:
    longest_first = sorted(sources, key=len, reverse=True)
    whole = "|".join(f"(?<![^_]){re.escape(source)}(?![^_])" for source in longest_first)
    return re.findall(f"{whole}|[^_]+" if whole else "[^_]+", name)


def _joined(words: Sequence[str], sources: Collection[str]) -> str:
    are_pair = len(words) == 2 and all(word in sources for word in words)  # noqa: PLR2004
    return (" with " if are_pair else " ").join(words)
