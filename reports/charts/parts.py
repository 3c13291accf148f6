"""Wholes and their parts: a stacked bar per arm, of metrics that add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import altair as alt

from wattload.core.record.metric import Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.quantity import MISSING, Scale, label, scale_for, scaled
from wattload.reports.svg import layered, render
from wattload.reports.themes import PART_ROLES, light, named_axis

WIDTH = 640
_ROW = 30
_ROOM_FOR_TEXT = 0.06


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """Parts in their order, each with its median per arm; ``None`` where an arm does not tell."""

    name: str
    unit: Unit
    parts: Mapping[str, Mapping[str, float | None]]

    def total(self, arm: str) -> float:
        return sum(values[arm] or 0.0 for values in self.parts.values())


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
    found = [_whole(*key, arms) for key in wholes]
    return tuple(
        _figure(f"{name}-parts{number}", subject, whole, list(arms))
        for number, whole in enumerate(found)
        if any(whole.total(arm) > 0 for arm in arms)
    )


def _whole(name: str, unit: Unit, arms: Mapping[str, Sequence[RunRecord]]) -> _Whole:
    of_arm = {
        arm: [[m for m in record.metrics if (m.part_of, m.unit) == (name, unit)] for record in runs]
        for arm, runs in arms.items()
    }
    names = dict.fromkeys(m.name for runs in of_arm.values() for run in runs for m in run)
    parts = {part: {arm: _median(part, runs) for arm, runs in of_arm.items()} for part in names}
    return _Whole(name=name, unit=unit, parts=parts)


def _median(part: str, runs: Sequence[Sequence[Metric]]) -> float | None:
    values = [m.value for run in runs for m in run if m.name == part and m.value is not None]
    return median(values) if values else None


def _figure(name: str, subject: str, whole: _Whole, arms: Sequence[str]) -> Figure:
    largest = max(whole.total(arm) for arm in arms)
    scale = scale_for(whole.unit, largest)
    description = (
        f"What {whole.name} is made of, in {scale.unit}: medians of the runs of each arm, stacked."
    )
    data = {"parts": _rows(whole, arms, scale), "totals": _totals(whole, arms, scale)}
    return Figure(
        svg=render(
            _chart(arms, scale, largest),
            data,
            name=name,
            title=f"{subject}: {whole.name}",
            description=description,
        ),
        caption=description,
        table=_table(whole, arms, scale),
        legend=[(_role(n), label(part, whole.unit)) for n, part in enumerate(whole.parts)],
    )


def _role(number: int) -> str:
    return PART_ROLES[number % len(PART_ROLES)]


def _rows(whole: _Whole, arms: Sequence[str], scale: Scale) -> list[dict[str, Any]]:
    largest = max(whole.total(arm) for arm in arms)
    found = []
    for arm in arms:
        start = 0.0
        for number, values in enumerate(whole.parts.values()):
            value = values[arm] or 0.0
            entry = {
                "arm": arm,
                "start": scale.shown(start),
                "end": scale.shown(start + value),
                "middle": scale.shown(start + value / 2),
                "fill": light(_role(number)),
            }
            if value > _ROOM_FOR_TEXT * largest:
                entry["text"] = scaled(value, scale, 3)
            found.append(entry)
            start += value
    return found


def _totals(whole: _Whole, arms: Sequence[str], scale: Scale) -> list[dict[str, Any]]:
    return [
        {
            "arm": arm,
            "end": scale.shown(whole.total(arm)),
            "text": scaled(whole.total(arm), scale, 3),
        }
        for arm in arms
    ]


def _chart(arms: Sequence[str], scale: Scale, largest: float) -> alt.LayerChart:
    domain = alt.Scale(domain=[0, (scale.shown(largest) or 1.0) * 1.12], nice=False)
    x = alt.X("start:Q", scale=domain, axis=alt.Axis(title=scale.unit, tickCount=6))
    y = alt.Y("arm:N", sort=list(arms), axis=named_axis(arms))
    parts = alt.Chart(alt.NamedData(name="parts")).encode(y=y)
    totals = alt.Chart(alt.NamedData(name="totals")).encode(y=y)
    layers = [
        parts.mark_bar(height=18).encode(x=x, x2="end:Q", fill=alt.Fill("fill:N", scale=None)),
        parts.transform_filter("isValid(datum.text)")
        .mark_text(fontWeight=600, fill=light("surface"))
        .encode(x=alt.X("middle:Q"), text="text:N"),
        totals.mark_text(align="left", dx=6, fontWeight=600, fill=light("strong")).encode(
            x=alt.X("end:Q"), text="text:N"
        ),
    ]
    return layered(layers, width=WIDTH, height=_ROW * len(arms))


def _table(whole: _Whole, arms: Sequence[str], scale: Scale) -> Table:
    rows = [
        row(
            label(part, whole.unit),
            *(MISSING if values[arm] is None else scaled(values[arm], scale) for arm in arms),
        )
        for part, values in whole.parts.items()
    ]
    titles = columns("part", *(f"#{arm}" for arm in arms))
    return Table(columns=titles, rows=rows, caption=f"Parts of {whole.name}, in {scale.unit}")
