"""The figures of checkpoints: rates and times of both directions, and what training lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from statistics import fmean

from wattload.core.record.clocks import CommonClock
from wattload.core.record.phase import PhaseSpan
from wattload.core.units import NS_PER_S, Unit
from wattload.results.checkpoint.facts import (
    READ_PHASE,
    WRITE_PHASE,
    CheckpointFacts,
    Run,
    Stall,
)
from wattload.results.facts import divided
from wattload.results.figures import Figure, FigureSource

figure = Figure[CheckpointFacts]

_NONE_FOLLOWS = (
    "each checkpoint was read back before the next was written, so none overlapped with the "
    "previous drain; set workload.keep=2 or more"
)


def moved_bytes(run: Run, phase: str) -> int:
    return sum(window.read_bytes + window.written_bytes for window in run.windows(phase))


def seconds(run: Run, phase: str) -> list[float]:
    """Return the time of each checkpoint, from the first rank's start to the last rank's end.

    Ranks leave a barrier at different times. A commit beside training is a span of its own, and
    added.
    """
    clock = run.record.clock
    checkpoints = zip(*_parts(run, phase, is_commit=False).values(), strict=True)
    found = [_seconds(clock, spans) for spans in checkpoints]
    commits = zip(*_parts(run, phase, is_commit=True).values(), strict=True)
    for number, of_leaders in enumerate(commits):
        found[number] += max(_seconds(clock, [commit]) for commit in of_leaders)
    return found


def _parts(run: Run, phase: str, *, is_commit: bool) -> Mapping[int, Sequence[PhaseSpan]]:
    """Return the spans by rank that moved bytes, or those of commits, which move none."""
    found: dict[int, list[PhaseSpan]] = defaultdict(list)
    for span in run.record.spans:
        if span.name == phase and (span.read_bytes + span.written_bytes == 0) == is_commit:
            found[span.rank].append(span)
    return found


def _seconds(clock: CommonClock, spans: Sequence[PhaseSpan]) -> float:
    end_ns = max(clock.ns(each.host, each.end_ns) for each in spans)
    return (end_ns - min(clock.ns(each.host, each.start_ns) for each in spans)) / NS_PER_S


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _rates(run: Run, phase: str) -> list[float]:
    """Return the rate of each checkpoint."""
    by_rank = _parts(run, phase, is_commit=False).values()
    checkpoints = zip(*by_rank, strict=True)
    moved = (sum(s.read_bytes + s.written_bytes for s in spans) for spans in checkpoints)
    return [size / taken for size, taken in zip(moved, seconds(run, phase), strict=True)]


def slowest_rank(run: Run, phase: str) -> float | None:
    """Return the lowest rate of a rank: its bytes divided by the time for its own shards."""
    moved: dict[int, int] = defaultdict(int)
    for span in run.record.spans:
        if span.name == phase:
            moved[span.rank] += span.read_bytes + span.written_bytes
    rates = [
        divided(moved[rank], own.write_s if phase == WRITE_PHASE else own.read_s)
        for rank, own in enumerate(run.facts.ranks)
    ]
    return min((rate for rate in rates if rate is not None), default=None)


def _cpu_s(run: Run, phase: str) -> float:
    ranks = run.facts.ranks
    return sum(own.write_cpu_s if phase == WRITE_PHASE else own.read_cpu_s for own in ranks)


def _of_directions(
    make: Callable[[str, str, str], Figure[CheckpointFacts]],
) -> tuple[Figure[CheckpointFacts], ...]:
    """Return a figure of writing and one of reading: phase, verb, and DLIO's name."""
    return make(WRITE_PHASE, "written", "save"), make(READ_PHASE, "read", "load")


def _rate(phase: str, verb: str, _dlio_name: str) -> Figure[CheckpointFacts]:
    return figure(
        name=f"{phase}_bytes_per_s",
        of=lambda run: divided(moved_bytes(run, phase), sum(seconds(run, phase))),
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning=f"Bytes {verb} by all ranks, divided by the time from the first rank's start to "
        "the last rank's end, over all checkpoints.",
        phase=phase,
        headline=True,
    )


def _time(phase: str, verb: str, _dlio_name: str) -> Figure[CheckpointFacts]:
    return figure(
        name=f"{phase}_seconds_per_checkpoint",
        of=lambda run: _mean(seconds(run, phase)),
        unit=Unit.SECONDS,
        better="lower",
        meaning=f"Time from the first rank's start until the last rank has {verb} its shard of one "
        "checkpoint; mean over all checkpoints.",
        phase=phase,
        headline=True,
    )


def _dlio(phase: str, _verb: str, dlio_name: str) -> Figure[CheckpointFacts]:
    return figure(
        name=f"dlio_{dlio_name}_mean_of_rates_bytes_per_s",
        of=lambda run: _mean(_rates(run, phase)),
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning=f"The mean of the checkpoints' rates, DLIO's {dlio_name} throughput. It overstates "
        "uneven runs and is not used for verdicts.",
        phase=phase,
    )


def _mlperf(phase: str, verb: str, dlio_name: str) -> Figure[CheckpointFacts]:
    return figure(
        name=f"mlperf_{dlio_name}_min_over_ranks_bytes_per_s",
        of=lambda run: slowest_rank(run, phase),
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning=f"The lowest rate of a rank: bytes {verb} divided by the time for its own shards"
        f"{', including fsync but not the commit' if phase == WRITE_PHASE else ''}: the throughput "
        "in MLPerf Storage's rules. It covers one rank, so it is not the target's rate.",
        phase=phase,
    )


def _moved(phase: str, verb: str, _dlio_name: str) -> Figure[CheckpointFacts]:
    return figure(
        name=f"{verb}_bytes",
        of=lambda run: moved_bytes(run, phase),
        unit=Unit.BYTES,
        better="neither",
        meaning=f"Bytes {verb} by all ranks over all checkpoints.",
        phase=phase,
    )


def _cpu(phase: str, verb: str, _dlio_name: str) -> Figure[CheckpointFacts]:
    return figure(
        name=f"{phase}_cpu_seconds_per_byte",
        of=lambda run: divided(_cpu_s(run, phase), moved_bytes(run, phase)),
        unit=Unit.SECONDS_PER_BYTE,
        better="lower",
        meaning=f"CPU time of saving or loading per byte {verb}, including stamps and sums.",
        phase=phase,
    )


def _slowest(run: Run, of: Callable[[Stall], float]) -> list[float]:
    """Return the seconds of each stall, or of a part of it, on the slowest rank."""
    stalls = zip(*(own.stalls for own in run.facts.ranks), strict=True)
    return [max(map(of, of_ranks)) for of_ranks in stalls]


def _following(run: Run, of: Callable[[Stall], float]) -> list[float]:
    """Return ``_slowest`` for the checkpoints that follow another without a read.

    Reads begin after a drain, so a wait after them is zero, however slow the drive is.
    """
    follows = [stall.trained_s is not None for stall in run.facts.ranks[0].stalls]
    return list(compress(_slowest(run, of), follows))


def _stalled(stall: Stall) -> float:
    return stall.wait_s + stall.snapshot_s


def _stall_share(run: Run) -> float | None:
    stalled_s = sum(_following(run, _stalled))
    trained_s = sum(stall.trained_s or 0.0 for stall in run.facts.ranks[0].stalls)
    return stalled_s / (stalled_s + trained_s) if trained_s else None


def _durable_s(run: Run) -> float | None:
    """Return the mean time from the start of a save to the end of its commit."""
    commits = _parts(run, WRITE_PHASE, is_commit=True)
    saves = _parts(run, WRITE_PHASE, is_commit=False)
    by_leader = [
        [_seconds(run.record.clock, parts) for parts in zip(saves[rank], own, strict=True)]
        for rank, own in commits.items()
    ]
    return _mean([max(each) for each in zip(*by_leader, strict=True)])


def _slowdown(run: Run) -> float | None:
    during, without = run.facts.draining_steps, run.facts.other_steps
    of_during = divided(during.seconds, during.count)
    return divided(of_during, divided(without.seconds, without.count))


def _no_slowdown(run: Run) -> str:
    return f"no step began {'during' if run.facts.other_steps.count else 'without'} a drain"


def _overlap(run: Run) -> Sequence[Figure[CheckpointFacts]]:
    return _OVERLAP if run.facts.settings.mode == "async" else ()


_OVERLAP = (
    figure(
        name="stall_seconds_per_checkpoint",
        of=lambda run: _mean(_following(run, _stalled)),
        unit=Unit.SECONDS,
        better="lower",
        meaning="Time that training stalled for one checkpoint, waiting for the previous drain and "
        "the snapshot: slowest rank, mean over checkpoints that follow another without a read.",
        headline=True,
        reason=_NONE_FOLLOWS,
    ),
    figure(
        name="drain_seconds_per_checkpoint",
        of=lambda run: _mean(seconds(run, WRITE_PHASE)),
        unit=Unit.SECONDS,
        better="lower",
        meaning="Time from the start of a drain until its bytes are durable on every rank, plus "
        "its commit; mean over all. Training continues during this time.",
        phase=WRITE_PHASE,
        headline=True,
    ),
    figure(
        name="durable_seconds_per_checkpoint",
        of=_durable_s,
        unit=Unit.SECONDS,
        better="lower",
        meaning="Time from the start of a drain until the checkpoint is complete and durable, "
        "including the wait of its commit for the end of a training step; mean over all.",
        phase=WRITE_PHASE,
    ),
    figure(
        name="stall_share",
        of=_stall_share,
        unit=Unit.FRACTION,
        better="lower",
        meaning="Share of training time lost: seconds of those stalls, divided by the seconds of "
        "the stalls and of the training steps before each of them.",
        reason=_NONE_FOLLOWS,
    ),
    figure(
        name="drain_wait_seconds_per_checkpoint",
        of=lambda run: _mean(_following(run, lambda stall: stall.wait_s)),
        unit=Unit.SECONDS,
        better="lower",
        meaning="The part of a stall that waited for the previous drain; mean over the same "
        "checkpoints.",
        reason=_NONE_FOLLOWS,
    ),
    figure(
        name="snapshot_seconds_per_checkpoint",
        of=lambda run: _mean(_slowest(run, lambda stall: stall.snapshot_s)),
        unit=Unit.SECONDS,
        better="lower",
        meaning="The part of a stall that copied the shard's bytes from memory to memory; mean "
        "over all.",
    ),
    figure(
        name="steps_during_drain",
        of=lambda run: run.facts.draining_steps.count,
        unit=Unit.COUNT,
        better="neither",
        meaning="Steps that began during a drain, over all checkpoints.",
    ),
    figure(
        name="step_slowdown",
        of=_slowdown,
        unit=Unit.FRACTION,
        better="lower",
        meaning="Mean seconds of steps that began during a drain, divided by those of other steps. "
        "Steps are emulated by sleeping, so only the host can slow them down.",
        reason=_no_slowdown,
    ),
)


def _ceiling(name: str, of: Callable[[Run], float], meaning: str) -> Figure[CheckpointFacts]:
    return figure(
        name=f"{name}_ceiling_bytes_per_s",
        of=of,
        unit=Unit.BYTES_PER_SECOND,
        better="higher",
        meaning=meaning,
    )


FIGURES: tuple[FigureSource[CheckpointFacts], ...] = (
    *_of_directions(_rate),
    *_of_directions(_time),
    _overlap,
    *_of_directions(_dlio),
    *_of_directions(_mlperf),
    *_of_directions(_moved),
    *_of_directions(_cpu),
    _ceiling(
        "harness_write",
        lambda run: run.facts.ceilings.write_bytes_per_s,
        "The same save loop without a target, all ranks in parallel.",
    ),
    _ceiling(
        "harness_read",
        lambda run: run.facts.ceilings.read_bytes_per_s,
        "The same load loop without a target, all ranks in parallel.",
    ),
    _ceiling(
        "generator",
        lambda run: run.facts.ceilings.generator_bytes_per_s,
        "Only stamping, one thread per rank.",
    ),
)
