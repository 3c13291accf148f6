"""Charts of latency percentiles and of steady state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from wattload.core.record.results import Latency
from wattload.core.record.run import RunRecord
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
from wattload.reports.charts.arms import arms_legend
from wattload.reports.charts.plot import Axis, Frame, thin_marks
from wattload.reports.charts.themes import arm_role
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import CommonClock, Phase
from wattload.reports.stats.subject import LETTERS, named
from wattload.results.quantity import (
    DIRECTIONS,
    MISSING,
    UNIT_SPACE,
    Scale,
    block_text,
    counted,
    number,
    percent,
    quantity,
    scale_for,
    scaled,
)
from wattload.results.registry import results_of

PERCENTILES = {
    "p50_s": "p50",
    "p90_s": "p90",
    "p95_s": "p95",
    "p99_s": "p99",
    "p999_s": "p99.9",
    "p9999_s": "p99.99",
    "p99999_s": "p99.999",
}
"""The fields of a record and how a page names them."""

_HEIGHT = 180
_DASHES = ("", "7 3", "2 2", "9 3 2 3", "4 2", "1 3")
"""By the letter of an arm: lines that cross differ in black and white too."""

Array = NDArray[np.float64]
Kind = tuple[str, str, int]


def _dash(letter: str) -> str:
    return _DASHES[LETTERS.index(letter)]


def latency_figure(
    name: str,
    subject: str,
    arms: Mapping[str, Sequence[RunRecord]],
    letters: Sequence[str] = LETTERS,
    latencies: Mapping[str, str] | None = None,
) -> Figure | None:
    """Return a panel per kind of operation; ``None`` where no run measured single operations.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        arms: the valid runs of each arm.
        letters: those of the arms, in their order.
        latencies: how long operations of some kinds last, in words, where that is not the rule.
    """
    panels = [panel for panel in _percentiles(arms, letters) if panel.all_values()]
    if not panels:
        return None
    caption = (
        "Time from the submission of one operation, or under a rate limit from when it was due, to "
        "its completion; logarithmic axis."
    )
    kinds = dict.fromkeys(panel.kind[1] for panel in panels)
    notes = [latencies[kind] for kind in kinds if latencies and kind in latencies]
    if any(len(runs) > 1 for panel in panels for runs in panel.arms.values()):
        caption = f"Lines connect the medians of valid runs, a dot is one run. {caption}"
    return Figure(
        name=name,
        title=f"{subject}: latency of single operations",
        svg="".join(_latency_panel(panel) for panel in panels),
        caption=" ".join([caption, *notes, *_gap_sentences(panels)]),
        table=_latency_table(panels),
        legend=arms_legend(list(arms), letters),
    )


@dataclass(frozen=True, slots=True)
class _Percentiles:
    """One kind of operation in one phase: by arm, the latencies of each run that has any.

    ``kind`` is the phase, the kind and the bytes of an operation; ``letters`` are those of the
    arms, in their order.
    """

    kind: Kind
    arms: Mapping[str, Sequence[Latency]]
    letters: Sequence[str]

    def values(self, arm: str, name: str) -> list[float]:
        """Return the percentile of each run in seconds, where it is above 0."""
        found = (run.percentiles_s[name] for run in self.arms[arm])
        return [v for v in found if v is not None and v > 0]

    def all_values(self) -> list[float]:
        return [v for arm in self.arms for name in PERCENTILES for v in self.values(arm, name)]

    @property
    def title(self) -> str:
        phase, kind, operation_bytes = self.kind
        is_only = phase == kind or results_of(phase) is not None
        where = "" if is_only else f" in {phase}"
        return f"{kind}s of {block_text(operation_bytes)}{where}"

    def gaps(self, arm: str) -> dict[str, str]:
        """Return the percentiles that no run of an arm has, with the reason."""
        found = {}
        for name in PERCENTILES:
            if self.arms[arm] and not self.values(arm, name):
                reasons = (
                    run.why_missing(name)
                    for run in self.arms[arm]
                    if run.percentiles_s[name] is None
                )
                found[name] = next(reasons, "not recorded")
        return found


def _percentiles(
    arms: Mapping[str, Sequence[RunRecord]], letters: Sequence[str]
) -> list[_Percentiles]:
    """Return the kinds in order of their phases; of each run, the latencies of all its ranks."""
    rows: dict[Kind, dict[str, list[Latency]]] = {}
    for arm, records in arms.items():
        for record in records:
            for found in record.merged_latencies:
                kind: Kind = (found.phase, found.kind, found.operation_bytes)
                rows.setdefault(kind, {own: [] for own in arms})[arm].append(found)
    return [_Percentiles(kind, of_arm, letters) for kind, of_arm in rows.items()]


def _latency_panel(panel: _Percentiles) -> str:
    values = panel.all_values()
    names = [name for name in PERCENTILES if any(panel.values(arm, name) for arm in panel.arms)]
    scale = scale_for(Unit.SECONDS, median(values))
    span = max(max(values) / min(values), 1.6)
    frame = Frame(
        Axis(low=-0.5, high=len(names) - 0.5, names=[PERCENTILES[name] for name in names]),
        Axis(
            low=scale.shown(min(values)) / span**0.2,
            high=scale.shown(max(values)) * span**0.25,
            unit=scale.unit,
            log=True,
        ),
        height=_HEIGHT,
        title=f"{panel.title}, {scale.unit} · {DIRECTIONS['lower']}",
    )
    words = []
    several = sum(map(bool, panel.arms.values())) > 2  # noqa: PLR2004 - more figures would overlap
    for letter, arm in zip(panel.letters, panel.arms, strict=False):
        role, xs, ys = arm_role(letter), [], []
        for x, name in enumerate(names):
            found = panel.values(arm, name)
            for value in thin_marks(found, float) if len(found) > 1 else ():
                tip = f"{letter} {PERCENTILES[name]} {scaled(value, scale, 3)} {scale.unit}"
                frame.mark(x, scale.shown(value), role, tip, radius=2)
            if found:
                xs.append(float(x))
                ys.append(scale.shown(median(found)))
        frame.line(xs, ys, role, dash=_dash(letter))
        for at, y in zip(xs, ys, strict=True):
            shown = number(y, 3)
            frame.mark(at, y, role, f"{letter} {frame.x.names[int(at)]} {shown} {scale.unit}")
            if not several and letter == panel.letters[0]:
                frame.label(at, y, shown)
        words.append(f"{letter}: {', '.join(number(y, 3) for y in ys)}")
    return frame.svg(
        f"{panel.title}, {', '.join(frame.x.names)} in {scale.unit}. {'; '.join(words)}"
    )


def _gap_sentences(panels: Sequence[_Percentiles]) -> list[str]:
    gaps: dict[str, set[str]] = {}
    for panel in panels:
        for letter, arm in zip(panel.letters, panel.arms, strict=False):
            for name, reason in panel.gaps(arm).items():
                gaps.setdefault(reason, set()).add(PERCENTILES[name])
            if not panel.arms[arm]:
                gaps.setdefault(
                    f"No run of {named(letter, arm)} measured single {panel.kind[1]}s", set()
                )
    return [
        f"No {', '.join(sorted(names))}: {reason.rstrip('.')}." if names else f"{reason}."
        for reason, names in gaps.items()
    ]


def _latency_table(panels: Sequence[_Percentiles]) -> Table:
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
            *[_latency_cell(panel.values(arm, name)) for name in PERCENTILES],
        )
        for panel in panels
        for arm in panel.arms
    ]
    return Table(
        columns=titles,
        rows=rows,
        caption="Percentiles: the median of the runs, and every run in parentheses",
    )


def _latency_cell(values: Sequence[float]) -> str:
    if not values:
        return MISSING
    text = quantity(median(values), Unit.SECONDS)
    if len(values) == 1:
        return text
    scale = scale_for(Unit.SECONDS, median(values))
    return f"{text} ({'; '.join(scaled(value, scale) for value in values)})"


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
    time_s = CommonClock(run.record).rows_ns(trace.host, trace.time_ns)[own] / NS_PER_S
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
class Progression:
    """One arm's phase: the arm's letter and name, the rate over time, and the judged window."""

    letter: str
    name: str
    progress: Progress
    window: MeasurementWindow


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


def _percent(limit: float) -> str:
    return f"{limit * 100:g}{UNIT_SPACE}%"


def steady_figure(name: str, title: str, tracks: Sequence[Progression]) -> Figure:
    """Return a panel per arm: the rate by round, and the window that decides."""
    most = max(float(track.progress.rounds.max()) for track in tracks)
    shown = scale_for(Unit.BYTES_PER_SECOND, most)
    end_s = max(track.progress.seconds.size for track in tracks)
    panels = [_steady_panel(track, shown, float(end_s), shown.shown(most)) for track in tracks]
    return Figure(
        name=name,
        title=title,
        svg="".join(panels),
        caption=(
            "Rates by round of one minute. Shaded: the window of five rounds; the band is "
            f"±{_percent(RANGE_LIMIT / 2)} around its average, the dashed line is fitted to it."
        ),
        table=_steady_table(tracks, shown),
    )


def _steady_panel(track: Progression, shown: Scale, end_s: float, most: float) -> str:
    window, role = track.window, arm_role(track.letter)
    frame = Frame(
        Axis(low=0, high=end_s, unit="s"),
        Axis(low=0, high=most * 1.12, unit=shown.unit),
        height=_HEIGHT,
        title=f"{track.name}: rate, {shown.unit}".removeprefix(": "),
    )
    start_s = float(window.first * ROUND_S)
    span, average = (start_s, start_s + MINIMUM_S), shown.shown(window.average)
    frame.shade(*span, role, 0.1)
    frame.box(span, (average * (1 - RANGE_LIMIT / 2), average * (1 + RANGE_LIMIT / 2)), role, 0.15)
    rounds = track.progress.rounds / shown.factor
    edges = np.arange(rounds.size + 1, dtype=np.float64) * ROUND_S
    frame.steps(edges, rounds, role, track.letter or "rate")
    ends = (0, WINDOW_ROUNDS - 1)
    frame.line(
        [start_s + ROUND_S * (place + 0.5) for place in ends],
        [shown.shown(window.fitted(place)) for place in ends],
        "strong",
        dash="6 4",
    )
    return frame.svg(f"{track.name}: {verdict(window)}", "time")


def _steady_table(tracks: Sequence[Progression], shown: Scale) -> Table:
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
