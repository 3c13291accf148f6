"""Where the time of a run went: the seconds of its phases, stacked per arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Figure
from wattload.reports.charts.stack import Stack, stack_figure
from wattload.reports.phases import leading, overlap
from wattload.reports.quantity import label


def stages_figure(
    name: str,
    subject: str,
    arms: Mapping[str, Sequence[RunRecord]],
    letters: Mapping[str, str] | None = None,
    *,
    swept: bool = False,
) -> Figure | None:
    """Return the timed phases of each arm as stages of one bar.

    ``letters`` has the letter of each bar, ``swept`` says that a bar is an arm at one point.
    ``None`` where there is one phase only, or where phases share time: stacked, they would count
    it twice.
    """
    records = [record for runs in arms.values() for record in runs]
    names = dict.fromkeys(phase.name for record in records for phase in leading(record))
    if len(names) < 2 or any(overlap(leading(record)) for record in records):  # noqa: PLR2004
        return None
    stack = Stack(
        question="Where does the time go?",
        whole="the time in timed phases",
        unit=Unit.SECONDS,
        better="lower",
        names={stage: label(stage) for stage in names},
        runs={
            arm: [{phase.name: phase.active_s for phase in leading(record)} for record in runs]
            for arm, runs in arms.items()
        },
        letters=letters or {},
        swept=swept,
    )
    return stack_figure(name, subject, stack)
