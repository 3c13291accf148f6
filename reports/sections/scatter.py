"""Where a run's operations went over time, from the sample that its loader kept."""

from __future__ import annotations

from wattload.reports.blocks import Section
from wattload.reports.charts.scatter import scatter_figure
from wattload.reports.load import Run
from wattload.reports.scatter import make_scatter
from wattload.reports.sections.wording import anchor
from wattload.reports.subject import Subject
from wattload.reports.timeline import make_timeline


def scatter_section(subject: Subject, run: Run) -> Section | None:
    """Return a dot per traced operation; ``None`` for a run whose loader traced none."""
    scatter = make_scatter(run)
    if scatter is None:
        return None
    name = anchor(run.id, "operations")
    strips = make_timeline(run).strips
    title = f"{run.record.workload.name} {run.id}"
    figure = scatter_figure(f"{name}-chart", title, scatter, strips)
    return Section(anchor=name, title="Operations over time", blocks=[figure])
