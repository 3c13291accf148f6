"""The figures of a checkpoint run, from what each rank counted and timed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from wattload.core.record.metric import Metric
from wattload.core.units import NS_PER_S, Unit
from wattload.workloads.checkpoint.account import Account, Side
from wattload.workloads.checkpoint.ceiling import Ceilings
from wattload.workloads.checkpoint.cycle import READ_PHASE
from wattload.workloads.checkpoint.overlap import overlap_metrics
from wattload.workloads.checkpoint.writing import WRITE_PHASE


class Direction:
    """One direction over all ranks: seconds and bytes per checkpoint.

    The seconds of a checkpoint run from the first rank's start to the last rank's end, as the
    phase's own window does: ranks leave a barrier at different times. Hosts have clocks of their
    own, so with several of them each host's window is taken alone, and the longest counts.
    """

    def __init__(self, phase: str, accounts: Sequence[Account]) -> None:
        self.phase = phase
        sides = [account.write if phase == WRITE_PHASE else account.read for account in accounts]
        by_host: dict[str, list[Side]] = defaultdict(list)
        for account, side in zip(accounts, sides, strict=True):
            by_host[account.host].append(side)
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
        """Total bytes over total seconds, in B/s."""
        return sum(self.moved_bytes) / sum(self.seconds)

    @property
    def mean_of_rates(self) -> float:
        """The arithmetic mean of each checkpoint's rate, as DLIO reports it, in B/s."""
        rates = [b / s for b, s in zip(self.moved_bytes, self.seconds, strict=True)]
        return fmean(rates)

    @property
    def slowest_rank_rate(self) -> float:
        """The lowest rate of a rank in B/s: its bytes over what it took for its own shards."""
        return min(sum(side.moved_bytes) / (sum(side.own_ns) / NS_PER_S) for side in self._sides)


def _host_seconds(sides: Sequence[Side]) -> list[float]:
    """Return the seconds per checkpoint over the ranks of one host, first start to last end.

    What it took to commit a checkpoint outside of its window comes on top.
    """
    spans = zip(*(side.windows_ns for side in sides), strict=True)
    commits = zip(*(side.commit_ns for side in sides), strict=True)
    return [
        (max(e for _, e in windows) - min(s for s, _ in windows) + max(commit)) / NS_PER_S
        for windows, commit in zip(spans, commits, strict=True)
    ]


def metrics(accounts: Sequence[Account], found: Ceilings) -> list[Metric]:
    """Return the metrics of a run, the headline first; ``accounts`` are the ranks', by rank."""
    write = Direction(WRITE_PHASE, accounts)
    read = Direction(READ_PHASE, accounts)
    directions = ((write, "written", "save"), (read, "read", "load"))
    made: list[Metric] = []
    for make in (_rate, _seconds, _dlio, _slowest_rank, _moved, _cpu):
        made += [make(*direction) for direction in directions]
        if make is _seconds and any(account.stalls for account in accounts):
            made += overlap_metrics(accounts, write.seconds)
    return [*made, *_ceilings(found)]


def _rate(direction: Direction, verb: str, _dlio_name: str) -> Metric:
    return Metric.of(
        f"{direction.phase}_bytes_per_s",
        direction.rate,
        Unit.BYTES_PER_SECOND,
        "higher",
        f"Bytes {verb} by all ranks over the time from the first rank's start to the last one's "
        "end, all checkpoints together.",
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
        f"Time from the first rank's start until the last has {verb} its shard of one "
        "checkpoint, mean over all.",
        phase=direction.phase,
        headline=True,
    )


def _dlio(direction: Direction, _verb: str, dlio_name: str) -> Metric:
    return Metric.of(
        f"dlio_{dlio_name}_mean_of_rates_bytes_per_s",
        direction.mean_of_rates,
        Unit.BYTES_PER_SECOND,
        "higher",
        f"The mean of each checkpoint's rate, as DLIO reports its {dlio_name} throughput; it "
        "flatters uneven runs, and no verdict rests on it.",
        phase=direction.phase,
    )


def _slowest_rank(direction: Direction, verb: str, dlio_name: str) -> Metric:
    return Metric.of(
        f"mlperf_{dlio_name}_min_over_ranks_bytes_per_s",
        direction.slowest_rank_rate,
        Unit.BYTES_PER_SECOND,
        "higher",
        f"The least over ranks of the bytes that a rank {verb} over the time it took for its own "
        "shards, as MLPerf Storage's rules have throughput; of one rank, so no rate of the target.",
        phase=direction.phase,
    )


def _moved(direction: Direction, verb: str, _dlio_name: str) -> Metric:
    return Metric.of(
        f"{verb}_bytes",
        sum(direction.moved_bytes),
        Unit.BYTES,
        "neither",
        f"Bytes {verb} by all ranks, all checkpoints together.",
        phase=direction.phase,
    )


def _cpu(direction: Direction, verb: str, _dlio_name: str) -> Metric:
    return Metric.of(
        f"{direction.phase}_cpu_seconds_per_byte",
        direction.cpu_s / sum(direction.moved_bytes),
        Unit.SECONDS_PER_BYTE,
        "lower",
        f"CPU time of saving or loading per byte {verb}, stamps and checksums included.",
        phase=direction.phase,
    )


def _ceilings(found: Ceilings) -> list[Metric]:
    alone = "The same {} loop without a target, all ranks at once."
    figures = (
        ("harness_write", found.write, alone.format("save")),
        ("harness_read", found.read, alone.format("load")),
        ("generator", found.generator, "Stamping alone, one thread per rank."),
    )
    return [
        Metric.of(f"{name}_ceiling_bytes_per_s", value, Unit.BYTES_PER_SECOND, "higher", meaning)
        for name, value, meaning in figures
    ]
