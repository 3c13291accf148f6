"""Arms side by side per workload: figures, ratios, what may be called, and unequal conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from wattload.reports.admission import counted_group, counts
from wattload.reports.barring import barring
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
from wattload.reports.charts.arms import arms_figure
from wattload.reports.charts.effects import effects_figure
from wattload.reports.charts.forced import captioned, forced_past, titled
from wattload.reports.charts.parts import parts_figures
from wattload.reports.compare import Row, compare
from wattload.reports.conditions import differences, mixtures
from wattload.reports.pairs import one_after_the_other
from wattload.reports.points import points
from wattload.reports.quantity import counted, listed
from wattload.reports.sections.armcharts import arm_figures
from wattload.reports.sections.figuretables import points_table, quantities_table
from wattload.reports.sections.heat import temperature_table
from wattload.reports.sections.rules import rules
from wattload.reports.sections.sayings import by_quantity, sayings
from wattload.reports.sections.sureness import noise_section, sureness
from wattload.reports.sections.unsealed import unsealed
from wattload.reports.sections.voids import voids_notice
from wattload.reports.sections.wording import anchor, unique
from wattload.reports.subject import LETTERS, Group, Subject, lettered

_TURNS = (
    "As their start times have it, {}: whatever changed in between counts as a difference of the "
    "arms, and no interval allows for it. The noise floor carries on what drifts within the arms; "
    "a jump between them shows nowhere. interleave=abba takes turns."
)


def comparison_section(subject: Subject) -> Section | None:
    """Return the arms side by side, or the spread of one arm's runs; ``None`` for single runs."""
    groups = [group for group in subject.groups if len(group.runs) > 1]
    if not groups or len(subject.arms) > len(LETTERS):
        return None
    compares, several = subject.compares, len(subject.arms) > 1
    noise = noise_section(subject)
    return Section(
        anchor="comparison",
        title="Comparison" if compares else "Side by side" if several else "Repeats",
        blocks=rules() if compares else [],
        parts=[*(_part(subject, group) for group in groups), *([noise] if noise else [])],
    )


def _part(subject: Subject, group: Group) -> Section:
    rows = compare(subject, group)
    heads = [entry for entry in rows if entry.quantity.headline]
    others = [entry for entry in rows if not entry.quantity.headline]
    name = anchor("compare", group.workload)
    blocks: list[Block] = [
        *_forced(subject, heads),
        *sayings(heads, group),
        *unsealed(group),
        *_bars(subject, group),
        *_charts(subject, group, heads),
        *_tables(group, heads, others),
    ]
    if group.is_pair and (sure := sureness(heads)):
        blocks.append(sure)
    if heat := temperature_table(counted_group(subject, group)):
        blocks.append(heat)
    if len(group.arms) > 1:
        blocks.append(_conditions(subject, group))
    return Section(anchor=name, title=group.workload, blocks=blocks, remark=_remark(group))


def _forced(subject: Subject, rows: Sequence[Row]) -> Iterator[Notice]:
    """Yield what a forced comparison lets through, above all that it says."""
    said = unique(entry.forced for entry in rows if entry.forced)
    if subject.forced and said:
        opening = (
            "This comparison was forced (--force): what is let through here would bar every call "
            "that says so."
        )
        yield Notice(
            "Forced comparison", [opening, *(f"Let through: {text}." for text in said)], "bad"
        )


def _remark(group: Group) -> str:
    if len(group.arms) == 1:
        return counted(len(group.runs), "run")
    numbers = [counted(len(runs), "run") for runs in group.arms.values()]
    named = [lettered(*pair) for pair in zip(group.letters, group.arms, strict=True)]
    return ", ".join(f"{arm}: {count}" for arm, count in zip(named, numbers, strict=True))


def _bars(subject: Subject, group: Group) -> Iterator[Notice]:
    """Yield what is shown and not compared: runs, points, energy, each with the reasons."""
    barred = [
        f"{run.id}: {reason}"
        for run in group.runs
        if not counts(subject, run)
        for reason in subject.faults(run)
    ]
    if barred:
        yield Notice("Runs that are shown and not compared", barred, "bad")
    reasons = [reason for run in group.runs for reason in subject.energy_faults(run)]
    if reasons and not subject.forced:
        yield Notice("Energy is not compared", unique(reasons), "open")
    if void := voids_notice(subject, group):
        yield void
    places = points(group)
    mixed = [text for point in places for text in mixtures(counted_group(subject, point.group))]
    if mixed:
        yield Notice("Runs of one arm that are no repeats of each other", unique(mixed), "warn")
    if reasons := [said for point in places if (said := one_after_the_other(subject, point.group))]:
        yield Notice(
            "The arms did not take turns", [_TURNS.format(listed(unique(reasons)))], "open"
        )


def _charts(subject: Subject, group: Group, heads: Sequence[Row]) -> Iterator[Block]:
    """Yield the charts of one point, or of a sweep; none pools the points of a sweep."""
    name = anchor("compare", group.workload)
    is_swept = any(entry.axis for entry in heads)
    if not is_swept:
        directed = [entry for entry in heads if entry.quantity.better != "neither"]
        if figure := arms_figure(
            f"{name}-arms", group.workload, directed, group.arms, group.letters
        ):
            yield figure
        if group.is_pair and (
            figure := effects_figure(f"{name}-effects", group.workload, heads, *group.letters)
        ):
            yield figure
    yield from arm_figures(subject, group)
    if not is_swept and len(group.arms) > 1:
        valid = counted_group(subject, group).arms
        records = {arm: [run.record for run in runs] for arm, runs in valid.items()}
        letters = dict(zip(group.arms, group.letters, strict=True))
        past = forced_past(heads)
        for figure in parts_figures(name, titled(group.workload, past), records, letters):
            yield replace(figure, caption=captioned(figure.caption, past))


def _tables(group: Group, heads: Sequence[Row], others: Sequence[Row]) -> Iterator[Block]:
    if not any(entry.axis for entry in heads):
        yield quantities_table(heads, group, "Headline figures and energy")
        if others:
            table = quantities_table(others, group, "Other figures")
            yield Fold("All other figures", [table], looked_up=True)
        return
    for number, rows in enumerate(by_quantity(heads)):
        yield points_table(rows, group)
        if group.is_pair and rows[0].quantity.better != "neither":
            yield from _effects_of_points(anchor("compare", group.workload), number, rows)
    if others:
        tables = [points_table(rows, group) for rows in by_quantity(others)]
        yield Fold("All other figures", tables, looked_up=True)


def _effects_of_points(name: str, number: int, rows: Sequence[Row]) -> Iterator[Block]:
    """Yield the ratios of one quantity, a row per point, in a fold under its table."""
    quantity = rows[0].quantity
    named = [
        replace(entry, quantity=replace(quantity, label=f"{entry.axis} = {entry.at}"))
        for entry in rows
    ]
    title = f"{quantity.label} by {rows[0].axis}"
    if figure := effects_figure(f"{name}-effects{number}", title, named, *LETTERS[:2]):
        yield Fold(f"Ratios of {title}, with their intervals", [figure])


def _conditions(subject: Subject, group: Group) -> Block:
    """Return in what the compared runs of the arms differ."""
    compared = counted_group(subject, group)
    if sum(bool(runs) for runs in compared.arms.values()) < 2:  # noqa: PLR2004 - nothing beside it
        return Paragraph("Fewer than two arms have a run that counts: no conditions are compared.")
    found = differences(compared, subject.by)
    if not found:
        return Paragraph("The recorded conditions of all arms are the same.")
    barred = barring(subject, group)
    remark = "sets the work: " + ("forced" if subject.forced else "nothing is called")
    rows = [
        row(
            Cell(item.name, remark=remark if item.name in barred else ""),
            *[item.values[arm] for arm in group.arms],
        )
        for item in found
    ]
    return Table(
        columns=columns("condition", *group.letters),
        rows=rows,
        caption="Conditions that differ",
        note="All other recorded conditions of the runs that count are the same in all arms.",
    )
