"""The gnn workload: training on a graph whose features each batch reads from drives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from wattload.core.errors import ConfigError, NoGpuError
from wattload.core.host.cgroups import usable_cpus
from wattload.core.host.gpus import Gpu, gpu_of_process
from wattload.core.record.results import Check
from wattload.core.record.run import DataRecord
from wattload.core.units import format_bytes
from wattload.core.workload import (
    PYTORCH,
    Accelerator,
    Device,
    Outcome,
    OverHosts,
    RunContext,
    WorkloadPlan,
    require_installed,
)
from wattload.loaders.device_copy import DRIVER, require_cuda
from wattload.loaders.feature_rows import FeatureLoaderConfig
from wattload.loaders.graph.files import ROW_BYTES, GraphFiles
from wattload.loaders.graph.sampler import SamplingLoaderConfig
from wattload.workloads.gnn.config import CPU, EMULATED, GPU, Config
from wattload.workloads.gnn.dataset import WORKLOAD, dataset_of
from wattload.workloads.gnn.job import OWN_BYTES, Job


class Gnn:
    """Batches of a graph: sampled, their rows gathered by the loader, and trained on.

    Topology and batches are in memory before time starts. Features are read cold, with as much host
    memory as ``memory_share`` allows.
    """

    name: ClassVar[str] = WORKLOAD
    needs: ClassVar[tuple[type, ...]] = (FeatureLoaderConfig,)
    over_hosts: ClassVar[OverHosts] = "one"
    """A single process trains, on one accelerator."""

    def __init__(
        self, config: Config, loader: FeatureLoaderConfig, accelerator: Accelerator
    ) -> None:
        self.config = config
        self._loader = loader
        self._accelerator = accelerator
        self._job: Job | None = None

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will read and write; creates nothing.

        Without a GPU that the loader needs the plan has a ``refusal``.

        Raises:
            ConfigError: the settings do not fit each other, the graph or this host.
            DataError: a finished file has another size than planned, or a real graph another form.
            MissingExtraError: PyTorch or the library behind the loader is not installed.
            TargetError: the graph does not fit the targets, or the loader can't read there.
        """
        config = self.config
        if context.communicator.world_size > 1:
            raise ConfigError(
                f"{context.communicator.world_size} processes, and gnn trains on one accelerator "
                "so far; start it without mpirun"
            )
        dataset = dataset_of(config, context.seed, context.targets)
        trainer, gpu = self._trainer()
        job = self._job = Job(
            config=config,
            loader=self._loader,
            dataset=dataset,
            seed=context.seed,
            fanouts=config.fanouts_of(dataset.shape),
            gpu=gpu,
            trainer=trainer,
            step_s=self._step_s() if trainer == EMULATED else None,
        )
        job.seeds.steps_per_epoch(config.batch_seeds)
        rows, refusal = job.expected_rows, ""
        try:
            self._loader.check_feature_rows(job.plan(rows), context.targets)
        except NoGpuError as error:
            refusal = str(error)
        job.require_share(rows)
        made = dataset if isinstance(dataset, GraphFiles) else None
        return WorkloadPlan(
            data_bytes=made.data_bytes if made else 0,
            prepare_bytes=made.missing_bytes() if made else 0,
            run_bytes=0,
            peak_bytes=made.data_bytes if made else 0,
            present_bytes=made.present_bytes() if made else 0,
            read_bytes=int(sum(job.expected_counts[-1])) * ROW_BYTES * config.steps,
            computing_s=(job.step_s or 0.0) * config.steps,
            memory_bytes_per_rank=(job.needed_bytes(rows) + job.activation_bytes() + OWN_BYTES),
            needs_direct_io=made is not None,
            lines=tuple(self._lines(job)),
            maximum_ranks=1,
            refusal=refusal,
        )

    def prepare(self, context: RunContext) -> DataRecord | None:
        """Write what is missing of a synthetic graph; a real one is never changed."""
        dataset = self._planned().dataset
        if not isinstance(dataset, GraphFiles):
            return None
        return dataset.prepare(context, usable_cpus())

    def run(self, context: RunContext) -> Outcome:
        """Train for the configured steps.

        Raises:
            ConfigError: memory, the GPU or the kernel refuses.
            DataError: a file is short, or a row or a number of the graph is wrong.
            OSError: a read failed; its batch is not trained on.
        """
        from wattload.workloads.gnn.run import trained

        return trained(self._planned(), context)

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Return nothing: rows were compared where the model takes them."""
        return ()

    def _trainer(self) -> tuple[str, Gpu | None]:
        """Return who trains, and the GPU of trainer or loader.

        Raises:
            ConfigError: ``accelerator.device=cuda`` without a usable device.
            MissingExtraError: PyTorch is not installed.
        """
        config, device = self.config, self._accelerator.device
        emulated = config.training == EMULATED
        if not emulated:
            require_installed(
                [PYTORCH], user="workload=gnn", alternative="workload.training=emulated"
            )
        wants_gpu = self._loader.fills_gpu or (not emulated and device is not Device.none)
        if device is Device.cuda and not emulated:
            require_cuda()
        gpu = None
        if wants_gpu and DRIVER.exists():
            require_cuda()
            gpu = gpu_of_process(0, 1, config.named_gpus)
        elif config.named_gpus:
            why = f"{DRIVER} is missing" if wants_gpu else "the settings let no GPU take part"
            raise ConfigError(
                f"workload.gpus names GPU {config.named_gpus[0]}, but {why}; leave workload.gpus "
                "unset to train on the CPU"
            )
        trainer = EMULATED if emulated else GPU if gpu is not None else CPU
        if config.sampler == GPU and (
            trainer != GPU or isinstance(self._loader, SamplingLoaderConfig)
        ):
            why = (
                f"loader={self._loader.name} samples by itself"
                if trainer == GPU
                else "no GPU trains here"
            )
            raise ConfigError(
                f"workload.sampler=gpu is not possible: {why}; leave workload.sampler unset"
            )
        return trainer, gpu

    def _step_s(self) -> float:
        step_s = self._accelerator.step_s.get(WORKLOAD)
        if step_s is None:
            raise ConfigError(
                f"workload.training=emulated needs accelerator.step_s.gnn, which accelerator "
                f"{self._accelerator.name} lacks: use accelerator=h100 or a100, or set "
                "accelerator.step_s.gnn in seconds"
            )
        return step_s

    def _lines(self, job: Job) -> Iterator[tuple[str, str]]:
        config, shape = self.config, job.dataset.shape
        yield (
            "graph",
            f"{shape.name}: {shape.row_count:,} nodes, {shape.edge_count:,} edges, features of "
            f"{format_bytes(job.feature_bytes)}",
        )
        yield (
            "batches",
            f"{config.batch_seeds} seeds, fan-outs {','.join(map(str, config.fanouts))}: at most "
            f"about {job.expected_rows:,} rows of {ROW_BYTES} bytes, {config.warmup_steps} + "
            f"{config.steps} steps",
        )
        trains = {
            EMULATED: f"emulated, {job.step_s} s a step",
            CPU: "the CPU",
            GPU: f"GPU {job.gpu.address if job.gpu else ''}",
        }
        yield "trainer", trains[job.trainer]
        yield (
            "budget",
            f"{format_bytes(job.budget_bytes())} of the host for topology, batches, the loader's "
            f"rows and the page cache ({config.memory_share:g} of the features)",
        )

    def _planned(self) -> Job:
        if self._job is None:
            raise RuntimeError("plan() has to be called before prepare() and run()")
        return self._job
