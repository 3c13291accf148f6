"""What a whole is made of, per arm: its parts stacked, each run's sum as a mark over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import altair as alt

from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Figure, Table, columns, row
from wattload.reports.charts.bars import axis_of, marker_size, ticks
from wattload.reports.charts.marks import drawn
from wattload.reports.quantity import MISSING, Scale, listed, scale_for, scaled
from wattload.reports.subject import LETTERS, lettered
from wattload.reports.svg import fill_of, layered, render
from wattload.reports.themes import PART_ROLES, arm_marker, light, named_axis

WIDTH = 640
_ROW = 46
_HEIGHT = 20
_LIFT = -8
_LANE = 11
_LETTER = 6.9
_PAD = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One whole: ``runs`` has, per arm and run, what each part was in SI base units.

    ``question`` is what the chart answers, ``whole`` what the parts add up to, ``names`` the parts
    in their order with the words for each, ``reasons`` why an arm does not tell a part. A bar may
    stand for an arm at one point of a sweep, which ``swept`` says. ``letters`` has the letter of
    each bar that has another than by its place.
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
        """Return the letter of an arm, which its marker goes by."""
        return self.letters.get(arm) or LETTERS[list(self.runs).index(arm)]

    def label(self, arm: str) -> str:
        """Return what stands beside an arm's bar."""
        if self.swept or len(self.runs) == 1:
            return arm
        return lettered(self.letter(arm), arm)

    def part(self, name: str, arm: str) -> float | None:
        """Return a part's median over an arm's runs; ``None`` where no run tells it."""
        values = [run[name] for run in self.runs[arm] if name in run]
        return median(values) if values else None

    def total(self, arm: str) -> float:
        """Return the sum of the medians of the parts that an arm tells."""
        return sum(self.part(name, arm) or 0.0 for name in self.names)

    def told(self) -> list[str]:
        """Return the parts that any arm tells."""
        return [
            name for name in self.names if any(self.untold(name, arm) == "" for arm in self.runs)
        ]

    def untold(self, name: str, arm: str) -> str:
        """Return why an arm does not tell a part; empty where it does."""
        if self.part(name, arm) is not None:
            return ""
        return self.reasons.get((name, arm), "") or "no run tells it"


def stack_figure(name: str, subject: str, stack: Stack) -> Figure | None:
    """Return the chart of a whole and its table; ``None`` where every part is nought or untold."""
    arms = list(stack.runs)
    largest = max((stack.total(arm) for arm in arms), default=0.0)
    if largest <= 0:
        return None
    scale = scale_for(stack.unit, largest)
    description = _description(stack)
    drawing = _Drawing(stack, scale, scale.shown(max(largest, *_sums(stack))))
    return Figure(
        svg=render(
            drawing.chart(),
            drawing.data(),
            name=name,
            title=f"{subject}: {stack.question}",
            description=" ".join([description, *_told(stack, scale)]),
        ),
        caption=description,
        table=_table(stack, scale),
        legend=[(_role(stack, part), stack.names[part]) for part in stack.told()],
    )


def _sums(stack: Stack) -> list[float]:
    return [sum(run.values()) for runs in stack.runs.values() for run in runs]


def _role(stack: Stack, part: str) -> str:
    return PART_ROLES[list(stack.names).index(part) % len(PART_ROLES)]


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A stack at a scale; ``largest`` is in its unit."""

    stack: Stack
    scale: Scale
    largest: float

    def data(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of its marks."""
        arms = list(self.stack.runs)
        return {
            "parts": [part for arm in arms for part in self._parts(arm)],
            "totals": [self._total(arm) for arm in arms],
            "dots": [dot for arm in arms for dot in self._dots(arm)],
        }

    def _parts(self, arm: str) -> list[dict[str, Any]]:
        found = []
        start = 0.0
        for name, words in self.stack.names.items():
            value = self.stack.part(name, arm) or 0.0
            entry = {
                "arm": self.stack.label(arm),
                "start": self.scale.shown(start),
                "end": self.scale.shown(start + value),
                "fill": fill_of(_role(self.stack, name)),
            }
            text = self._fitting(words, value)
            if text:
                room = self._per_pixel() * len(text) * _LETTER / 2
                middle = self.scale.shown(start + value / 2)
                entry |= {"text": text, "from": middle - room, "middle": middle}
                entry["to"] = middle + room
            found.append(entry)
            start += value
        return found

    def _fitting(self, words: str, value: float) -> str:
        """Return what stands in a part: name and figure, the figure alone, or nothing."""
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
            self.stack.names[name] for name in self.stack.told() if self.stack.untold(name, arm)
        ]
        text = f"{scaled(total, self.scale, 3)}, n = {count}" if total else "no figure"
        if lacking:
            text += f", without {listed(lacking)}"
        return {"arm": self.stack.label(arm), "end": self.scale.shown(total), "text": text}

    def _dots(self, arm: str) -> list[dict[str, Any]]:
        marker = arm_marker(self.stack.letter(arm))
        totals = [sum(run.values()) for run in self.stack.runs[arm] if run]
        return [
            {
                "arm": self.stack.label(arm),
                "v": self.scale.shown(total),
                "shape": marker,
                "size": marker_size(marker),
            }
            for total in drawn(totals, float)
            if len(self.stack.runs[arm]) > 1
        ]

    def chart(self) -> alt.LayerChart:
        """Return the bars, the first arm on top."""
        arms = [self.stack.label(arm) for arm in self.stack.runs]
        domain = alt.Scale(domain=self._domain(), nice=False)
        x = alt.X("start:Q", scale=domain, axis=axis_of(self.stack.better, ticks(self.largest)))
        y = alt.Y("arm:N", sort=arms, axis=named_axis(arms))
        # Bars stand above the middle of their row, the marks of runs under them: over no figure.
        parts = alt.Chart(alt.NamedData(name="parts")).encode(y=y)
        inside = parts.transform_filter("isValid(datum.text)")
        totals = alt.Chart(alt.NamedData(name="totals")).encode(y=y)
        layers = [
            parts.mark_bar(
                height=_HEIGHT, yOffset=_LIFT, stroke=light("surface"), strokeWidth=1.5
            ).encode(x=x, x2=alt.X2("end:Q"), fill=alt.Fill("fill:N", scale=None)),
            inside.mark_bar(height=14, yOffset=_LIFT, fill=light("surface"), cornerRadius=3).encode(
                x=alt.X("from:Q"), x2=alt.X2("to:Q")
            ),
            inside.mark_text(dy=_LIFT, fill=light("strong")).encode(
                x=alt.X("middle:Q"), text=alt.Text("text:N")
            ),
            self._marks(y),
            totals.mark_text(
                align="left", dx=_PAD, dy=_LIFT, fontWeight=600, fill=light("strong")
            ).encode(x=alt.X("end:Q"), text=alt.Text("text:N")),
        ]
        remark = f"{self.stack.whole}, {self.scale.unit}"
        title = alt.TitleParams(self.stack.question, subtitle=remark)
        return layered(layers, width=WIDTH, height=_ROW * len(arms), title=title)

    def _marks(self, y: alt.Y) -> alt.Chart:
        dots = alt.Chart(alt.NamedData(name="dots"))
        marks: alt.Chart = dots.mark_point(
            yOffset=_LANE, fill=light("strong"), stroke=light("surface"), strokeWidth=1.2, opacity=1
        ).encode(
            x=alt.X("v:Q"),
            y=y,
            shape=alt.Shape("shape:N", scale=None),
            size=alt.Size("size:Q", scale=None),
        )
        return marks


def _description(stack: Stack) -> str:
    text = f"What {stack.whole} is made of; at the end stands the sum of the parts."
    if any(len(runs) > 1 for runs in stack.runs.values()):
        text += " Parts are medians of the valid runs, a mark under a bar is the sum of one run."
    gaps = {
        (stack.names[name], reason)
        for name in stack.names
        for arm in stack.runs
        if (reason := stack.untold(name, arm))
    }
    return " ".join([text, *(f"No {words}: {reason}." for words, reason in sorted(gaps))])


def _told(stack: Stack, scale: Scale) -> list[str]:
    """Return each arm's parts in a sentence, for who hears the chart instead of seeing it."""
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
        return Cell(MISSING, remark=stack.untold(name, arm))
    return Cell(scaled(value, scale))
