"""What a run trains, on what, and the memory that this takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.host.cgroups import usable_cpus
from wattload.core.host.gpus import Gpu
from wattload.core.units import format_bytes
from wattload.loaders.feature_rows import FeatureLoaderConfig, FeatureMemory, FeaturePlan, Memory
from wattload.loaders.graph.files import ROW_BYTES, GraphFiles
from wattload.loaders.graph.sampler import TrainingSeeds
from wattload.workloads.gnn.config import AHEAD, CPU, Config
from wattload.workloads.gnn.dataset import expected_counts
from wattload.workloads.gnn.model_size import ModelSize

if TYPE_CHECKING:
    from wattload.loaders.graph.igb_folder import IgbFolder
    from wattload.workloads.gnn.model import Trainer

OWN_BYTES = 128 << 20
"""What the process may need beside topology, batches and the loader's memory."""
_SPARE = 1.05
"""Batches may be so much larger than those expected, or sampled beforehand."""


def _not_yet(count: int) -> NDArray[np.uint64]:
    raise RuntimeError(f"the {count} most drawn rows were asked for before there is a graph")


@dataclass(frozen=True, kw_only=True)
class Job:
    """The graph, who trains on it, and the memory of its loader.

    ``trainer`` is ``gpu``, ``cpu`` or ``emulated``, the latter with ``step_s`` seconds for a step.
    """

    config: Config
    loader: FeatureLoaderConfig
    dataset: GraphFiles | IgbFolder
    seed: int
    fanouts: list[list[int]]
    gpu: Gpu | None
    trainer: str
    step_s: float | None

    @cached_property
    def seeds(self) -> TrainingSeeds:
        """The seeds of all batches, among the nodes that have a class."""
        return TrainingSeeds(self.dataset.labelled_nodes, self.config.train_share, self.seed)

    @property
    def feature_bytes(self) -> int:
        return self.dataset.shape.row_count * ROW_BYTES

    @property
    def is_ahead(self) -> bool:
        return self.config.overlap == AHEAD

    @property
    def step_count(self) -> int:
        """All steps: those before the timed ones, and those that are traced after them."""
        config = self.config
        return config.warmup_steps + config.steps + config.profile_steps

    @property
    def sampler_threads(self) -> int:
        return self.config.sampler_threads or usable_cpus()

    @property
    def expected_counts(self) -> list[list[float]]:
        """About the nodes of a batch by layer and type."""
        return expected_counts(self.dataset.shape, self.fanouts, self.config.batch_seeds)

    @property
    def expected_rows(self) -> int:
        """The rows that a batch will have at most, as far as can be told without its graph."""
        return self.room_for(math.ceil(sum(self.expected_counts[-1])))

    def room_for(self, rows: int) -> int:
        """Return the rows to make room for where a batch has had so many."""
        return min(int(rows * _SPARE) + 1024, self.dataset.shape.row_count)

    def plan(
        self,
        batch_rows: int,
        memories: tuple[Memory, ...] = (),
        most_drawn: Callable[[int], NDArray[np.uint64]] = _not_yet,
    ) -> FeaturePlan:
        """Return what the loader gathers; the most drawn rows are known once there is a graph."""
        return FeaturePlan(
            files=self.dataset.feature_files,
            row_count=self.dataset.shape.row_count,
            row_bytes=ROW_BYTES,
            outstanding=self.config.outstanding,
            batch_rows=batch_rows,
            memories=memories,
            gpu=self.gpu.address if self.gpu else None,
            most_drawn=most_drawn,
            remedy=self.dataset.remedy,
            edge_count=self.dataset.shape.edge_count,
        )

    def loader_memory(self, batch_rows: int) -> FeatureMemory:
        return self.loader.feature_bytes(self.plan(batch_rows))

    def batch_bytes(self, batch_rows: int) -> int:
        """Return the host memory of batches: none where the loader fills a GPU."""
        if self.loader.fills_gpu:
            return 0
        return batch_rows * ROW_BYTES * (2 if self.is_ahead else 1)

    def needed_bytes(self, batch_rows: int) -> int:
        """Return the host memory of topology, batches and loader."""
        memory = self.loader_memory(batch_rows)
        return (
            self.dataset.topology_bytes
            + self.batch_bytes(batch_rows)
            + memory.host_rows_bytes
            + memory.working_bytes
        )

    def budget_bytes(self) -> int:
        """Return the host memory that topology, batches, loader and page cache share."""
        return int(self.config.memory_share * self.feature_bytes)

    def require_share(self, batch_rows: int) -> None:
        """Raise ``ConfigError`` for a budget that does not hold topology, batches and loader."""
        needed = self.needed_bytes(batch_rows)
        if needed <= self.budget_bytes():
            return
        memory = self.loader_memory(batch_rows)
        least = math.ceil(needed / self.feature_bytes * 1000) / 1000
        raise ConfigError(
            f"workload.memory_share={self.config.memory_share:g} of "
            f"{format_bytes(self.feature_bytes)} is {format_bytes(self.budget_bytes())}, less "
            "than the topology "
            f"({format_bytes(self.dataset.topology_bytes)}), batches "
            f"({format_bytes(self.batch_bytes(batch_rows))}) and the loader's memory "
            f"({format_bytes(memory.host_rows_bytes + memory.working_bytes)}) take; use at least "
            f"{least:g}, or fewer workload.batch_seeds"
        )

    def activation_bytes(self) -> int:
        """Return the host memory of training: none but for a CPU that trains."""
        if self.trainer != CPU:
            return 0
        whole = [[math.ceil(count * _SPARE) for count in layer] for layer in self.expected_counts]
        size = ModelSize.of(
            self.dataset.shape,
            layers=self.config.layers,
            hidden=self.config.hidden,
            classes=self.dataset.classes,
        )
        return size.activation_bytes(whole)

    def make_trainer(self, device: str) -> Trainer:
        """Return the model on a device, with its weights from the seed of the graph."""
        from wattload.workloads.gnn.model import Trainer

        return Trainer(
            self.dataset.shape,
            layers=self.config.layers,
            hidden=self.config.hidden,
            classes=self.dataset.classes,
            learning_rate=self.config.learning_rate,
            device=device,
            seed=self.seed,
        )
