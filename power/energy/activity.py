"""What a host did and when: its work, its idle times, and the rests behind its phases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wattload.core.record.phase import PhaseWindow
from wattload.core.units import NS_PER_S
from wattload.power.energy.integration import Window

SLACK_NS = NS_PER_S // 100
"""Work that reaches by less than this into a rest is not in it."""
NEAR_NS = NS_PER_S
"""A rest follows an interval directly if it begins within this time."""


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
    the times behind the job in which drives end its work.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The rests directly behind a phase's intervals, or the ``reason`` why it has no tail."""

    windows: Sequence[Window] = ()
    reason: str = ""


def tails(windows: Iterable[PhaseWindow], times: RunTimes) -> list[Tail]:
    """Return the tail of each timed phase of a host.

    A rest belongs to the phase that ended last before it; of several, to the longest.
    """
    windows = list(windows)
    found: dict[int, list[Window]] = {}
    owners: list[tuple[int, int]] = []
    for rest_ns, until_ns in times.rests:
        ends = [
            (end_ns, window.end_ns - window.start_ns, index)
            for index, window in enumerate(windows)
            if not window.is_part
            for _, end_ns in window.intervals
            if rest_ns - NEAR_NS <= end_ns <= rest_ns + SLACK_NS
        ]
        if ends:
            end_ns, _, owner = max(ends)
            found.setdefault(owner, []).append((end_ns, until_ns))
            owners.append((rest_ns, owner))
    return [
        _tail(window, found.get(index, []), windows, owners, times)
        for index, window in enumerate(windows)
    ]


def _tail(
    window: PhaseWindow,
    own: Sequence[Window],
    windows: Sequence[PhaseWindow],
    owners: Sequence[tuple[int, int]],
    times: RunTimes,
) -> Tail:
    if own:
        busy = next((name for rest in own if (name := times.work_in(*rest))), "")
        return Tail(reason=f"{busy} ran in its rest") if busy else Tail(windows=own)
    if window.is_part:
        return Tail(reason="it is a part of another phase")
    later = [owner for rest_ns, owner in owners if rest_ns >= window.end_ns - SLACK_NS]
    if later:
        return Tail(reason=f"{windows[later[0]].name} followed it before the rest")
    return Tail(reason="no rest followed it")


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
