"""Runs over time; where a trace or a power source is missing, the page says so in its place."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.reports.blocks import Absent, Block, Notice, Paragraph, Section
from wattload.reports.charts.timeline import arms_timeline_figure, timeline_figure
from wattload.reports.chosen import CHOICE, middle_run
from wattload.reports.load import Run
from wattload.reports.points import Point, points
from wattload.reports.quantity import listed
from wattload.reports.sections.wording import anchor, sentence_of
from wattload.reports.subject import LETTERS, Group, Subject, lettered
from wattload.reports.timeline import make_timeline


def arms_overtime_section(subject: Subject) -> Section | None:
    """Return a run of each of two arms over time, beside each other; ``None`` for other counts."""
    parts = [part for group in subject.groups if (part := _arms_part(subject, group)) is not None]
    if not parts:
        return None
    return Section(anchor="arms-over-time", title="Over time, arm by arm", parts=parts)


def _arms_part(subject: Subject, group: Group) -> Section | None:
    if len(subject.arms) != 2 or len(group.arms) != 2:  # noqa: PLR2004 - A beside B
        return None
    shown = next(
        (
            (point, chosen)
            for point in reversed(points(group))
            if len(chosen := _middle_runs(subject, point)) == 2  # noqa: PLR2004
        ),
        None,
    )
    if shown is None:
        return None
    point, chosen = shown
    name = anchor("arms-over-time", group.workload)
    named = {
        lettered(letter, arm): make_timeline(chosen[arm])
        for letter, arm in zip(LETTERS, subject.arms, strict=False)
    }
    figure = arms_timeline_figure(f"{name}-chart", group.workload, named)
    if figure is None:
        return None
    said = Paragraph(_choice(point, list(chosen.values())))
    return Section(anchor=name, title=group.workload, blocks=[said, figure])


def _middle_runs(subject: Subject, point: Point) -> dict[str, Run]:
    chosen = {arm: middle_run(subject, runs) for arm, runs in point.group.arms.items()}
    return {arm: run for arm, run in chosen.items() if run is not None}


def _choice(point: Point, runs: Sequence[Run]) -> str:
    where = f" at {point.axis} = {point.value}" if point.axis else ""
    ids = listed([run.id for run in runs])
    return sentence_of(f"{CHOICE}{where}: {ids}")


def overtime_section(subject: Subject, run: Run) -> Section | None:
    """Return throughput and power over one time axis."""
    timeline = make_timeline(run)
    name = anchor(run.id, "over-time")
    blocks: list[Block] = []
    figure = timeline_figure(name + "-chart", f"{run.record.workload.name} {run.id}", timeline)
    if figure is not None:
        blocks.append(figure)
    if not timeline.rates:
        blocks.append(Absent("No throughput to draw", _why(run, "throughput")))
    if not timeline.watts and not timeline.bands:
        used = any(source.used for source in run.record.power.sources)
        title = "No power to draw" if used else "Power: no power source"
        blocks.append(Absent(title, _why_no_power(run)))
    if run.traces.notes:
        blocks.append(Notice("Traces", run.traces.notes, "open"))
    return Section(anchor=name, title="Over time", blocks=blocks)


def _why(run: Run, name: str) -> str:
    reasons = [note for note in run.traces.notes if f" {name} trace" in note]
    return reasons[0] if reasons else f"The {name} trace holds no bytes."


def _why_no_power(run: Run) -> str:
    """Return why no power is drawn: no source, or its samples are gone."""
    used = [source for source in run.record.power.sources if source.used]
    if used and run.traces.power is None:
        return _why(run, "power")
    if used:
        return "The power trace holds no sample of the drive's power."
    return run.record.power.choice
