"""The figures of a cache of keys and values: tokens a second, added latency, hits and wear."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from wattload.core.record.target import BlockNode
from wattload.core.units import MILLI, Unit
from wattload.results.facts import cached_share, divided, sum_if_known
from wattload.results.figures import Figure, FigureSource
from wattload.results.kv_cache.facts import RESTORE, STEADY, STORE, KvFacts, Run

RESTORED = "restored_tokens_per_s"
UNPACED = "not applicable: unpaced"
DAY_S = 86400.0
OVERLOAD_SIGMAS, OVERLOAD_FROM = 3.0, 8
"""The number of requests in a server that keeps up varies by chance, about as a Poisson variable:
more of them at the end than at the start, by so many standard deviations of the difference."""

figure = partial(Figure[KvFacts], phase=STEADY)
rate = partial(figure, unit=Unit.SAMPLES_PER_SECOND, better="higher")
neutral = partial(figure, better="neither")


def is_overloaded(run: Run) -> bool:
    """Return whether the backlog of an open loop grew: latency then depends on how long it ran."""
    loop = run.facts.loop
    by_chance = OVERLOAD_SIGMAS * math.sqrt(2 * (divided(loop.in_system_s, loop.seconds) or 0.0))
    grown = loop.backlog_end - loop.backlog_start
    return loop.ended_early or (loop.users is None and grown > max(by_chance, OVERLOAD_FROM))


def overload_text(run: Run) -> str:
    loop = run.facts.loop
    return (
        f"overloaded: backlog {loop.backlog_start:,} at the start, {loop.backlog_end:,} at the end"
    )


def counted(run: Run, phase: str, name: str) -> int | None:
    """Return one of the ``Counts`` of a phase; ``None`` if the run did not have the phase."""
    counts = run.facts.counts.get(phase)
    return None if counts is None else int(getattr(counts, name))


def tokens(run: Run, phase: str, kind: str) -> int | None:
    """Return the tokens of blocks of a kind in ``Counts``, such as ``restored``."""
    blocks = counted(run, phase, f"{kind}_blocks")
    return None if blocks is None else blocks * run.facts.settings.block_tokens


def per_second(run: Run, phase: str, kind: str) -> float | None:
    return divided(tokens(run, phase, kind), run.seconds(phase))


def hit_tokens(run: Run) -> float | None:
    """Return the input tokens of the steady phase that either tier had."""
    return sum_if_known(tokens(run, STEADY, tier) for tier in ("memory", "drive"))


def hit_rate(run: Run) -> float | None:
    return divided(hit_tokens(run), counted(run, STEADY, "input_tokens"))


def requests_per_s(run: Run) -> float | None:
    return divided(counted(run, STEADY, "requests"), run.facts.loop.seconds)


def littles_rate(run: Run) -> float | None:
    """Return N ÷ (R + Z), the rate of requests of a closed loop by their mean times."""
    loop = run.facts.loop
    cycle_s = divided(loop.residence_s + loop.think_s, counted(run, STEADY, "requests"))
    return None if loop.users is None else divided(loop.users, cycle_s)


def added_s(run: Run, name: str = "p99_s") -> float | None:
    """Return a percentile of what the drive adds to the time to first token.

    It is ``None`` for an overloaded run, or if too few requests restored blocks.
    """
    if is_overloaded(run) or not run.facts.times:
        return None
    return run.facts.times[0].response.percentiles_s[name]


def holds_target(run: Run) -> bool | None:
    """Return whether p99 was within ``target_p99_ms``; ``None`` without a target or a p99."""
    target_ms, found_s = run.facts.settings.target_p99_ms, added_s(run)
    if target_ms is None or (found_s is None and not is_overloaded(run)):
        return None
    return found_s is not None and found_s <= target_ms * MILLI


def ceiling_share(run: Run) -> float | None:
    read = divided(run.record.moved_bytes(RESTORE, "read"), run.seconds(RESTORE))
    return divided(read, run.facts.drive_ceiling_bytes_per_s)


def written_bytes_per_day(run: Run) -> float | None:
    """Return the bytes that this rate of requests stores in a day; ``None`` in a closed loop."""
    a_second = divided(run.record.moved_bytes(STEADY, "written"), run.seconds(STEADY))
    return None if a_second is None or run.facts.loop.users is not None else a_second * DAY_S


def drive_bytes(run: Run) -> float | None:
    """Return the capacity of the drives under the targets; ``None`` if one is unknown."""
    stacks = [target.facts.stack for target in run.record.targets]
    sizes = {name: size for stack in stacks if stack for name, size in _sizes(stack)}
    return sum_if_known(sizes.values()) if all(stacks) else None


def _sizes(node: BlockNode) -> Iterator[tuple[str, int | None]]:
    """Yield the lowest devices below a node that have a size: a controller has none."""
    if any(child.size_bytes for child in node.children):
        yield from (size for child in node.children for size in _sizes(child))
    else:
        yield node.name, node.size_bytes


def drive_writes_per_day(run: Run) -> float | None:
    return divided(written_bytes_per_day(run), drive_bytes(run))


def _of_page_cache(run: Run) -> Sequence[Figure[KvFacts]]:
    cached = neutral(
        name="cached_fraction",
        of=lambda run: cached_share(run, STEADY),
        unit=Unit.FRACTION,
        meaning="share of the bytes read in the mix that never reached the drive",
        reason="no block device counted the reads",
    )
    return [] if run.facts.reads_directly else [cached]


FIGURES: tuple[FigureSource[KvFacts], ...] = (
    rate(
        name=RESTORED,
        label="restored tokens",
        of=lambda run: per_second(run, RESTORE, "restored"),
        meaning="tokens of blocks read from the drive and delivered / time, restores alone",
        phase=RESTORE,
        headline=True,
        reason="no block that the mix restored was in the cache at its end",
    ),
    figure(
        name="response_p99_s",
        label="added to TTFT, p99",
        of=added_s,
        unit=Unit.SECONDS,
        better="lower",
        meaning="from the (scheduled) arrival until the last restored block is there: what the "
        "drive adds to the time to first token, at most",
        headline=True,
        reason=lambda run: (
            overload_text(run) if is_overloaded(run) else "too few requests restored blocks"
        ),
    ),
    rate(
        name="stored_tokens_per_s",
        label="stored tokens",
        of=lambda run: per_second(run, STORE, "stored"),
        meaning="tokens of blocks made durable / time, stores alone, with fsync",
        phase=STORE,
        reason="no block was stored",
    ),
    neutral(
        name="hit_rate",
        of=hit_rate,
        unit=Unit.FRACTION,
        meaning="tokens of hits in either tier / tokens of the input",
    ),
    rate(name="requests_per_s", of=requests_per_s, meaning="requests done / time, in the mix"),
    _of_page_cache,
    figure(
        name="ceiling_fraction",
        label="share of the drive's ceiling",
        of=ceiling_share,
        unit=Unit.FRACTION,
        better="higher",
        meaning="bytes read / time, restores alone, over that of random reads of the same size "
        "and depth from the same files",
        phase=RESTORE,
        reason="the ceiling was not measured",
    ),
    neutral(
        name="drive_writes_per_day",
        label="drive writes a day",
        of=drive_writes_per_day,
        unit=Unit.COUNT,
        meaning="bytes that this rate of requests stores in a day / capacity of the drive, without "
        "its write amplification",
        reason=lambda run: (
            UNPACED if run.facts.loop.users is not None else "the drive's capacity is unknown"
        ),
    ),
)
