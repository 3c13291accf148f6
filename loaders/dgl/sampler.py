"""Batches of neighbours by DGL's ``NeighborSampler``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.loaders.graph.files import Topology
from wattload.loaders.graph.sampler import Batch, SampledEdges, check_fanouts

_SEED_LIMIT = 1 << 31


class DglSampler:
    """Draws batches with DGL's random numbers; implements ``BatchSampler``.

    They start from the seed, in each thread of DGL's, and go on from batch to batch: the number of
    a batch does not count, and runs with several threads draw other batches each time.
    """

    def __init__(
        self, topology: Topology, fanouts: Sequence[Sequence[int]], *, threads: int, seed: int
    ) -> None:
        """Make a graph of DGL from a topology; ``fanouts`` are those of ``Sampler``.

        Sources are copied as 64 bits, 8 bytes an edge: with 32 bits DGL 1.1.3's fused sampler, its
        default, draws too few edges.

        Raises:
            ConfigError: the fan-outs do not fit the graph, or DGL can't be imported.
        """
        shape = topology.shape
        check_fanouts(shape, fanouts)
        self._dgl = load_dgl()
        self._threads = threads
        names = [each.name for each in shape.node_types]
        self._types = names
        self._titles = [
            (names[each.source], each.name, names[each.destination]) for each in shape.relations
        ]
        none = torch.empty(0, dtype=torch.int64)
        lists = {
            title: (
                "csc",
                (
                    torch.from_numpy(indptr.view(np.int64)),
                    torch.from_numpy(indices.astype(np.int64)),
                    none,
                ),
            )
            for title, indptr, indices in zip(
                self._titles, topology.indptr, topology.indices, strict=True
            )
        }
        counts = {each.name: each.count for each in shape.node_types}
        self._graph: Any = self._dgl.heterograph(lists, num_nodes_dict=counts)
        self._dgl.seed(seed % _SEED_LIMIT)
        by_title = [dict(zip(self._titles, layer, strict=True)) for layer in fanouts]
        self._sampler: Any = self._dgl.dataloading.NeighborSampler(by_title)

    def draw(self, batch: int, seeds: NDArray[np.uint32]) -> Batch:
        """Return a batch that starts with ``seeds``, nodes of the first type.

        Raises:
            RuntimeError: the sampler is closed.
        """
        if self._graph is None:
            raise RuntimeError("the sampler is closed")
        # OpenMP keeps the number of threads for each thread that calls it.
        self._dgl.utils.set_num_threads(self._threads)
        first = torch.from_numpy(seeds.astype(np.int64))
        blocks = self._sampler.sample_blocks(self._graph, {self._types[0]: first})[2]
        nodes = tuple(
            _numbers(blocks[0].srcnodes[name].data[self._dgl.NID]) for name in self._types
        )
        blocks.reverse()  # that of the seeds first
        counts = [
            *(tuple(block.num_dst_nodes(name) for name in self._types) for block in blocks),
            tuple(map(len, nodes)),
        ]
        layers = tuple(
            tuple(self._edges(block, title) for title in self._titles) for block in blocks
        )
        return Batch(nodes, tuple(counts), layers)

    def close(self) -> None:
        """Release DGL's graph; safe to call twice."""
        self._graph = None

    @staticmethod
    def _edges(block: Any, title: tuple[str, str, str]) -> SampledEdges:  # noqa: ANN401 - DGL has no types
        offsets, sources, _ = block.adj_tensors("csc", etype=title)
        return SampledEdges(_numbers(offsets), _numbers(sources))


def _numbers(found: torch.Tensor) -> NDArray[np.uint32]:
    return found.numpy().astype(np.uint32)


@lru_cache(maxsize=1)
def load_dgl() -> ModuleType:
    """Import DGL with PyTorch as its backend.

    Without ``DGLBACKEND`` it writes a choice of backend to the home folder. DGL 1.1.3 imports
    ``packaging`` from within setuptools, which left it out with version 71; it gets the real one.

    Raises:
        ConfigError: it can't be imported.
    """
    os.environ["DGLBACKEND"] = "pytorch"
    within = "setuptools.extern"
    lends = within not in sys.modules
    try:
        packaging = importlib.import_module("packaging")
        importlib.import_module("packaging.version")
        if lends:
            sys.modules[within] = ModuleType(within)
            sys.modules[f"{within}.packaging"] = packaging
        return importlib.import_module("dgl")
    except (ImportError, OSError, RuntimeError) as error:
        raise ConfigError(
            f"DGL can't be imported: {error}; install version 1.1.3 with: pip install "
            "'wattload[dgl]', or use loader=mmap"
        ) from error
    finally:
        if lends:
            sys.modules.pop(within, None)
            sys.modules.pop(f"{within}.packaging", None)
