"""Arms over what was swept, such as 1 to 24 workers: bars in groups, a group per point."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from wattload.reports.blocks import Cell, Figure, Table, columns, row
from wattload.reports.charts.arms import arms_legend, evidence, interval_evidence, question
from wattload.reports.charts.bars import Bar, axis_of, marker_size, run_marks, ticks
from wattload.reports.charts.bounds import intervals_caption
from wattload.reports.charts.forced import captioned, forced_past, titled
from wattload.reports.charts.marks import drawn
from wattload.reports.charts.swept import Swept, swept_quantities
from wattload.reports.points import Point, points
from wattload.reports.quantity import MISSING, Scale, counted, label, scaled
from wattload.reports.subject import Group, Subject
from wattload.reports.svg import fill_of, joined, layered, render
from wattload.reports.themes import light

WIDTH = 800
_HEIGHT = 190
_AXIS = 42
_LINE = 130
_LETTER = 7.0
_FILLED = 0.82
_ABOVE = 1.18
_TWO = 2


def workers_figure(name: str, subject: Subject, group: Group) -> Figure | None:
    """Return a panel per headline quantity over what the group's runs were swept over.

    ``None`` for a group that was not swept, or has no figure.
    """
    found = points(group)
    if len(found) < _TWO:
        return None
    swept = swept_quantities(subject, found, group)
    if not swept:
        return None
    values = [point.value for point in found]
    panels = [_Panel(f"w{number}", each, values) for number, each in enumerate(swept)]
    axis = label(found[0].axis)
    rows = [entry for each in swept for entry in each.rows.values()]
    past = forced_past(rows)
    description = captioned(_description(axis, group, interval_evidence(rows)), past)
    return Figure(
        svg=render(
            joined("vconcat", [panel.chart(axis) for panel in panels], spacing=26),
            {key: rows for panel in panels for key, rows in panel.data().items()},
            name=name,
            title=titled(f"{group.workload} by {axis}", past),
            description=" ".join([description, *_told(swept, values, axis)]),
        ),
        caption=description,
        table=_table(swept, found, axis),
        legend=arms_legend(list(group.arms), group.letters),
    )


@dataclass(frozen=True, slots=True)
class _Panel:
    """One quantity as grouped bars; ``values`` are the points in their order."""

    key: str
    swept: Swept
    values: Sequence[str]

    def data(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of its marks."""
        bars = [(value, bar) for value in self.values for bar in self.swept.bars(value)]
        ratios = [{"x": value, "text": self.swept.ratio(value)} for value in self.values]
        return {
            f"{self.key}bars": [self._bar(value, bar) for value, bar in bars],
            f"{self.key}dots": [dot for value, bar in bars for dot in self._dots(value, bar)],
            f"{self.key}ratios": [entry for entry in ratios if entry["text"]],
        }

    def _bar(self, value: str, bar: Bar) -> dict[str, Any]:
        shown = self.swept.scale.shown
        found: dict[str, Any] = {
            "x": value,
            "arm": bar.label,
            "fill": fill_of(bar.role),
            "stroke": light(bar.role),
            "end": shown(bar.end or 0.0),
            "text": "",
        }
        if bar.end is None:
            return found | {"text": MISSING}
        if bar.value is not None:
            found["v"] = shown(bar.value)
            found["text"] = self._fitting(bar.value)
        elif bar.upper is not None:
            found |= {"from": shown(bar.lower or 0.0), "to": shown(bar.upper)}
            found["open"] = bar.lower is None
        return found

    def _fitting(self, value: float) -> str:
        """Return the figure with as many digits as its bar is wide, nothing where none fits."""
        texts = (scaled(value, self.swept.scale, digits) for digits in (3, 2))
        return next((text for text in texts if len(text) * _LETTER <= self._bar_pixels()), "")

    def _bar_pixels(self) -> float:
        return WIDTH * _FILLED / (len(self.values) * len(self.swept.arms))

    def _dots(self, value: str, bar: Bar) -> list[dict[str, Any]]:
        return [
            {
                "x": value,
                "arm": bar.label,
                "v": self.swept.scale.shown(dot.value),
                "shape": bar.marker,
                "size": marker_size(bar.marker) * 0.7,
                "fill": dot.colours[0],
                "stroke": dot.colours[1],
            }
            for dot in drawn(bar.dots, lambda dot: dot.value)
        ]

    def _largest(self) -> float:
        ends = [bar.end for value in self.values for bar in self.swept.bars(value) if bar.end]
        return self.swept.scale.shown(max(ends, default=0.0)) or 1.0

    def chart(self, axis: str) -> alt.LayerChart:
        """Return the panel, its title the question."""
        x = alt.X(
            "x:O",
            sort=list(self.values),
            axis=alt.Axis(title=axis, labelAngle=0, grid=False),
            scale=alt.Scale(domain=list(self.values), paddingInner=0.18, paddingOuter=0.1),
        )
        letters = list(self.swept.letters)
        offset = alt.XOffset("arm:N", scale=alt.Scale(domain=letters, paddingInner=0.08))
        top = self._largest()
        scale = alt.Scale(domain=[0, top * _ABOVE], nice=False)
        axis_y = axis_of(self.swept.quantity.better, ticks(top), extent=_AXIS)
        y = alt.Y("v:Q", axis=axis_y, scale=scale)
        bars = alt.Chart(alt.NamedData(name=f"{self.key}bars")).encode(x=x, xOffset=offset)
        dots = alt.Chart(alt.NamedData(name=f"{self.key}dots")).encode(x=x, xOffset=offset)
        ratios = alt.Chart(alt.NamedData(name=f"{self.key}ratios")).encode(x=x)
        layers = [
            bars.mark_bar().encode(y=y, fill=alt.Fill("fill:N", scale=None)),
            *_interval(bars),
            run_marks(dots.encode(y=y), stroke_width=1),
            bars.mark_text(dy=-9, fontSize=10.5, fontWeight=600, fill=light("strong")).encode(
                y=alt.Y("end:Q"), text=alt.Text("text:N")
            ),
            ratios.mark_text(dy=-1, fontSize=10.5, fill=light("text")).encode(
                y=alt.value(0), text=alt.Text("text:N")
            ),
        ]
        title = alt.TitleParams(question(self.swept.quantity), subtitle=self._remarks())
        return layered(layers, width=WIDTH, height=_HEIGHT, title=title)

    def _remarks(self) -> list[str]:
        quantity, scale = self.swept.quantity, self.swept.scale
        first = [f"{quantity.label}, {scale.unit}".removesuffix(", ")]
        first.append(_runs_text([bar for value in self.values for bar in self.swept.bars(value)]))
        if any(self.swept.ratio(value) for value in self.values):
            first.append("above each group: B ÷ A")
        rows = list(self.swept.rows.values())
        known = [*textwrap.wrap(evidence(*rows), _LINE), *textwrap.wrap(forced_past(rows), _LINE)]
        return ["  ·  ".join(first), *known]


def _runs_text(bars: Sequence[Bar]) -> str:
    counts = [sum(dot.valid for dot in bar.dots) for bar in bars if bar.dots]
    if not counts:
        return "bounds"
    low, high = min(counts), max(counts)
    return f"n = {low} per bar" if low == high else f"n = {low} to {high} per bar"


def _interval(bars: alt.Chart) -> list[alt.Chart]:
    """Return the marks of bounds: a line with a cap at each end that is known."""
    bound = bars.transform_filter("isValid(datum.to)")
    stroke, fill = alt.Stroke("stroke:N", scale=None), alt.Fill("stroke:N", scale=None)
    cap = bound.mark_tick(opacity=1, thickness=2.5, size=12, orient="horizontal")
    line = {False: [1, 0], True: [3, 3]}
    rules = [
        bound.transform_filter(f"datum.open == {str(is_open).lower()}")
        .mark_rule(strokeWidth=2.5, strokeDash=dash)
        .encode(y=alt.Y("from:Q"), y2=alt.Y2("to:Q"), stroke=stroke)
        for is_open, dash in line.items()
    ]
    return [
        *rules,
        cap.encode(y=alt.Y("to:Q"), fill=fill),
        cap.transform_filter("!datum.open").encode(y=alt.Y("from:Q"), fill=fill),
    ]


def _description(axis: str, group: Group, known: Sequence[str]) -> str:
    text = (
        f"A group of bars per value of {axis}, a bar per arm: medians of the valid runs, filled "
        "marks are single runs, hollow ones runs that failed, that a check bars or that only force "
        "lets through. "
    )
    if group.is_pair:
        text += "Above each group stands B ÷ A, the ratio of the geometric means of their runs. "
    text += f"{MISSING} stands where no run has a figure. Each panel's axis begins at zero."
    return f"{text} {intervals_caption(known)}".rstrip()


def _told(swept: Sequence[Swept], values: Sequence[str], axis: str) -> list[str]:
    """Return each panel in a sentence, for who hears the chart instead of seeing it."""
    said = []
    for each in swept:
        parts = [
            f"{value} {axis}: "
            + ", ".join(f"{bar.label} {bar.text(each.scale)}" for bar in each.bars(value))
            for value in values
        ]
        said.append(f"{question(each.quantity)} In {each.scale.unit}: {'; '.join(parts)}.")
    return said


def _table(swept: Sequence[Swept], found: Sequence[Point], axis: str) -> Table:
    """Return every run's figure: nothing is drawn that is not listed."""
    titles = columns("quantity", "unit", f"#{axis}", "arm", "#median", "#runs", "figures", "#B/A")
    rows = [
        line for each in swept for point in found for line in _lines(each, point.value, each.scale)
    ]
    return Table(columns=titles, rows=rows, caption=f"Every figure by {axis}")


def _lines(each: Swept, value: str, scale: Scale) -> list[tuple[Cell, ...]]:
    lines = []
    for arm, bar in zip(each.arms, each.bars(value), strict=False):
        shown = [scaled(dot.value, scale) + " (not compared)" * (not dot.valid) for dot in bar.dots]
        lines.append(
            row(
                each.quantity.label,
                scale.unit,
                value,
                arm,
                scaled(bar.value, scale) if bar.dots or bar.end is None else bar.text(scale),
                Cell(counted(len(bar.dots), "run"), remark=bar.reason if bar.end is None else ""),
                "; ".join(shown),
                each.ratio(value) if arm == each.arms[-1] else "",
            )
        )
    return lines
