"""Wholes that a workload's own metrics name: a stacked bar per arm, of metrics that add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattload.core.record.metric import Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Figure
from wattload.reports.charts.stack import Stack, stack_figure
from wattload.reports.quantity import label


def parts_figures(
    name: str, subject: str, arms: Mapping[str, Sequence[RunRecord]]
) -> tuple[Figure, ...]:
    """Return a chart for each whole that a run's metrics name, its arms under each other."""
    wholes = dict.fromkeys(
        (metric.part_of, metric.unit)
        for records in arms.values()
        for record in records
        for metric in record.metrics
        if metric.part_of
    )
    figures = [
        stack_figure(f"{name}-parts{number}", subject, _stack(*whole, arms))
        for number, whole in enumerate(wholes)
    ]
    return tuple(figure for figure in figures if figure is not None)


def _stack(name: str, unit: Unit, arms: Mapping[str, Sequence[RunRecord]]) -> Stack:
    of_arm = {arm: [_parts(record, name, unit) for record in runs] for arm, runs in arms.items()}
    metrics = [(arm, metric) for arm, runs in of_arm.items() for run in runs for metric in run]
    directions = {metric.better for _, metric in metrics}
    return Stack(
        question=f"What is {name} made of?",
        whole=name,
        unit=unit,
        better=directions.pop() if len(directions) == 1 else "neither",
        names={metric.name: label(metric.name, unit) for _, metric in metrics},
        runs={
            arm: [{m.name: m.value for m in run if m.value is not None} for run in runs]
            for arm, runs in of_arm.items()
        },
        reasons={
            (metric.name, arm): metric.missing.get("value", "")
            for arm, metric in metrics
            if metric.value is None
        },
    )


def _parts(record: RunRecord, name: str, unit: Unit) -> list[Metric]:
    return [metric for metric in record.metrics if (metric.part_of, metric.unit) == (name, unit)]
