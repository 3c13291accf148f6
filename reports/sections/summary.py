"""The opening: what was run on what, the headline per workload, and what could not be measured."""

from __future__ import annotations

from collections.abc import Iterator

from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Block, Cards, Notice, Paragraph, Section
from wattload.reports.compare import sentence
from wattload.reports.quantity import UNIT_SPACE, counted, listed
from wattload.reports.sections.cards import directed_rows, workload_card
from wattload.reports.sections.gaps import gaps_notice
from wattload.reports.sections.headline import headline_tiles
from wattload.reports.sections.wording import (
    host_words,
    moment,
    sentence_of,
    tallied,
    target_words,
    unique,
)
from wattload.reports.subject import LETTERS, Group, Subject, lettered


def title(subject: Subject) -> str:
    """Return what the page is about."""
    workloads = listed([group.workload for group in subject.groups])
    if subject.compares:
        return f"{subject.arms[0]} against {subject.arms[1]}: {workloads}"
    places = unique(
        target.facts.path or target.facts.kind
        for run in subject.runs
        for target in run.record.targets
    )
    return f"{workloads} on {listed(places)}" if places else workloads


def summary_section(subject: Subject) -> Section:
    """Return the opening of the page; each of its sentences is computed from the records."""
    blocks: list[Block] = [Paragraph(_what(subject), lead=True)]
    blocks.extend(Paragraph(text) for text in _headlines(subject))
    blocks.extend(_broken(subject))
    blocks.append(gaps_notice(subject))
    blocks.append(Cards([workload_card(subject, group) for group in subject.groups]))
    warnings = _warnings(subject)
    if warnings:
        blocks.append(Notice("To be known with these figures", warnings, "warn"))
    return Section(anchor="summary", title="Summary", blocks=blocks)


def _what(subject: Subject) -> str:
    records = [run.record for run in subject.runs]
    workloads = listed([group.workload for group in subject.groups])
    scales = listed(unique(record.workload.scale for record in records))
    loaders = listed(unique(record.workload.loader for record in records))
    hosts = listed(unique(host_words(record) for record in records))
    targets = listed(unique(target_words(t.facts) for r in records for t in r.targets))
    first = min(record.started_utc for record in records)
    last = max(record.finished_utc or record.started_utc for record in records)
    return (
        f"{counted(len(records), 'run')} of {workloads} at scale {scales}, loader {loaders}, on "
        f"{hosts}, against {targets or 'no target'}, {_period(first, last)}."
    )


def _period(first: str, last: str) -> str:
    """Return from when to when, the day once if it is one."""
    start, end = moment(first), moment(last)
    if start[:10] == end[:10]:
        return f"on {start[:10]} from {start[11:19]} to {end[11:]}"
    return f"from {start} to {end}"


def _headlines(subject: Subject) -> Iterator[str]:
    if subject.compares:
        arms = [lettered(*pair) for pair in zip(LETTERS, subject.arms, strict=False)]
        yield f"{listed(arms)} are told apart by {subject.by.replace('_', ' ')}."
        yield from (_comparison(subject, group) for group in subject.groups)
        return
    if len(subject.arms) > 2:  # noqa: PLR2004 - two arms are compared
        yield (
            f"There are {counted(len(subject.arms), 'arm')} by {subject.by.replace('_', ' ')} "
            f"({listed(list(subject.arms))}); name the runs of two to have them compared."
        )
    for group in subject.groups:
        texts = _figures(group.runs[0].record)
        if texts:
            several = len(group.runs) > 1
            which = f", first of {counted(len(group.runs), 'run')}" if several else ""
            yield f"{group.workload}{which}: {listed(texts)}."


def _figures(record: RunRecord) -> list[str]:
    return [
        f"{tile.label} {tile.value}{UNIT_SPACE}{tile.unit}".rstrip()
        for tile in headline_tiles(record, 3)
        if tile.tone != "open"
    ]


def _comparison(subject: Subject, group: Group) -> str:
    """Return the first figure and the energy as ratios, and what all figures come to."""
    if len(group.arms) < 2:  # noqa: PLR2004 - A and B
        return f"{group.workload}: only {next(iter(group.arms))} ran it."
    rows = directed_rows(subject, group)
    first = [row for row in rows if not row.quantity.is_energy and row.effect][:1]
    energy = [row for row in rows if row.quantity.unit is Unit.JOULES and row.effect][-1:]
    said = listed([sentence(row, "A", "B") for row in (*first, *energy)])
    called = [
        f"{letter} is better in {counted(count, 'figure')} of {len(rows)}"
        for letter, call in (("A", "a"), ("B", "b"))
        if (count := sum(row.call == call for row in rows))
    ]
    if not called:
        reasons = [row.reason for row in rows if row.call == "barred"]
        called = [f"nothing is called better: {reasons[0] if reasons else 'no difference shown'}"]
    return f"{group.workload}: {said or 'no ratio can be formed'}; {listed(called)}."


def _broken(subject: Subject) -> Iterator[Notice]:
    sentences = [
        f"{run.record.workload.name}, run {run.id}: {fault.rstrip('.')}."
        for run in subject.runs
        for fault in subject.faults(run)
    ]
    if sentences:
        yield Notice("Shown, but not compared as valid", sentences, "bad")


def _warnings(subject: Subject) -> list[str]:
    """Return remarks, what is known of targets beyond the limits, and which checks warn."""
    said: list[tuple[RunRecord, str]] = []
    for run in subject.runs:
        record = run.record
        told = {sentence_of(limit) for limit in record.limits}
        of_targets = [text for target in record.targets for text in target.facts.warnings]
        own = [text for text in of_targets if sentence_of(text) not in told]
        own += record.workload.remarks
        warned = [
            check.name.replace("_", " ") for check in record.checks if check.verdict == "warn"
        ]
        if warned:
            own.append(f"checks warn of {listed(warned)}")
        said.extend((record, text) for text in unique(own))
    return tallied(said, subject)
