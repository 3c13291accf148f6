"""Energy over the page: cumulative energy by arm, power states, and temperatures."""

from __future__ import annotations

from statistics import median

from wattload.reports.blocks import Block, Section, Table, columns, row
from wattload.reports.charts.arms import states_figure
from wattload.reports.charts.timeline import energy_figure
from wattload.reports.quantity import MISSING, workload_title
from wattload.reports.runs.compact import highest_temperature_k
from wattload.reports.sections.first import tracks_of
from wattload.reports.sections.machine import ABSOLUTE_ZERO_C
from wattload.reports.sections.wording import anchor
from wattload.reports.stats.conditions import compared_group, is_compared
from wattload.reports.stats.subject import LETTERS, Group, Subject, lettered
from wattload.reports.stats.sweeps import points


def cumulative_section(subject: Subject) -> Section | None:
    """Return the energy since the timed start, by arm; ``None`` where no power is known."""
    figures = [
        energy_figure(
            f"{anchor('energy', group.workload)}-chart",
            f"{workload_title(group.workload)}: cumulative energy",
            tracks_of(subject, group),
        )
        for group in subject.groups
    ]
    blocks = [figure for figure in figures if figure is not None]
    if not blocks:
        return None
    return Section(anchor="cumulative-energy", title="Cumulative energy", blocks=blocks)


def states_section(subject: Subject) -> Section | None:
    """Return energy by observed power state, and the drives' temperatures; ``None`` without."""
    if len(subject.arms) > len(LETTERS):
        return None
    blocks: list[Block] = []
    for group in subject.groups:
        if len(points(group)) > 1:
            continue  # the points of a sweep are never pooled
        records = {
            arm: [run.record for run in runs if is_compared(subject, run)]
            for arm, runs in group.arms.items()
        }
        name = anchor("states", group.workload)
        figure = states_figure(
            f"{name}-chart", workload_title(group.workload), records, group.letters
        )
        temperatures = temperature_table(compared_group(subject, group))
        blocks += [each for each in (figure, temperatures) if each is not None]
    if not blocks:
        return None
    return Section(anchor="power-states", title="Power states", blocks=blocks)


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
        caption=f"{workload_title(group.workload)}: temperature of the drive under load",
        note="From the SMART log: the highest in timed phases, the median over an arm's runs.",
    )


def _celsius(kelvin: float | None) -> str:
    return MISSING if kelvin is None else f"{kelvin + ABSOLUTE_ZERO_C:g} °C"
