"""The metrics of a checkpoint run, and the ceilings of the host that bound them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from statistics import fmean

from wattload.core.io import BlockIdentity
from wattload.core.record.results import Metric
from wattload.core.units import MIB, NS_PER_S, Unit
from wattload.core.workload import Communicator
from wattload.loaders.aligned_io import aligned_buffer, fill_random
from wattload.loaders.checkpoint_store import CheckpointLoader, Shard, Tensor
from wattload.loaders.stamps import StampedMemory
from wattload.workloads.checkpoint.cycle import (
    READ_PHASE,
    WRITE_PHASE,
    DirectionTotals,
    RankTotals,
    Stall,
)

LEAST_S = 1.0
SHARD_BYTES = 256 * MIB
_GENERATOR_BYTES = 32 * MIB
_COPIES = 3
_IDENTITY = BlockIdentity(nonce=0, word=0)
_NOWHERE = Path("memory")

_NONE_FOLLOWS = (
    "each checkpoint was read back before the next was written, so none overlapped with the "
    "previous drain; set workload.keep=2 or more"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Bytes per second of all ranks together; ``generator`` uses one thread per rank."""

    write: float
    read: float
    generator: float


def ceilings(loader: CheckpointLoader, shard: Shard, world: Communicator, *, seed: int) -> Ceilings:
    """Run the loops of this run without a target for one second each, on all ranks in parallel.

    The shard is limited to 256 MiB, because a store without files may keep it in memory.
    """
    store = loader.checkpoint_store(shortened(shard, SHARD_BYTES), seed=seed, diskless=True)
    try:
        saved = store.save(_NOWHERE, _IDENTITY, _uncounted, fsync=True)
        size_bytes = sum(file.payload_bytes for file in saved.files)

        def save() -> int:
            store.save(_NOWHERE, _IDENTITY, _uncounted, fsync=True)
            return size_bytes

        def load() -> int:
            return store.load(_NOWHERE, saved.files, _IDENTITY, _uncounted).payload_bytes

        write, read = _measure_rate(save, world), _measure_rate(load, world)
    finally:
        store.close()
    return Ceilings(write=write, read=read, generator=_measure_rate(_stamping(seed), world))


def ceiling_memory_bytes(shard: Shard) -> int:
    """Return a bound on the memory of the ceilings with a store that keeps files in memory.

    It needs the files, and twice as much while one is written or loaded: 0.8 GB was measured for
    256 MiB.
    """
    return _COPIES * min(SHARD_BYTES, shard.size_bytes)


def shortened(shard: Shard, most_bytes: int) -> Shard:
    """Return the first ``most_bytes`` of a shard, a multiple of 4, truncating the last tensor."""
    tensors: list[Tensor] = []
    left_bytes = most_bytes
    for tensor in shard.tensors:
        if left_bytes:
            tensors.append(replace(tensor, size_bytes=min(tensor.size_bytes, left_bytes)))
            left_bytes -= tensors[-1].size_bytes
    return replace(shard, tensors=tuple(tensors))


def _stamping(seed: int) -> Callable[[], int]:
    """Return a function that stamps every buffer once and returns their total size."""
    buffer = aligned_buffer(_GENERATOR_BYTES)
    fill_random([buffer], seed=seed, rank=0)
    memory = StampedMemory(buffer)

    def stamp_all() -> int:
        return memory.stamp(0, _GENERATOR_BYTES, _IDENTITY, 0).size

    return stamp_all


def _measure_rate(work: Callable[[], int], world: Communicator) -> float:
    """Repeat the work for a second; return all ranks' bytes over the slowest rank's seconds."""
    world.barrier()
    start_ns = time.monotonic_ns()
    moved_bytes, seconds = 0, 0.0
    while seconds < LEAST_S:
        moved_bytes += work()
        seconds = (time.monotonic_ns() - start_ns) / NS_PER_S
    ranks = world.all_gather((moved_bytes, seconds))
    return float(sum(moved for moved, _ in ranks) / max(elapsed for _, elapsed in ranks))


def _uncounted(moved_bytes: int) -> None:
    """Count nothing: no bytes move to or from the target."""


def metrics(ranks: Sequence[RankTotals], ceilings: Ceilings) -> list[Metric]:
    """Return the metrics of a run, headline first; ``ranks`` are the totals by rank."""
    write = Direction(WRITE_PHASE, ranks)
    read = Direction(READ_PHASE, ranks)
    directions = ((write, "written", "save"), (read, "read", "load"))
    found: list[Metric] = []
    for make in (_rate, _seconds, _dlio, _slowest_rank, _moved, _cpu):
        found += [make(*direction) for direction in directions]
        if make is _seconds and any(totals.stalls for totals in ranks):
            found += overlap_metrics(ranks, write.seconds)
    return [*found, *_ceilings(ceilings)]


def _rate(direction: Direction, verb: str, _dlio_name: str) -> Metric:
    return Metric.of(
        f"{direction.phase}_bytes_per_s",
        direction.rate,
        Unit.BYTES_PER_SECOND,
        "higher",
        f"Bytes {verb} by all ranks, divided by the time from the first rank's start to the last "
        "rank's end, over all checkpoints.",
        phase=direction.phase,
        headline=True,
        rate_of="written" if direction.phase == WRITE_PHASE else "read",
    )


def _seconds(direction: Direction, verb: str, _dlio_name: str) -> Metric:
    return Metric.of(
        f"{direction.phase}_seconds_per_checkpoint",
        fmean(direction.seconds),
        Unit.SECONDS,
        "lower",
        f"Time from the first rank's start until the last rank has {verb} its shard of one "
        "checkpoint; mean over all checkpoints.",
        phase=direction.phase,
        headline=True,
    )


def _dlio(direction: Direction, _verb: str, dlio_name: str) -> Metric:
    return Metric.of(
        f"dlio_{dlio_name}_mean_of_rates_bytes_per_s",
        direction.mean_of_rates,
        Unit.BYTES_PER_SECOND,
        "higher",
        f"The mean of the checkpoints' rates, DLIO's {dlio_name} throughput. It overstates uneven "
        "runs and is not used for verdicts.",
        phase=direction.phase,
    )


def _slowest_rank(direction: Direction, verb: str, dlio_name: str) -> Metric:
    return Metric.of(
        f"mlperf_{dlio_name}_min_over_ranks_bytes_per_s",
        direction.slowest_rank_rate,
        Unit.BYTES_PER_SECOND,
        "higher",
        f"The lowest rate of a rank: bytes {verb} divided by the time for its own shards, the "
        "throughput in MLPerf Storage's rules. It covers one rank, so it is not the target's rate.",
        phase=direction.phase,
    )


def _moved(direction: Direction, verb: str, _dlio_name: str) -> Metric:
    return Metric.of(
        f"{verb}_bytes",
        sum(direction.moved_bytes),
        Unit.BYTES,
        "neither",
        f"Bytes {verb} by all ranks over all checkpoints.",
        phase=direction.phase,
    )


def _cpu(direction: Direction, verb: str, _dlio_name: str) -> Metric:
    return Metric.of(
        f"{direction.phase}_cpu_seconds_per_byte",
        direction.cpu_s / sum(direction.moved_bytes),
        Unit.SECONDS_PER_BYTE,
        "lower",
        f"CPU time of saving or loading per byte {verb}, including stamps and sums.",
        phase=direction.phase,
    )


def _ceilings(found: Ceilings) -> list[Metric]:
    alone = "The same {} loop without a target, all ranks in parallel."
    figures = (
        ("harness_write", found.write, alone.format("save")),
        ("harness_read", found.read, alone.format("load")),
        ("generator", found.generator, "Only stamping, one thread per rank."),
    )
    return [
        Metric.of(f"{name}_ceiling_bytes_per_s", value, Unit.BYTES_PER_SECOND, "higher", meaning)
        for name, value, meaning in figures
    ]


def overlap_metrics(ranks: Sequence[RankTotals], drain_s: Sequence[float]) -> list[Metric]:
    """Return the metrics of an asynchronous run; ``drain_s`` has the seconds of each drain.

    A stall is that of the slowest rank. Steps are those of rank 0, because all ranks synchronise at
    the end of each. A wait only counts if nothing was read since the previous checkpoint: reads
    begin after its drain, so a wait after them is zero, however slow the drive is.
    """
    return [
        _mean_seconds(
            "stall_seconds_per_checkpoint",
            _following(ranks, lambda stall: stall.wait_ns + stall.snapshot_ns),
            "Time that training stalled for one checkpoint, waiting for the previous drain and the "
            "snapshot: slowest rank, mean over checkpoints that follow another without a read.",
            headline=True,
        ),
        _mean_seconds(
            "drain_seconds_per_checkpoint",
            drain_s,
            "Time from the start of a drain until its bytes are durable on every rank, plus its "
            "commit; mean over all. Training continues during this time.",
            phase=WRITE_PHASE,
            headline=True,
        ),
        _mean_seconds(
            "durable_seconds_per_checkpoint",
            [taken_ns / NS_PER_S for taken_ns in ranks[0].durable_ns],
            "Time from the start of a drain until the checkpoint is complete and durable, "
            "including the wait of its commit for the end of a training step; mean over all.",
            phase=WRITE_PHASE,
        ),
        _stall_share(ranks),
        _mean_seconds(
            "drain_wait_seconds_per_checkpoint",
            _following(ranks, lambda stall: stall.wait_ns),
            "The part of a stall that waited for the previous drain; mean over the same "
            "checkpoints.",
        ),
        _mean_seconds(
            "snapshot_seconds_per_checkpoint",
            _slowest(ranks, lambda stall: stall.snapshot_ns),
            "The part of a stall that copied the shard's bytes from memory to memory; mean over "
            "all.",
        ),
        *_steps(ranks[0]),
    ]


def _slowest(ranks: Sequence[RankTotals], of: Callable[[Stall], int]) -> list[float]:
    """Return the seconds of each stall, or of a part of it, on the slowest rank."""
    by_checkpoint = zip(*(totals.stalls for totals in ranks), strict=True)
    return [max(map(of, stalls)) / NS_PER_S for stalls in by_checkpoint]


def _following(ranks: Sequence[RankTotals], of: Callable[[Stall], int]) -> list[float]:
    """Return ``_slowest`` for the checkpoints that follow another without a read."""
    follows = [stall.trained_ns is not None for stall in ranks[0].stalls]
    return list(compress(_slowest(ranks, of), follows))


def _stall_share(ranks: Sequence[RankTotals]) -> Metric:
    stalled_s = sum(_following(ranks, lambda stall: stall.wait_ns + stall.snapshot_ns))
    trained_s = sum(stall.trained_ns or 0 for stall in ranks[0].stalls) / NS_PER_S
    meaning = (
        "Share of training time lost: seconds of those stalls, divided by the seconds of the "
        "stalls and of the training steps before each of them."
    )
    share = stalled_s / (stalled_s + trained_s) if trained_s else None
    return Metric.of("stall_share", share, Unit.FRACTION, "lower", meaning, reason=_NONE_FOLLOWS)


def _steps(totals: RankTotals) -> list[Metric]:
    during = [step.duration_ns / NS_PER_S for step in totals.steps if step.draining]
    without = [step.duration_ns / NS_PER_S for step in totals.steps if not step.draining]
    slowdown = "Mean seconds of steps that began during a drain, divided by those of other steps."
    note = f"{slowdown} Steps are emulated by sleeping, so only the host can slow them down."
    ratio = fmean(during) / fmean(without) if during and without else None
    reason = f"no step began {'during' if without else 'without'} a drain"
    return [
        Metric.of(
            "steps_during_drain",
            len(during),
            Unit.COUNT,
            "neither",
            "Steps that began during a drain, over all checkpoints.",
        ),
        Metric.of("step_slowdown", ratio, Unit.FRACTION, "lower", note, reason=reason),
    ]


def _mean_seconds(
    name: str, values: Sequence[float], meaning: str, *, phase: str = "", headline: bool = False
) -> Metric:
    """Return the mean of these seconds as a metric; without any it has no value."""
    return Metric.of(
        name,
        fmean(values) if values else None,
        Unit.SECONDS,
        "lower",
        meaning,
        phase=phase,
        headline=headline,
        reason=_NONE_FOLLOWS,
    )


class Direction:
    """One direction over all ranks: seconds and bytes per checkpoint.

    The seconds of a checkpoint run from the first rank's start to the last rank's end, like the
    window of the phase, because ranks leave a barrier at different times. Each host has its own
    clock. With several hosts, windows are per host and the longest counts.
    """

    def __init__(self, phase: str, ranks: Sequence[RankTotals]) -> None:
        self.phase = phase
        sides = [totals.write if phase == WRITE_PHASE else totals.read for totals in ranks]
        by_host: dict[str, list[DirectionTotals]] = defaultdict(list)
        for totals, side in zip(ranks, sides, strict=True):
            by_host[totals.host].append(side)
        self.seconds: list[float] = [
            max(each) for each in zip(*map(_host_seconds, by_host.values()), strict=True)
        ]
        self.moved_bytes: list[int] = [
            sum(each) for each in zip(*(s.moved_bytes for s in sides), strict=True)
        ]
        self.cpu_s = sum(side.cpu_s for side in sides)
        self._sides = sides

    @property
    def rate(self) -> float:
        """Total bytes divided by total seconds, in B/s."""
        return sum(self.moved_bytes) / sum(self.seconds)

    @property
    def mean_of_rates(self) -> float:
        """The arithmetic mean of the checkpoints' rates, as reported by DLIO, in B/s."""
        rates = [b / s for b, s in zip(self.moved_bytes, self.seconds, strict=True)]
        return fmean(rates)

    @property
    def slowest_rank_rate(self) -> float:
        """The lowest rate of a rank in B/s: its bytes divided by the time for its own shards."""
        return min(sum(side.moved_bytes) / (sum(side.own_ns) / NS_PER_S) for side in self._sides)


def _host_seconds(sides: Sequence[DirectionTotals]) -> list[float]:
    """Return the seconds per checkpoint over the ranks of one host, first start to last end.

    A commit outside of the window is added.
    """
    spans = zip(*(side.windows_ns for side in sides), strict=True)
    commits = zip(*(side.commit_ns for side in sides), strict=True)
    return [
        (max(e for _, e in windows) - min(s for s, _ in windows) + max(commit)) / NS_PER_S
        for windows, commit in zip(spans, commits, strict=True)
    ]
