"""Known work of a host, and the pieces of time between its edges on which power is constant."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattload.core.units import NS_PER_S
from wattload.power.energy.trace import Trace, Values

SAME_EDGE_S = 0.01
"""Edges closer than this are one."""
PART_S = 0.1
"""The length of the first and the last part of work."""
SETTLE_S, CHANGE_FACTOR = 4.0, 1000.0
"""For ``SETTLE_S`` after work, the variance of the random walk is this many times that during work,
because the drive may still be busy (destaging), unless the readings clearly show that it is not. So
it is where the drive's traffic turns."""
IDLE_FACTOR = 0.01
"""The factor for other idle time: the power of an idle drive hardly changes."""
TRAFFIC_SHARE, HIGH_RATE_QUANTILE = 0.02, 0.9
"""A drive is reading or writing from this share of its high rate, which it exceeds in a tenth of
the time in which it moves anything. Its highest rate may be that of a flush."""
TURN_EDGE_S = 0.25
"""A turn of the traffic this close to an edge of known work is that edge."""
TURN_PIECES = 4
"""Pieces in which the traffic turns are cut into so many, because power jumps somewhere in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """An interval in which work of one kind ran, in ns of CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityInterval:
    """A time in seconds between two edges; ``names`` are the kinds of work in it."""

    start_s: float
    end_s: float
    names: frozenset[str]


def activity_intervals(
    activity: Iterable[Activity], origin_ns: int, start_s: float, end_s: float
) -> list[ActivityInterval]:
    """Return the time from ``start_s`` to ``end_s``, divided where work begins or ends."""
    changes: dict[float, list[tuple[str, int]]] = {}
    for each in activity:
        for moment_ns, step in ((each.start_ns, 1), (each.end_ns, -1)):
            moment_s = (moment_ns - origin_ns) / NS_PER_S
            changes.setdefault(moment_s, []).append((each.name, step))
    found: list[ActivityInterval] = []
    active: dict[str, int] = {}
    since_s = start_s
    for moment_s in [*sorted(changes), math.inf]:
        until_s = min(max(moment_s, start_s), end_s)
        names = frozenset(name for name, count in active.items() if count > 0)
        if until_s - since_s > SAME_EDGE_S:
            if found and found[-1].names == names:
                since_s = found.pop().start_s
            found.append(ActivityInterval(start_s=since_s, end_s=until_s, names=names))
            since_s = until_s
        for name, step in changes.get(moment_s, ()):
            active[name] = active.get(name, 0) + step
    if found and found[-1].end_s < end_s:
        last = found.pop()
        found.append(ActivityInterval(start_s=last.start_s, end_s=end_s, names=last.names))
    return found


def traffic_turns(moved: Iterable[Trace], activity: Iterable[Activity]) -> NDArray[np.int64]:
    """Return the times between which a drive began or stopped to read or write, shape (n, 2) in ns.

    ``moved`` are its counters of bytes. What the edges of known work explain is left out.
    """
    counted = [
        (trace.time_ns[known], trace.value[known])
        for trace in moved
        for known in [~np.isnan(trace.value)]
    ]
    if not counted:
        return np.empty((0, 2), np.int64)
    lasted_ns = [np.maximum(np.diff(time_ns), 1) for time_ns, _ in counted]
    rates = [np.diff(value) / ns for (_, value), ns in zip(counted, lasted_ns, strict=True)]
    least = TRAFFIC_SHARE * _high_rate(np.concatenate(rates), np.concatenate(lasted_ns))
    spans = []
    for (time_ns, _), rate in zip(counted, rates, strict=True):
        # A single count that differs from those around it is unsteady traffic, not a turn.
        busy = (rate > least).astype(np.int8)
        around = np.concatenate((busy[:1], busy, busy[-1:]))
        is_busy = (around[:-2] + around[1:-1] + around[2:]) // 2  # the median of three
        at = np.flatnonzero(np.diff(is_busy)) + 1
        spans.append(np.column_stack((time_ns[at - 1], time_ns[at + 1])))
    turns = np.concatenate(spans)
    near_ns = round(TURN_EDGE_S * NS_PER_S)
    edges_ns = np.sort([moment for each in activity for moment in (each.start_ns, each.end_ns)])
    first, last = (
        np.searchsorted(edges_ns, turns[:, side] + shift_ns)
        for side, shift_ns in ((0, -near_ns), (1, near_ns))
    )
    turns = turns[first == last]
    turns = turns[np.argsort(turns[:, 0], kind="stable")]
    until_ns = np.maximum.accumulate(turns[:, 1])
    # Turns that overlap are one.
    begins = np.flatnonzero(np.append(True, turns[1:, 0] > until_ns[:-1])[: len(turns)])
    return np.column_stack(
        (turns[begins, 0], until_ns[np.append(begins[1:], len(turns))[: len(begins)] - 1])
    )


def _high_rate(rate: Values, lasted_ns: NDArray[np.int64]) -> float:
    """Return the rate that is exceeded in a tenth of the time with any, 0 without any."""
    moving = np.flatnonzero(rate > 0)
    if not moving.size:
        return 0.0
    ordered = moving[np.argsort(rate[moving], kind="stable")]
    until_ns = np.cumsum(lasted_ns[ordered])
    return float(rate[ordered[np.searchsorted(until_ns, HIGH_RATE_QUANTILE * until_ns[-1])]])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pieces:
    """Pieces of time, n of them, and how the power of each depends on that of others.

    ``edge_s`` (n + 1,) are their edges in seconds, and ``piece_s`` is their usual length. ``walks``
    are the pieces that continue the one before, and ``walk_s`` the seconds between both middles,
    scaled to those of work; ``is_part`` tells which of these begin another part of work, at a power
    of their own. ``starts`` are the pieces that begin an interval or a part, grouped by equal work,
    in groups of two or more. ``free_count`` more pieces begin an interval without an equal one.
    ``has_turns``: in some, the drive began or stopped to read or write.
    """

    edge_s: Values
    piece_s: float
    starts: Sequence[NDArray[np.intp]]
    free_count: int
    walks: NDArray[np.intp]
    walk_s: Values
    is_part: NDArray[np.bool_]
    has_turns: bool

    @classmethod
    def of(
        cls,
        spans: Sequence[Sequence[ActivityInterval]],
        piece_s: float,
        *,
        turns_s: Values,
        has_parts: bool,
        is_steady: bool,
    ) -> Pieces:
        """Return pieces of about ``piece_s`` in some spans of a run.

        The time between two spans is one piece. ``turns_s`` (k, 2) are the times between which the
        drive's traffic turned. ``has_parts``: the first and the last ``PART_S`` of work are parts
        of their own. ``is_steady``: power after work varies no more than during it.
        """
        pieces: list[_Piece] = []
        has_turns = False
        starts: dict[tuple[int, frozenset[str]], list[int]] = {}
        for span in spans:
            for index, interval in enumerate(span):
                is_parted = has_parts and bool(interval.names)
                # A span may begin and end within work.
                for part, start_s, end_s in _parts(
                    interval,
                    has_first=is_parted and index > 0,
                    has_last=is_parted and index < len(span) - 1,
                ):
                    kind = part, interval.names
                    # Further equal parts are tied to the first, which continues the part before.
                    link: _Link = "own" if index else "free"
                    if part:
                        link = "own" if kind in starts else "part"
                    if link != "free":
                        starts.setdefault(kind, []).append(len(pieces))
                    was_turn = False
                    for begin_s, is_turn in _cut(start_s, end_s, piece_s, turns_s):
                        factor = 1.0 if interval.names else IDLE_FACTOR
                        if index and not interval.names and begin_s - interval.start_s < SETTLE_S:
                            factor = 1.0 if is_steady else CHANGE_FACTOR
                        if is_turn or was_turn:
                            factor = CHANGE_FACTOR
                        pieces.append(_Piece(begin_s, link, factor))
                        link, was_turn = "walk", is_turn
                        has_turns |= is_turn
            pieces.append(_Piece(span[-1].end_s, "free", 1.0))
        # The last entry is no piece but the end of the last one.
        edge_s = np.array([each.start_s for each in pieces])
        walks = np.flatnonzero([each.link in {"walk", "part"} for each in pieces])
        middle_s = (edge_s[1:] + edge_s[:-1]) / 2
        scale = np.array([pieces[at].factor for at in walks])
        return cls(
            edge_s=edge_s,
            piece_s=piece_s,
            starts=[np.array(each) for each in starts.values() if len(each) > 1],
            # Each group has a free mean, but that of a part is tied to the part before.
            free_count=sum(each.link == "free" for each in pieces)
            - 1
            + sum(not part and len(each) == 1 for (part, _), each in starts.items())
            - sum(part and len(each) > 1 for (part, _), each in starts.items()),
            walks=walks,
            walk_s=(middle_s[walks] - middle_s[walks - 1]) * scale,
            is_part=np.array([pieces[at].link == "part" for at in walks], dtype=np.bool_),
            has_turns=has_turns,
        )


_Link = Literal["walk", "part", "own", "free"]


class _Piece(NamedTuple):
    """A piece of time from ``start_s`` on, and how its power depends on the piece before.

    ``link``: it is a step of the ``walk`` from there, or the step to another ``part`` of work; it
    begins an interval or part at a power of its ``own``, or else is ``free``. ``factor`` scales the
    seconds of the walk.
    """

    start_s: float
    link: _Link
    factor: float


def _cut(
    start_s: float, end_s: float, piece_s: float, turns_s: Values
) -> Iterator[tuple[float, bool]]:
    """Yield where the pieces of a part start, and whether the traffic turns in them."""
    moments_s = turns_s.ravel()
    first, last = np.searchsorted(moments_s, start_s, "right"), np.searchsorted(moments_s, end_s)
    borders_s = [start_s, *moments_s[first:last].tolist(), end_s]
    for index, (from_s, to_s) in enumerate(itertools.pairwise(borders_s), start=int(first)):
        is_turn = index % 2 == 1
        count = max(1, round((to_s - from_s) / piece_s * (TURN_PIECES if is_turn else 1)))
        for at_s in np.linspace(from_s, to_s, count + 1)[:-1].tolist():
            yield at_s, is_turn


def _parts(
    interval: ActivityInterval, *, has_first: bool, has_last: bool
) -> list[tuple[int, float, float]]:
    """Return an interval's parts: the first is 0, that after ``PART_S`` is 1, the last is 2."""
    part_s = min(PART_S, (interval.end_s - interval.start_s) / 4)
    begins_s = [(0, interval.start_s)]
    if has_first:
        begins_s.append((1, interval.start_s + part_s))
    if has_last:
        begins_s.append((2, interval.end_s - part_s))
    ends_s = [*(begin_s for _, begin_s in begins_s[1:]), interval.end_s]
    return [(part, start_s, end_s) for (part, start_s), end_s in zip(begins_s, ends_s, strict=True)]
