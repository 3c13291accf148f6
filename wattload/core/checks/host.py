"""Checks on hosts: whether their clocks agree, and whether their load was the one asked for.

All figures use CLOCK_MONOTONIC. A wall clock that an administrator or NTP stepped does no harm; a
clock that ran at another rate makes every time of the run doubtful. The two look alike from start
to end, so the clocks are also read in between: a step is in one interval, a rate in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from wattload.core.checks.verdicts import judged, of_host
from wattload.core.clock import ClockAnchor
from wattload.core.record.host import (
    ALONE_S,
    CPU_BAND,
    MEMORY_BAND,
    NONE,
    ClockOffset,
    HostRecord,
    LoadLevel,
    LoadRecord,
)
from wattload.core.record.results import Check, Verdict
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S

APART_WARN = 1e-3
APART_FAIL = 0.01
"""Shares of the run by which two clocks may be apart; NTP slews a clock by 0.05 % at most."""
DRIFT_WARN = 500e-6
"""The share of the job by which the clocks of two hosts may drift apart."""
READ_S = 0.05
"""How far apart the clocks may be read on a busy host."""

_AGREE_S = 0.002
_PROOF_S = 0.01
"""A rate is ruled out if it would have moved the clocks apart this far where they agree."""

LOAD_LEVEL = "load_level"

SHORTEST_S = 0.95 * ALONE_S
SHARE_ERROR = 0.03
TICKS_S = 0.04
"""The kernel counts CPU time in ticks: a process's may be off by some of them in any window."""
_TOLERANCE = 1e-6


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
    is_one = len(record.hosts) == 1
    return [
        _clock_check(host, (host.before.clock, *host.clocks, host.after.clock), is_one=is_one)
        for host in record.hosts
        if host.after is not None
    ]


def _clock_check(host: HostRecord, moments: Sequence[ClockAnchor], *, is_one: bool) -> Check:
    whole = _Interval.between(moments[0], moments[-1])
    verdict, remark = _judged(whole, [_Interval.between(*pair) for pair in pairwise(moments)])
    name = host.facts.name
    return Check(
        name=f"clocks_agree_{name}",
        verdict=verdict,
        sentence=(
            f"The run took {whole.monotonic_s:.3f} s on the monotonic and {whole.wall_s:.3f} s on "
            f"the wall clock{'' if is_one else f' of {name}'}{remark}."
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


def common_clock(record: RunRecord) -> Sequence[Check]:
    """Compare how far each host's clock was ahead of the first one's before and after the job.

    The monotonic clocks may drift apart by 500 ppm, and by what the exchanges leave open.
    """
    return [
        _drift_check(record, host, *host.offsets[-2:])
        for host in record.hosts
        if len(host.offsets) > 1
    ]


def _drift_check(
    record: RunRecord, host: HostRecord, before: ClockOffset, after: ClockOffset
) -> Check:
    name, first = host.facts.name, record.hosts[0]
    drift_ns = after.offset_ns - before.offset_ns
    passed_ns = after.monotonic_ns - before.monotonic_ns
    most_ns = before.bound_ns + after.bound_ns + DRIFT_WARN * passed_ns
    at = host.before.clock
    wall_ns = at.realtime_ns - record.clock.ns(name, at.monotonic_ns)
    first_wall_ns = first.before.clock.realtime_ns - first.before.clock.monotonic_ns
    return judged(
        name=f"common_clock_{name}",
        sentence=(
            f"The monotonic clock of {name} drifted by {drift_ns / NS_PER_S * 1e3:+.3f} ms against "
            f"that of {first.facts.name} in {passed_ns / NS_PER_S:.1f} s"
        ),
        fault=f", more than {DRIFT_WARN * 1e6:g} ppm: times of the two can't be compared",
        holds=abs(drift_ns) <= most_ns,
        figures={
            "offset_before_ns": before.offset_ns,
            "offset_after_ns": after.offset_ns,
            "bound_ns": record.clock.bound_ns(name),
            "apart_s": passed_ns / NS_PER_S,
            "wall_ahead_s": (wall_ns - first_wall_ns) / NS_PER_S,
        },
    )


def load_level(record: RunRecord) -> Sequence[Check]:
    """Compare each load's levels without the workload with what was asked for.

    Both must be within the bands of CPU and memory share. The level after the workload shows
    whether the load was still the same. A program that takes no shares is compared with itself.
    """
    if record.status != "complete":
        return []
    asked = record.config.get("load")
    name = asked.get("name", NONE) if isinstance(asked, Mapping) else NONE
    if not record.loads and name == NONE:
        return []
    hosts = {host.facts.name for host in record.hosts}
    lacking = sorted(hosts - {load.host for load in record.loads})
    if lacking:
        sentence = (
            f"The configuration asks for load={name}, but the record has no load of {lacking[0]}."
        )
        return [Check(name=LOAD_LEVEL, verdict="fail", sentence=sentence, mandatory=True)]
    return [_level_check(record, load) for load in record.loads]


def _level_check(record: RunRecord, load: LoadRecord) -> Check:
    faults = [*_unmeasured(record, load), *_out_of_band(load)]
    levels = [level for level in (load.level("alone"), load.level("after")) if level is not None]
    short_s = min((_length_s(level) for level in levels), default=0.0)
    is_short = short_s < SHORTEST_S
    words = "; ".join(faults) if faults else _levels_text(load)
    if is_short and not faults:
        words += f"; it was measured over {short_s:.1f} s, less than {ALONE_S:.0f} s"
    figures: dict[str, float | int | str | None] = {
        "cpu_share_asked": load.cpu_share_asked,
        "memory_share_asked": load.memory_share_asked,
        "cpu_band": CPU_BAND,
        "memory_band": MEMORY_BAND,
    }
    for level in levels:
        figures[f"{level.window}_cpu_share"] = level.cpu_share
        figures[f"{level.window}_memory_share"] = level.memory_share
        figures[f"{level.window}_other_cpu_share"] = level.other_cpu_share
    return Check(
        name=LOAD_LEVEL + of_host(record, load.host),
        verdict="fail" if faults else "warn" if is_short else "pass",
        sentence=f"Load {load.name}: {words}.",
        figures=figures,
        mandatory=True,
    )


def _out_of_band(load: LoadRecord) -> Iterator[str]:
    alone, after = load.level("alone"), load.level("after")
    if alone is None or after is None:
        yield f"its level {'before' if alone is None else 'after'} the workload is missing"
        return
    for what, band, name in (
        ("CPU", CPU_BAND, "cpu_share"),
        ("memory", MEMORY_BAND, "memory_share"),
    ):
        wanted = getattr(load, f"{name}_asked")
        before_share = getattr(alone, name)
        for level in (alone, after):
            share = getattr(level, name)
            reference, source = (
                (wanted, "asked") if wanted is not None else (before_share, "before")
            )
            if share is None and wanted is not None:
                yield f"its {what} share {_when(level)} is unknown"
            elif share is None or reference is None:
                continue
            elif abs(share - reference) > band + _TOLERANCE:
                yield (
                    f"its {what} share was {share:.3f} {_when(level)}, {reference:.3f} {source}, "
                    f"with at most {band:g} between them; {_others(level)}"
                )


def _when(level: LoadLevel) -> str:
    return f"{'before' if level.window == 'alone' else level.window} the workload"


def _others(level: LoadLevel) -> str:
    if level.other_cpu_share is None:
        return "what else ran is unknown"
    return f"other processes took {level.other_cpu_share:.3f} of the CPUs"


def _unmeasured(record: RunRecord, load: LoadRecord) -> Iterator[str]:
    """Yield where the processes' own CPU time is not within that of all CPUs, and what is missing.

    The kernel counts both apart: by process, and by CPU (``/proc/stat``).
    """
    if load.level("during") is None and any(w.host == load.host for w in record.timed_windows()):
        yield "its level during the workload is missing"
    for level in load.levels:
        parts = (level.load_cpu_share, level.run_cpu_share, level.other_cpu_share)
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or level.cpu_share is None:
            continue
        # Of stolen time a kernel may count some as its processes'.
        most = level.cpu_share + _share_error(record, level) + (level.steal_share or 0.0)
        if not level.cpu_share - _TOLERANCE <= sum(known) <= most:
            yield f"its parts of the CPU share {_when(level)} do not add up"


def _share_error(record: RunRecord, level: LoadLevel) -> float:
    """Return how far apart shares of a level may be: by ticks, which matter if it is short."""
    seconds = _length_s(level)
    if level.window == "during":
        windows = [each for each in record.timed_windows() if each.host == level.host]
        seconds = min([seconds, *(each.active_s for each in windows)])
    return SHARE_ERROR + TICKS_S / max(seconds, 1e-9)


def _length_s(level: LoadLevel) -> float:
    return (level.end_ns - level.start_ns) / NS_PER_S


def _levels_text(load: LoadRecord) -> str:
    """Return the levels that hold, in words."""
    parts = []
    for level in (load.level("alone"), load.level("after")):
        if level is not None and level.cpu_share is not None:
            memory = "" if level.memory_share is None else f", memory {level.memory_share:.3f}"
            parts.append(f"CPU {level.cpu_share:.3f}{memory} {_when(level)}")
    asked = ""
    if load.cpu_share_asked is not None and load.memory_share_asked is not None:
        asked = f", asked {load.cpu_share_asked:g} and {load.memory_share_asked:g}"
    return " and ".join(parts) + asked
