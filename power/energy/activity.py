"""What a host did and when: its work, its idle times, and the rests behind its phases."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter

from wattload.core.record.energy import FOLLOWED
from wattload.core.record.phase import PhaseWindow
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import Window

SLACK_NS = NS_PER_S // 100
"""Work that reaches by less than this into a rest is not in it."""
NEAR_NS = NS_PER_S
"""A rest or further work follows an interval directly if it begins within this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """An interval in which work of one kind ran, in ns of CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """The known times of a host's run.

    ``before`` and ``after`` are its polled idle times, ``None`` if there was none. ``rests`` are
    the times after the job in which drives end its work.
    """

    activity: Sequence[Activity] = ()
    before: Window | None = None
    after: Window | None = None
    rests: Sequence[Window] = ()

    def moments_ns(self) -> list[int]:
        """Return the times at which power may jump: where work begins or ends."""
        return [moment for each in self.activity for moment in (each.start_ns, each.end_ns)]

    def work_in(self, start_ns: int, end_ns: int) -> str:
        """Return the name of work that ran in a time, empty without any."""
        return next(
            (
                each.name
                for each in self.activity
                if each.start_ns < end_ns - SLACK_NS and each.end_ns > start_ns + SLACK_NS
            ),
            "",
        )


def rests_behind(rests: Iterable[Window], windows: Iterable[PhaseWindow]) -> list[Window]:
    """Return the rests from the end of the last rank of the interval that each follows.

    The rank that records a rest knows only its own end; others may end up to ``NEAR_NS`` later.
    """
    intervals = [
        interval
        for window in windows
        if window.timed and not window.is_part
        for interval in window.intervals
    ]
    return [
        (
            max(
                (
                    end_ns
                    for start_ns, end_ns in intervals
                    if start_ns <= rest_ns < end_ns < min(rest_ns + NEAR_NS, until_ns)
                ),
                default=rest_ns,
            ),
            until_ns,
        )
        for rest_ns, until_ns in rests
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The rests directly behind a phase's intervals, or the ``reason`` why it has no tail."""

    windows: Sequence[Window] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, order=True)
class _End:
    """The end of an interval of a phase; of several at once, that of the longest is the last."""

    time_ns: int
    phase_ns: int
    index: int


def tails(windows: Iterable[PhaseWindow], times: RunTimes) -> list[Tail]:
    """Return the tail of each timed phase of a host.

    A rest belongs to the phase that ended last before it; of several, to the longest. A phase has a
    tail only if each of its intervals is followed directly by a rest, or by timed work, in whose
    window the energy then is: otherwise energy that it left behind is in no window.
    """
    windows = list(windows)
    begun = sorted(
        (
            (start_ns, _End(end_ns, window.end_ns - window.start_ns, index))
            for index, window in enumerate(windows)
            if not window.is_part
            for start_ns, end_ns in window.intervals
        ),
        key=itemgetter(0),
    )
    rests: dict[_End, Window] = {}
    for rest_ns, until_ns in times.rests:
        ends = [end for _, end in begun if rest_ns - NEAR_NS <= end.time_ns <= rest_ns + SLACK_NS]
        if ends:
            rests[max(ends)] = max(ends).time_ns, until_ns
    starts_ns = [start_ns for start_ns, _ in begun]
    last_ends = list(accumulate((end for _, end in begun), max))
    followers: list[dict[_End, str]] = [{} for _ in windows]
    for _, end in begun:
        last = last_ends[bisect_right(starts_ns, end.time_ns + NEAR_NS) - 1]
        followers[end.index][end] = windows[last.index].name if last > end else ""
    return [_tail(window, followers[index], rests, times) for index, window in enumerate(windows)]


def _tail(
    window: PhaseWindow,
    followers: Mapping[_End, str],
    rests: Mapping[_End, Window],
    times: RunTimes,
) -> Tail:
    """Return the tail of a phase with the work that follows each of its ends, empty for none."""
    if window.is_part:
        return Tail(reason="it is a part of another phase")
    own = [rests[end] for end in followers if end in rests]
    if not any(until_ns > window.end_ns for _, until_ns in times.rests):
        return Tail(reason="no rest followed it")
    if not all(name or end in rests for end, name in followers.items()):
        if not own:
            return Tail(reason="no rest followed it")
        return Tail(reason=f"{len(own)} of {len(followers)} intervals have a rest behind them")
    if not own:
        return Tail(reason=f"no tail of its own: {[*followers.values()][-1]} {FOLLOWED}")
    busy = next((name for rest in own if (name := times.work_in(*rest))), "")
    return Tail(reason=f"{busy} ran in its rest") if busy else Tail(windows=own)


def overlapping(window: PhaseWindow, windows: Iterable[PhaseWindow]) -> list[str]:
    """Return the names of other timed phases that ran during a phase."""
    return [
        other.name
        for other in windows
        if other is not window
        and not (other.is_part or window.is_part)
        and any(
            start_ns < other_end_ns - SLACK_NS and other_ns < end_ns - SLACK_NS
            for start_ns, end_ns in window.intervals
            for other_ns, other_end_ns in other.intervals
        )
    ]
