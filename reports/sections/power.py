"""Energy over the page: cumulative energy by arm, power states, and temperatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from wattload.core.record.run import RunRecord
from wattload.reports.blocks import (
    Block,
    FigureRow,
    Paragraph,
    Section,
    Table,
    columns,
    row,
)
from wattload.reports.charts.arms import observed_states, states_figure
from wattload.reports.charts.timeline import energy_figure
from wattload.reports.runs.compact import highest_temperature_k
from wattload.reports.runs.load import Run
from wattload.reports.sections.first import tracks_of, with_choice
from wattload.reports.sections.machine import ABSOLUTE_ZERO_C
from wattload.reports.sections.wording import anchor, unique
from wattload.reports.stats.conditions import compared_group, is_compared
from wattload.reports.stats.subject import LETTERS, Group, Subject, lettered, named
from wattload.reports.stats.sweeps import points
from wattload.results.labels import workload_title
from wattload.results.quantity import MISSING, listed


def cumulative_section(subject: Subject) -> Section | None:
    """Return the energy since the timed start, by arm; ``None`` where no power is known."""
    figures = [
        with_choice(
            energy_figure(
                f"{anchor('energy', group.workload)}-chart",
                f"{workload_title(group.workload)}: cumulative energy",
                tracks,
            ),
            subject,
            group,
            tracks,
        )
        for group in subject.groups
        for tracks in [tracks_of(subject, group)]
    ]
    drawn = [figure for figure in figures if figure is not None]
    if not drawn:
        return None
    return Section(anchor="cumulative-energy", title="Cumulative energy", blocks=[FigureRow(drawn)])


def states_section(subject: Subject) -> Section | None:
    """Return energy by observed power state, and the drives' temperatures; ``None`` without."""
    if len(subject.arms) > len(LETTERS):
        return None
    # the points of a sweep are never pooled
    groups = [group for group in subject.groups if len(points(group)) == 1]
    drawn, constant = [], []
    for group in groups:
        records = {
            arm: [run.record for run in runs if is_compared(subject, run)]
            for arm, runs in group.arms.items()
        }
        figure = states_figure(
            f"{anchor('states', group.workload)}-chart",
            workload_title(group.workload),
            records,
            group.letters,
        )
        if figure is not None:
            drawn.append(figure)
        elif words := _constant_states(records, group.letters):
            constant.append(words)
    blocks: list[Block] = [FigureRow(drawn)] if drawn else []
    blocks += [Paragraph(sentence) for sentence in unique(constant)]
    temperatures = temperature_table(subject, groups)
    blocks += [temperatures] if temperatures else []
    if not blocks:
        return None
    return Section(anchor="power-states", title="Power states", blocks=blocks)


def _constant_states(records: Mapping[str, Sequence[RunRecord]], letters: Sequence[str]) -> str:
    """Return the only power state of each arm as a sentence; empty where none was observed."""
    known = [observed_states(own) for own in records.values()]
    if any(len(states) != 1 or not states[0].startswith("PS") for states in known):
        return ""
    states = [state for (state,) in known]
    if len(set(states)) == 1:
        return f"All timed phases ran in {states[0]}."
    arms = zip(letters, records, states, strict=True)
    words = [f"{named(letter, arm)} in {state}" for letter, arm, state in arms]
    return f"Each arm stayed in one power state in its timed phases: {listed(words)}."


def temperature_table(subject: Subject, groups: Sequence[Group]) -> Table | None:
    """Return the highest temperature in timed phases by workload and arm, medians over runs.

    With two arms there is also their difference in kelvin. ``None`` where no drive reported a
    temperature.
    """
    rows = []
    for group in groups:
        compared = compared_group(subject, group).arms
        medians_k = [_median_k(compared.get(arm, ())) for arm in subject.arms]
        if not any(medians_k):
            continue
        cells = [workload_title(group.workload), *map(_celsius, medians_k)]
        if subject.compares:
            a_k, b_k = medians_k
            cells.append(MISSING if a_k is None or b_k is None else f"{b_k - a_k:+g} K")
        rows.append(row(*cells))
    if not rows:
        return None
    titles = [f"#{lettered(*pair)}" for pair in zip(LETTERS, subject.arms, strict=False)]
    if subject.compares:
        titles.append("#B - A")
    return Table(
        columns=columns("workload", *titles),
        rows=rows,
        caption="Highest temperature of the drive in timed phases",
        note="From the SMART log: the median over an arm's runs.",
    )


def _median_k(runs: Sequence[Run]) -> float | None:
    highest = [k for run in runs if (k := highest_temperature_k(run)) is not None]
    return median(highest) if highest else None


def _celsius(kelvin: float | None) -> str:
    return MISSING if kelvin is None else f"{kelvin + ABSOLUTE_ZERO_C:g} °C"
