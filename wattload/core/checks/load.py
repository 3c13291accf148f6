"""Whether the load that kept hosts busy was as busy as asked for, before and after the workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isclose

from wattload.core.checks.energy import of_host
from wattload.core.record.load import (
    ALONE_S,
    CPU_BAND,
    MEMORY_BAND,
    NONE,
    LoadLevel,
    LoadRecord,
    kept_fraction,
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
    if lacking or any(load.name != name for load in record.loads):
        return [
            Check(
                name=NAME,
                verdict="fail",
                sentence=f"The configuration asks for load={name}, but the record has "
                + (f"no load of {lacking[0]}." if lacking else f"load={record.loads[0].name}."),
                mandatory=True,
            )
        ]
    return [_level_check(record, load) for load in record.loads]


def _level_check(record: RunRecord, load: LoadRecord) -> Check:
    faults = [*_contradictions(record, load), *_out_of_band(load)]
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


def _contradictions(record: RunRecord, load: LoadRecord) -> Iterator[str]:
    """Yield where figures of the load do not follow from others."""
    config = record.config.get("load")
    for name in ("cpu_share", "memory_share"):
        asked = config.get(name) if isinstance(config, Mapping) else None
        if getattr(load, f"{name}_asked") != asked:
            yield f"it was asked for another {name} than load.{name}={asked}"
    yield from _misplaced(record, load)
    for level in load.levels:
        error = _share_error(record, level)
        shares = (level.cpu_share, level.load_cpu_share, level.run_cpu_share, level.other_cpu_share)
        if any(share is not None and not 0 <= share <= 1 + error for share in shares):
            yield f"a share of the CPUs {level.stretch} is not from 0 to 1"
        peak, traffic = load.peak_bytes_per_s, level.memory_bytes_per_s
        if not peak or traffic is None or level.memory_share is None:
            follows = True
        else:
            follows = isclose(level.memory_share, traffic / peak, rel_tol=_TOLERANCE)
        if not follows:
            yield f"its memory share {level.stretch} is not its traffic over the peak"
        parts = (level.load_cpu_share, level.run_cpu_share, level.other_cpu_share)
        whole = sum(part for part in parts if part is not None)
        if (
            None not in parts
            and level.cpu_share is not None
            # Of stolen time a kernel may count some as its processes'.
            and not -_TOLERANCE <= whole - level.cpu_share <= error + (level.steal_share or 0.0)
        ):
            yield f"its parts of the CPU share {level.stretch} do not add up"
        if not _work_follows(load, level, error):
            yield f"its work {level.stretch} is not its copies over their quota"
    kept = kept_fraction(load.levels)
    if not _same(load.kept_fraction, kept):
        yield "what it kept of its work does not follow from its levels"


def _share_error(record: RunRecord, level: LoadLevel) -> float:
    """Return how far apart shares of a level may be: by ticks, which matter if it is short."""
    seconds = _seconds(level)
    if level.stretch == "during":
        windows = [each for each in record.timed_windows() if each.host == level.host]
        seconds = min([seconds, *(each.active_s for each in windows)])
    return SHARE_ERROR + TICKS_S / max(seconds, 1e-9)


def _work_follows(load: LoadRecord, level: LoadLevel, error: float) -> bool:
    """Return whether work that is only copies follows from what was copied."""
    quota, copied, done = load.copy_bytes_per_s_quota, level.copied_bytes_per_s, level.work_fraction
    if not quota or load.arithmetic_per_s_quota != 0 or copied is None or done is None:
        return True
    return abs(copied / quota - done) <= error


def _misplaced(record: RunRecord, load: LoadRecord) -> Iterator[str]:
    """Yield which level is missing, or was not measured before, during or after the workload."""
    windows = [each for each in record.timed_windows() if each.host == load.host]
    first_ns = min((window.start_ns for window in windows), default=None)
    last_ns = max((window.end_ns for window in windows), default=None)
    alone, during, after = (load.level(each) for each in ("alone", "during", "after"))
    if first_ns is None or last_ns is None:
        return
    if during is None:
        yield "its level during the workload is missing"
    if alone is not None and alone.end_ns > first_ns:
        yield "its level before the workload was measured later"
    if after is not None and after.start_ns < last_ns:
        yield "its level after the workload was measured earlier"


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return isclose(one, other, rel_tol=_TOLERANCE)


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
