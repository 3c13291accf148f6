"""The unet3d workload: load whole records in batches, emulate the training step, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar, cast

from wattload.core.accelerator import Accelerator
from wattload.core.errors import ConfigError
from wattload.core.io import (
    IOKind,
    Loader,
    TimesOperations,
    TracedOperations,
    TracesOperations,
)
from wattload.core.record.check import Check
from wattload.core.record.latency import Latency, latencies_of
from wattload.core.workload import DataFacts, Outcome, Phase, Progress, RunContext, WorkloadPlan
from wattload.loaders.devicecopy import DeviceCopier
from wattload.loaders.samples import SampleLoaderConfig, SampleSet
from wattload.workloads.unet3d.accounting import Account, EpochTimes
from wattload.workloads.unet3d.ceiling import ceiling_samples, harness_ceiling
from wattload.workloads.unet3d.cold import ColdCache
from wattload.workloads.unet3d.config import Config
from wattload.workloads.unet3d.counts import hashed_samples
from wattload.workloads.unet3d.dataset import WORKLOAD, PreparedData
from wattload.workloads.unet3d.delivery import Delivery
from wattload.workloads.unet3d.describe import ceiling_remark, details, remarks
from wattload.workloads.unet3d.device import (
    DeviceChoice,
    choose_device,
    copying,
    device_memory_bytes,
)
from wattload.workloads.unet3d.figures import PHASE
from wattload.workloads.unet3d.generate import generation_memory_bytes, prepare
from wattload.workloads.unet3d.harness import check_harness, is_harness, run_harness
from wattload.workloads.unet3d.job import Job, plan_job
from wattload.workloads.unet3d.loop import run_epoch
from wattload.workloads.unet3d.metrics import ceiling_metric, metrics
from wattload.workloads.unet3d.stepmetrics import closure_check


class Unet3d:
    """MLPerf Storage's unet3d as DLIO runs it, on emulated accelerators.

    The epochs are spans of one timed phase, ``read``. Between them, untimed, the files are put out
    of the page cache and that is proved. Hashing of 1 in 16 samples happens within the timed phase,
    of payloads in the loader's workers and of rows in the loop, with every loader alike, and its
    CPU time is a metric. The harness ceiling is measured after the last epoch, in an untimed phase
    of its own.
    """

    name: ClassVar[str] = WORKLOAD

    def __init__(self, config: Config, loader: object, accelerator: Accelerator) -> None:
        if not hasattr(loader, "sample_loader") and not is_harness(loader):
            kind = type(loader).__module__.rpartition(".")[2]
            raise ConfigError(
                f"loader={kind} loads no whole samples; workload={WORKLOAD} runs with "
                "loader=direct, torch, dali or dlio"
            )
        self.config = config
        self._loader = cast(SampleLoaderConfig, loader)
        self._accelerator = accelerator
        self._job: Job | None = None
        self._data: PreparedData | None = None
        self._delivery: Delivery | None = None
        self._device = DeviceChoice(copies=False)

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will do to the target; makes nothing there.

        Raises:
            ConfigError: a setting, the loader's included, is out of range or does not fit.
            MissingExtraError: the loader's library is not installed.
            TargetError: the loader can't read from a target.
        """
        self._loader.check()
        job = self._job = plan_job(self.config, self._accelerator, context)
        if is_harness(self._loader):
            check_harness(self._accelerator.device, context.communicator.world_size)
        self._device = choose_device(self._accelerator.device)
        samples = self._samples(job, job.dataset.expected_paths())
        for each in (samples, ceiling_samples(samples)):
            self._loader.check_samples(each, context.targets)
        missing = job.dataset.missing(job.dataset.existing())
        data_bytes = sum(job.dataset.file_bytes)
        return WorkloadPlan(
            data_bytes=data_bytes,
            prepare_bytes=job.epoch_bytes(missing),
            run_bytes=0,
            peak_bytes=data_bytes,
            memory_bytes_per_rank=max(
                device_memory_bytes(self._device, samples)
                + max(
                    self._loader.sample_memory_bytes(samples),
                    self._loader.sample_memory_bytes(ceiling_samples(samples)),
                ),
                generation_memory_bytes(context.communicator.world_size) if missing else 0,
            ),
            needs_direct_io=self._loader.sample_path_is_direct,
            # An outside program starts processes of its own, one per accelerator.
            maximum_ranks=1
            if is_harness(self._loader)
            else job.dataset.file_count // self.config.batch_samples,
        )

    def prepare(self, context: RunContext) -> DataFacts:
        """Generate or reuse the data; see ``generate.prepare``."""
        job = self._planned()
        self._data, reused = prepare(job.dataset, context)
        return self._data.facts(reused=reused)

    def run(self, context: RunContext) -> Outcome:
        """Read the data epoch by epoch, then measure the ceiling.

        Raises:
            DataError: a file is truncated or corrupt.
            MissingExtraError: the loader's library is not installed.
        """
        job, data, world = self._planned(), self._prepared(), context.communicator
        if is_harness(self._loader):
            samples = self._samples(job, data.paths)
            return run_harness(self._loader, job, data, samples, context)
        hashed = hashed_samples(job.first_epoch(world.world_size, context.seed), context.seed)
        samples = self._samples(job, data.paths, hashed)
        cold = ColdCache(data.paths, world)
        counter = _Counter(context.progress)
        loader = self._loader.sample_loader(samples, counter)
        with copying(self._device, samples, world) as copier:
            with closing(loader):
                epochs = self._read(context, (loader, copier), counter, cold, hashed)
            with context.phase("harness_ceiling", timed=False):
                ceiling = harness_ceiling(self._loader, samples, world, copier)
        account = self._account(world.gather(epochs))
        cold_cache = cold.check()
        record_bytes = self.config.distribution().mean_bytes
        device = copier.device if copier is not None else None
        return Outcome(
            metrics=(*metrics(account, record_bytes), ceiling_metric(ceiling)),
            paths=(loader.path(),),
            checks=(cold_cache, closure_check(account)),
            details=details(job, account, samples, self._loader, device=device),
            remarks=(
                *remarks(
                    job, samples, self._loader, cold=cold_cache, hollow_count=data.hollow_count
                ),
                ceiling_remark(account, ceiling),
            ),
            latencies=_latencies(loader),
            operations=_operations(loader),
        )

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Compare what was delivered with what was written."""
        if self._delivery is None:
            return ()
        return (self._delivery.check(context.communicator),)

    def _read(
        self,
        context: RunContext,
        means: tuple[Loader, DeviceCopier | None],
        counter: _Counter,
        cold: ColdCache,
        hashed: frozenset[int],
    ) -> list[EpochTimes]:
        """Run the epochs, each a span of the timed phase, with a cold cache before each."""
        job, world = self._planned(), context.communicator
        loader, copier = means
        self._delivery = Delivery(self._prepared(), hashed, device=copier is not None)
        orders = [job.order(world.rank, context.seed, epoch) for epoch in range(job.config.epochs)]
        context.progress.begin("reading", sum(map(job.epoch_bytes, orders)))
        epochs = []
        for order in orders:
            cold.before_epoch()
            with context.phase(PHASE) as counter.phase:
                times, delivered = run_epoch(
                    loader,
                    order,
                    steps=job.steps,
                    per_rank=job.division.per_rank,
                    step_s=job.step_s,
                    barrier=world.barrier,
                    hashed=hashed,
                    copier=copier,
                )
            epochs.append(times)
            self._delivery.add(order, delivered)
        context.progress.end()
        return epochs

    def _account(self, ranks: Sequence[Sequence[EpochTimes]]) -> Account:
        job = self._planned()
        return Account(
            ranks=ranks,
            per_rank=job.division.per_rank,
            batch_samples=self.config.batch_samples,
            step_s=job.step_s,
            missing={
                "copy_s": self._device.reason,
                "decode_s": self._loader.sample_decode_timed,
            },
        )

    def _samples(
        self, job: Job, paths: Sequence[Path], hashed: frozenset[int] = frozenset()
    ) -> SampleSet:
        return SampleSet(
            paths=tuple(paths),
            file_bytes=job.dataset.file_bytes,
            record_format=self.config.record_format,
            batch_samples=self.config.batch_samples,
            resize_bytes=self.config.row_bytes,
            hashed=hashed,
            check_crc=self.config.check_crc,
            accelerators=job.division.per_rank,
        )

    def _planned(self) -> Job:
        if self._job is None:
            raise RuntimeError("plan() comes before prepare() and run()")
        return self._job

    def _prepared(self) -> PreparedData:
        if self._data is None:
            raise RuntimeError("prepare() comes before run()")
        return self._data


def _operations(loader: Loader) -> Sequence[TracedOperations]:
    """Return the sample of this rank's reads in all epochs, where the loader keeps one."""
    return loader.traced(IOKind.READ, PHASE) if isinstance(loader, TracesOperations) else ()


def _latencies(loader: Loader) -> tuple[Latency, ...]:
    """Return how long this rank's reads took in all epochs, where the loader times them."""
    if not isinstance(loader, TimesOperations):
        return ()
    return latencies_of(
        loader.latency(IOKind.READ),
        phase=PHASE,
        kind="read",
        operation_bytes=loader.operation_bytes,
    )


class _Counter:
    """Counts bytes into the phase that is open, from whichever thread they come."""

    phase: Phase

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __call__(self, read_bytes: int) -> None:
        self.phase.moved(read_bytes=read_bytes)
        self._progress.advance(read_bytes)
