"""The checks of a cache of keys and values: what was delivered, reused and durable, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from wattload.core.record.results import Verdict, amount
from wattload.core.units import compared_bytes, format_bytes, format_seconds
from wattload.results.checks import (
    COUNT_TOLERANCE,
    CheckFigures,
    CheckRule,
    CheckSource,
    Observed,
    cold_cache,
    counted_bytes,
    passes,
)
from wattload.results.facts import divided
from wattload.results.kv_cache.facts import (
    FILL,
    OLD_S,
    RESTORE,
    STEADY,
    STORE,
    KvFacts,
    Layout,
    Run,
)
from wattload.results.kv_cache.figures import counted, requests_per_s

LITTLE_TOLERANCE = 0.05
SCHEDULE_TOLERANCE = 1e-6
"""Both sums add up the same times, in another order."""
LEAST_REUSE = 0.9
UNIT_BYTES, SAMPLED_UNITS = 4096, 3
"""What is compared of each piece: its first, its last and a drawn unit."""


def _total(run: Run, name: str) -> int:
    return sum(counted(run, phase, name) or 0 for phase in run.facts.counts)


def _law_figures(run: Run) -> CheckFigures:
    """Return both sides of Little's law: of a closed loop N ÷ (R + Z) and the rate.

    Of an open one they are the sum of the requests' times in the system, and the integral of their
    number.
    """
    loop, requests = run.facts.loop, counted(run, STEADY, "requests")
    if loop.users is None:
        return {"users": None, "by_requests": loop.residence_s, "by_count": loop.in_system_s}
    residence_s, think_s = divided(loop.residence_s, requests), divided(loop.think_s, requests)
    return {
        "users": loop.users,
        "mean_residence_s": residence_s,
        "mean_think_s": think_s,
        "by_requests": divided(loop.users, (residence_s or 0) + (think_s or 0)),
        "by_count": requests_per_s(run),
    }


def _is_lawful(figures: CheckFigures) -> Verdict:
    if not figures["by_requests"] or not figures["by_count"]:
        return "not_checked"
    ratio = amount(figures, "by_count") / amount(figures, "by_requests")
    return passes(abs(ratio - 1) <= LITTLE_TOLERANCE)


def _law(figures: CheckFigures, verdict: Verdict) -> str:
    if verdict == "not_checked":
        return "No request was done, so Little's law was not checked."
    sides = [f"{amount(figures, name):.3f}" for name in ("by_requests", "by_count")]
    ending = "." if verdict == "pass" else ": requests were lost or doubled, or times are wrong."
    if figures["users"] is None:
        return (
            f"The times of requests in the system add up to {sides[0]} s, and their number over "
            f"time to {sides[1]} s{ending}"
        )
    return (
        f"{figures['users']} users ÷ ({amount(figures, 'mean_residence_s'):.3f} s in the system + "
        f"{amount(figures, 'mean_think_s'):.3f} s of thinking) are {sides[0]} requests/s; "
        f"{sides[1]} were done{ending}"
    )


def _schedule_figures(run: Run) -> CheckFigures:
    names = ("arrived", "schedule_s", "planned_s", "latest_s")
    return {name: getattr(run.facts.loop, name) for name in names}


def _is_kept(figures: CheckFigures) -> Verdict:
    apart_s = abs(amount(figures, "schedule_s") - amount(figures, "planned_s"))
    most_s = amount(figures, "planned_s") + amount(figures, "arrived")  # and 1 µs an arrival
    return passes(apart_s <= SCHEDULE_TOLERANCE * most_s)


def _schedule(figures: CheckFigures, verdict: Verdict) -> str:
    sums = [f"{amount(figures, name):,.3f} s" for name in ("schedule_s", "planned_s")]
    ending = ": the schedule slid, or requests were skipped" if verdict == "fail" else ""
    return (
        f"The {figures['arrived']:,} arrivals that latencies count from add up to {sums[0]}, those "
        f"of the source to {sums[1]}{ending}. The latest admission was "
        f"{amount(figures, 'latest_s') * 1000:.1f} ms after its arrival."
    )


def _reuse_figures(run: Run) -> CheckFigures:
    names = ("restored_blocks", "old_blocks", "memory_blocks", "stored_blocks")
    counts = {name: counted(run, STEADY, name) or 0 for name in names}
    return {**counts, "seconds": run.seconds(STEADY)}


def _is_reused(figures: CheckFigures) -> Verdict:
    is_idle = not (figures["restored_blocks"] or figures["stored_blocks"])
    of_memory = bool(figures["memory_blocks"] and not figures["restored_blocks"])
    if is_idle or of_memory or amount(figures, "seconds") < 2 * OLD_S:
        return "not_checked"
    least = LEAST_REUSE * amount(figures, "restored_blocks")
    return passes(bool(figures["restored_blocks"]) and amount(figures, "old_blocks") >= least)


def _reuse(figures: CheckFigures, verdict: Verdict) -> str:
    text = (
        f"{figures['old_blocks']:,} of {figures['restored_blocks']:,} restored blocks had been "
        f"stored at least {OLD_S:g} s before, by another request"
    )
    if verdict == "pass":
        return f"{text}."
    if verdict == "not_checked":
        return (
            f"{text}, in a mix of {format_seconds(amount(figures, 'seconds'))}. This check needs "
            f"{2 * OLD_S:g} s of it, and restores; set a longer workload.duration_s."
        )
    if not figures["restored_blocks"]:
        return f"Nothing read the {figures['stored_blocks']:,} blocks that were stored."
    return f"{text}: the others are reads of what was only just written."


def _delivery_figures(run: Run) -> CheckFigures:
    facts, blocks = run.facts, _total(run, "restored_blocks")
    units = min(SAMPLED_UNITS, facts.moved_block_bytes // facts.pieces // UNIT_BYTES)
    return {
        "restored_blocks": blocks,
        "least_bytes": blocks * facts.pieces * units * UNIT_BYTES,
        "compared_bytes": _total(run, "compared_bytes"),
        "bad_units": _total(run, "bad_blocks"),
    }


def _is_delivered(figures: CheckFigures) -> Verdict:
    if not figures["restored_blocks"]:
        return "not_checked"
    is_whole = amount(figures, "compared_bytes") >= amount(figures, "least_bytes")
    return passes(is_whole and not figures["bad_units"])


def _delivery(figures: CheckFigures, verdict: Verdict) -> str:
    sizes = [format_bytes(amount(figures, name)) for name in ("compared_bytes", "least_bytes")]
    ending = f": {figures['bad_units']:,} units of {UNIT_BYTES} bytes were wrong."
    return (
        f"{sizes[0]} of {figures['restored_blocks']:,} restored blocks were compared; the first, "
        f"the last and a drawn unit of each piece are {sizes[1]}"
        + (ending if verdict == "fail" else ".")
    )


def _durable_figures(run: Run) -> CheckFigures:
    return {
        "stored_files": _total(run, "stored_blocks") * run.facts.pieces,
        "renamed_files": _total(run, "renamed_files"),
        "synced_files": _total(run, "synced_files"),
    }


def _is_durable(figures: CheckFigures) -> Verdict:
    counts = [amount(figures, f"{name}_files") for name in ("stored", "renamed", "synced")]
    return passes(counts == sorted(counts))


def _durable(figures: CheckFigures, verdict: Verdict) -> str:
    ending = "." if verdict == "pass" else ": files got their names before they were durable."
    return (
        f"{figures['synced_files']:,} files were made durable and {figures['renamed_files']:,} "
        f"renamed; stored blocks have {figures['stored_files']:,}{ending}"
    )


def _loader_bytes(phase: str, kind: Literal["read", "written"]) -> Callable[[Run], int]:
    return lambda run: counted(run, phase, f"{kind}_bytes") or 0


def _is_whole(phase: str) -> Callable[[Run], bool]:
    """Return whether the loader finished all stores of a phase: none found the disk full."""
    return lambda run: not counted(run, phase, "full_disk_evictions")


def _moved(phase: str, kind: Literal["read", "written"]) -> CheckRule[KvFacts]:
    """Return the check of the loader's bytes against the blocks that requests got, or stored.

    In the mix, its end may have cut off blocks in part; restores and stores alone are finished.
    """
    what = "restored" if kind == "read" else "stored"

    def figures(run: Run) -> CheckFigures:
        blocks = counted(run, phase, f"{what}_blocks") or 0
        blocks_bytes = blocks * run.facts.moved_block_bytes
        moved_bytes = _loader_bytes(phase, kind)(run)
        return {
            "blocks_bytes": blocks_bytes,
            "moved_bytes": moved_bytes,
            "has_parts": phase in (FILL, STEADY) or not _is_whole(phase)(run),
        }

    def judge(figures: CheckFigures) -> Verdict:
        least, moved = amount(figures, "blocks_bytes"), amount(figures, "moved_bytes")
        is_most = bool(figures["has_parts"]) or moved <= least * (1 + COUNT_TOLERANCE)
        return passes(least <= moved and is_most)

    def sentence(figures: CheckFigures, verdict: Verdict) -> str:
        sizes = compared_bytes(amount(figures, "blocks_bytes"), amount(figures, "moved_bytes"))
        ending = ": these must agree." if verdict == "fail" else "."
        return (
            f"Blocks that count as {what} are {sizes[0]}, and the loader moved {sizes[1]}{ending}"
        )

    return CheckRule[KvFacts](
        name=f"{what}_bytes_{phase}",
        fault=f"a block counts as {what} of which the loader did not move every byte",
        figures=figures,
        judge=judge,
        sentence=sentence,
        applies=lambda run: phase in run.facts.counts,
    )


_READ, _WRITTEN = (STEADY, RESTORE), (FILL, STORE)

CHECKS: tuple[CheckSource[KvFacts], ...] = (
    CheckRule[KvFacts](
        name="littles_law",
        fault="requests were lost or doubled, or time of users is neither theirs nor thinking",
        figures=_law_figures,
        judge=_is_lawful,
        sentence=_law,
    ),
    CheckRule[KvFacts](
        name="schedule",
        fault="arrivals waited for earlier requests, or were skipped, so latency is too low",
        figures=_schedule_figures,
        judge=_is_kept,
        sentence=_schedule,
        mandatory=True,
        applies=lambda run: run.facts.loop.users is None,
    ),
    CheckRule[KvFacts](
        name="reuse",
        fault="requests read back their own writes, or nothing read what was stored",
        figures=_reuse_figures,
        judge=_is_reused,
        sentence=_reuse,
    ),
    CheckRule[KvFacts](
        name="restored_blocks",
        fault="a restore returned another block, or its bytes were not compared",
        figures=_delivery_figures,
        judge=_is_delivered,
        sentence=_delivery,
        mandatory=True,
    ),
    CheckRule[KvFacts](
        name="durable_stores",
        fault="a file was renamed before its bytes were durable",
        figures=_durable_figures,
        judge=_is_durable,
        sentence=_durable,
        applies=lambda run: run.facts.settings.layout is Layout.block_file,
    ),
    *(_moved(phase, "read") for phase in _READ),
    *(_moved(phase, "written") for phase in _WRITTEN),
    counted_bytes(RESTORE, "read", _loader_bytes(RESTORE, "read")),
    *(
        counted_bytes(phase, "written", _loader_bytes(phase, "written"), _is_whole(phase))
        for phase in _WRITTEN
    ),
)

OBSERVED: tuple[Observed[KvFacts], ...] = (
    cold_cache(lambda run: RESTORE in run.facts.counts),
    Observed(name="stored_blocks", fault="the drive returned other blocks than were stored"),
    Observed(
        name="freed_space",
        fault="the file system kept the space of evicted files, so they were not deleted",
        optional=True,
    ),
)
