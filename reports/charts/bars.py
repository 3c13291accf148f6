"""Horizontal bars: a panel for one quantity, and charts of values, parts and ceilings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.plot import picture, share_of, text, thin_marks, words
from wattload.reports.charts.themes import PART_ROLES, arm_role, light
from wattload.results.quantity import (
    Scale,
    interval_text,
    out_of_range,
    percent,
    scale_for,
    scaled,
    with_unit,
)
from wattload.results.shapes import CeilingBar, CeilingBars, PartBar, PartBars, ValueBars

_ROW, _HEIGHT = 21, 14
_THIN_ROW, _THIN_HEIGHT = 13, 9
_DOTS, _DOTS_ROW, _DOTS_GAP = 5, 4, 5.5
"""Pixels of a bar's height that its runs take, which are dots under it; pixels that these add to a
thin row; and pixels between the bar and their middle, so that none looks like a decimal sign."""
_GUTTER = 18
_WIDEST = 0.58
"""The share of the width that the longest bar may take; the figure is printed after it."""

_INTERVAL_ROOM = 1.4
"""How many times its length an interval needs, because two figures are printed after it."""

_SHORT = 2
"""A longer name is printed over its bar."""

_INITIAL_WIDTH = 0.05
"""The share of the width from which a part has its initial in it."""

_LONG_TITLE = 26
"""Characters of a title that a quarter of a sheet of paper has room for."""

_THICK = 3
"""The most arms with thick bars: three workloads of more would not fit the first screen."""

_MOST = 12
"""The most bars of a panel: a sheet of paper has room for two such panels, one over the other."""

_ENLARGED = 4.0
"""Bars longer than this many times the others leave no room for these: they get a panel."""

_REST = "other"

_FARTHEST = 3.0
"""A ceiling beyond this many times the highest rate is printed only: bars would be too short."""


@dataclass(frozen=True, slots=True)
class Dot:
    """One run's figure in SI base units; hollow if not ``in_mean``, or if it was ``forced``."""

    value: float
    in_mean: bool = True
    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar in SI base units: a ``value``, or else an interval from ``lower`` to ``upper``.

    Attributes:
        label: its name; one or two letters are printed before the bar, more over it.
        heading: printed over it, for the first bar of a group.
        role: what colours it.
        parts: its roles and lengths, for a bar of parts that add up to ``value``.
        dots: its runs.
        marks: names and values of lines across the bar, such as a ceiling.
        note: printed after the figure.
        reason: why there is neither a value nor an interval.
        strong: whether its figure is printed in bold.
    """

    label: str
    role: str
    heading: str = ""
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    parts: Sequence[tuple[str, str, float]] = ()
    dots: Sequence[Dot] = ()
    marks: Sequence[tuple[str, float]] = ()
    note: str = ""
    reason: str = ""
    strong: bool = False

    @property
    def end(self) -> float | None:
        """Where its figure is printed: its own end, or a mark beyond; ``None`` without either."""
        ends = [end for end in (self.value, self.upper) if end is not None]
        return max([*ends, *(value for _, value in self.marks)], default=None)

    @property
    def farthest(self) -> float | None:
        """The largest value that is drawn; ``None`` for a bar without any."""
        ends = [dot.value for dot in self.dots]
        return max([*ends, *([] if self.end is None else [self.end])], default=None)

    def text(self, scale: Scale, unit: str = "") -> str:
        """Return the figure that is printed after it, with ``unit``, or why there is none."""
        if self.value is not None:
            shown = scaled(self.value, scale, 3)
        elif self.upper is not None:
            shown = interval_text(self.lower, self.upper, scale, 3)
        else:
            return self.reason or "no figure"
        shown = f"{shown} {unit}".strip()
        return f"{shown}, {self.note}" if self.note else shown


def checked_range(bar: Bar) -> Bar:
    """Return the bar, or one with the reason alone where a value is too large or small to draw."""
    marks = [dot.value for dot in bar.dots] + [value for _, value in bar.marks]
    reasons = map(out_of_range, [bar.value, bar.lower, bar.upper, *marks])
    reason = next((reason for reason in reasons if reason), "")
    return Bar(label=bar.label, role=bar.role, reason=reason) if reason else bar


def split_svg(
    title: str, bars: Sequence[Bar], scale: Scale, ceilings: Sequence[tuple[str, float]] = ()
) -> str:
    """Return bars as ``bars_svg``, thin if more than ``_THICK``.

    Too many for a sheet of paper are in panels of one scale. ``ceilings`` are the names and values
    of what bounds all bars: each is a line across them, or is printed alone if it is far off.
    """
    count, thin = math.ceil(len(bars) / _MOST), len(bars) > _THICK
    largest = _largest_end(bars)
    near = [(name, value) for name, value in ceilings if value <= largest * _FARTHEST]
    bars = [replace(bar, marks=[*bar.marks, *near]) for bar in bars]
    if count < 2:  # noqa: PLR2004 - nothing to split
        return bars_svg(title, bars, scale, thin=thin)
    size, largest = math.ceil(len(bars) / count), _largest_end(bars)
    panels = [
        bars_svg(
            f"{title}, arms {first + 1} to {first + len(part)}", part, scale, largest, thin=thin
        )
        for first in range(0, len(bars), size)
        if (part := bars[first : first + size])
    ]
    return f'<div class="split">{"".join(panels)}</div>'


def _largest_end(bars: Sequence[Bar]) -> float:
    """Return the value at the right end of a panel, in SI base units."""
    ends = (
        end * (_INTERVAL_ROOM if bar.value is None and bar.lower is not None else 1)
        for bar in bars
        if (end := bar.farthest) is not None
    )
    return max(ends, default=0.0) or 1.0


def bars_svg(
    title: str,
    bars: Sequence[Bar],
    scale: Scale,
    largest: float | None = None,
    *,
    thin: bool = False,
) -> str:
    """Return a panel of bars from zero, the first on top.

    Args:
        title: the line over them: the quantity with its unit.
        bars: values in SI base units.
        scale: the unit that figures are printed in.
        largest: the value of the longest bar, where it is in another panel.
        thin: whether rows are as low as their texts.
    """
    row, height = (_THIN_ROW, _THIN_HEIGHT) if thin else (_ROW, _HEIGHT)
    largest = largest or _largest_end(bars)
    body = [text("0", 12, title)] if title else []
    y = 18.0 if title else 2.0
    for bar in bars:
        if bar.heading:
            body.append(text("0", y + 12, bar.heading, role="strong"))
            y += 18
        if len(bar.label) > _SHORT:
            body.append(text("0", y + 11, bar.label, role="strong"))
            y += 16
        elif bar.label:
            at = _baseline(bar, y, height)
            body.append(text("0", at, bar.label, role=bar.role, more=' font-weight="700"'))
        left = _GUTTER if 0 < len(bar.label) <= _SHORT else 0
        marks = "".join(_marks(bar, scale, largest, y, height))
        tip = words(f"{bar.label} {bar.text(scale, scale.unit or title)}".strip())
        shift = f' transform="translate({left} 0)"' if left else ""
        body.append(f'<g data-tip="{tip}"{shift}>{marks}</g>')
        y += row + (_DOTS_ROW if thin and bar.dots else 0)
    figures = "; ".join(f"{bar.label} {bar.text(scale)}".strip() for bar in bars)
    kind = "bars long" if len(title) > _LONG_TITLE else "bars"
    return picture(body, height=y, label=f"{title}: {figures}", kind=kind)


def _baseline(bar: Bar, y: float, height: int) -> float:
    """Return the base of a bar's label and figure, which its dots are clear of."""
    return y + (height - _DOTS) / 2 + 3.5 if bar.dots else y + height / 2 + 4.5


def _initials(parts: Sequence[tuple[str, str, float]], largest: float) -> dict[str, str]:
    """Return the initials of the parts that have room for one; none of one part, or if alike."""
    wide = [name for _, name, value in parts if value / largest * _WIDEST >= _INITIAL_WIDTH]
    found = {name: name[:1].upper() for name in wide}
    return found if len(set(found.values())) == len(wide) > 1 else {}


def _marks(bar: Bar, scale: Scale, largest: float, y: float, height: int) -> Iterator[str]:
    def at(value: float) -> str:
        return share_of(max(value, 0.0) / largest * _WIDEST)

    base = _baseline(bar, y, height)
    height -= _DOTS if bar.dots else 0
    if bar.parts:
        start, initials = 0.0, _initials(bar.parts, largest)
        for role, name, value in bar.parts:
            yield (
                f'<rect x="{at(start)}" y="{y:g}" width="{at(value)}" height="{height}" '
                f'fill="{light(role)}" data-tip="{words(name)}"/>'
            )
            if name in initials:
                look = ' dx="5" font-size="10" font-weight="700"'
                yield text(at(start), y + 11, initials[name], role="surface", more=look)
            start += value
    elif bar.value is not None:
        yield (
            f'<rect x="0" y="{y:g}" width="{at(bar.value)}" height="{height}" rx="1.5" '
            f'fill="{light(bar.role)}"/>'
        )
    elif bar.upper is not None:
        lower = bar.lower or 0.0
        dash = ' stroke-dasharray="3 3"' if bar.lower is None else ""
        yield (
            f'<rect x="{at(lower)}" y="{y + 3:g}" width="{at(bar.upper - lower)}" '
            f'height="{height - 6}" fill="{light(bar.role)}" fill-opacity="0.18" '
            f'stroke="{light(bar.role)}"{dash}/>'
        )
    for name, value in bar.marks:
        yield (
            f'<line x1="{at(value)}" x2="{at(value)}" y1="{y - 2:g}" y2="{y + height + 2:g}" '
            f'stroke="{light("strong")}" stroke-width="2.5" data-tip="{words(name)}"/>'
        )
    for dot in thin_marks(bar.dots, lambda dot: dot.value):
        is_full = dot.in_mean and not dot.forced
        fill, edge = ("strong", "surface") if is_full else ("surface", "strong")
        yield (
            f'<circle cx="{at(dot.value)}" cy="{y + height + _DOTS_GAP:g}" r="2.2" '
            f'fill="{light(fill)}" stroke="{light(edge)}" '
            f'stroke-width="{0.7 if is_full else 1.2}"/>'
        )
    weight = ' font-weight="700"' if bar.strong else ""
    role = "strong" if bar.end is not None else "text"
    yield text(at(bar.end or 0.0), base, bar.text(scale), role=role, more=f'{weight} dx="7"')


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


def ceiling_bars_figure(chart: CeilingBars) -> Figure:
    """Return panels of rates, each bar with a line for its ceiling."""
    every = [bar for _, bars in chart.panels for bar in bars]
    known = [bar.value for bar in every if bar.value is not None]
    highest = max((bar.value for bar in chart.panels[0][1] if bar.value is not None), default=0.0)
    scale = scale_for(chart.unit, *known)
    made = [
        [checked_range(_ceiling_bar(bar, scale, highest * _FARTHEST)) for bar in bars]
        for _, bars in chart.panels
    ]
    ends = (bar.farthest for bars in made for bar in bars)
    largest = max((end for end in ends if end is not None), default=1)
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
        table=_ceilings_table(chart, scale),
    )


def _ceilings_table(chart: CeilingBars, scale: Scale) -> Table:
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


def _ceiling_bar(bar: CeilingBar, scale: Scale, farthest: float) -> Bar:
    words, marks = "", []
    if bar.ceiling is not None and bar.value is not None:
        shown = _shown(bar.ceiling, scale)
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


def part_bars_figure(chart: PartBars) -> Figure:
    """Return bars of parts, with the rest of a whole as another part."""
    roles = dict(zip(chart.names, itertools.cycle(PART_ROLES), strict=False))
    lengths = [_length(bar) for bar in chart.bars]
    enlarged = [
        bar
        for bar, length in zip(chart.bars, lengths, strict=True)
        if length * _ENLARGED <= max(lengths)
    ]
    svg = _parts_panel(chart, chart.what, chart.bars, roles)
    if enlarged and chart.whole:
        svg += _parts_panel(chart, "the same without the slowest", enlarged, roles)
    used = {part.name for bar in chart.bars for part in bar.parts if part.value}
    has_rest = any(bar.whole is not None and not bar.overlaps for bar in chart.bars)
    return Figure(
        name=chart.name,
        title=chart.title,
        svg=svg,
        caption=chart.caption,
        table=_parts_table(chart, scale_for(chart.unit, *lengths)),
        legend=[
            *((role, name) for name, role in roles.items() if chart.whole or name in used),
            *([("untimed", _REST)] if has_rest else []),
        ],
    )


def _length(bar: PartBar) -> float:
    return max(sum(part.value for part in bar.parts), bar.whole or 0.0)


def _parts_panel(
    chart: PartBars, what: str, bars: Sequence[PartBar], roles: Mapping[str, str]
) -> str:
    scale = scale_for(chart.unit, *map(_length, bars))
    drawn = [checked_range(_part_bar(bar, chart.whole, scale, roles)) for bar in bars]
    return bars_svg(f"{what}, {scale.unit}" if scale.unit else what, drawn, scale)


def _part_bar(bar: PartBar, whole: str, scale: Scale, roles: Mapping[str, str]) -> Bar:
    parts = [
        (roles[part.name], f"{part.name}{_part_text(part.value, bar, whole, scale)}", part.value)
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


def _part_text(value: float, bar: PartBar, whole: str, scale: Scale) -> str:
    if whole:
        return f" {_shown(value, scale)}"
    return f": {percent(value / sum(part.value for part in bar.parts))}"


def _parts_table(chart: PartBars, scale: Scale) -> Table:
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
    has_whole = any(bar.whole is not None for bar in chart.bars)
    return Table(
        columns=labels,
        rows=[
            *(
                row(name, *(scaled(own.get(name), scale, 3) for own in parts))
                for name in chart.names
            ),
            row("sum", *(scaled(total, scale, 3) for total in sums)),
            *([row(chart.whole, *(scaled(bar.whole, scale, 3) for bar in chart.bars))] * has_whole),
        ],
        caption=f"By {chart.kind}, in {scale.unit}",
    )


def _shown(value: float, scale: Scale) -> str:
    return with_unit(scaled(value, scale, 3), scale)
