"""The check whether the clocks of each host agree over the run.

All figures use CLOCK_MONOTONIC. A wall clock that an administrator or NTP stepped does no harm; a
clock that ran at another rate makes every time of the run doubtful. The two look alike from start
to end, so the clocks are also read in between: a step is in one interval, a rate in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from wattload.core.clock import ClockAnchor
from wattload.core.record.results import Check, Verdict
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S

APART_WARN = 1e-3
APART_FAIL = 0.01
"""Shares of the run by which two clocks may be apart; NTP slews a clock by 0.05 % at most."""
READ_S = 0.05
"""How far apart the clocks may be read on a busy host."""

_AGREE_S = 0.002
_PROOF_S = 0.01
"""A rate is ruled out if it would have moved the clocks apart this far where they agree."""


@dataclass(frozen=True, slots=True)
class _Interval:
    """The time between two moments by each clock, in seconds; ``None`` where it was not read."""

    monotonic_s: float
    wall_s: float
    raw_s: float | None
    boottime_s: float | None

    @classmethod
    def between(cls, first: ClockAnchor, last: ClockAnchor) -> _Interval:
        return cls(
            (last.monotonic_ns - first.monotonic_ns) / NS_PER_S,
            (last.realtime_ns - first.realtime_ns) / NS_PER_S,
            _seconds(first.raw_ns, last.raw_ns),
            _seconds(first.boottime_ns, last.boottime_ns),
        )

    @property
    def suspended_s(self) -> float:
        """How long the host was suspended: CLOCK_MONOTONIC stands still, CLOCK_BOOTTIME goes on."""
        return 0.0 if self.boottime_s is None else self.boottime_s - self.monotonic_s

    @property
    def apart_s(self) -> float:
        """How far the wall clock got ahead, beyond the time of suspension."""
        return self.wall_s - self.monotonic_s - self.suspended_s

    def exceeds(self, apart_s: float, share: float) -> bool:
        return abs(apart_s) > max(READ_S, share * abs(self.monotonic_s))


def _seconds(first_ns: int | None, last_ns: int | None) -> float | None:
    return None if first_ns is None or last_ns is None else (last_ns - first_ns) / NS_PER_S


def clocks_agree(record: RunRecord) -> Sequence[Check]:
    """Compare the run's length on the clocks of each host; over 1 % apart fails, but for a step."""
    return [
        _clock_check(host.facts.name, (host.before.clock, *host.clocks, host.after.clock))
        for host in record.hosts
        if host.after is not None
    ]


def _clock_check(host: str, moments: Sequence[ClockAnchor]) -> Check:
    whole = _Interval.between(moments[0], moments[-1])
    verdict, remark = _judged(whole, [_Interval.between(*pair) for pair in pairwise(moments)])
    return Check(
        name=f"clocks_agree_{host}",
        verdict=verdict,
        sentence=(
            f"The run took {whole.monotonic_s:.3f} s on the monotonic and {whole.wall_s:.3f} s on "
            f"the wall clock{remark}."
        ),
        figures={
            "monotonic_s": whole.monotonic_s,
            "wall_s": whole.wall_s,
            "raw_s": whole.raw_s,
            "boottime_s": whole.boottime_s,
        },
    )


def _judged(whole: _Interval, intervals: Sequence[_Interval]) -> tuple[Verdict, str]:
    if whole.raw_s is not None and whole.exceeds(whole.raw_s - whole.monotonic_s, APART_FAIL):
        return "fail", (
            f", and {whole.raw_s:.3f} s on the raw one: the monotonic clock ran at another rate, "
            "so no time of this run can be trusted"
        )
    if whole.exceeds(whole.suspended_s, APART_FAIL):
        return "fail", f": the host was suspended for {whole.suspended_s:.3f} s"
    if whole.exceeds(whole.apart_s, APART_FAIL):
        return _judged_apart(whole, intervals)
    if whole.exceeds(whole.suspended_s, APART_WARN):
        return "warn", f": the host was suspended for {whole.suspended_s:.3f} s"
    if whole.exceeds(whole.apart_s, APART_WARN):
        return "warn", ": the wall clock was adjusted. All figures use the monotonic clock"
    return "pass", ""


def _judged_apart(whole: _Interval, intervals: Sequence[_Interval]) -> tuple[Verdict, str]:
    if _is_step(whole, intervals):
        return "warn", (
            f": the wall clock was stepped by {whole.apart_s:+.3f} s. All figures use the "
            "monotonic clock, whose rate agrees with it before or after the step"
        )
    unknown = "" if len(intervals) > 1 else "; it was not read in between, to tell a step"
    return "fail", f": over 1 % apart, so one of them ran at another rate{unknown}"


def _is_step(whole: _Interval, intervals: Sequence[_Interval]) -> bool:
    """Return whether the clocks moved apart in one interval only, and agree in the others."""
    agreeing = [each for each in intervals if abs(each.apart_s) <= _AGREE_S]
    rate = abs(whole.apart_s) / max(abs(whole.monotonic_s), 1e-9)
    proved_s = rate * sum(each.monotonic_s for each in agreeing)
    return len(intervals) - len(agreeing) == 1 and proved_s >= _PROOF_S
