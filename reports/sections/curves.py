"""What a swept setting does: latency against throughput, and rates over the setting."""

from __future__ import annotations

from wattload.reports.blocks import Block, Heading, Section
from wattload.reports.charts.curves import load_figure
from wattload.reports.charts.scaling import scaling_figure
from wattload.reports.curves import load_curves, scalings
from wattload.reports.quantity import label
from wattload.reports.sections.wording import anchor
from wattload.reports.subject import Group, Subject


def curves_section(subject: Subject) -> Section | None:
    """Return the curves of every group that was swept; ``None`` where there is none to draw."""
    parts = [part for group in subject.groups if (part := _part(subject, group)) is not None]
    if not parts:
        return None
    return Section(anchor="curves", title="Curves over what was swept", parts=parts)


def _part(subject: Subject, group: Group) -> Section | None:
    name = anchor("curves", group.workload)
    blocks: list[Block] = []
    for found in load_curves(subject, group):
        words = f"Latency against throughput: {found.kind}s in {found.phase}"
        place = anchor(name, found.phase, found.kind)
        blocks.append(Heading(words))
        blocks.append(load_figure(f"{place}-chart", f"{group.workload}, {found.phase}", found))
    if rates := scalings(subject, group):
        blocks.append(Heading(f"Rates over {label(rates[0].axis)}"))
        blocks.append(scaling_figure(f"{name}-rates-chart", group.workload, rates))
    if not blocks:
        return None
    return Section(anchor=name, title=group.workload, blocks=blocks)
