"""Rates of arms beside the ceilings that bound them."""

from __future__ import annotations

from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.bars import Bar, bars_svg, checked_range
from wattload.reports.charts.themes import arm_role
from wattload.results.quantity import Scale, scale_for, scaled, with_unit
from wattload.results.shapes import CeilingBar, CeilingBars

_FARTHEST = 3.0
"""A ceiling beyond this many times the highest rate is printed only: bars would be too short."""


def ceiling_bars_figure(chart: CeilingBars) -> Figure:
    """Return panels of rates, each bar with a line for its ceiling."""
    every = [bar for _, bars in chart.panels for bar in bars]
    known = [bar.value for bar in every if bar.value is not None]
    highest = max((bar.value for bar in chart.panels[0][1] if bar.value is not None), default=0.0)
    scale = scale_for(chart.unit, *known)
    made = [
        [checked_range(_bar(bar, scale, highest * _FARTHEST)) for bar in bars]
        for _, bars in chart.panels
    ]
    largest = max((end for bars in made for bar in bars if (end := bar.end) is not None), default=1)
    exceeded = (
        " A rate more than 5 % above its ceiling shows that this was measured too low: it is "
        "called none."
        if any(bar.exceeds for bar in every)
        else ""
    )
    return Figure(
        name=chart.name,
        title=chart.title,
        svg="".join(
            bars_svg(f"{words}, {scale.unit}", bars, scale, largest)
            for (words, _), bars in zip(chart.panels, made, strict=True)
        ),
        caption=chart.caption + exceeded,
        table=_table(chart, scale),
    )


def _table(chart: CeilingBars, scale: Scale) -> Table:
    titles = [title for title, _ in chart.panels]
    titles += [bars[0].ceiling_name for _, bars in chart.panels if bars]
    by_arm = list(zip(*(bars for _, bars in chart.panels), strict=True))
    return Table(
        columns=columns("arm", *(f"#{title}, {scale.unit}" for title in titles)),
        rows=[
            row(
                bars[0].label,
                *(scaled(bar.value, scale, 4) for bar in bars),
                *(scaled(bar.ceiling, scale, 4) for bar in bars),
            )
            for bars in by_arm
        ],
        caption=chart.title[:1].upper() + chart.title[1:],
    )


def _bar(bar: CeilingBar, scale: Scale, farthest: float) -> Bar:
    words, marks = "", []
    if bar.ceiling is not None and bar.value is not None:
        shown = with_unit(scaled(bar.ceiling, scale, 3), scale)
        words = f"{bar.ceiling_name} {shown}{', no ceiling' if bar.exceeds else ''}"
        if bar.ceiling <= farthest and not bar.exceeds:
            marks = [(words, bar.ceiling)]
    return Bar(
        label=bar.label,
        role=arm_role(bar.letter) if bar.letter else "device",
        value=bar.value,
        marks=marks,
        note=words,
        reason=bar.reason,
    )
