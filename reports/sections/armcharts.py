"""The charts of a group's arms beyond its headline figures: over a sweep, of time, of states."""

from __future__ import annotations

from dataclasses import replace

from wattload.core.record.run import RunRecord
from wattload.reports.admission import counts
from wattload.reports.blocks import Figure
from wattload.reports.charts.forced import captioned, forced_past, titled
from wattload.reports.charts.latency import latency_figure
from wattload.reports.charts.stages import stages_figure
from wattload.reports.charts.states import states_figure
from wattload.reports.charts.workers import workers_figure
from wattload.reports.compare import compare
from wattload.reports.load import Run
from wattload.reports.points import points
from wattload.reports.quantity import label
from wattload.reports.sections.wording import anchor
from wattload.reports.subject import LETTERS, Group, Subject


def arm_figures(subject: Subject, group: Group) -> list[Figure]:
    """Return the charts of a group's arms, the swept ones first; runs with a fault are left out."""
    name = anchor("compare", group.workload)
    bars, letters = _bars(subject, group)
    swept = bars.keys() != group.arms.keys()
    past = forced_past(each for each in compare(subject, group) if each.quantity.headline)
    title = titled(group.workload, past)
    figures = [stages_figure(f"{name}-stages", title, bars, letters, swept=swept)]
    if not swept:  # the points of a sweep are never pooled
        figures.append(states_figure(f"{name}-states", title, bars, group.letters))
        figures.append(latency_figure(f"{name}-latency", title, bars, group.letters))
    points_figure = workers_figure(f"{name}-points", subject, group)
    return [
        *([points_figure] if points_figure else []),
        *(replace(each, caption=captioned(each.caption, past)) for each in figures if each),
    ]


def letter_of(subject: Subject, run: Run) -> str:
    """Return the letter of a run's arm on its page; one of more arms than letters has the first."""
    for letter, arm in zip(LETTERS, subject.arms, strict=False):
        if any(run.id == each.id for group in subject.groups for each in group.arms.get(arm, ())):
            return letter
    return LETTERS[0]


def _bars(subject: Subject, group: Group) -> tuple[dict[str, list[RunRecord]], dict[str, str]]:
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
    return [run.record for run in group.arms[arm] if counts(subject, run)]
