"""Training on images: load whole records in batches and emulate training, epoch by epoch."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar

from wattload.core.io import IOKind, Loader, TimesOperations, TracedOperations, TracesOperations
from wattload.core.record.results import Check, Latency, latencies_of
from wattload.core.record.run import DataRecord
from wattload.core.units import format_bytes
from wattload.core.workload import (
    Accelerator,
    Outcome,
    OverHosts,
    Phase,
    RunContext,
    WorkloadPlan,
)
from wattload.loaders.device_copy import DeviceCopier
from wattload.loaders.samples import SampleHarnessConfig, SampleLoaderConfig, SampleSet
from wattload.results.training.facts import COPY, DECODE, OPEN, PHASE
from wattload.workloads.training.checks import ColdCache, Delivery
from wattload.workloads.training.config import Config
from wattload.workloads.training.dataset import Dataset, PreparedData
from wattload.workloads.training.facts import ceiling_remark, remarks, training_facts
from wattload.workloads.training.generation import generation_memory_bytes, prepare
from wattload.workloads.training.harness import FilesRead, check_harness, run_harness
from wattload.workloads.training.job import Job, drawn_samples, plan_job
from wattload.workloads.training.loop import (
    DeviceChoice,
    EpochTimes,
    ceiling_samples,
    choose_device,
    device_copier,
    device_memory_bytes,
    harness_ceiling,
    run_epoch,
)
from wattload.workloads.training.source import PreparedSource, SourceDataset


class ImageTraining:
    """A training job of MLPerf Storage as DLIO runs it, on emulated accelerators.

    The epochs are spans of one timed phase, ``read``. Between them, untimed, the files are evicted
    from the page cache, which is verified. Within the timed phase, loaders verify the bytes that
    they decode, and the rows of 1 in 16 samples, drawn by the run, are hashed in the loop. The CPU
    time of both is a metric. The harness ceiling is measured after the last epoch in a separate,
    untimed phase.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[type, ...]] = (SampleLoaderConfig, SampleHarnessConfig)
    over_hosts: ClassVar[OverHosts] = "divide"
    """Each host has the whole data set on its drives, or all see one in a shared folder. The
    samples of an epoch are divided over all ranks, as in data-parallel training."""

    def __init__(
        self,
        config: Config,
        loader: SampleLoaderConfig | SampleHarnessConfig,
        accelerator: Accelerator,
    ) -> None:
        self.config = config
        self._loader = loader
        self._accelerator = accelerator
        self._job: Job | None = None
        self._data: PreparedData | None = None
        self._delivery: Delivery | None = None
        self._files: FilesRead | None = None
        self._device = DeviceChoice(copies=False)

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will do to the target; creates nothing there.

        Raises:
            ConfigError: a setting of the workload or the loader is out of range or does not fit.
            MissingExtraError: the loader's library is not installed.
            TargetError: the loader does not support a target.
        """
        self._loader.check()
        job = self._job = plan_job(self.config, self._accelerator, context)
        if isinstance(self._loader, SampleHarnessConfig):
            check_harness(self._loader, self._accelerator.device, context.communicator.world_size)
        self._device = choose_device(self._accelerator.device)
        samples = self._samples(job, job.dataset.expected_paths())
        for each in (samples, ceiling_samples(samples)):
            self._loader.check_samples(each, context.targets)
        missing = job.dataset.missing(job.dataset.existing())
        data_bytes = sum(job.dataset.file_bytes)
        share = context.sharers.world_size / context.communicator.world_size
        orders = (job.epoch(context.seed, number) for number in range(self.config.epochs))
        return WorkloadPlan(
            data_bytes=data_bytes,
            prepare_bytes=job.epoch_bytes(missing),
            prepare_files=len(missing),
            run_bytes=0,
            peak_bytes=data_bytes,
            memory_bytes_per_rank=max(
                device_memory_bytes(self._device, samples)
                + max(
                    self._loader.sample_memory_bytes(samples),
                    self._loader.sample_memory_bytes(ceiling_samples(samples)),
                ),
                generation_memory_bytes(context.local.world_size) if missing else 0,
            ),
            needs_direct_io=self._loader.sample_path_is_direct,
            read_bytes=round(share * sum(map(job.epoch_bytes, orders))),
            computing_s=self.config.epochs * job.steps * job.step_s,
            lines=tuple(_lines(job.dataset)),
            # An external program starts its own processes, one per accelerator.
            maximum_ranks=1
            if isinstance(self._loader, SampleHarnessConfig)
            else job.dataset.file_count // self.config.batch_samples,
        )

    def prepare(self, context: RunContext) -> DataRecord:
        """Generate or reuse the data, or look at a source; see ``generation`` and ``source``."""
        dataset = self._planned().dataset
        if isinstance(dataset, SourceDataset):
            self._data, reused = PreparedSource(dataset, context), True
        else:
            self._data, reused = prepare(dataset, context)
        return self._data.facts(reused=reused)

    def run(self, context: RunContext) -> Outcome:
        """Read the data epoch by epoch, then measure the ceiling.

        Raises:
            DataError: a file is truncated or corrupt.
            MissingExtraError: the loader's library is not installed.
        """
        job, data, world = self._planned(), self._prepared(), context.communicator
        if isinstance(self._loader, SampleHarnessConfig):
            samples = self._samples(job, data.paths)
            outcome, self._files = run_harness(self._loader, job, data, samples, context)
            return outcome
        draw = world.broadcast(secrets.randbits(64))
        drawn = drawn_samples(job.epoch(context.seed, 0), draw)
        samples = self._samples(job, data.paths, drawn)
        cold = ColdCache(data, context)
        counter = _Counter()
        loader = self._loader.sample_loader(samples, counter)
        with device_copier(self._device, samples, context.local) as copier:
            with closing(loader):
                epochs = self._read(context, loader, counter, cold, drawn=drawn, copier=copier)
            context.end_job()
            with context.phase("harness_ceiling", timed=False):
                ceiling = harness_ceiling(self._loader, samples, world, copier)
        latencies, operations = _latencies(loader), _operations(loader)
        epochs_by_rank, cold_checks = world.gather(epochs), cold.checks()
        if world.rank:
            return Outcome(latencies=latencies, operations=operations)
        cold_cache, written = cold_checks
        facts = training_facts(
            job,
            data,
            epochs_by_rank,
            samples,
            self._loader,
            missing={
                COPY: self._device.reason,
                DECODE: self._loader.sample_decode_timed,
                OPEN: f"loader={self._loader.name} does not time opening apart from reading",
            },
            ceiling_bytes_per_s=ceiling,
            device=copier.device if copier is not None else None,
            draw=f"{draw:016x}",
        )
        return Outcome(
            facts=facts,
            paths=(loader.path(),),
            checks=(cold_cache, written),
            remarks=(
                *remarks(job, samples, self._loader, cold=cold_cache),
                *ceiling_remark(facts),
            ),
            latencies=latencies,
            operations=operations,
        )

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Compare the delivered data with the written data.

        A program that owns the loop delivers none: then its files are compared.
        """
        if self._files is not None:
            return (self._files.check(context.progress),)
        if self._delivery is None:
            return ()
        return self._delivery.checks(context.communicator)

    def _read(
        self,
        context: RunContext,
        loader: Loader,
        counter: _Counter,
        cold: ColdCache,
        *,
        drawn: frozenset[int],
        copier: DeviceCopier | None,
    ) -> list[EpochTimes]:
        """Run the epochs, each a span of the timed phase that starts with a cold cache."""
        job, world = self._planned(), context.communicator
        self._delivery = Delivery(
            self._prepared(), drawn, how=self._loader.sample_verified, device=copier is not None
        )
        numbers = range(job.config.epochs)
        total_bytes = sum(
            job.epoch_bytes(job.order(world.rank, context.seed, number)) for number in numbers
        )
        context.progress.begin("reading", read_bytes=total_bytes)
        epochs = []
        for number in numbers:
            order = job.order(world.rank, context.seed, number)
            cold.before_epoch()
            with context.phase(PHASE) as counter.phase:
                times, delivered = run_epoch(
                    loader,
                    order,
                    steps=job.steps,
                    per_rank=job.division.per_rank,
                    step_s=job.step_s,
                    barrier=world.barrier,
                    drawn=drawn,
                    copier=copier,
                )
            epochs.append(times)
            self._delivery.add(order, delivered)
        context.progress.end()
        return epochs

    def _samples(
        self, job: Job, paths: Sequence[Path], drawn: frozenset[int] = frozenset()
    ) -> SampleSet:
        return SampleSet(
            paths=tuple(paths),
            file_bytes=job.dataset.file_bytes,
            record_format=self.config.record_format,
            batch_samples=self.config.batch_samples,
            resize_bytes=self.config.row_bytes,
            drawn=drawn,
            nonce=job.dataset.nonce if job.dataset.sealed else None,
            check_crc=self.config.check_crc,
            accelerators=job.division.per_rank,
        )

    def _planned(self) -> Job:
        if self._job is None:
            raise RuntimeError("plan() has to be called before prepare() and run()")
        return self._job

    def _prepared(self) -> PreparedData:
        if self._data is None:
            raise RuntimeError("prepare() has to be called before run()")
        return self._data


class Unet3d(ImageTraining):
    """MLPerf Storage's unet3d: records of 147 MB."""

    name = "unet3d"


class Retinanet(ImageTraining):
    """MLPerf Storage's retinanet: 1,170,301 records of 323 kB."""

    name = "retinanet"


def _lines(dataset: Dataset) -> Iterator[tuple[str, str]]:
    """Yield the lines of a preview on the files."""
    mean = format_bytes(sum(dataset.file_bytes) / dataset.file_count)
    yield "files", f"{dataset.file_count:,} of {mean} on average, and as many inodes"
    if isinstance(dataset, SourceDataset):
        yield "source", dataset.origin


def _operations(loader: Loader) -> Sequence[TracedOperations]:
    """Return the sampled reads of this rank in all epochs, if the loader keeps them."""
    return loader.traced(IOKind.READ, PHASE) if isinstance(loader, TracesOperations) else ()


def _latencies(loader: Loader) -> tuple[Latency, ...]:
    """Return the latencies of this rank's reads in all epochs, if the loader measures them."""
    if not isinstance(loader, TimesOperations):
        return ()
    return latencies_of(
        loader.latency(IOKind.READ),
        phase=PHASE,
        kind="read",
        operation_bytes=loader.operation_bytes,
    )


class _Counter:
    """Counts bytes from any thread into the current phase."""

    phase: Phase

    def __call__(self, read_bytes: int) -> None:
        self.phase.moved(read_bytes=read_bytes)
