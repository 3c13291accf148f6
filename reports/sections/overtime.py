"""A run over time; where a trace or a power source is missing, the page says so in its place."""

from __future__ import annotations

from wattload.reports.blocks import Absent, Block, Notice, Section
from wattload.reports.charts.timeline import timeline_figure
from wattload.reports.load import Run
from wattload.reports.sections.wording import anchor
from wattload.reports.subject import Subject
from wattload.reports.timeline import make_timeline


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
