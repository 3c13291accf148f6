"""Arms over a swept setting, such as 1 to 24 workers: bars in groups, a group per value."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Figure, Table, columns, row
from wattload.reports.charts.arms import arm_bar, arms_legend, largest
from wattload.reports.charts.bars import Bar
from wattload.reports.charts.captions import (
    evidence,
    forced_caption,
    forced_clause,
    forced_title,
    interval_evidence,
    intervals_caption,
    question,
)
from wattload.reports.charts.marks import interval_marks, linear_ticks, run_marks, value_axis
from wattload.reports.charts.svg import Data, join_panels, layer_charts, make_figure
from wattload.reports.charts.themes import light
from wattload.reports.quantity import MISSING, Scale, counted, label, number, scale_for, scaled
from wattload.reports.runs.energy import ALL_PHASES
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.figures import Quantity
from wattload.reports.stats.subject import Group, Subject
from wattload.reports.stats.sweeps import Point, points

WIDTH = 800
_PANELS_MAX = 4
_HEIGHT = 190
_AXIS = 42
_LINE = 130
_LETTER = 7.0
_GROUP_SHARE = 0.82
_HEADROOM = 1.18


@dataclass(frozen=True, slots=True)
class SweptQuantity:
    """One quantity at every point of a sweep.

    Attributes:
        rows: by the value of the point.
        arms: in the order of their bars.
        letters: those of the arms.
        groups: the runs of each point, by its value.
    """

    quantity: Quantity
    rows: dict[str, Row]
    arms: Sequence[str]
    letters: Sequence[str]
    groups: Mapping[str, Group]

    @property
    def scale(self) -> Scale:
        """The scale that suits all points."""
        ends = [end for entry in self.rows.values() if (end := largest(entry)) is not None]
        return scale_for(self.quantity.unit, max(ends, default=None))

    def bars(self, value: str) -> list[Bar]:
        """Return the bars of a point, one per arm, with or without a figure."""
        entry = self.rows.get(value)
        runs = self.groups[value].arms
        return [
            arm_bar(entry, letter, letter, arm, runs.get(arm, ()))
            for letter, arm in zip(self.letters, self.arms, strict=True)
        ]

    def ratio(self, value: str) -> str:
        """Return B/A at a point; empty where there is none."""
        entry = self.rows.get(value)
        return number(entry.effect.ratio, 3) if entry and entry.effect else ""


def swept_quantities(subject: Subject, found: Sequence[Point], group: Group) -> list[SweptQuantity]:
    """Return what is drawn as bars: times and energies, those of the whole job first.

    They are the headline quantities that have a better direction. Rates over a number are drawn as
    curves instead. Where the whole job has an energy, those of its phases are left out.
    """
    by_key: dict[str, SweptQuantity] = {}
    groups = {point.value: point.group for point in found}
    rates: tuple[Unit, ...] = (Unit.BYTES_PER_SECOND, Unit.SAMPLES_PER_SECOND)
    has_curves = all(point.number is not None for point in found)
    for point in found:
        for entry in compare(subject, point.group):
            quantity = entry.quantity
            is_curve = has_curves and quantity.unit in rates
            is_directed = quantity.headline and quantity.better != "neither"
            if largest(entry) is None or not is_directed or is_curve:
                continue
            empty = SweptQuantity(quantity, {}, list(group.arms), group.letters, groups)
            by_key.setdefault(quantity.key, empty).rows[point.value] = entry
    every = list(by_key.values())
    if any(_is_whole_job(each) for each in every):
        every = [each for each in every if _is_whole_job(each) or not each.quantity.is_energy]
    every.sort(key=lambda each: bool(each.quantity.phase) and not _is_whole_job(each))
    return every[:_PANELS_MAX]


def _is_whole_job(each: SweptQuantity) -> bool:
    return each.quantity.phase == ALL_PHASES


def sweep_figure(name: str, subject: Subject, group: Group) -> Figure | None:
    """Return a panel per headline quantity over the swept setting.

    ``None`` for a group that was not swept, or has no figure.
    """
    found = points(group)
    if len(found) < 2:  # noqa: PLR2004 - one point is no sweep
        return None
    swept = swept_quantities(subject, found, group)
    if not swept:
        return None
    values = [point.value for point in found]
    panels = [_Panel(f"w{number}", each, values) for number, each in enumerate(swept)]
    axis = label(found[0].axis)
    rows = [entry for each in swept for entry in each.rows.values()]
    forced = forced_clause(rows)
    return make_figure(
        join_panels("vconcat", [panel.chart(axis) for panel in panels], spacing=26),
        {key: rows for panel in panels for key, rows in panel.data().items()},
        name=name,
        title=forced_title(f"{group.workload} by {axis}", forced),
        caption=forced_caption(_caption(axis, group, interval_evidence(rows)), forced),
        sentences=_sentences(swept, values, axis),
        table=_table(swept, found, axis),
        legend=arms_legend(list(group.arms), group.letters),
    )


@dataclass(frozen=True, slots=True)
class _Panel:
    """One quantity as grouped bars; ``values`` are the points in their order."""

    key: str
    swept: SweptQuantity
    values: Sequence[str]

    def data(self) -> Data:
        """Return the rows of its marks."""
        bars = [(value, bar) for value in self.values for bar in self.swept.bars(value)]
        ratios = [{"x": value, "text": self.swept.ratio(value)} for value in self.values]
        return {
            f"{self.key}bars": [self._bar_row(value, bar) for value, bar in bars],
            f"{self.key}dots": [
                {"x": value, "arm": bar.label} | dot | {"size": dot["size"] * 0.7}
                for value, bar in bars
                for dot in bar.dot_rows(self.swept.scale)
            ],
            f"{self.key}ratios": [entry for entry in ratios if entry["text"]],
        }

    def _bar_row(self, value: str, bar: Bar) -> dict[str, Any]:
        text = MISSING if bar.end is None else ""
        if bar.value is not None:
            text = self._fitting_text(bar.value)
        return {"x": value, "arm": bar.label, "text": text} | bar.mark_row(self.swept.scale)

    def _fitting_text(self, value: float) -> str:
        """Return the figure with as many digits as fit over its bar; empty where too few do."""
        pixels = WIDTH * _GROUP_SHARE / (len(self.values) * len(self.swept.arms))
        texts = (scaled(value, self.swept.scale, digits) for digits in (3, 2))
        return next((text for text in texts if len(text) * _LETTER <= pixels), "")

    def _largest(self) -> float:
        ends = [bar.end for value in self.values for bar in self.swept.bars(value) if bar.end]
        return self.swept.scale.shown(max(ends, default=0.0)) or 1.0

    def chart(self, axis: str) -> alt.LayerChart:
        """Return the panel, with the question as its title."""
        x = alt.X(
            "x:O",
            sort=list(self.values),
            axis=alt.Axis(title=axis, labelAngle=0, grid=False),
            scale=alt.Scale(domain=list(self.values), paddingInner=0.18, paddingOuter=0.1),
        )
        letters = list(self.swept.letters)
        offset = alt.XOffset("arm:N", scale=alt.Scale(domain=letters, paddingInner=0.08))
        top = self._largest()
        scale = alt.Scale(domain=[0, top * _HEADROOM], nice=False)
        axis_y = value_axis(self.swept.quantity.better, linear_ticks(top), extent=_AXIS)
        y = alt.Y("v:Q", axis=axis_y, scale=scale)
        bars = alt.Chart(alt.NamedData(name=f"{self.key}bars")).encode(x=x, xOffset=offset)
        dots = alt.Chart(alt.NamedData(name=f"{self.key}dots")).encode(x=x, xOffset=offset)
        ratios = alt.Chart(alt.NamedData(name=f"{self.key}ratios")).encode(x=x)
        layers = [
            bars.mark_bar().encode(y=y, fill=alt.Fill("fill:N", scale=None)),
            *interval_marks(bars, "y", cap=12),
            run_marks(dots.encode(y=y), stroke_width=1),
            bars.mark_text(dy=-9, fontSize=10.5, fontWeight=600, fill=light("strong")).encode(
                y=alt.Y("end:Q"), text=alt.Text("text:N")
            ),
            ratios.mark_text(dy=-1, fontSize=10.5, fill=light("text")).encode(
                y=alt.value(0), text=alt.Text("text:N")
            ),
        ]
        title = alt.TitleParams(question(self.swept.quantity), subtitle=self._remarks())
        return layer_charts(layers, width=WIDTH, height=_HEIGHT, title=title)

    def _remarks(self) -> list[str]:
        quantity, scale = self.swept.quantity, self.swept.scale
        first = [f"{quantity.label}, {scale.unit}".removesuffix(", ")]
        first.append(_runs_text([bar for value in self.values for bar in self.swept.bars(value)]))
        if any(self.swept.ratio(value) for value in self.values):
            first.append("above each group: B ÷ A")
        rows = list(self.swept.rows.values())
        return [
            "  ·  ".join(first),
            *textwrap.wrap(evidence(*rows), _LINE),
            *textwrap.wrap(forced_clause(rows), _LINE),
        ]


def _runs_text(bars: Sequence[Bar]) -> str:
    counts = [sum(dot.valid for dot in bar.dots) for bar in bars if bar.dots]
    if not counts:
        return "bounds"
    low, high = min(counts), max(counts)
    return f"n = {low} per bar" if low == high else f"n = {low} to {high} per bar"


def _caption(axis: str, group: Group, known: Sequence[str]) -> str:
    text = (
        f"A group of bars per value of {axis}, with a bar per arm. Bars are medians of the valid "
        "runs, filled marks are single runs. Hollow marks are runs that failed, that a check "
        "excludes, or that only --force includes. "
    )
    if group.is_pair:
        text += "Above each group is B ÷ A, the ratio of the geometric means of their runs. "
    text += f"{MISSING} means that no run has a figure. Each panel's axis begins at zero."
    return f"{text} {intervals_caption(known)}".rstrip()


def _sentences(swept: Sequence[SweptQuantity], values: Sequence[str], axis: str) -> list[str]:
    """Return each panel as a sentence, for readers who cannot see the chart."""
    sentences = []
    for each in swept:
        parts = [
            f"{value} {axis}: "
            + ", ".join(f"{bar.label} {bar.text(each.scale)}" for bar in each.bars(value))
            for value in values
        ]
        sentences.append(f"{question(each.quantity)} In {each.scale.unit}: {'; '.join(parts)}.")
    return sentences


def _table(swept: Sequence[SweptQuantity], found: Sequence[Point], axis: str) -> Table:
    """Return every run's figure, those that are not drawn one by one too."""
    titles = columns("quantity", "unit", f"#{axis}", "arm", "#median", "#runs", "figures", "#B/A")
    rows = [line for each in swept for point in found for line in _lines(each, point.value)]
    return Table(columns=titles, rows=rows, caption=f"Every figure by {axis}")


def _lines(each: SweptQuantity, value: str) -> list[tuple[Cell, ...]]:
    scale = each.scale
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
