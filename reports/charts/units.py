"""The first chart of a page: one unit of work of each arm, or a figure run by run.

Both show the figure that the page leads with, by the means that its ratios divide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.plot import Axis, Frame, round_ticks, share_of, text
from wattload.reports.charts.themes import arm_role, light
from wattload.reports.runs.timeline import Array
from wattload.reports.stats.subject import lettered
from wattload.results.quantity import MISSING, UNIT_SPACE, number, quantity

BINS_MAX = 120
"""The most bins of a line: a unit of work has room beside another chart."""

BINS_MIN = 4
"""Fewer bins show when bytes were counted, not how a unit of work went."""
_TICKS = 6

_HEIGHT, _LANE, _LANE_GAP = 150, 21, 8
_LETTER_GAP = 12
"""Pixels between the letters at the ends of lines that are almost as high."""
_HEADROOM = 1.12
_AT_END = 0.7
"""From this share of the width on, words stand at the end of their strip."""
_CUT = 1.8
"""Bins beyond this many times the highest mean are cut off, so that means can be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTrack:
    """A unit of work of an arm: its mean rate, in the unit of the chart, and how long it takes.

    ``edges_s`` from the start of the unit, (n + 1,), and ``rates``, (n,), are those of one run;
    ``None`` if no trace counts what the rate does. ``energy`` is that of a unit, with its unit.
    """

    letter: str
    name: str
    rate: float
    seconds: float
    edges_s: Array | None
    rates: Array | None
    energy: str = ""

    def words(self, unit: str) -> str:
        """Return what its end says: the rate, the time and the energy."""
        parts = [f"{number(self.rate, 3)}{UNIT_SPACE}{unit}"]
        parts += [quantity(self.seconds, Unit.SECONDS, 3), self.energy]
        return ", ".join(filter(None, parts))


def unit_figure(
    name: str, title: str, unit: str, tracks: Sequence[UnitTrack], caption: str
) -> Figure:
    """Return the rates of arms over one unit of work, from its start to its end.

    ``unit`` is that of the rates, with what they count of: its first word is on the axis.

    A bold line is as high as the mean rate and as long as a unit takes, so the area under it is
    the work.
    """
    means = [track.rate for track in tracks]
    peaks = [float(track.rates.max()) for track in tracks if track.rates is not None]
    top = max([*means, min(max(peaks, default=0.0), max(means) * _CUT)])
    ends = [track.seconds for track in tracks]
    ends += [float(track.edges_s[-1]) for track in tracks if track.edges_s is not None]
    last = max(ends)
    frame = Frame(
        Axis(low=0, high=last * 1.04, unit="s", at=round_ticks(0, last, _TICKS)),
        Axis(low=0, high=(top or 1.0) * _HEADROOM, unit=unit.partition(" ")[0]),
        height=_HEIGHT,
        head=_LANE * len(tracks) + _LANE_GAP,
    )
    for index, track in enumerate(tracks):
        role, end = arm_role(track.letter), track.seconds
        if track.edges_s is not None and track.rates is not None:
            frame.steps(track.edges_s, track.rates, role, f"{track.letter} one run", width=1)
        frame.box((0, end), (0, track.rate), role, 0.07)
        frame.line([0, end], [track.rate] * 2, role, f"{track.letter} mean", width=3.2)
        frame.line([end, end], [0, frame.y.high], role, dash="2 3", width=1)
        _draw_lane(frame, track, index * _LANE, unit, has_letter=len(tracks) > 1)
    if len(tracks) > 1:
        _draw_letters(frame, tracks)
    said = "; ".join(f"{track.letter} {track.words(unit)}".strip() for track in tracks)
    return Figure(
        name=name,
        title=title,
        svg=frame.svg(f"{title}. {said}", "time"),
        caption=caption,
        table=Table(
            columns=columns("arm", f"#mean, {unit}", "#a unit, s", "energy"),
            rows=[
                row(
                    lettered(track.letter, track.name) if len(tracks) > 1 else track.name,
                    number(track.rate, 3),
                    number(track.seconds, 3),
                    track.energy or MISSING,
                )
                for track in tracks
            ],
            caption="Means of all runs",
        ),
    )


def _draw_letters(frame: Frame, tracks: Sequence[UnitTrack]) -> None:
    """Print each arm's letter at the end of its bold line, one under the other by their rates."""
    ranked, at = sorted(tracks, key=lambda track: -track.rate), 0.0
    for index, track in enumerate(ranked):
        lowest = _HEIGHT - _LETTER_GAP * (len(ranked) - 1 - index)
        at = min(max((1 - frame.y.share(track.rate)) * _HEIGHT, at), lowest)
        end, look = share_of(frame.x.share(track.seconds)), ' class="halo" dx="4" font-weight="700"'
        role = arm_role(track.letter)
        frame.over(text(end, frame.top + at + 4, track.letter, role=role, more=look))
        at += _LETTER_GAP


def _draw_lane(frame: Frame, track: UnitTrack, top: float, unit: str, *, has_letter: bool) -> None:
    """Draw how long a unit takes as a strip, with what its end says under it."""
    share = frame.x.share(track.seconds)
    frame.over(
        f'<rect class="fixed" x="0" y="{top + 3:g}" width="{share_of(share)}" height="3" '
        f'fill="{light(arm_role(track.letter))}"/>'
    )
    words, y, look = track.words(unit), top + 17, ' class="fixed" font-weight="700"'
    if has_letter:
        words = f"{track.letter}  {words}"
    if share >= _AT_END:
        frame.over(text(share_of(share), y, words, role="strong", anchor="end", more=look))
    else:
        frame.over(text("0", y, words, role="strong", more=look))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsTrack:
    """The figures of an arm's runs in the unit of the chart, (runs,), and their mean.

    ``places`` are those of the runs among all runs of the chart, from 1, in order of their start.
    """

    letter: str
    name: str
    mean: float
    places: Sequence[int]
    values: Sequence[float]


def runs_figure(
    name: str, title: str, unit: str, tracks: Sequence[RunsTrack], caption: str
) -> Figure:
    """Return a figure run by run in order of their start, with a line for the mean of each arm."""
    count = max(place for track in tracks for place in track.places)
    top = max(value for track in tracks for value in (*track.values, track.mean))
    frame = Frame(
        Axis(low=0.5, high=count + 0.5, at=[at for at in round_ticks(1, count, 8) if at % 1 == 0]),
        Axis(low=0, high=(top or 1.0) * _HEADROOM),
        height=_HEIGHT,
        title=unit,
        x_title="run, in order of start",
    )
    for track in tracks:
        role = arm_role(track.letter)
        frame.line([0.5, count + 0.5], [track.mean] * 2, role, f"{track.letter} mean", width=2.6)
        frame.line([*track.places], [*track.values], role, width=0.8)
        for place, value in zip(track.places, track.values, strict=True):
            tip = f"{track.letter} run {place}: {number(value, 3)}{UNIT_SPACE}{unit}"
            frame.mark(place, value, role, tip, radius=3.2)
    said = [f"{track.letter} {number(track.mean, 3)}".strip() for track in tracks]
    names = [lettered(track.letter, track.name) for track in tracks]
    return Figure(
        name=name,
        title=title,
        svg=frame.svg(f"{title}. Means in {unit}: {'; '.join(said)}", "time"),
        caption=caption,
        table=Table(
            columns=columns("arm", f"#mean, {unit}", "runs"),
            rows=[
                row(own, number(track.mean, 3), "; ".join(number(v, 3) for v in track.values))
                for own, track in zip(names, tracks, strict=True)
            ],
            caption="Every run's figure, in order of start",
        ),
        legend=[
            (arm_role(track.letter), f"{own}: {number(track.mean, 3)}{UNIT_SPACE}{unit}")
            for own, track in zip(names, tracks, strict=True)
        ],
    )
