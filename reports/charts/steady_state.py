"""The chart of steady state: the rate of a phase and the measurement window that judges it.

The rule is SNIA's; see ``wattload.core.steady``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np
from numpy.typing import NDArray

from wattload.core.steady import (
    MINIMUM_S,
    RANGE_LIMIT,
    ROUND_S,
    SLOPE_LIMIT,
    WINDOW_ROUNDS,
    MeasurementWindow,
)
from wattload.core.units import NS_PER_S, Unit
from wattload.reports.blocks import Cell, Figure, Table, columns, row
from wattload.reports.charts.svg import Data, Rows, join_panels, layer_charts, make_figure
from wattload.reports.charts.themes import arm_colour, arm_marker, arm_role, light
from wattload.reports.charts.timeline import COLUMNS, thin
from wattload.reports.quantity import UNIT_SPACE, Scale, percent, scale_for, scaled
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import CommonClock, Phase

_HEIGHT = 200
_HEADROOM = 1.05

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The rate of a phase over its active time, in bytes per second.

    ``seconds`` has the rate of each whole second, ``rounds`` that of each whole round of
    ``ROUND_S``; an incomplete one at the end is left out. Both are bytes ÷ seconds.
    """

    seconds: Array
    rounds: Array


def progress_of(run: Run, phase: Phase) -> Progress | None:
    """Return a phase's rate over its active time; ``None`` where no throughput trace was kept.

    A bin of the trace that begins before an interval of the phase counts at the interval's start.
    """
    trace = run.traces.throughput
    if trace is None:
        return None
    own = trace.phase.are(phase.name)
    clock = CommonClock(run.record)
    shift_ns = np.array([clock.shift_ns(host) for host in trace.host.words], dtype=np.int64)
    time_s = (trace.time_ns[own] + shift_ns[trace.host.numbers[own]]) / NS_PER_S
    moved_bytes = trace.read_bytes[own] + trace.written_bytes[own]
    active_s = _active(time_s, phase)
    return Progress(
        seconds=_rates(active_s, moved_bytes, phase, 1),
        rounds=_rates(active_s, moved_bytes, phase, ROUND_S),
    )


def _active(time_s: Array, phase: Phase) -> Array:
    """Return the seconds of the phase's active time before each moment."""
    starts, ends = np.array(phase.intervals_s, dtype=np.float64).T
    before_s = np.concatenate(([0.0], np.cumsum(ends - starts)))
    at = np.clip(np.searchsorted(ends, time_s, side="right"), 0, starts.size - 1)
    inside_s = np.clip(time_s - starts[at], 0.0, ends[at] - starts[at])
    active_s: Array = before_s[at] + inside_s
    return active_s


def _rates(active_s: Array, moved_bytes: NDArray[np.int64], phase: Phase, width_s: int) -> Array:
    whole_s = sum(end - start for start, end in phase.intervals_s)
    count = int(whole_s // width_s)
    place = (active_s // width_s).astype(np.int64)
    inside = place < count
    sums = np.bincount(place[inside], weights=moved_bytes[inside], minlength=count)
    rates: Array = sums / width_s
    return rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One arm's phase: the arm's letter and name, the rate over time, and the judged window."""

    letter: str
    name: str
    progress: Progress
    window: MeasurementWindow


def steady_figure(name: str, title: str, tracks: Sequence[Track]) -> Figure:
    """Return a panel per arm, all on the same axes."""
    most = max(float(track.progress.seconds.max()) for track in tracks)
    shown = scale_for(Unit.BYTES_PER_SECOND, most)
    end_s = max(track.progress.seconds.size for track in tracks)
    data: Data = {}
    panels = [
        _Panel(track, index, shown, (end_s, shown.shown(most)), data).chart()
        for index, track in enumerate(tracks)
    ]
    wide, narrow = _percent(RANGE_LIMIT / 2), _percent(SLOPE_LIMIT / 2)
    caption = (
        "The line is the rate per second, marks are rounds of one minute. The window of five "
        f"rounds is shaded, with two bands around its average: the rounds may spread over the band "
        f"of ±{wide}, and the dashed line fitted to them must stay within the darker one of "
        f"±{narrow}."
    )
    return make_figure(
        join_panels("vconcat", panels, spacing=22),
        data,
        name=name,
        title=title,
        caption=caption,
        table=_table(tracks, shown),
        legend=[(arm_role(track.letter), track.name or "per round") for track in tracks]
        + [("device", "per second")],
    )


def _percent(limit: float) -> str:
    return f"{limit * 100:g}{UNIT_SPACE}%"


def verdict(window: MeasurementWindow) -> str:
    """Return the result of the rule for a window, with both figures and their limits."""
    first, last = window.first + 1, window.first + WINDOW_ROUNDS
    word = "steady" if window.is_steady else "not steady"
    return (
        f"{word} in rounds {first} to {last}: the rounds range over "
        f"{percent(window.range_fraction)} of their average (at most {_percent(RANGE_LIMIT)}), "
        f"the fitted line over {percent(window.excursion_fraction)} (at most "
        f"{_percent(SLOPE_LIMIT)})"
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
        self._end_s = self._start_s + MINIMUM_S

    def chart(self) -> alt.LayerChart:
        """Return the panel, with the result of the rule under its title."""
        track, shown = self._track, self._shown
        heading = f"{track.name}: " if track.name else ""
        title = alt.TitleParams(f"{heading}rate, {shown.unit}", subtitle=verdict(track.window))
        layers = [*self._bands(), *self._lines()]
        return layer_charts(layers, width=COLUMNS, height=_HEIGHT, title=title)

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


def _table(tracks: Sequence[Track], shown: Scale) -> Table:
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
