"""The conditions in which arms differ, and the hosts and drives of all runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.core.record.host import HostFacts
from wattload.reports.blocks import Block, Cell, Notice, Paragraph, Section, Table, columns, row
from wattload.reports.sections.wording import host_words, target_words, unique
from wattload.reports.stats.comparison import excluding_conditions
from wattload.reports.stats.conditions import (
    compared_group,
    differences,
    mixtures,
)
from wattload.reports.stats.pairs import one_after_the_other
from wattload.reports.stats.subject import LETTERS, Group, Subject, lettered, named
from wattload.reports.stats.sweeps import points
from wattload.results.labels import workload_title
from wattload.results.quantity import MISSING, listed

_NOT_COMPARED = ("name", "missing")
"""The fields of a host that are its name, or reasons for other fields."""


def conditions_section(subject: Subject) -> Section:
    """Return what was run on, what differs between the arms, and what differs between hosts."""
    blocks: list[Block] = [Paragraph(_setup(subject))]
    blocks += _caveats(subject)
    tables = list(_differences(subject))
    blocks += tables
    if 1 < len(subject.arms) <= len(LETTERS) and not tables:
        blocks.append(Paragraph("The recorded conditions of all arms are the same."))
    blocks.append(_hosts(subject))
    return Section(anchor="conditions", title="Conditions and hosts", blocks=blocks)


def _setup(subject: Subject) -> str:
    records = [run.record for run in subject.runs]
    scales = listed(unique(record.workload.scale for record in records))
    loaders = listed(unique(w.loader for w in (r.workload for r in records) if w.uses_loader))
    hosts = listed(unique(host_words(record) for record in records))
    targets = listed(unique(target_words(t.facts) for r in records for t in r.targets))
    loader = f", loader {loaders}" if loaders else ""
    what = f"Scale {scales}{loader}, on {hosts}, against {targets or 'no target'}."
    if len(subject.arms) < 2:  # noqa: PLR2004 - one arm differs from none
        return what
    return f"{what} Arms are distinguished by {subject.distinction}."


def _caveats(subject: Subject) -> Iterator[Notice]:
    """Yield runs mixed in an arm, and arms that did not alternate."""
    places = [point for group in subject.groups for point in points(group)]
    texts = unique(
        text for point in places for text in mixtures(compared_group(subject, point.group))
    )
    orders = unique(filter(None, (one_after_the_other(subject, each.group) for each in places)))
    if orders:
        texts.append(
            f"The arms did not alternate: {listed(orders)}. Any drift counts as a difference of "
            "the arms; interleave=abba avoids that."
        )
    if texts:
        yield Notice("Confounders", texts, "warn", "confounders")


def _differences(subject: Subject) -> Iterator[Table]:
    """Yield the recorded conditions in which the arms differ; equal workloads share a table."""
    same: dict[tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]], list[str]] = {}
    for group in subject.groups:
        if 1 < len(group.arms) <= len(LETTERS) and (rows := _differing(subject, group)):
            pairs = zip(group.letters, group.arms, strict=True)
            arms = tuple(lettered(letter, named(letter, arm)) for letter, arm in pairs)
            same.setdefault((arms, rows), []).append(workload_title(group.workload))
    for (arms, rows), workloads in same.items():
        yield Table(
            columns=columns("condition", *arms),
            rows=rows,
            caption=f"{listed(workloads)}: conditions that differ",
        )


def _differing(subject: Subject, group: Group) -> tuple[tuple[Cell, ...], ...]:
    """Return a row for each recorded condition in which the compared runs of the arms differ."""
    compared = compared_group(subject, group)
    if sum(bool(runs) for runs in compared.arms.values()) < 2:  # noqa: PLR2004 - nothing to compare
        return ()
    excluding = excluding_conditions(subject, group)
    remark = "defines the work: " + ("forced" if subject.forced else "no verdict")
    return tuple(
        row(
            Cell(item.name, remark=remark if item.name in excluding else ""),
            *[item.values[arm] for arm in group.arms],
        )
        for item in differences(compared, subject.by)
    )


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
