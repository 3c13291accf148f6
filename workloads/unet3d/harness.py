"""unet3d run by an outside program that owns the loop: our files, order and caches, its times."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard

from wattload.core.accelerator import Device
from wattload.core.errors import ConfigError, RunError
from wattload.core.record.check import Check
from wattload.core.record.metric import Metric
from wattload.core.units import Unit
from wattload.core.workload import Outcome, Phase, RunContext
from wattload.loaders.coldcache import RESIDENT_LIMIT, residency
from wattload.loaders.sampleharness import (
    SampleHarnessConfig,
    TrainedEpoch,
    Training,
    TrainingResult,
)
from wattload.loaders.samples import SampleSet
from wattload.workloads.unet3d.accounting import Account, EpochTimes
from wattload.workloads.unet3d.ceiling import ceiling_samples
from wattload.workloads.unet3d.cold import ColdCache
from wattload.workloads.unet3d.counts import Division, epoch_order
from wattload.workloads.unet3d.dataset import PreparedData
from wattload.workloads.unet3d.describe import ceiling_remark, details, remarks
from wattload.workloads.unet3d.figures import PHASE, figure
from wattload.workloads.unet3d.harnesschecks import harness_checks
from wattload.workloads.unet3d.harnessmetrics import harness_metrics
from wattload.workloads.unet3d.job import Job

OUTPUT, CEILING_OUTPUT = "dlio", "dlio-ceiling"
CEILING_STEPS, CEILING_STEPS_LEAST = 8, 4
"""Steps of an epoch of the ceiling, over all accelerators, and the least for each of them."""

_UNTOLD = {
    "copy_s": "dlio-benchmark copies nothing to a device",
    "barrier_s": "dlio-benchmark does not tell it",
    "rest_s": "dlio-benchmark does not tell it",
    "step_s": "dlio-benchmark tells no whole step",
}


def is_harness(loader: object) -> TypeGuard[SampleHarnessConfig]:
    """Return whether a loader's configuration stands for an outside program that owns the loop."""
    return hasattr(loader, "training_harness")


def check_harness(device: Device, world_size: int) -> None:
    """Raise ``ConfigError`` for what an outside program does not do: ranks of ours, GPU copies."""
    if world_size > 1:
        raise ConfigError(
            f"loader=dlio starts one process per accelerator by itself, and {world_size} ranks of "
            "wattload were started; start it without mpirun and with "
            f"accelerator.count={world_size}"
        )
    if device is Device.cuda:
        raise ConfigError(
            "accelerator.device is cuda, and loader=dlio copies nothing to a GPU; use "
            "accelerator.device=none, or loader=direct or torch"
        )


class Epochs:
    """A ``HarnessWatch``: each stretch is an epoch, a span of the timed phase, cold before it."""

    def __init__(self, context: RunContext, cold: ColdCache, *, always_cold: bool) -> None:
        self._context = context
        self._cold = cold
        self._always_cold = always_cold
        self._open = ExitStack()
        self._phase: Phase | None = None

    def before(self, stretch: int) -> None:
        """Empty the page cache, prove it, and open the phase."""
        if stretch == 0 or self._always_cold:
            self._cold.before_epoch()
        self._phase = self._open.enter_context(self._context.phase(PHASE))

    def moved(self, *, read_bytes: int = 0, written_bytes: int = 0) -> None:
        """Count a batch into the phase."""
        if self._phase is not None:
            self._phase.moved(read_bytes=read_bytes, written_bytes=written_bytes)
            self._context.progress.advance(read_bytes + written_bytes)

    def after(self, stretch: int) -> None:
        """Close the phase."""
        self._phase = None
        self._open.close()

    def abandon(self) -> None:
        """Close a phase that a failure has left open."""
        self._open.close()


class Unwatched:
    """A ``HarnessWatch`` for what is no part of the timed run."""

    def before(self, stretch: int) -> None:
        """Do nothing."""

    def moved(self, *, read_bytes: int = 0, written_bytes: int = 0) -> None:
        """Count nothing."""

    def after(self, stretch: int) -> None:
        """Do nothing."""


def run_harness(
    loader: SampleHarnessConfig,
    job: Job,
    data: PreparedData,
    samples: SampleSet,
    context: RunContext,
) -> Outcome:
    """Run the program over the prepared data and return what it makes of it; one rank only.

    Raises:
        RunError: the program failed, or its output can't be read.
    """
    training = _training(job, samples, context.seed)
    cold = ColdCache(data.paths, context.communicator)
    result = _run(loader, training, cold, context)
    left = None if loader.is_cold_in_every_epoch else residency(data.paths).fraction
    cold_cache = cold_check(cold.check(), training.epochs, loader, left)
    with context.phase("harness_ceiling", timed=False):
        ceiling, reason = _ceiling(loader, training, context.output_folder(CEILING_OUTPUT))
    account = _account(job, samples, result, loader)
    said = remarks(job, samples, loader, cold=cold_cache, hollow_count=data.hollow_count)
    return Outcome(
        metrics=(*harness_metrics(account, result, training), ceiling_metric(ceiling, reason)),
        paths=(result.io.path,),
        checks=(cold_cache, *harness_checks(result, training)),
        details={
            **details(job, account, samples, loader, device=None),
            "harness": _harness_details(result),
        },
        remarks=(
            *said,
            *loader.differences(training),
            *([ceiling_remark(account, ceiling)] if ceiling is not None else []),
        ),
    )


def cold_check(first: Check, epochs: int, loader: SampleHarnessConfig, left: float | None) -> Check:
    """Return the check of the page cache over all epochs.

    Where it was emptied before the first alone, ``left`` is the share of the files that was in it
    after the last: what an epoch leaves there, the next need not read.
    """
    if first.verdict != "pass" or epochs == 1 or loader.is_cold_in_every_epoch:
        return first
    if left is not None and left <= RESIDENT_LIMIT:
        return first
    share = "an unknown share" if left is None else f"{left:.1%}"
    return first.model_copy(
        update={
            "verdict": "not_checked",
            "sentence": (
                "The page cache was cold before the first epoch. It was not emptied between "
                f"epochs (loader.cold_epochs=false), and {share} of the files was in it after "
                "the last, so later epochs were read from memory in part."
            ),
            "figures": {**first.figures, "resident_after_fraction": left},
        }
    )


def ceiling_metric(bytes_per_s: float | None, reason: str) -> Metric:
    """Return what the same program does from memory with no computation."""
    return figure(
        "harness_ceiling_bytes_per_s",
        bytes_per_s,
        Unit.BYTES_PER_SECOND,
        "higher",
        "The same program and reader on files held in memory, step time 0, its second epoch.",
        phase="",
        reason=reason,
    )


def _training(job: Job, samples: SampleSet, seed: int) -> Training:
    """Return the job for the program: each accelerator the shard that a rank of ours would get."""
    division = Division(world_size=job.division.accelerators, per_rank=1)
    distribution = job.config.distribution()
    return Training(
        samples=samples,
        orders=[
            [
                epoch_order(
                    job.dataset.file_count,
                    job.config.batch_samples,
                    division,
                    rank=accelerator,
                    seed=seed,
                    epoch=epoch,
                    most_steps=job.config.steps_per_epoch,
                )
                for accelerator in range(job.division.accelerators)
            ]
            for epoch in range(job.config.epochs)
        ],
        step_s=job.step_s,
        record_mean_bytes=distribution.mean_bytes,
        record_stdev_bytes=distribution.stdev_bytes,
    )


def _run(
    loader: SampleHarnessConfig, training: Training, cold: ColdCache, context: RunContext
) -> TrainingResult:
    epochs = Epochs(context, cold, always_cold=loader.is_cold_in_every_epoch)
    each = range(training.accelerators)
    total_bytes = sum(
        training.epoch_bytes_read(epoch, accelerator)
        for epoch in range(training.epochs)
        for accelerator in each
    )
    context.progress.begin("reading", total_bytes)
    try:
        return loader.training_harness(training).run(context.output_folder(OUTPUT), epochs)
    finally:
        epochs.abandon()
        context.progress.end()


def _ceiling(
    loader: SampleHarnessConfig, training: Training, folder: Path
) -> tuple[float | None, str]:
    """Return what the program reads from memory in bytes per second, or ``None`` and why.

    It is that of the second of two epochs: in the first the program may start its workers.
    """
    one = ceiling_samples(training.samples)
    steps = max(CEILING_STEPS // training.accelerators, CEILING_STEPS_LEAST)
    order = [0] * (one.batch_samples * steps)
    job = replace(training, samples=one, orders=[[order] * training.accelerators] * 2, step_s=0.0)
    try:
        result = loader.training_harness(job).run(folder, Unwatched())
    except RunError as error:
        return None, f"the program could not be run from memory: {error}"
    last = result.epochs[-1]
    seconds = max(trained.duration_s for trained in last)
    return sum(trained.read_bytes for trained in last) / seconds, ""


def _account(
    job: Job, samples: SampleSet, result: TrainingResult, loader: SampleHarnessConfig
) -> Account:
    return Account(
        ranks=[[_times(epoch) for epoch in rank] for rank in zip(*result.epochs, strict=True)],
        per_rank=1,
        batch_samples=samples.batch_samples,
        step_s=job.step_s,
        missing={**_UNTOLD, "decode_s": loader.sample_decode_timed},
    )


def _times(epoch: TrainedEpoch) -> EpochTimes:
    return EpochTimes(
        duration_s=epoch.duration_s,
        load_s=epoch.load_s,
        compute_s=epoch.compute_s,
        processed_s=epoch.processed_s,
        payload_bytes=0,
        read_bytes=epoch.read_bytes,
        cpu_s=epoch.cpu_s,
        hash_cpu_s=0.0,
    )


def _harness_details(result: TrainingResult) -> dict[str, object]:
    """Return what identifies the program and what it says of itself, plain values only."""
    return {
        "version": result.version,
        "command": list(result.command),
        "output": OUTPUT,
        "summary": dict(result.reported),
        "called_bytes": _per_epoch(result, "called_bytes"),
        "storage_bytes": _per_epoch(result, "storage_bytes"),
        "plugged_bytes": result.plugged_bytes,
    }


def _per_epoch(result: TrainingResult, name: str) -> list[int | None]:
    sums: list[int | None] = []
    for epoch in result.epochs:
        parts: Sequence[int | None] = [getattr(trained, name) for trained in epoch]
        known = [part for part in parts if part is not None]
        sums.append(sum(known) if len(known) == len(parts) else None)
    return sums
