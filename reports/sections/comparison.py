"""Arms side by side per workload: ratios, charts, tables, missing points, differing conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from wattload.core.record.run import RunRecord
from wattload.reports.blocks import (
    Block,
    Cell,
    Figure,
    Fold,
    Notice,
    Paragraph,
    Section,
    Table,
    columns,
    row,
)
from wattload.reports.charts.arms import arms_figure
from wattload.reports.charts.captions import forced_caption, forced_clause, forced_title
from wattload.reports.charts.effects import effects_figure
from wattload.reports.charts.energy import states_figure
from wattload.reports.charts.latency import latency_figure
from wattload.reports.charts.stacks import parts_figures, stages_figure
from wattload.reports.charts.sweep_bars import sweep_figure
from wattload.reports.quantity import MISSING, counted, label, listed
from wattload.reports.runs.compact import highest_temperature_k
from wattload.reports.runs.load import Run
from wattload.reports.sections.caveats import unsealed_notices
from wattload.reports.sections.machine import ABSOLUTE_ZERO_C
from wattload.reports.sections.method import comparison_rules
from wattload.reports.sections.ratios import (
    by_quantity,
    confidence_fold,
    noise_section,
    points_table,
    quantities_table,
    ratio_summary,
)
from wattload.reports.sections.wording import anchor, unique
from wattload.reports.stats.comparison import Row, compare, excluding_conditions
from wattload.reports.stats.conditions import compared_group, differences, is_compared, mixtures
from wattload.reports.stats.pairs import one_after_the_other
from wattload.reports.stats.subject import LETTERS, Group, Subject, lettered
from wattload.reports.stats.sweeps import Point, points

_NO_TURNS = (
    "By their start times, {}. Any change in between counts as a difference of the arms, and no "
    "interval allows for it. The noise floor extrapolates the drift within the arms; a jump "
    "between them cannot be seen. Use interleave=abba to alternate the arms."
)


def arm_figures(subject: Subject, group: Group) -> list[Figure]:
    """Return the charts of a group's arms, those of a sweep first, of the valid runs only."""
    name = anchor("compare", group.workload)
    bars, letters = _records_by_bar(subject, group)
    swept = bars.keys() != group.arms.keys()
    forced = forced_clause(each for each in compare(subject, group) if each.quantity.headline)
    title = forced_title(group.workload, forced)
    figures = [stages_figure(f"{name}-stages", title, bars, letters, swept=swept)]
    if not swept:  # the points of a sweep are never pooled
        figures.append(states_figure(f"{name}-states", title, bars, group.letters))
        figures.append(latency_figure(f"{name}-latency", title, bars, group.letters))
    points_figure = sweep_figure(f"{name}-points", subject, group)
    return [
        *([points_figure] if points_figure else []),
        *(replace(each, caption=forced_caption(each.caption, forced)) for each in figures if each),
    ]


def _records_by_bar(
    subject: Subject, group: Group
) -> tuple[dict[str, list[RunRecord]], dict[str, str]]:
    """Return the valid runs by arm and their letters; of a sweep, by point and arm."""
    of_arm = dict(zip(group.arms, group.letters, strict=True))
    found = points(group)
    if len(found) == 1:
        return {arm: _valid(subject, group, arm) for arm in group.arms}, of_arm
    bars, letters = {}, {}
    for point in found:
        for arm in point.group.arms:
            key = f"{label(point.axis)} {point.value}, {of_arm[arm]}"
            bars[key] = _valid(subject, point.group, arm)
            letters[key] = of_arm[arm]
    return bars, letters


def _valid(subject: Subject, group: Group, arm: str) -> list[RunRecord]:
    return [run.record for run in group.arms[arm] if is_compared(subject, run)]


def temperature_table(group: Group) -> Table | None:
    """Return the highest temperature in timed phases by arm, the median over its runs.

    With two arms there is also their difference in kelvin. ``None`` where no drive reported a
    temperature.
    """
    highest = {
        arm: [highest_temperature_k(run) for run in runs] for arm, runs in group.arms.items()
    }
    known = {arm: [k for k in values if k is not None] for arm, values in highest.items()}
    if not any(known.values()):
        return None
    medians_k = [median(values) if values else None for values in known.values()]
    cells = ["highest temperature", *(_celsius(kelvin) for kelvin in medians_k)]
    titles = [f"#{lettered(*pair)}" for pair in zip(group.letters, group.arms, strict=True)]
    if group.is_pair:
        titles.append("#B - A")
        a_k, b_k = medians_k
        cells.append(MISSING if a_k is None or b_k is None else f"{b_k - a_k:+g} K")
    return Table(
        columns=columns("drive", *titles),
        rows=[row(*cells)],
        caption="Temperature of the drive under load",
        note=(
            "From the drive's SMART log, in whole kelvins: the highest value in the timed phases, "
            "as the median over an arm's runs. A drive that starts warm gets warmer."
        ),
    )


def _celsius(kelvin: float | None) -> str:
    return MISSING if kelvin is None else f"{kelvin + ABSOLUTE_ZERO_C:g} °C"


def missing_points_notice(subject: Subject, group: Group) -> Notice | None:
    """Return the points of a sweep where an arm lacks a valid run; ``None`` where none does."""
    texts = [text for point in points(group) if (text := _missing_point(subject, group, point))]
    return Notice("Points without a valid run of each arm", texts, "warn") if texts else None


def _missing_point(subject: Subject, group: Group, point: Point) -> str:
    if not point.axis:
        return ""
    valid = compared_group(subject, point.group).arms
    lacking = list(_lacking(group, point, valid))
    if not lacking:
        return ""
    left = "not compared" if len(group.arms) > 1 else "no figure"
    return f"No valid run of {listed(lacking, 'or')} at {point.axis} = {point.value}: {left}."


def _lacking(group: Group, point: Point, valid: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    """Yield each arm without a run that counts, with the number of its runs."""
    for letter, arm in zip(group.letters, group.arms, strict=True):
        if not valid.get(arm):
            made = len(point.group.arms.get(arm, ()))
            why = f"none of {counted(made, 'run')} is valid" if made else "not run"
            yield f"{letter} ({why})"


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
        blocks=comparison_rules() if compares else [],
        parts=[*(_part(subject, group) for group in groups), *([noise] if noise else [])],
    )


def _part(subject: Subject, group: Group) -> Section:
    rows = compare(subject, group)
    heads = [entry for entry in rows if entry.quantity.headline]
    others = [entry for entry in rows if not entry.quantity.headline]
    name = anchor("compare", group.workload)
    blocks: list[Block] = [
        *_forced(subject, heads),
        *ratio_summary(heads, group),
        *unsealed_notices(group),
        *_exclusion_notices(subject, group),
        *_charts(subject, group, heads),
        *_tables(group, heads, others),
    ]
    if group.is_pair and (confidence := confidence_fold(heads)):
        blocks.append(confidence)
    if temperatures := temperature_table(compared_group(subject, group)):
        blocks.append(temperatures)
    if len(group.arms) > 1:
        blocks.append(_conditions(subject, group))
    return Section(anchor=name, title=group.workload, blocks=blocks, remark=_remark(group))


def _forced(subject: Subject, rows: Sequence[Row]) -> Iterator[Notice]:
    """Yield the reasons that a forced comparison overrides."""
    reasons = unique(entry.forced for entry in rows if entry.forced)
    if subject.forced and reasons:
        opening = (
            "This comparison was forced (--force). Without it, these reasons would exclude every "
            "verdict that is marked as forced."
        )
        yield Notice(
            "Forced comparison", [opening, *(f"Overridden: {text}." for text in reasons)], "bad"
        )


def _remark(group: Group) -> str:
    if len(group.arms) == 1:
        return counted(len(group.runs), "run")
    numbers = [counted(len(runs), "run") for runs in group.arms.values()]
    named = [lettered(*pair) for pair in zip(group.letters, group.arms, strict=True)]
    return ", ".join(f"{arm}: {count}" for arm, count in zip(named, numbers, strict=True))


def _exclusion_notices(subject: Subject, group: Group) -> Iterator[Notice]:
    """Yield the runs, points and energies that are shown but not compared, with the reasons."""
    excluded = [
        f"{run.id}: {reason}"
        for run in group.runs
        if not is_compared(subject, run)
        for reason in subject.faults(run)
    ]
    if excluded:
        yield Notice("Excluded runs", excluded, "bad")
    reasons = [reason for run in group.runs for reason in subject.energy_faults(run)]
    if reasons and not subject.forced:
        yield Notice("Energy is not compared", unique(reasons), "open")
    if missing := missing_points_notice(subject, group):
        yield missing
    places = points(group)
    mixed = [text for point in places for text in mixtures(compared_group(subject, point.group))]
    if mixed:
        yield Notice("Runs of one arm that are not repeats of each other", unique(mixed), "warn")
    orders = [one_after_the_other(subject, point.group) for point in places]
    if reasons := list(filter(None, orders)):
        yield Notice(
            "The arms did not alternate", [_NO_TURNS.format(listed(unique(reasons)))], "open"
        )


def _charts(subject: Subject, group: Group, heads: Sequence[Row]) -> Iterator[Block]:
    """Yield the charts of one point, or of a sweep, whose points are never pooled."""
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
        valid = compared_group(subject, group).arms
        records = {arm: [run.record for run in runs] for arm, runs in valid.items()}
        letters = dict(zip(group.arms, group.letters, strict=True))
        forced = forced_clause(heads)
        for figure in parts_figures(name, forced_title(group.workload, forced), records, letters):
            yield replace(figure, caption=forced_caption(figure.caption, forced))


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
    """Yield the ratios of one quantity in a fold, with the points as rows."""
    quantity = rows[0].quantity
    points_as_rows = [
        replace(entry, quantity=replace(quantity, label=f"{entry.axis} = {entry.at}"))
        for entry in rows
    ]
    title = f"{quantity.label} by {rows[0].axis}"
    if figure := effects_figure(f"{name}-effects{number}", title, points_as_rows, *LETTERS[:2]):
        yield Fold(f"Ratios of {title}, with their intervals", [figure])


def _conditions(subject: Subject, group: Group) -> Block:
    """Return the recorded conditions in which the compared runs of the arms differ."""
    compared = compared_group(subject, group)
    if sum(bool(runs) for runs in compared.arms.values()) < 2:  # noqa: PLR2004 - nothing to compare
        return Paragraph("Conditions are not compared: fewer than two arms have a valid run.")
    found = differences(compared, subject.by)
    if not found:
        return Paragraph("The recorded conditions of all arms are the same.")
    excluding = excluding_conditions(subject, group)
    remark = "defines the work: " + ("forced" if subject.forced else "no verdict")
    rows = [
        row(
            Cell(item.name, remark=remark if item.name in excluding else ""),
            *[item.values[arm] for arm in group.arms],
        )
        for item in found
    ]
    return Table(
        columns=columns("condition", *group.letters),
        rows=rows,
        caption="Conditions that differ",
        note="All other recorded conditions of the valid runs are the same in all arms.",
    )
