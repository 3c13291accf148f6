"""Stacked bars per arm: the seconds of a run's phases, and metrics that are parts of a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import altair as alt

from wattload.core.record.results import Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Figure, Table, columns, row
from wattload.reports.charts.captions import NOT_RECORDED
from wattload.reports.charts.marks import linear_ticks, thin_marks, value_axis
from wattload.reports.charts.svg import Data, Rows, fill_of, layer_charts, make_figure
from wattload.reports.charts.themes import PART_ROLES, arm_marker, light, marker_size, name_axis
from wattload.reports.quantity import MISSING, Scale, label, listed, out_of_range, scale_for, scaled
from wattload.reports.runs.phases import leading, overlap
from wattload.reports.stats.subject import LETTERS, lettered

WIDTH = 640
_ROW = 46
_HEIGHT = 20
_BAR_OFFSET = -8
_MARK_OFFSET = 11
_LETTER = 6.9
_PAD = 10


def stages_figure(
    name: str,
    subject: str,
    arms: Mapping[str, Sequence[RunRecord]],
    letters: Mapping[str, str] | None = None,
    *,
    swept: bool = False,
) -> Figure | None:
    """Return the timed phases of each arm as the parts of one bar.

    ``None`` where there is one phase only, or where phases overlap: a stack would count the
    shared time twice.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        arms: the valid runs of each bar.
        letters: the letter of each bar that has another than by its position.
        swept: whether a bar is an arm at one point of a sweep.
    """
    records = [record for runs in arms.values() for record in runs]
    names = dict.fromkeys(phase.name for record in records for phase in leading(record))
    if len(names) < 2 or any(overlap(leading(record)) for record in records):  # noqa: PLR2004 - one is no stack
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


def parts_figures(
    name: str,
    subject: str,
    arms: Mapping[str, Sequence[RunRecord]],
    letters: Mapping[str, str] | None = None,
) -> tuple[Figure, ...]:
    """Return a chart for each whole that a run's metrics are parts of, with a bar per arm.

    Args:
        name: unique on the page.
        subject: what the titles begin with.
        arms: the runs of each arm.
        letters: the letter of each arm that has another than by its position.
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
    of_arm = {
        arm: [
            [metric for metric in record.metrics if (metric.part_of, metric.unit) == (name, unit)]
            for record in records
        ]
        for arm, records in arms.items()
    }
    metrics = [(arm, metric) for arm, runs in of_arm.items() for run in runs for metric in run]
    directions = {metric.better for _, metric in metrics}
    return Stack(
        question=f"What is {name} made of?",
        whole=name,
        unit=unit,
        better=directions.pop() if len(directions) == 1 else "neither",
        names={metric.name: label(metric.name, unit) for _, metric in metrics},
        runs={arm: [_known_values(run) for run in runs] for arm, runs in of_arm.items()},
        reasons={
            (metric.name, arm): metric.missing.get("value", "") or out_of_range(metric.value)
            for arm, metric in metrics
            if not _known_values([metric])
        },
        letters=letters,
    )


def _known_values(parts: Sequence[Metric]) -> dict[str, float]:
    """Return the values of parts by name, without those that are missing or out of range."""
    return {
        part.name: part.value
        for part in parts
        if part.value is not None and not out_of_range(part.value)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One whole and its parts, for several bars.

    Attributes:
        question: what the chart answers.
        whole: what the parts add up to.
        names: the parts in their order, with the words for each.
        runs: the parts of each run in SI base units, by bar.
        reasons: why a bar lacks a part, by part and bar.
        letters: the letter of each bar that has another than by its position.
        swept: whether a bar is an arm at one point of a sweep.
    """

    question: str
    whole: str
    unit: Unit
    better: str
    names: Mapping[str, str]
    runs: Mapping[str, Sequence[Mapping[str, float]]]
    reasons: Mapping[tuple[str, str], str] = field(default_factory=dict)
    letters: Mapping[str, str] = field(default_factory=dict)
    swept: bool = False

    def letter(self, arm: str) -> str:
        """Return the letter of an arm, which sets its marker."""
        return self.letters.get(arm) or LETTERS[list(self.runs).index(arm)]

    def label(self, arm: str) -> str:
        """Return the text next to an arm's bar."""
        if self.swept or len(self.runs) == 1:
            return arm
        return lettered(self.letter(arm), arm)

    def part(self, name: str, arm: str) -> float | None:
        """Return a part's median over an arm's runs; ``None`` where no run has it."""
        values = [run[name] for run in self.runs[arm] if name in run]
        return median(values) if values else None

    def total(self, arm: str) -> float:
        """Return the sum of the medians of an arm's parts."""
        return sum(self.part(name, arm) or 0.0 for name in self.names)

    def known_parts(self) -> list[str]:
        """Return the parts that at least one arm has."""
        return [
            name
            for name in self.names
            if any(self.part(name, arm) is not None for arm in self.runs)
        ]

    def missing_reason(self, name: str, arm: str) -> str:
        """Return why an arm lacks a part; empty where it has one."""
        if self.part(name, arm) is not None:
            return ""
        return self.reasons.get((name, arm), "") or NOT_RECORDED

    def role(self, name: str) -> str:
        """Return the role of a part's colour and hatch."""
        return PART_ROLES[list(self.names).index(name) % len(PART_ROLES)]


def stack_figure(name: str, subject: str, stack: Stack) -> Figure | None:
    """Return the chart of a whole and its table; ``None`` where every part is zero or missing."""
    largest = max((stack.total(arm) for arm in stack.runs), default=0.0)
    if largest <= 0:
        return None
    scale = scale_for(stack.unit, largest)
    sums = [sum(run.values()) for runs in stack.runs.values() for run in runs]
    drawing = _Drawing(stack, scale, scale.shown(max(largest, *sums)))
    return make_figure(
        drawing.chart(),
        drawing.data(),
        name=name,
        title=f"{subject}: {stack.question}",
        caption=_caption(stack),
        sentences=_arm_sentences(stack, scale),
        table=_table(stack, scale),
        legend=[(stack.role(part), stack.names[part]) for part in stack.known_parts()],
    )


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A stack at a scale; ``largest`` is the end of the axis in its unit."""

    stack: Stack
    scale: Scale
    largest: float

    def data(self) -> Data:
        """Return the rows of its marks."""
        arms = list(self.stack.runs)
        return {
            "parts": [part for arm in arms for part in self._parts(arm)],
            "totals": [self._total(arm) for arm in arms],
            "dots": [dot for arm in arms for dot in self._dots(arm)],
        }

    def _parts(self, arm: str) -> Rows:
        rows = []
        start = 0.0
        for name, words in self.stack.names.items():
            value = self.stack.part(name, arm) or 0.0
            entry = {
                "arm": self.stack.label(arm),
                "start": self.scale.shown(start),
                "end": self.scale.shown(start + value),
                "fill": fill_of(self.stack.role(name)),
            }
            text = self._fitting_text(words, value)
            if text:
                room = self._per_pixel() * len(text) * _LETTER / 2
                middle = self.scale.shown(start + value / 2)
                entry |= {"text": text, "from": middle - room, "middle": middle}
                entry["to"] = middle + room
            rows.append(entry)
            start += value
        return rows

    def _fitting_text(self, words: str, value: float) -> str:
        """Return what fits into a part: name and figure, the figure alone, or nothing."""
        pixels = self.scale.shown(value) / self._per_pixel() - _PAD
        figure = scaled(value, self.scale, 3)
        texts = (f"{words} {figure}", figure)
        return next((text for text in texts if len(text) * _LETTER <= pixels), "")

    def _per_pixel(self) -> float:
        return self._domain()[1] / WIDTH

    def _domain(self) -> list[float]:
        letters = max(len(self._total(arm)["text"]) for arm in self.stack.runs)
        room = min(letters * _LETTER + 2 * _PAD, WIDTH * 0.6)
        return [0.0, self.largest * WIDTH / (WIDTH - room)]

    def _total(self, arm: str) -> dict[str, Any]:
        total, count = self.stack.total(arm), len(self.stack.runs[arm])
        lacking = [
            self.stack.names[name]
            for name in self.stack.known_parts()
            if self.stack.part(name, arm) is None
        ]
        text = f"{scaled(total, self.scale, 3)}, n = {count}" if total else "no figure"
        if lacking:
            text += f", without {listed(lacking)}"
        return {"arm": self.stack.label(arm), "end": self.scale.shown(total), "text": text}

    def _dots(self, arm: str) -> Rows:
        if len(self.stack.runs[arm]) == 1:
            return []
        marker = arm_marker(self.stack.letter(arm))
        totals = [sum(run.values()) for run in self.stack.runs[arm] if run]
        return [
            {
                "arm": self.stack.label(arm),
                "v": self.scale.shown(total),
                "shape": marker,
                "size": marker_size(marker),
            }
            for total in thin_marks(totals, float)
        ]

    def chart(self) -> alt.LayerChart:
        """Return the bars, the first arm on top."""
        arms = [self.stack.label(arm) for arm in self.stack.runs]
        domain = alt.Scale(domain=self._domain(), nice=False)
        axis = value_axis(self.stack.better, linear_ticks(self.largest))
        x = alt.X("start:Q", scale=domain, axis=axis)
        y = alt.Y("arm:N", sort=arms, axis=name_axis(arms))
        # Bars are above the middle of their row and runs below it, so that no mark hides a figure.
        parts = alt.Chart(alt.NamedData(name="parts")).encode(y=y)
        inside = parts.transform_filter("isValid(datum.text)")
        totals = alt.Chart(alt.NamedData(name="totals")).encode(y=y)
        layers = [
            parts.mark_bar(
                height=_HEIGHT, yOffset=_BAR_OFFSET, stroke=light("surface"), strokeWidth=1.5
            ).encode(x=x, x2=alt.X2("end:Q"), fill=alt.Fill("fill:N", scale=None)),
            inside.mark_bar(
                height=14, yOffset=_BAR_OFFSET, fill=light("surface"), cornerRadius=3
            ).encode(x=alt.X("from:Q"), x2=alt.X2("to:Q")),
            inside.mark_text(dy=_BAR_OFFSET, fill=light("strong")).encode(
                x=alt.X("middle:Q"), text=alt.Text("text:N")
            ),
            alt.Chart(alt.NamedData(name="dots"))
            .mark_point(
                yOffset=_MARK_OFFSET,
                fill=light("strong"),
                stroke=light("surface"),
                strokeWidth=1.2,
                opacity=1,
            )
            .encode(
                x=alt.X("v:Q"),
                y=y,
                shape=alt.Shape("shape:N", scale=None),
                size=alt.Size("size:Q", scale=None),
            ),
            totals.mark_text(
                align="left", dx=_PAD, dy=_BAR_OFFSET, fontWeight=600, fill=light("strong")
            ).encode(x=alt.X("end:Q"), text=alt.Text("text:N")),
        ]
        remark = f"{self.stack.whole}, {self.scale.unit}"
        title = alt.TitleParams(self.stack.question, subtitle=remark)
        return layer_charts(layers, width=WIDTH, height=_ROW * len(arms), title=title)


def _caption(stack: Stack) -> str:
    text = f"The parts of {stack.whole}; the sum of the parts is at the end of each bar."
    if any(len(runs) > 1 for runs in stack.runs.values()):
        text += (
            " Parts are medians of the valid runs; a mark under a bar is the sum of one run's "
            "parts."
        )
    gaps = {
        (stack.names[name], reason)
        for name in stack.names
        for arm in stack.runs
        if (reason := stack.missing_reason(name, arm))
    }
    return " ".join([text, *(f"No {words}: {reason}." for words, reason in sorted(gaps))])


def _arm_sentences(stack: Stack, scale: Scale) -> list[str]:
    """Return each arm's parts as a sentence, for readers who cannot see the chart."""
    return [
        f"{stack.label(arm)}, in {scale.unit}: "
        + ", ".join(
            f"{words} {scaled(stack.part(name, arm), scale, 3)}"
            for name, words in stack.names.items()
        )
        + "."
        for arm in stack.runs
    ]


def _table(stack: Stack, scale: Scale) -> Table:
    rows = [
        row(stack.names[name], *[_cell(stack, scale, name, arm) for arm in stack.runs])
        for name in stack.names
    ]
    titles = columns("part", *(f"#{arm}" for arm in stack.runs))
    return Table(columns=titles, rows=rows, caption=f"Parts of {stack.whole}, in {scale.unit}")


def _cell(stack: Stack, scale: Scale, name: str, arm: str) -> Cell:
    value = stack.part(name, arm)
    if value is None:
        return Cell(MISSING, remark=stack.missing_reason(name, arm))
    return Cell(scaled(value, scale))
