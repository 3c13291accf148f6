"""The settings of loader=dgl: DGL samples, PyTorch indexes mapped features, as in IGB's scripts.

Its batches are its own: DGL draws with its own random numbers, so they have other nodes than those
of all other loaders, though as many on average.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from wattload.core.errors import ConfigError
from wattload.core.storage.targets import Target
from wattload.core.workload import PYTORCH, Requirement, require_installed
from wattload.loaders.feature_rows import FeatureMemory, FeaturePlan
from wattload.loaders.graph.files import Topology
from wattload.loaders.graph.sampler import BatchSampler
from wattload.loaders.mmap.config import MappedRows

DGL = Requirement(module="dgl", software="DGL", extra="dgl")
_NO_BUILD_FROM = (3, 12)


@dataclass(slots=True, kw_only=True)
class Config(MappedRows):
    """Who touches the pages of features, and what the kernel is advised; both as loader=mmap."""

    name: ClassVar[str] = "dgl"
    requires: ClassVar[tuple[Requirement, ...]] = (PYTORCH, DGL)

    _target_: str = "wattload.loaders.dgl.config.Config"

    def check_feature_rows(self, plan: FeaturePlan, targets: Sequence[Target]) -> None:
        """Raise without DGL, or where the kernel does not count what storage read."""
        if sys.version_info >= _NO_BUILD_FROM:
            raise ConfigError(
                "loader=dgl needs Python 3.11: DGL 1.1.3, the last release that imports beside "
                f"today's PyTorch, has no build for {sys.version_info[0]}.{sys.version_info[1]}; "
                "use loader=mmap, which reads features as DGL's users do"
            )
        require_installed(self.requires, user="loader=dgl", alternative="loader=mmap")
        MappedRows.check_feature_rows(self, plan, targets)

    def feature_bytes(self, plan: FeaturePlan) -> FeatureMemory:
        """Return DGL's copy of the sources of edges, 8 bytes each."""
        return FeatureMemory(working_bytes=8 * plan.edge_count)

    def batch_sampler(
        self, topology: Topology, fanouts: Sequence[Sequence[int]], *, threads: int, seed: int
    ) -> BatchSampler:
        from wattload.loaders.dgl.sampler import DglSampler

        return DglSampler(topology, fanouts, threads=threads, seed=seed)
