"""How long operations took: percentiles per arm, from the half to one in ten thousand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import altair as alt

from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.arms import arms_legend
from wattload.reports.charts.bars import LABELS, marker_size
from wattload.reports.charts.marks import drawn
from wattload.reports.charts.percentiles import NAMES, Percentiles, percentiles
from wattload.reports.quantity import (
    DIRECTIONS,
    MISSING,
    Scale,
    counted,
    quantity,
    scale_for,
    scaled,
)
from wattload.reports.subject import LETTERS
from wattload.reports.svg import joined, layered, render
from wattload.reports.themes import arm_colour, arm_marker, light

WIDTH = 372
_ALONE = 790
_HEIGHT = 210
_COLUMNS = 2
_DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 2], [1, 3])
"""By the letter of an arm: lines that cross are told apart in grey, too."""


def latency_figure(
    name: str,
    subject: str,
    arms: Mapping[str, Sequence[RunRecord]],
    letters: Sequence[str] = LETTERS,
) -> Figure | None:
    """Return a panel per kind of operation; ``None`` where no run measured single operations.

    ``letters`` are those of the arms, in their order.
    """
    panels = [panel for panel in percentiles(arms, letters) if panel.all_values()]
    if not panels:
        return None
    width = WIDTH if len(panels) > 1 else _ALONE
    charts = [_chart(index, panel, width) for index, panel in enumerate(panels)]
    chart = joined("concat", charts, columns=_COLUMNS, spacing={"row": 30, "column": 40})
    description = _description(panels)
    data = {key: rows for i, panel in enumerate(panels) for key, rows in _data(i, panel).items()}
    return Figure(
        svg=render(
            chart,
            data,
            name=name,
            title=f"{subject}: latency of single operations",
            description=" ".join([description, *_told(panels)]),
        ),
        caption=description,
        table=_table(panels),
        legend=arms_legend(list(arms), letters),
    )


def _scale(panel: Percentiles) -> Scale:
    return scale_for(Unit.SECONDS, median(panel.all_values()))


def _data(index: int, panel: Percentiles) -> dict[str, list[dict[str, Any]]]:
    scale = _scale(panel)
    lines, dots = [], []
    for letter, arm in zip(panel.letters, panel.arms, strict=False):
        shape = arm_marker(letter)
        look: dict[str, Any] = {"arm": letter, "stroke": arm_colour(letter), "shape": shape}
        look["size"] = 1.3 * marker_size(shape)
        for name, words in NAMES.items():
            at = look | {"p": words}
            middle = panel.percentile(arm, name)
            if middle is not None:
                lines.append(at | {"v": scale.shown(middle), "text": scaled(middle, scale, 3)})
            if len(panel.arms[arm]) > 1:
                marks = drawn(panel.values(arm, name), float)
                dots += [at | {"v": scale.shown(value)} for value in marks]
    none = [
        {"p": words}
        for name, words in NAMES.items()
        if not any(panel.values(arm, name) for arm in panel.arms)
    ]
    return {f"l{index}lines": lines, f"l{index}dots": dots, f"l{index}none": none}


_DIGITS = (
    (1,),
    (1, 2, 5),
    (1, 1.5, 2, 3, 5, 7),
    (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9),
)


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers that a logarithmic axis from low to high holds, four at least."""
    found: list[float] = []
    for digits in _DIGITS:
        sizes = [round(size * 10.0**power, 9) for power in range(-6, 7) for size in digits]
        found = [size for size in sizes if low <= size <= high]
        if len(found) >= 4:  # noqa: PLR2004 - fewer tell no logarithm
            break
    return found


def _chart(index: int, panel: Percentiles, width: int) -> alt.LayerChart:
    scale = _scale(panel)
    ends = [scale.shown(value) for value in panel.all_values()]
    span = max(max(ends) / min(ends), 1.6)
    low, high = min(ends) / span**0.3, max(ends) * span**0.2
    x = alt.X(
        "p:O",
        sort=list(NAMES.values()),
        scale=alt.Scale(domain=list(NAMES.values())),
        axis=alt.Axis(title=None, labelAngle=0, grid=False),
    )
    axis = alt.Axis(
        title=f"← {DIRECTIONS['lower']}",
        titleAnchor="start",
        values=_ticks(low, high),
        labelExpr=LABELS,
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
    if sum(map(bool, panel.arms.values())) <= 2:  # noqa: PLR2004 - figures of more would lie over each other
        layers += _figures(lines)
    remark = f"{scale.unit}, logarithmic"
    title = alt.TitleParams(panel.question(), subtitle=remark)
    return layered(layers, width=width, height=_HEIGHT, title=title)


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


def _description(panels: Sequence[Percentiles]) -> str:
    text = (
        "Each operation counts from just before it is handed to the kernel to when its completion "
        "is seen. The axis is logarithmic and does not begin at zero."
    )
    if any(len(runs) > 1 for panel in panels for runs in panel.arms.values()):
        text = f"A mark is the median of an arm's valid runs, a short line one run. {text}"
    gaps: dict[str, set[str]] = {}
    for panel in panels:
        for letter, arm in zip(panel.letters, panel.arms, strict=False):
            for name, reason in panel.gaps(arm).items():
                gaps.setdefault(reason, set()).add(NAMES[name])
            if not panel.arms[arm]:
                gaps.setdefault(f"No run of {letter} measured single {panel.kind[1]}s", set())
    return " ".join([text, *_gap_words(gaps)])


def _gap_words(gaps: Mapping[str, set[str]]) -> list[str]:
    return [
        f"No {', '.join(sorted(names))}: {reason}." if names else f"{reason}."
        for reason, names in gaps.items()
    ]


def _told(panels: Sequence[Percentiles]) -> list[str]:
    """Return each panel in a sentence, for who hears the chart instead of seeing it."""
    said = []
    for panel in panels:
        scale = _scale(panel)
        arms = [
            f"{letter}: "
            + ", ".join(
                f"{words} {scaled(panel.percentile(arm, name), scale, 3)}"
                for name, words in NAMES.items()
            )
            for letter, arm in zip(panel.letters, panel.arms, strict=False)
        ]
        said.append(f"{panel.question()} In {scale.unit}: {'; '.join(arms)}.")
    return said


def _table(panels: Sequence[Percentiles]) -> Table:
    """Return the medians per arm; nothing is drawn that is not listed."""
    titles = columns("phase", "operation", "arm", "#runs", *(f"#{name}" for name in NAMES.values()))
    rows = [
        row(
            panel.kind[0],
            f"{panel.kind[1]} {quantity(panel.kind[2], Unit.BYTES)}",
            arm,
            counted(len(panel.arms[arm]), "run"),
            *[_cell(panel, arm, name) for name in NAMES],
        )
        for panel in panels
        for arm in panel.arms
    ]
    return Table(columns=titles, rows=rows, caption="Percentiles, the median of the runs and all")


def _cell(panel: Percentiles, arm: str, name: str) -> str:
    values = panel.values(arm, name)
    if not values:
        return MISSING
    text = quantity(median(values), Unit.SECONDS)
    if len(values) == 1:
        return text
    scale = scale_for(Unit.SECONDS, median(values))
    return f"{text} ({'; '.join(scaled(value, scale) for value in values)})"
