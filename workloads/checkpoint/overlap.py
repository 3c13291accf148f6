"""The figures of checkpoints that drain while training goes on: stalls, drains and steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from statistics import fmean

from wattload.core.record.metric import Metric
from wattload.core.units import NS_PER_S, Unit
from wattload.workloads.checkpoint.account import Account, Stall

_DRAIN = "write"
_NONE_FOLLOWS = (
    "each checkpoint was read back before the next was written, so none met the drain of the one "
    "before; workload.keep=2 or more leaves some that do"
)


def overlap_metrics(accounts: Sequence[Account], drain_s: Sequence[float]) -> list[Metric]:
    """Return the metrics of an asynchronous run; ``drain_s`` are the drains' seconds, in order.

    A stall lasts as long as the slowest rank's. Steps are those of rank 0: all ranks meet at the
    end of each. Waits count where nothing was read since the checkpoint before: reads begin when
    its drain has ended, so the wait after them is none, however slow the drive.
    """
    return [
        _seconds(
            "stall_seconds_per_checkpoint",
            _following(accounts, lambda stall: stall.wait_ns + stall.snapshot_ns),
            "Time that training stood still for one checkpoint, for the drain before and the "
            "snapshot: slowest rank, mean over those that followed another with no read between.",
            headline=True,
        ),
        _seconds(
            "drain_seconds_per_checkpoint",
            drain_s,
            "Time from the start of a drain until its bytes are durable on every rank, and to "
            "commit it, mean over all; training goes on meanwhile.",
            phase=_DRAIN,
            headline=True,
        ),
        _seconds(
            "durable_seconds_per_checkpoint",
            [taken_ns / NS_PER_S for taken_ns in accounts[0].durable_ns],
            "Time from the start of a drain until the checkpoint is complete and durable, the wait "
            "of its commit for the end of a training step included; mean over all.",
            phase=_DRAIN,
        ),
        _stall_share(accounts),
        _seconds(
            "drain_wait_seconds_per_checkpoint",
            _following(accounts, lambda stall: stall.wait_ns),
            "The part of a stall that waited for the drain of the checkpoint before, same mean.",
        ),
        _seconds(
            "snapshot_seconds_per_checkpoint",
            _slowest(accounts, lambda stall: stall.snapshot_ns),
            "The part of a stall that copied the shard's bytes from memory to memory, mean over "
            "all.",
        ),
        *_steps(accounts[0]),
    ]


def _slowest(accounts: Sequence[Account], of: Callable[[Stall], int]) -> list[float]:
    """Return the seconds of each checkpoint's stall, or of a part of it, on the slowest rank."""
    by_checkpoint = zip(*(account.stalls for account in accounts), strict=True)
    return [max(map(of, stalls)) / NS_PER_S for stalls in by_checkpoint]


def _following(accounts: Sequence[Account], of: Callable[[Stall], int]) -> list[float]:
    """Return the same of the checkpoints that followed another with no read between."""
    follows = [stall.trained_ns is not None for stall in accounts[0].stalls]
    return list(compress(_slowest(accounts, of), follows))


def _stall_share(accounts: Sequence[Account]) -> Metric:
    stalled_s = sum(_following(accounts, lambda stall: stall.wait_ns + stall.snapshot_ns))
    trained_s = sum(stall.trained_ns or 0 for stall in accounts[0].stalls) / NS_PER_S
    meaning = (
        "Seconds of those stalls over theirs and those of the steps of the interval before each: "
        "training time lost."
    )
    share = stalled_s / (stalled_s + trained_s) if trained_s else None
    return Metric.of("stall_share", share, Unit.FRACTION, "lower", meaning, reason=_NONE_FOLLOWS)


def _steps(account: Account) -> list[Metric]:
    beside = [step.duration_ns / NS_PER_S for step in account.steps if step.draining]
    alone = [step.duration_ns / NS_PER_S for step in account.steps if not step.draining]
    slowdown = "Mean seconds of a step that began beside a drain over those of one that did not."
    note = f"{slowdown} Steps are emulated by sleeping, so only the host can slow them."
    ratio = fmean(beside) / fmean(alone) if beside and alone else None
    reason = f"no step began {'beside' if alone else 'without'} a drain"
    return [
        Metric.of(
            "steps_during_drain",
            len(beside),
            Unit.COUNT,
            "neither",
            "Steps that began while a checkpoint drained, all checkpoints together.",
        ),
        Metric.of("step_slowdown", ratio, Unit.FRACTION, "lower", note, reason=reason),
    ]


def _seconds(
    name: str, values: Sequence[float], meaning: str, *, phase: str = "", headline: bool = False
) -> Metric:
    """Return the mean of these seconds, or a metric without a value where there are none."""
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
