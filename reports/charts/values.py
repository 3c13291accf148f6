"""Bars of one value each, with a table of what they are of."""

from __future__ import annotations

from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.bars import Bar, bars_svg, checked_range
from wattload.reports.charts.themes import arm_role
from wattload.results.quantity import scale_for, scaled
from wattload.results.shapes import ValueBars


def value_bars_figure(chart: ValueBars) -> Figure:
    shown = scale_for(chart.unit, *(bar.value for bar in chart.bars))
    what = f"{chart.what}, {shown.unit}"
    bars = [
        checked_range(
            Bar(
                label=f"{bar.letter}: {bar.label}" if bar.letter else bar.label,
                role=arm_role(bar.letter),
                value=bar.value,
            )
        )
        for bar in chart.bars
    ]
    return Figure(
        name=chart.name,
        title=chart.title,
        svg=bars_svg(what, bars, shown),
        caption=chart.caption,
        table=Table(
            columns=columns(*chart.columns, f"#{what}"),
            rows=[row(*bar.cells, scaled(bar.value, shown)) for bar in chart.bars],
            caption="Every bar",
        ),
    )
