"""What a host did and when: its work, its idle times, and the rests behind its phases."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from wattload.core.record.energy import FOLLOWED
from wattload.core.record.phase import PhaseWindow
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import Window

SLACK_NS = NS_PER_S // 100
"""Work that reaches by less than this into a rest or another phase is not in it."""
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

    ``activity`` is all its work, timed or not, but for ``loads``, the known load that calibrates
    meters. ``before`` and ``after`` are its polled idle times, ``None`` if there was none.
    ``rests`` are the times after the job in which drives end its work.
    """

    activity: Sequence[Activity] = ()
    loads: Sequence[Window] = ()
    before: Window | None = None
    after: Window | None = None
    rests: Sequence[Window] = ()

    def work(self) -> list[Window]:
        """Return the times of all work: power may jump where it begins or ends."""
        return sorted([*self._activity(), *self.loads])

    def idle(self) -> list[Window]:
        """Return the idle times that there were."""
        return [window for window in (self.before, self.after) if window is not None]

    def of_run(self) -> list[Window]:
        """Return the times of the run's own work, rests and idle, in time order."""
        return sorted([*self._activity(), *self.idle(), *self.rests])

    def _activity(self) -> list[Window]:
        return [(each.start_ns, each.end_ns) for each in self.activity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The rests directly behind a phase's intervals, or the ``reason`` why it has no tail."""

    windows: Sequence[Window] = ()
    reason: str = ""


class _End(NamedTuple):
    """The end of an interval of a phase; of several at once, that of the longest is the last."""

    time_ns: int
    phase_ns: int
    number: int


def tails(windows: Sequence[PhaseWindow], times: RunTimes) -> list[Tail]:
    """Return the tail of each timed phase of a host.

    A rest belongs to the phase that ended last before it; of several, to the longest. It begins
    when the last rank ends: the rank that records it knows only its own end, and others may end up
    to ``NEAR_NS`` later.
    """
    begun = sorted(
        (start_ns, _End(end_ns, window.end_ns - window.start_ns, number))
        for number, window in enumerate(windows)
        if not window.is_part
        for start_ns, end_ns in window.intervals
    )
    starts_ns = [start_ns for start_ns, _ in begun]
    last_ends = list(accumulate((end for _, end in begun), max, initial=_End(0, 0, 0)))

    def last_begun_by(time_ns: int) -> _End:
        """Return the last end of the intervals that begin until a time."""
        return last_ends[bisect_right(starts_ns, time_ns)]

    rests: dict[_End, Window] = {}
    for rest_ns, until_ns in times.rests:
        last = last_begun_by(rest_ns)
        if abs(last.time_ns - rest_ns) < NEAR_NS and last.time_ns < until_ns:
            rests[last] = last.time_ns, until_ns
    found = []
    for number, window in enumerate(windows):
        ends = [end for _, end in begun if end.number == number]
        followers = {end: last_begun_by(end.time_ns + NEAR_NS) for end in ends if end not in rests}
        names = [windows[last.number].name if last > end else "" for end, last in followers.items()]
        found.append(_tail(window, [rests[end] for end in ends if end in rests], names, times))
    return found


def _tail(
    window: PhaseWindow, rests: Sequence[Window], followers: Sequence[str], times: RunTimes
) -> Tail:
    """Return the tail of a phase by its own rests.

    A phase has a tail only if each of its other intervals is followed directly by timed work, in
    whose window the energy then is (``followers``, empty for none): otherwise energy that it left
    behind is in no window.
    """
    busy = [each.name for each in times.activity if _meet([(each.start_ns, each.end_ns)], rests)]
    reason = f"{busy[0]} ran in its rest" if busy else ""
    if window.is_part:
        reason = "it is a part of another phase"
    elif not any(until_ns > window.end_ns for _, until_ns in times.rests):
        reason = "no rest followed it"
    elif not all(followers):
        count = len(rests) + len(followers)
        reason = f"{len(rests)} of {count} intervals have a rest behind them"
    elif not rests:
        reason = f"no tail of its own: {followers[-1]} {FOLLOWED}"
    return Tail(reason=reason) if reason else Tail(windows=rests)


def overlapping(window: PhaseWindow, windows: Iterable[PhaseWindow]) -> list[str]:
    """Return the names of other timed phases that ran during a phase."""
    return [
        other.name
        for other in windows
        if other is not window
        and not (other.is_part or window.is_part)
        and _meet(window.intervals, other.intervals)
    ]


def _meet(some: Iterable[Window], others: Sequence[Window]) -> bool:
    """Return whether a window has a time in common with one of others."""
    return any(
        start_ns < other_end_ns - SLACK_NS and other_ns < end_ns - SLACK_NS
        for start_ns, end_ns in some
        for other_ns, other_end_ns in others
    )
