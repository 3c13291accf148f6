"""Whether the load that kept hosts busy was as busy as asked for, before and after the workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wattload.core.checks.energy import of_host
from wattload.core.record.host import (
    ALONE_S,
    CPU_BAND,
    MEMORY_BAND,
    NONE,
    LoadLevel,
    LoadRecord,
)
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S

NAME = "load_level"

SHORTEST_S = 0.95 * ALONE_S
SHARE_ERROR = 0.03
TICKS_S = 0.04
"""The kernel counts CPU time in ticks: a process's may be off by some of them in any stretch."""
_TOLERANCE = 1e-6


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
        return [
            Check(
                name=NAME,
                verdict="fail",
                sentence=f"The configuration asks for load={name}, but the record has no "
                f"load of {lacking[0]}.",
                mandatory=True,
            )
        ]
    return [_level_check(record, load) for load in record.loads]


def _level_check(record: RunRecord, load: LoadRecord) -> Check:
    faults = [*_unmeasured(record, load), *_out_of_band(load)]
    levels = [level for level in (load.level("alone"), load.level("after")) if level is not None]
    short_s = min((_seconds(level) for level in levels), default=0.0)
    is_short = short_s < SHORTEST_S
    words = "; ".join(faults) if faults else _words(load)
    if is_short and not faults:
        words += f"; it was measured over {short_s:.1f} s, less than {ALONE_S:.0f} s"
    figures: dict[str, float | int | str | None] = {
        "cpu_share_asked": load.cpu_share_asked,
        "memory_share_asked": load.memory_share_asked,
        "cpu_band": CPU_BAND,
        "memory_band": MEMORY_BAND,
    }
    for level in levels:
        figures[f"{level.stretch}_cpu_share"] = level.cpu_share
        figures[f"{level.stretch}_memory_share"] = level.memory_share
        figures[f"{level.stretch}_other_cpu_share"] = level.other_cpu_share
    return Check(
        name=NAME + of_host(record, load.host),
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
                yield f"its {what} share {level.stretch} is unknown"
            elif share is None or reference is None:
                continue
            elif abs(share - reference) > band + _TOLERANCE:
                yield (
                    f"its {what} share was {share:.3f} {_when(level)}, {reference:.3f} {source}, "
                    f"with at most {band:g} between them; {_others(level)}"
                )


def _when(level: LoadLevel) -> str:
    return "before the workload" if level.stretch == "alone" else "after the workload"


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
            yield f"its parts of the CPU share {level.stretch} do not add up"


def _share_error(record: RunRecord, level: LoadLevel) -> float:
    """Return how far apart shares of a level may be: by ticks, which matter if it is short."""
    seconds = _seconds(level)
    if level.stretch == "during":
        windows = [each for each in record.timed_windows() if each.host == level.host]
        seconds = min([seconds, *(each.active_s for each in windows)])
    return SHARE_ERROR + TICKS_S / max(seconds, 1e-9)


def _seconds(level: LoadLevel) -> float:
    return (level.end_ns - level.start_ns) / NS_PER_S


def _words(load: LoadRecord) -> str:
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
