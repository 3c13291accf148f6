"""MLPerf Storage's figures, by edition, as functions of the facts of one run.

Under the same name, editions compute different rates. DLIO's ``statscounter.py`` (branch
mlperf_storage_v1.0, branch mlperf_storage_v2.0, and mlcommons/DLIO_local_changes for v3.0) takes a
block's steps without its first ``steps_left_out`` over its time, from v2.0 on without the first
step. The accelerator utilisation (AU) is the same in all: the computation after the first step,
over the block without its first step. Throughput sums ranks and AU averages them; an epoch weights
its blocks by steps; both are averaged over epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from wattload.core.mlperf.edition import editions
from wattload.core.mlperf.published import (
    CacheFacts,
    CacheOption,
    CacheTrial,
    CheckpointFacts,
    Epoch,
    Operation,
    RankBlock,
    TrainingFacts,
    VectorFacts,
)
from wattload.core.storage.node_file import file_bytes, node_bytes


class Value(NamedTuple):
    """A figure; ``None`` with the reason why it is unknown."""

    value: float | None
    reason: str = ""


_NO_CHECKPOINTS = Value(None, "the times or the size of its checkpoints are unknown")


class UnknownError(Exception):
    """The facts lack what a formula or a rule needs; the message says what."""


def rank_steps(facts: TrainingFacts) -> int | None:
    """Return the steps of one rank in an epoch, whole batches only; ``None`` without a batch.

    DLIO gives every rank an equal share of the samples and drops what fills no batch:
    ``floor(files * samples_per_file / (accelerators * batch))``.
    """
    if facts.batch_samples is None:
        return None
    samples = facts.file_count * facts.samples_per_file
    return samples // (facts.accelerators * facts.batch_samples)


def samples_per_s(facts: TrainingFacts, edition: str) -> Value:
    """Return the throughput by an edition's formula, in samples per second."""
    left_out = editions()[edition].steps_left_out

    def rate(block: RankBlock, steps: int) -> float:
        seconds = _window_s(block, steps) if left_out else block.duration_s
        if facts.batch_samples is None:
            raise UnknownError("its batch is unknown")
        return (steps - left_out) / seconds * facts.batch_samples * facts.accelerators

    return _mean_of_epochs(facts, rate)


def whole_block_samples_per_s(facts: TrainingFacts) -> Value:
    """Return all samples over the whole time of their block, whatever an edition leaves out."""
    whole = next(name for name, each in editions().items() if not each.steps_left_out)
    return samples_per_s(facts, whole)


def au(facts: TrainingFacts) -> Value:
    """Return the AU in [0, 1], by the formula of all editions.

    Of one block on one rank, DLIO computes ``sum(compute[1:]) / (block - proc[0])``.
    """

    def of_block(block: RankBlock, steps: int) -> float:
        compute_s = _listed(block.compute_s) - _listed(block.first_compute_s)
        return compute_s / _window_s(block, steps)

    return _mean_of_epochs(facts, of_block)


def au_with_first_step(facts: TrainingFacts) -> Value:
    """Return the AU with the first step: all computation over the whole block.

    Without step lists it is by the nominal step time, the least that a step computes.
    """
    found = _mean_of_epochs(facts, lambda block, _: _listed(block.compute_s) / block.duration_s)
    if found.value is not None or facts.step_s is None:
        return found
    step_s = facts.step_s
    found = _mean_of_epochs(facts, lambda block, steps: steps * step_s / block.duration_s)
    return Value(found.value, found.reason or "by the nominal step time, without step lists")


def _mean_of_epochs(facts: TrainingFacts, of: Callable[[RankBlock, int], float]) -> Value:
    if not facts.epochs:
        return Value(None, "its epochs are unknown")
    try:
        return Value(fmean(_of_epoch(facts, epoch, of) for epoch in facts.epochs))
    except UnknownError as unknown:
        return Value(None, str(unknown))


def _of_epoch(facts: TrainingFacts, epoch: Epoch, of: Callable[[RankBlock, int], float]) -> float:
    """Return the mean over the known ranks, each of its blocks weighted by their steps."""
    by_rank: dict[int, list[tuple[float, int]]] = {}
    for block in epoch:
        steps = block.steps or _steps(facts, epoch)
        by_rank.setdefault(block.rank, []).append((of(block, steps), steps))
    if not by_rank:
        raise UnknownError("the times of its blocks are unknown")
    return fmean(
        sum(value * steps for value, steps in blocks) / sum(steps for _, steps in blocks)
        for blocks in by_rank.values()
    )


def _steps(facts: TrainingFacts, epoch: Epoch) -> int:
    if len({block.rank for block in epoch}) < len(epoch):
        raise UnknownError("the steps of each of an epoch's blocks are unknown")
    steps = rank_steps(facts)
    if not steps:
        raise UnknownError("its batch is unknown" if steps is None else "no batch is full")
    return steps


def _window_s(block: RankBlock, steps: int) -> float:
    """Return the seconds of a block without its first step."""
    seconds = block.duration_s - _listed(block.first_step_s)
    if steps == 1 or seconds <= 0:
        raise UnknownError("an epoch has no step after its first one")
    return seconds


def _listed(value: float | None) -> float:
    if value is None:
        raise UnknownError("it needs the times of steps, which only step lists have")
    return value


def checkpoint_bytes_per_s(facts: CheckpointFacts, done: Sequence[Operation]) -> Value:
    """Return all bytes over all time, each checkpoint's until the last known rank is done."""
    if not done or facts.checkpoint_bytes is None:
        return _NO_CHECKPOINTS
    return Value(facts.checkpoint_bytes * len(done) / sum(max(each.seconds) for each in done))


def mean_checkpoint_bytes_per_s(facts: CheckpointFacts, done: Sequence[Operation]) -> Value:
    """Return the mean of the rates by the time of the first rank, which MLPerf Storage reports."""
    if not done or facts.checkpoint_bytes is None:
        return _NO_CHECKPOINTS
    return Value(fmean(facts.checkpoint_bytes / each.seconds[0] for each in done))


def storage_read_bytes(trial: CacheTrial) -> int | None:
    """Return the bytes that a trial read from storage: all but those from memory."""
    if trial.read_bytes is None or trial.memory_bytes is None:
        return None
    return trial.read_bytes - trial.memory_bytes


def cache_per_s(
    facts: CacheFacts, option: CacheOption, of: Callable[[CacheTrial], float | None]
) -> Value:
    """Return what an option's trials moved or did a second: ranks are summed, trials averaged.

    As in Rules.md 6.3.4 of MLPerf Storage v3. ``of`` is what is counted, such as
    ``storage_read_bytes``, or the tokens processed; published tokens a second are those generated.
    """
    counted = ((of(trial), trial.seconds) for trial in option.trials)
    rates = [count / seconds for count, seconds in counted if count is not None and seconds]
    due = facts.trials * facts.ranks
    if len(rates) < due:
        return Value(None, f"only {len(rates)} of {due} files of trials and ranks have it")
    return Value(sum(rates) / facts.trials)


def memory_share(facts: CacheFacts, option: CacheOption) -> Value:
    """Return the share of the bytes read that came from memory; see ``_of_trials``."""
    known = [each for each in option.trials if storage_read_bytes(each) is not None]
    read = sum(each.read_bytes or 0 for each in known)
    memory = sum(each.memory_bytes or 0 for each in known)
    return _of_trials(facts, len(known), memory / read if read else None)


def worst_p95_s(
    facts: CacheFacts, option: CacheOption, of: Callable[[CacheTrial], float | None]
) -> Value:
    """Return the largest 95th percentile, of whole writes or fsync alone; see ``_of_trials``."""
    known = [value for value in map(of, option.trials) if value is not None]
    return _of_trials(facts, len(known), max(known, default=None))


def _of_trials(facts: CacheFacts, known: int, value: float | None) -> Value:
    """Return a figure of the known trials, with how many they are unless they are all."""
    due = facts.trials * facts.ranks
    return Value(value, f"of {known} of {due} files of trials and ranks" if known < due else "")


def index_bytes(facts: VectorFacts) -> Value:
    """Return the size of DiskANN's file of float32 vectors.

    Without the degree of its graph it is that of the vectors alone, and the reason says so.
    """
    if facts.vectors is None:
        return Value(None, "the number of its vectors is unknown")
    vector = facts.dimensions * 4
    if facts.max_degree is None:
        alone = "its vectors alone: the degree of its graph is unknown"
        return Value(facts.vectors * vector, alone)
    return Value(file_bytes(facts.vectors, node_bytes(vector, facts.max_degree)))
