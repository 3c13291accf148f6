"""Wholes that a workload's own metrics name: a stacked bar per arm, of metrics that add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattload.core.record.metric import Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Figure
from wattload.reports.charts.stack import Stack, stack_figure
from wattload.reports.quantity import label, out_of_range


def parts_figures(
    name: str,
    subject: str,
    arms: Mapping[str, Sequence[RunRecord]],
    letters: Mapping[str, str] | None = None,
) -> tuple[Figure, ...]:
    """Return a chart for each whole that a run's metrics name, its arms under each other.

    ``letters`` has the letter of each arm that has another than by its place.
    """
    wholes = dict.fromkeys(
        (metric.part_of, metric.unit)
        for records in arms.values()
        for record in records
        for metric in record.metrics
        if metric.part_of
    )
    figures = [
        stack_figure(f"{name}-parts{number}", subject, _stack(*whole, arms, letters or {}))
        for number, whole in enumerate(wholes)
    ]
    return tuple(figure for figure in figures if figure is not None)


def _stack(
    name: str,
    unit: Unit,
    arms: Mapping[str, Sequence[RunRecord]],
    letters: Mapping[str, str],
) -> Stack:
    of_arm = {arm: [_parts(record, name, unit) for record in runs] for arm, runs in arms.items()}
    metrics = [(arm, metric) for arm, runs in of_arm.items() for run in runs for metric in run]
    directions = {metric.better for _, metric in metrics}
    return Stack(
        question=f"What is {name} made of?",
        whole=name,
        unit=unit,
        better=directions.pop() if len(directions) == 1 else "neither",
        names={metric.name: label(metric.name, unit) for _, metric in metrics},
        runs={arm: [_told(run) for run in runs] for arm, runs in of_arm.items()},
        reasons={
            (metric.name, arm): metric.missing.get("value", "") or out_of_range(metric.value)
            for arm, metric in metrics
            if metric.name not in _told([metric])
        },
        letters=letters,
    )


def _parts(record: RunRecord, name: str, unit: Unit) -> list[Metric]:
    return [metric for metric in record.metrics if (metric.part_of, metric.unit) == (name, unit)]


def _told(parts: Sequence[Metric]) -> dict[str, float]:
    """Return the parts that have a figure which a run can have."""
    known = {part.name: part.value for part in parts if not out_of_range(part.value)}
    return {name: value for name, value in known.items() if value is not None}
