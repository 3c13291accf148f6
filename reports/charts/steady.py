"""Steady state: a phase's rate by the second and by the round, its window, and the bands of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Figure, Table, columns, row
from wattload.reports.quantity import UNIT_SPACE, Scale, percent, scale_for, scaled
from wattload.reports.steady import (
    RANGE_LIMIT,
    ROUND_S,
    SLOPE_LIMIT,
    WINDOW_ROUNDS,
    Progress,
    Window,
)
from wattload.reports.svg import joined, layered, render
from wattload.reports.themes import arm_colour, arm_marker, arm_role, light
from wattload.reports.thinning import COLUMNS, thin

_HEIGHT = 200
_HEADROOM = 1.05
Rows = list[dict[str, Any]]
Data = dict[str, Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One arm's phase: its letter and name, its rate over time, and the window that is judged."""

    letter: str
    name: str
    progress: Progress
    window: Window


def steady_figure(name: str, subject: str, tracks: list[Track]) -> Figure:
    """Return a panel per arm, all on the same axes."""
    most = max(float(track.progress.seconds.max()) for track in tracks)
    shown = scale_for(Unit.BYTES_PER_SECOND, most)
    end_s = max(track.progress.seconds.size for track in tracks)
    data: Data = {}
    panels = [
        _Panel(track, index, shown, (end_s, shown.shown(most)), data).chart()
        for index, track in enumerate(tracks)
    ]
    wide, narrow = _whole(RANGE_LIMIT / 2), _whole(SLOPE_LIMIT / 2)
    description = (
        "The line is the rate by the second, marks are rounds of one minute. The window of five "
        f"rounds is shaded; around its average lie the band of ±{wide}, which is as high as the "
        f"rounds may spread, and the darker one of ±{narrow}, which the dashed line that fits the "
        "rounds must not leave."
    )
    chart = joined("vconcat", panels, spacing=22)
    return Figure(
        svg=render(chart, data, name=name, title=subject, description=description),
        caption=description,
        table=_table(tracks, shown),
        legend=[(arm_role(track.letter), track.name or "by the round") for track in tracks]
        + [("device", "by the second")],
    )


def _whole(limit: float) -> str:
    return f"{limit * 100:g}{UNIT_SPACE}%"


def verdict(window: Window) -> str:
    """Return what the rule says of a window, with its two figures and their limits."""
    first, last = window.first + 1, window.first + WINDOW_ROUNDS
    word = "steady" if window.is_steady else "not steady"
    return (
        f"{word} in rounds {first} to {last}: they range over {percent(window.range_fraction)} of "
        f"their average (at most {_whole(RANGE_LIMIT)}), their line over "
        f"{percent(window.excursion_fraction)} (at most {_whole(SLOPE_LIMIT)})"
    )


class _Panel:
    """One arm's panel; its rows go into ``data`` under names that end with its index."""

    def __init__(
        self, track: Track, index: int, shown: Scale, ends: tuple[float, float], data: Data
    ) -> None:
        self._track, self._index, self._shown, self._data = track, index, shown, data
        end_s, most = ends
        time = alt.Axis(title="seconds of active time", tickCount=10)
        self._x = alt.X("t:Q", axis=time, scale=alt.Scale(domain=[0, end_s], nice=False))
        height = alt.Scale(domain=[0, most * _HEADROOM], nice=False)
        self._y = alt.Y("v:Q", axis=alt.Axis(title=None, tickCount=5), scale=height)
        self._start_s = track.window.first * ROUND_S
        self._end_s = self._start_s + ROUND_S * WINDOW_ROUNDS

    def chart(self) -> alt.LayerChart:
        """Return the panel with what the rule says as its second heading."""
        track, shown = self._track, self._shown
        heading = f"{track.name}: " if track.name else ""
        title = alt.TitleParams(f"{heading}rate, {shown.unit}", subtitle=verdict(track.window))
        layers = [*self._bands(), *self._lines()]
        return layered(layers, width=COLUMNS, height=_HEIGHT, title=title)

    def _base(self, name: str, rows: Rows) -> alt.Chart:
        self._data[f"{name}{self._index}"] = rows
        return alt.Chart(alt.NamedData(name=f"{name}{self._index}"))

    def _bands(self) -> list[alt.Chart]:
        rows = [{"t": self._start_s, "t2": self._end_s}]
        shade = self._base("window", rows).mark_rect(fill=light("timed"), opacity=0.45)
        return [
            shade.encode(x=self._x, x2=alt.X2("t2:Q")),
            self._band("range", RANGE_LIMIT, 0.16),
            self._band("slope", SLOPE_LIMIT, 0.26),
        ]

    def _band(self, name: str, limit: float, opacity: float) -> alt.Chart:
        average = self._shown.shown(self._track.window.average)
        lower, upper = average * (1 - limit / 2), average * (1 + limit / 2)
        rows = [{"t": self._start_s, "t2": self._end_s, "v": lower, "v2": upper}]
        mark: alt.Chart = self._base(name, rows).mark_rect(fill=light("bound"), opacity=opacity)
        return mark.encode(x=self._x, x2=alt.X2("t2:Q"), y=self._y, y2=alt.Y2("v2:Q"))

    def _lines(self) -> list[alt.Chart]:
        track, x, y = self._track, self._x, self._y
        colour = arm_colour(track.letter)
        seconds = self._base("second", _seconds(track.progress, self._shown))
        rounds = self._base("round", _rounds(track.progress, self._shown))
        fit = self._base("fit", self._fitted())
        return [
            seconds.mark_line(stroke=light("device"), strokeWidth=0.9).encode(x=x, y=y),
            rounds.mark_line(stroke=colour, strokeWidth=1.6).encode(x=x, y=y),
            fit.mark_line(stroke=light("strong"), strokeWidth=1.6, strokeDash=[6, 4]).encode(
                x=x, y=y
            ),
            rounds.mark_point(
                shape=arm_marker(track.letter), fill=colour, stroke=light("surface"), size=46
            ).encode(x=x, y=y),
        ]

    def _fitted(self) -> Rows:
        window = self._track.window
        return [
            {
                "t": self._start_s + ROUND_S * (place + 0.5),
                "v": self._shown.shown(window.fitted(place)),
            }
            for place in (0, WINDOW_ROUNDS - 1)
        ]


def _seconds(progress: Progress, shown: Scale) -> Rows:
    time_s = np.arange(progress.seconds.size, dtype=np.float64) + 0.5
    kept = thin(time_s, progress.seconds, (0.0, float(progress.seconds.size)))
    return [
        {"t": float(time_s[at]), "v": round(shown.shown(float(progress.seconds[at])), 6)}
        for at in kept
    ]


def _rounds(progress: Progress, shown: Scale) -> Rows:
    return [
        {"t": (place + 0.5) * ROUND_S, "v": round(shown.shown(value), 6)}
        for place, value in enumerate(progress.rounds.tolist())
    ]


def _table(tracks: list[Track], shown: Scale) -> Table:
    count = max(track.progress.rounds.size for track in tracks)
    rows = []
    for place in range(count):
        cells = []
        for track in tracks:
            rounds, first = track.progress.rounds, track.window.first
            value = float(rounds[place]) if place < rounds.size else None
            inside = first <= place < first + WINDOW_ROUNDS and value is not None
            cells.append(Cell(scaled(value, shown), remark="in the window" if inside else ""))
        rows.append(row(str(place + 1), *cells))
    titles = [f"#{track.name or 'rate'}, {shown.unit}" for track in tracks]
    return Table(
        columns=columns("round of one minute", *titles),
        rows=rows,
        caption="Rate of each round: bytes ÷ seconds",
    )
