"""The axes of a chart over time, with the timed phases of each run as strips over it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from wattload.reports.charts.plot import Axis, Frame, share_of, text
from wattload.reports.charts.themes import arm_role, light
from wattload.reports.charts.tracks import Track
from wattload.results.labels import label
from wattload.results.quantity import listed

_STRIPS_MAX = 40
_OUTLINED_MAX = 6
"""The ends of more phases of a run would hide its line."""
_LANE, _LANE_GAP = 20, 8
"""Pixels of a run's strip with its words, and between the last one and the axes."""
_WORDED_MAX, _BARE_LANE, _BARE_STRIP = 3, 13, 10
"""The most runs with words under their strips; pixels of a lane without words, and its strip."""
_STRIP, _LETTERED_STRIP = 3, 12
"""Pixels of a strip, without and with words in it: initials of phases, or the name of a rest."""
_INITIAL_WIDTH, _NARROW_INITIAL_WIDTH = 0.012, 0.05
"""The share of the width that an initial needs in a strip, in a wide chart and in a narrow one."""
_LETTER_WIDTH = 0.0078
"""The share of the width that a letter of a phase's words needs, where a chart is wide."""
_RATE_HEIGHT = 150
_NAMED_PHASES = 3
"""With more phases only their sum is printed over a chart."""
_HEADROOM = 1.12
_QUIET_LABEL = 0.05
"""The least share of the width that has room for the name of a quiet time."""


def track_frame(
    tracks: Sequence[Track],
    largest: float,
    unit: str,
    quiet: Sequence[tuple[float, float, str]] = (),
) -> Frame:
    """Return the axes of tracks, with their timed phases as lanes and shades.

    ``quiet`` are the rests and idle times that the axis has to show. Those of a single run are
    shaded and named.
    More than ``_WORDED_MAX`` have letters beside their strips, which no words are under.
    """
    low_s, high_s = axis_ends(tracks, quiet)
    x = Axis(low=low_s, high=high_s, unit="s")
    y = Axis(low=0, high=(largest or 1.0) * _HEADROOM, unit=unit)
    initials = _initials(tracks)
    strip = _LETTERED_STRIP if initials or (quiet and len(tracks) > 1) else _STRIP
    is_worded = len(tracks) <= _WORDED_MAX
    lane = _LANE - _STRIP + strip if is_worded else _BARE_LANE
    frame = Frame(x, y, height=_RATE_HEIGHT, head=lane * len(tracks) + _LANE_GAP)
    if len(tracks) == 1:
        _shade_quiet(frame, quiet)
    elif quiet:
        for index, track in enumerate(tracks):
            height = strip if is_worded else _BARE_STRIP
            _draw_rests(frame, track, index * lane, height)
    if not is_worded:
        for index, track in enumerate(tracks):
            _draw_strip(frame, track, index * lane, _BARE_STRIP, initials)
            look = ' class="fixed" font-weight="700"'
            y_px = index * lane + _BARE_STRIP + 2
            role = arm_role(track.letter)
            frame.over(text("-6", y_px, track.letter, role=role, anchor="end", more=look))
        return frame
    phases = [list(_placed_parts(frame, track)) for track in tracks]
    has_room = all(
        right - left > _LETTER_WIDTH * len(words) for own in phases for words, left, right in own
    ) and all(one[2] <= other[1] for own in phases for one, other in itertools.pairwise(own))
    for index, (track, own) in enumerate(zip(tracks, phases, strict=True)):
        letter, top = track.letter if len(tracks) > 1 else "", index * lane
        _draw_strip(frame, track, top, strip, initials)
        _mark_phases(frame, track, is_alone=not letter)
        _draw_labels(frame, track, letter, top + 15 + strip, own if has_room else [])
    return frame


def axis_ends(
    tracks: Sequence[Track], quiet: Sequence[tuple[float, float, str]]
) -> tuple[float, float]:
    """Return both ends of the axis in seconds: the timed parts and ``quiet``, with a margin."""
    end_s = max(track.end_s for track in tracks)
    margin_s = max(end_s * 0.05, min(1.0, end_s * 0.3))
    last_s = max(track.timeline.end_s - track.zero_s for track in tracks)
    high_s = max(min(last_s, end_s + margin_s), end_s, 1e-3)
    low_s = min([0.0, *(start_s for start_s, _, _ in quiet)])
    return low_s, max([high_s, *(end for _, end, _ in quiet)])


def _shade_quiet(frame: Frame, quiet: Sequence[tuple[float, float, str]]) -> None:
    """Shade rests and idle times in the area, and name those that have room."""
    for start_s, end_s, name in quiet:
        frame.shade(start_s, end_s, "device", 0.16 if name == "rest" else 0.08)
        left, right = frame.x.share(start_s), frame.x.share(end_s)
        if right - left >= _QUIET_LABEL:
            at = share_of((left + right) / 2)
            frame.over(
                text(at, frame.top + frame.height - 6, name, anchor="middle", more=' class="fixed"')
            )


def _draw_rests(frame: Frame, track: Track, top: float, height: float) -> None:
    """Draw the rests of one of several runs in its lane, as grey strips with their name in them."""
    for start_s, end_s, name in track.quiet:
        left, right = frame.x.share(start_s), frame.x.share(end_s)
        if name != "rest":
            continue
        frame.over(
            f'<rect class="fixed" x="{share_of(left)}" y="{top + 3:g}" '
            f'width="{share_of(right - left)}" height="{height:g}" fill="{light("untimed")}"/>'
        )
        if right - left >= _QUIET_LABEL:
            at, look = share_of((left + right) / 2), ' class="fixed wide" font-size="10"'
            frame.over(text(at, top + height, name, anchor="middle", more=look))


def _initials(tracks: Sequence[Track]) -> dict[str, str]:
    """Return the initial of each timed phase; none where two are alike or phases are too many."""
    names = dict.fromkeys(phase.name for track in tracks for phase in track.phases)
    found = {name: label(name)[:1].upper() for name in names}
    is_useful = 1 < len(found) <= _NAMED_PHASES and len(set(found.values())) == len(found)
    return found if is_useful else {}


def strips_caption(tracks: Sequence[Track], quiet: Sequence[tuple[float, float, str]]) -> str:
    """Return what the initials in strips mean, and their grey parts."""
    keys = [f"{initial} is {label(name)}" for name, initial in _initials(tracks).items()]
    if len(tracks) > 1 and any(name == "rest" for _, _, name in quiet):
        keys.append("grey is rest")
    return f" In strips, {listed(keys)}." if keys else ""


def _spans(track: Track) -> list[tuple[float, float, str]]:
    """Return both ends of each timed phase on the axis, and its name; of many parts only once."""
    spans = [(*span, phase.name) for phase in track.phases for span in phase.intervals_s]
    if len(spans) > _STRIPS_MAX:
        spans = [(each.start_s, each.intervals_s[-1][1], each.name) for each in track.phases]
    return [(start_s - track.zero_s, end_s - track.zero_s, name) for start_s, end_s, name in spans]


def _draw_strip(
    frame: Frame, track: Track, top: float, height: float, initials: Mapping[str, str]
) -> None:
    """Draw a run's timed phases as a strip over the area.

    Args:
        frame: the axes.
        track: the run.
        top: the upper end of the strip, in pixels.
        height: that of the strip, in pixels.
        initials: of each phase, to print in its strips; empty for none.
    """
    role = arm_role(track.letter)
    for start_s, end_s, name in _spans(track):
        left = frame.x.share(start_s)
        width = max(frame.x.share(end_s) - left, 0.001)
        frame.over(
            f'<rect class="fixed" x="{share_of(left)}" y="{top + 3:g}" width="{share_of(width)}" '
            f'height="{height:g}" fill="{light(role)}"/>'
        )
        if name in initials and width >= _INITIAL_WIDTH:
            look = ' class="fixed"' if width >= _NARROW_INITIAL_WIDTH else ' class="fixed wide"'
            look += ' dx="4" font-size="10" font-weight="700"'
            y = top + height + 1
            frame.over(text(share_of(left), y, initials[name], role="surface", more=look))


def _mark_phases(frame: Frame, track: Track, *, is_alone: bool) -> None:
    """Shade a single run's timed phases in the area.

    Shades of several runs would mix: the ends of their phases are dotted.
    """
    role, spans = arm_role(track.letter), _spans(track)
    for start_s, end_s, _ in spans:
        if is_alone:
            frame.shade(start_s, end_s, role, 0.06)
        elif len(spans) <= _OUTLINED_MAX:
            for at_s in (start_s, end_s):
                frame.line([at_s] * 2, [frame.y.low, frame.y.high], role, dash="2 3", width=0.8)


def _draw_labels(
    frame: Frame, track: Track, letter: str, y: float, labels: Sequence[tuple[str, float, float]]
) -> None:
    """Print under a run's strip how long its phases took, and their energy.

    Args:
        frame: the axes.
        track: the run.
        letter: its arm's, printed before the words; empty where there is one arm.
        y: the base of the words, in pixels.
        labels: the words of each phase and both ends of it; empty where they have no room there.
    """
    first, look = share_of(frame.x.share(0.0)), ' class="fixed" font-weight="700"'
    if letter:
        frame.over(text(first, y, letter, role="strong", more=look))
    shift = 14 if letter else 0
    is_split = 1 < len(track.phases) <= _NAMED_PHASES
    look = f' class="fixed{" narrow" if labels or is_split else ""}" dx="{shift}"'
    frame.over(text(first, y, track.summary, role="strong", more=look))
    if is_split and not labels:
        look = f' class="fixed wide" dx="{shift}"'
        words = f"{track.work}: " if track.work else ""
        words += "; ".join(track.parts)
        frame.over(text(first, y, words, role="strong", more=look))
    for words, left, _ in labels:
        look = f' class="fixed wide" dx="{shift if left == labels[0][1] else 0}"'
        frame.over(text(share_of(left), y, words, role="strong", more=look))


def _placed_parts(frame: Frame, track: Track) -> Iterator[tuple[str, float, float]]:
    """Yield the words of each timed phase, and both of its ends on the axis."""
    for words, phase in zip(track.parts, track.phases, strict=True):
        ends = (phase.start_s - track.zero_s, phase.intervals_s[-1][1] - track.zero_s)
        yield words, frame.x.share(ends[0]), frame.x.share(ends[1])
