"""Bars of parts, such as the stages of a step or the sizes of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.bars import Bar, bars_svg, checked_range
from wattload.reports.charts.themes import PART_ROLES
from wattload.results.quantity import Scale, percent, scale_for, scaled, with_unit
from wattload.results.shapes import PartBar, PartBars

_ENLARGED = 4.0
"""Bars longer than this many times the others leave no room for these: they get a panel."""
_REST = "other"


def part_bars_figure(chart: PartBars) -> Figure:
    """Return bars of parts, with the rest of a whole as another part."""
    roles = dict(zip(chart.names, PART_ROLES, strict=False))
    lengths = [_length(bar) for bar in chart.bars]
    enlarged = [
        bar
        for bar, length in zip(chart.bars, lengths, strict=True)
        if length * _ENLARGED <= max(lengths)
    ]
    svg = _panel(chart, chart.what, chart.bars, roles)
    if enlarged and chart.whole:
        svg += _panel(chart, "the same without the slowest", enlarged, roles)
    used = {part.name for bar in chart.bars for part in bar.parts if part.value}
    has_rest = any(bar.whole is not None and not bar.overlaps for bar in chart.bars)
    return Figure(
        name=chart.name,
        title=chart.title,
        svg=svg,
        caption=chart.caption,
        table=_table(chart, scale_for(chart.unit, *lengths)),
        legend=[
            *((role, name) for name, role in roles.items() if chart.whole or name in used),
            *([("untimed", _REST)] if has_rest else []),
        ],
    )


def _length(bar: PartBar) -> float:
    return max(sum(part.value for part in bar.parts), bar.whole or 0.0)


def _panel(chart: PartBars, what: str, bars: Sequence[PartBar], roles: Mapping[str, str]) -> str:
    scale = scale_for(chart.unit, *map(_length, bars))
    drawn = [checked_range(_bar(bar, chart.whole, scale, roles)) for bar in bars]
    return bars_svg(f"{what}, {scale.unit}" if scale.unit else what, drawn, scale)


def _bar(bar: PartBar, whole: str, scale: Scale, roles: Mapping[str, str]) -> Bar:
    parts = [
        (roles[part.name], f"{part.name}{_text(part.value, bar, whole, scale)}", part.value)
        for part in bar.parts
        if part.value > 0
    ]
    total = sum(part.value for part in bar.parts)
    if bar.overlaps and bar.whole is not None:
        shown = _shown(bar.whole, scale)
        return Bar(
            label=bar.label,
            role="device",
            value=total,
            parts=parts,
            marks=[(f"{whole} {shown}", bar.whole)],
            note=f"in {whole} of {shown}",
        )
    rest = max((bar.whole or 0.0) - total, 0.0)
    if rest:
        parts.append(("untimed", f"{_REST} {_shown(rest, scale)}", rest))
    return Bar(label=bar.label, role="device", value=total + rest, parts=parts, note=bar.note)


def _text(value: float, bar: PartBar, whole: str, scale: Scale) -> str:
    if whole:
        return f" {_shown(value, scale)}"
    return f": {percent(value / sum(part.value for part in bar.parts))}"


def _table(chart: PartBars, scale: Scale) -> Table:
    """Return the parts of each bar, with their sum and the whole; else as shares."""
    parts = [{part.name: part.value for part in bar.parts} for bar in chart.bars]
    sums = [sum(own.values()) for own in parts]
    labels = columns(chart.kind, *(f"#{bar.label}" for bar in chart.bars))
    if not chart.whole:
        shares = [
            row(
                name,
                *(
                    percent(own.get(name, 0.0) / total)
                    for own, total in zip(parts, sums, strict=True)
                ),
            )
            for name in chart.names
        ]
        return Table(columns=labels, rows=shares, caption=f"Share of {chart.what} by {chart.kind}")
    return Table(
        columns=labels,
        rows=[
            *(
                row(name, *(scaled(own.get(name), scale, 3) for own in parts))
                for name in chart.names
            ),
            row("sum", *(scaled(total, scale, 3) for total in sums)),
            row(chart.whole, *(scaled(bar.whole, scale, 3) for bar in chart.bars)),
        ],
        caption=f"By {chart.kind}, in {scale.unit}",
    )


def _shown(value: float, scale: Scale) -> str:
    return with_unit(scaled(value, scale, 3), scale)
