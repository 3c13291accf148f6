"""Latency of single operations: percentiles per arm, medians over its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import altair as alt

from wattload.core.record.results import Latency
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.arms import arms_legend
from wattload.reports.charts.marks import TICK_LABELS, thin_marks
from wattload.reports.charts.svg import Data, join_panels, layer_charts, make_figure
from wattload.reports.charts.themes import arm_colour, arm_marker, light, marker_size
from wattload.reports.quantity import (
    DIRECTIONS,
    MISSING,
    Scale,
    counted,
    out_of_range,
    quantity,
    scale_for,
    scaled,
)
from wattload.reports.stats.subject import LETTERS

PERCENTILES = {
    "p50_s": "p50",
    "p90_s": "p90",
    "p95_s": "p95",
    "p99_s": "p99",
    "p999_s": "p99.9",
    "p9999_s": "p99.99",
}
"""The fields of a record and how a page names them."""

_PANEL_WIDTH = 372
_SINGLE_WIDTH = 790
_HEIGHT = 210
_COLUMNS = 2
_DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 2], [1, 3])
"""By the letter of an arm: lines that cross differ in black and white too."""
_TICK_DIGITS = (
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9),
)
"""Ever denser ticks of a logarithmic axis, in each decade."""

Kind = tuple[str, str, int]


def latency_figure(
    name: str,
    subject: str,
    arms: Mapping[str, Sequence[RunRecord]],
    letters: Sequence[str] = LETTERS,
) -> Figure | None:
    """Return a panel per kind of operation; ``None`` where no run measured single operations.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        arms: the valid runs of each arm.
        letters: those of the arms, in their order.
    """
    panels = [panel for panel in percentiles(arms, letters) if panel.all_values()]
    if not panels:
        return None
    width = _PANEL_WIDTH if len(panels) > 1 else _SINGLE_WIDTH
    charts = [_chart(index, panel, width) for index, panel in enumerate(panels)]
    return make_figure(
        join_panels("concat", charts, columns=_COLUMNS, spacing={"row": 30, "column": 40}),
        {key: rows for i, panel in enumerate(panels) for key, rows in _data(i, panel).items()},
        name=name,
        title=f"{subject}: latency of single operations",
        caption=_caption(panels),
        sentences=_sentences(panels),
        table=_table(panels),
        legend=arms_legend(list(arms), letters),
    )


@dataclass(frozen=True, slots=True)
class Percentiles:
    """One kind of operation in one phase: by arm, the latencies of each run that has any.

    ``kind`` is the phase, the kind and the bytes of an operation; ``letters`` are those of the
    arms, in their order.
    """

    kind: Kind
    arms: Mapping[str, Sequence[Latency]]
    letters: Sequence[str]

    def percentile(self, arm: str, name: str) -> float | None:
        """Return the median over an arm's runs, in seconds."""
        values = self.values(arm, name)
        return median(values) if values else None

    def values(self, arm: str, name: str) -> list[float]:
        """Return the percentile of each run in seconds, without values out of range."""
        found = (getattr(run, name) for run in self.arms[arm])
        return [v for v in found if v is not None and v > 0 and not out_of_range(v)]

    def all_values(self) -> list[float]:
        """Return every value that is drawn."""
        return [v for arm in self.arms for name in PERCENTILES for v in self.values(arm, name)]

    def question(self) -> str:
        """Return the question that the panel answers."""
        phase, kind, operation_bytes = self.kind
        size = quantity(operation_bytes, Unit.BYTES, 3)
        where = "" if phase == kind else f" in {phase}"
        return f"How long do {kind}s of {size} take{where}?"

    def gaps(self, arm: str) -> dict[str, str]:
        """Return the percentiles that no run of an arm has, with the reason."""
        runs = self.arms[arm]
        found = {}
        for name in PERCENTILES:
            if runs and not self.values(arm, name):
                reasons = (
                    run.missing.get(name, "") or out_of_range(getattr(run, name)) for run in runs
                )
                found[name] = next(filter(None, reasons), "not recorded")
        return found

    @property
    def scale(self) -> Scale:
        """The scale that suits its values."""
        return scale_for(Unit.SECONDS, median(self.all_values()))


def percentiles(
    arms: Mapping[str, Sequence[RunRecord]], letters: Sequence[str]
) -> list[Percentiles]:
    """Return the kinds in order of their phases; of each run, the latencies of all its ranks."""
    rows: dict[Kind, dict[str, list[Latency]]] = {}
    for arm, records in arms.items():
        for record in records:
            for found in _of_all_ranks(record):
                kind = (found.phase, found.kind, found.operation_bytes)
                rows.setdefault(kind, {own: [] for own in arms})[arm].append(found)
    return [Percentiles(kind, of_arm, letters) for kind, of_arm in rows.items()]


def _of_all_ranks(record: RunRecord) -> list[Latency]:
    most: dict[Kind, Latency] = {}
    for found in record.latencies:
        kind = (found.phase, found.kind, found.operation_bytes)
        if kind not in most or len(found.ranks) > len(most[kind].ranks):
            most[kind] = found
    return list(most.values())


def _data(index: int, panel: Percentiles) -> Data:
    scale = panel.scale
    lines, dots = [], []
    for letter, arm in zip(panel.letters, panel.arms, strict=False):
        shape = arm_marker(letter)
        look: dict[str, Any] = {"arm": letter, "stroke": arm_colour(letter), "shape": shape}
        look["size"] = 1.3 * marker_size(shape)
        for name, words in PERCENTILES.items():
            at = look | {"p": words}
            middle = panel.percentile(arm, name)
            if middle is not None:
                lines.append(at | {"v": scale.shown(middle), "text": scaled(middle, scale, 3)})
            if len(panel.arms[arm]) > 1:
                marks = thin_marks(panel.values(arm, name), float)
                dots += [at | {"v": scale.shown(value)} for value in marks]
    none = [
        {"p": words}
        for name, words in PERCENTILES.items()
        if not any(panel.values(arm, name) for arm in panel.arms)
    ]
    return {f"l{index}lines": lines, f"l{index}dots": dots, f"l{index}none": none}


def _ticks(low: float, high: float) -> list[float]:
    """Return at least four round numbers between the ends of a logarithmic axis, if it has them."""
    found: list[float] = []
    for digits in _TICK_DIGITS:
        sizes = [round(size * 10.0**power, 9) for power in range(-6, 7) for size in digits]
        found = [size for size in sizes if low <= size <= high]
        if len(found) >= 4:  # noqa: PLR2004 - fewer do not show that it is logarithmic
            break
    return found


def _chart(index: int, panel: Percentiles, width: int) -> alt.LayerChart:
    scale = panel.scale
    ends = [scale.shown(value) for value in panel.all_values()]
    span = max(max(ends) / min(ends), 1.6)
    low, high = min(ends) / span**0.3, max(ends) * span**0.2
    x = alt.X(
        "p:O",
        sort=list(PERCENTILES.values()),
        scale=alt.Scale(domain=list(PERCENTILES.values())),
        axis=alt.Axis(title=None, labelAngle=0, grid=False),
    )
    axis = alt.Axis(
        title=f"← {DIRECTIONS['lower']}",
        titleAnchor="start",
        values=_ticks(low, high),
        labelExpr=TICK_LABELS,
        minExtent=34,
    )
    y = alt.Y("v:Q", axis=axis, scale=alt.Scale(type="log", domain=[low, high], nice=False))
    lines = alt.Chart(alt.NamedData(name=f"l{index}lines")).encode(x=x, y=y)
    dots = alt.Chart(alt.NamedData(name=f"l{index}dots")).encode(x=x, y=y)
    none = alt.Chart(alt.NamedData(name=f"l{index}none")).mark_text(fontStyle="italic")
    layers = [*_lines(lines, panel.letters[: len(panel.arms)]), _dots(dots), _marks(lines)]
    layers.append(
        none.encode(
            x=x,
            y=alt.value(_HEIGHT - 12),
            text=alt.TextValue("none"),
            fill=alt.FillValue(light("text")),
        )
    )
    if sum(map(bool, panel.arms.values())) <= 2:  # noqa: PLR2004 - figures of more would overlap
        layers += _figures(lines)
    title = alt.TitleParams(panel.question(), subtitle=f"{scale.unit}, logarithmic")
    return layer_charts(layers, width=width, height=_HEIGHT, title=title)


def _lines(base: alt.Chart, letters: Sequence[str]) -> list[alt.Chart]:
    return [
        base.transform_filter(f"datum.arm == '{letter}'").mark_line(
            stroke=arm_colour(letter), strokeWidth=1.8, strokeDash=_DASHES[LETTERS.index(letter)]
        )
        for letter in letters
    ]


def _dots(base: alt.Chart) -> alt.Chart:
    dots: alt.Chart = base.mark_tick(opacity=0.8, thickness=1.3, size=11).encode(
        fill=alt.Fill("stroke:N", scale=None)
    )
    return dots


def _marks(base: alt.Chart) -> alt.Chart:
    marks: alt.Chart = base.mark_point(opacity=1, strokeWidth=1).encode(
        shape=alt.Shape("shape:N", scale=None),
        size=alt.Size("size:Q", scale=None),
        fill=alt.Fill("stroke:N", scale=None),
        stroke=alt.StrokeValue(light("surface")),
    )
    return marks


def _figures(base: alt.Chart) -> list[alt.Chart]:
    """Return the figures over the upper line and under the lower one."""
    ranked = base.transform_window(
        place="row_number()", groupby=["p"], sort=[alt.SortField("v", order="descending")]
    )
    return [
        ranked.transform_filter(f"datum.place == {place}")
        .mark_text(dy=dy, fontSize=10.5, fontWeight=600, fill=light("strong"))
        .encode(text=alt.Text("text:N"))
        for place, dy in ((1, -13), (2, 14))
    ]


def _caption(panels: Sequence[Percentiles]) -> str:
    text = (
        "Latency is the time from just before an operation is submitted to the kernel until its "
        "completion is seen. The axis is logarithmic and does not begin at zero."
    )
    if any(len(runs) > 1 for panel in panels for runs in panel.arms.values()):
        text = f"A mark is the median of an arm's valid runs, a short line is one run. {text}"
    gaps: dict[str, set[str]] = {}
    for panel in panels:
        for letter, arm in zip(panel.letters, panel.arms, strict=False):
            for name, reason in panel.gaps(arm).items():
                gaps.setdefault(reason, set()).add(PERCENTILES[name])
            if not panel.arms[arm]:
                gaps.setdefault(f"No run of {letter} measured single {panel.kind[1]}s", set())
    sentences = [
        f"No {', '.join(sorted(names))}: {reason}." if names else f"{reason}."
        for reason, names in gaps.items()
    ]
    return " ".join([text, *sentences])


def _sentences(panels: Sequence[Percentiles]) -> list[str]:
    """Return each panel as a sentence, for readers who cannot see the chart."""
    sentences = []
    for panel in panels:
        scale = panel.scale
        arms = [
            f"{letter}: "
            + ", ".join(
                f"{words} {scaled(panel.percentile(arm, name), scale, 3)}"
                for name, words in PERCENTILES.items()
            )
            for letter, arm in zip(panel.letters, panel.arms, strict=False)
        ]
        sentences.append(f"{panel.question()} In {scale.unit}: {'; '.join(arms)}.")
    return sentences


def _table(panels: Sequence[Percentiles]) -> Table:
    """Return all that is drawn: the medians of each arm and the values of its runs."""
    titles = columns(
        "phase", "operation", "arm", "#runs", *(f"#{name}" for name in PERCENTILES.values())
    )
    rows = [
        row(
            panel.kind[0],
            f"{panel.kind[1]} {quantity(panel.kind[2], Unit.BYTES)}",
            arm,
            counted(len(panel.arms[arm]), "run"),
            *[_cell(panel, arm, name) for name in PERCENTILES],
        )
        for panel in panels
        for arm in panel.arms
    ]
    return Table(
        columns=titles,
        rows=rows,
        caption="Percentiles: the median of the runs, and every run in parentheses",
    )


def _cell(panel: Percentiles, arm: str, name: str) -> str:
    values = panel.values(arm, name)
    if not values:
        return MISSING
    text = quantity(median(values), Unit.SECONDS)
    if len(values) == 1:
        return text
    scale = scale_for(Unit.SECONDS, median(values))
    return f"{text} ({'; '.join(scaled(value, scale) for value in values)})"
