"""The checks of a cache of keys and values: what was delivered, reused and durable, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from wattload.core.record.results import Check, Verdict
from wattload.core.units import MILLI, format_bytes, format_seconds
from wattload.results.checks import CheckSource, Observed, cold_cache, counted_bytes, passes
from wattload.results.facts import divided
from wattload.results.kv_cache.facts import OLD_S, RESTORE, STEADY, STORE, KvFacts, Layout, Run
from wattload.results.kv_cache.figures import counted, littles_rate, requests_per_s

LITTLE_TOLERANCE = 0.05
SCHEDULE_TOLERANCE = 1e-6
"""Both sums add up the same times, in another order."""
LEAST_REUSE = 0.9
UNIT_BYTES, SAMPLED_UNITS = 4096, 3
"""What is compared of each piece: its first, its last and a drawn unit."""


def _total(run: Run, name: str) -> int:
    return sum(counted(run, phase, name) or 0 for phase in run.facts.counts)


def _littles_law(run: Run) -> Iterator[Check]:
    """Check the rate of a closed loop against N ÷ (R + Z).

    In an open loop, compare the times of requests in the system with the integral of their number.
    The fault: requests were lost or doubled, or time of users is neither theirs nor thinking.
    """
    loop, requests = run.facts.loop, counted(run, STEADY, "requests")
    residence_s, think_s = divided(loop.residence_s, requests), divided(loop.think_s, requests)
    sides = loop.residence_s, loop.in_system_s
    if loop.users is not None:
        sides = littles_rate(run) or 0.0, requests_per_s(run) or 0.0
    text = "No request was done, so Little's law was not checked."
    verdict: Verdict = "not_checked"
    if requests and all(sides):
        holds = abs(sides[1] / sides[0] - 1) <= LITTLE_TOLERANCE
        verdict = passes(holds)
        text = (
            f"The times of requests in the system add up to {sides[0]:.3f} s, and their number "
            f"over time to {sides[1]:.3f} s"
            if loop.users is None
            else f"{loop.users} users ÷ ({residence_s:.3f} s in the system + {think_s:.3f} s of "
            f"thinking) are {sides[0]:.3f} requests/s; {sides[1]:.3f} were done"
        ) + ("." if holds else ": requests were lost or doubled, or times are wrong.")
    figures = {"users": loop.users, "by_requests": sides[0], "by_count": sides[1]}
    yield Check(name="littles_law", verdict=verdict, sentence=text, figures=figures)


def _schedule(run: Run) -> Iterator[Check]:
    """Check the arrivals that latencies count from against those of the source.

    The fault: arrivals waited for earlier requests, or were skipped, so latency is too low.
    """
    loop = run.facts.loop
    if loop.planned_s is None:
        return
    most_s = loop.planned_s + loop.arrived  # and 1 µs an arrival
    holds = abs(loop.schedule_s - loop.planned_s) <= SCHEDULE_TOLERANCE * most_s
    ending = "" if holds else ": the schedule slid, or requests were skipped"
    yield Check(
        name="schedule",
        verdict=passes(holds),
        sentence=f"The {loop.arrived:,} arrivals that latencies count from add up to "
        f"{loop.schedule_s:,.3f} s, those of a fresh source to {loop.planned_s:,.3f} s{ending}. "
        f"The latest admission was {loop.latest_s / MILLI:.1f} ms after its arrival.",
        figures={"schedule_s": loop.schedule_s, "planned_s": loop.planned_s},
        mandatory=True,
    )


def _reuse(run: Run) -> Iterator[Check]:
    """Check how many restored blocks another request stored, and long enough before.

    The fault: requests read back their own writes, or nothing read what was stored.
    """
    names = ("restored_blocks", "old_blocks", "memory_blocks", "stored_blocks")
    restored, old, hits, stored = (counted(run, STEADY, name) or 0 for name in names)
    seconds = run.seconds(STEADY)
    text = (
        f"{old:,} of {restored:,} restored blocks had been stored at least {OLD_S:g} s before, by "
        "another request"
    )
    verdict: Verdict = passes(bool(restored) and old >= LEAST_REUSE * restored)
    if (not restored and (hits or not stored)) or seconds < 2 * OLD_S:
        verdict = "not_checked"
        text += (
            f", in a mix of {format_seconds(seconds)}. This check needs {2 * OLD_S:g} s of it, and "
            "restores; set a longer workload.duration_s"
        )
    elif not restored:
        text = f"Nothing read the {stored:,} blocks that were stored"
    elif verdict == "fail":
        text += ": the others are reads of what was only just written"
    figures = {"restored_blocks": restored, "old_blocks": old, "stored_blocks": stored}
    yield Check(name="reuse", verdict=verdict, sentence=f"{text}.", figures=figures)


def _restored_blocks(run: Run) -> Iterator[Check]:
    """Check the bytes that were compared against the blocks that were restored.

    The fault: a restore returned another block, or its bytes were not compared.
    """
    facts, names = run.facts, ("restored_blocks", "compared_bytes", "bad_blocks")
    blocks, compared_bytes, bad = (_total(run, name) for name in names)
    units = min(SAMPLED_UNITS, facts.moved_block_bytes // facts.pieces // UNIT_BYTES)
    least_bytes = blocks * facts.pieces * units * UNIT_BYTES
    holds = compared_bytes >= least_bytes and not bad
    yield Check(
        name="restored_blocks",
        verdict=passes(holds) if blocks else "not_checked",
        sentence=f"{format_bytes(compared_bytes)} of {blocks:,} restored blocks were compared; the "
        f"first, the last and a drawn unit of each piece are {format_bytes(least_bytes)}"
        + ("." if holds else f": {bad:,} units of {UNIT_BYTES} bytes were wrong."),
        figures={"least_bytes": least_bytes, "compared_bytes": compared_bytes, "bad_units": bad},
        mandatory=True,
    )


def _durable_stores(run: Run) -> Iterator[Check]:
    """Check the files that were made durable against those renamed, and those of stored blocks.

    The fault: a file was renamed before its bytes were durable.
    """
    if run.facts.settings.layout is not Layout.block_file:
        return
    stored = _total(run, "stored_blocks") * run.facts.pieces
    renamed, synced = _total(run, "renamed_files"), _total(run, "synced_files")
    holds = stored <= renamed <= synced
    yield Check(
        name="durable_stores",
        verdict=passes(holds),
        sentence=f"{synced:,} files were made durable and {renamed:,} renamed; stored blocks have "
        f"{stored:,}{'.' if holds else ': files got their names before they were durable.'}",
        figures={"stored_files": stored, "renamed_files": renamed, "synced_files": synced},
    )


def _counted_blocks(phase: str, kind: Literal["read", "written"]) -> CheckSource[KvFacts]:
    """Return the check of a phase's blocks against its bytes, counted as they moved.

    The fault: a block counts as restored or stored of which not every byte was moved. In the mix
    and the fill, whose end cuts blocks off, the bytes are more; so are those of a full disk.
    """
    name = "restored_blocks" if kind == "read" else "stored_blocks"
    return counted_bytes(
        phase,
        kind,
        lambda run: (counted(run, phase, name) or 0) * run.facts.moved_block_bytes,
        lambda run: not counted(run, phase, "full_disk_evictions"),
    )


CHECKS: tuple[CheckSource[KvFacts], ...] = (
    _littles_law,
    _schedule,
    _reuse,
    _restored_blocks,
    _durable_stores,
    _counted_blocks(RESTORE, "read"),
    _counted_blocks(STORE, "written"),
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
