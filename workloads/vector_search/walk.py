"""A walk: the reads of a real search, over a file of any size.

The search is one of a smaller index, which has the same nodes otherwise: a traced one of all
queries. Each of its nodes stands for as many of the file, except those that many queries expand,
near where searches begin: a larger index has no more of these.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import Stamps
from wattload.core.storage.targets import Target
from wattload.loaders.data.stamped_files import StampedFile, StampedFiles, key_of, nonce_of
from wattload.loaders.engine.header import constants
from wattload.loaders.vectors.layout import SECTOR_BYTES, NodeLayout
from wattload.loaders.vectors.native_search import NO_NODE
from wattload.loaders.vectors.search import Queries, Searcher, SearchIndex, Trace, Walk
from wattload.results.vector_search.facts import Graph
from wattload.workloads.vector_search.config import Config
from wattload.workloads.vector_search.dataset import WORKLOAD

PROFILE_VECTORS = 200_000
PROFILE_VECTORS_OF_DEMO = 20_000
"""The vectors of the index whose searches are replayed."""
DRIVE_SHARE = 0.8
HOT_SHARE = 0.01
"""A node that a larger share of queries expands stands for itself alone."""


def profile_of(config: Config, scale: str) -> Config:
    """Return the settings of the index whose searches are replayed."""
    most = PROFILE_VECTORS_OF_DEMO if scale == "demo" else PROFILE_VECTORS
    return replace(config, graph=Graph.vamana, vectors=min(config.vectors or most, most))


class WalkedFile:
    """The file of a walk on a target: as many nodes as are wanted, filled with stamps."""

    def __init__(self, config: Config, profile: NodeLayout, target: Target) -> None:
        count = config.vectors or _filling_count(profile, target)
        self.spread = max(count // profile.count, 1)
        self.profile = profile
        self.layout = replace(profile, count=self.spread * profile.count)
        parameters = {"walk_bytes": self.layout.file_bytes}
        key = key_of(WORKLOAD, parameters)
        file = StampedFile(
            target=target,
            key=key,
            name="nodes.bin",
            size_bytes=self.layout.file_bytes,
            stamps=Stamps(nonce_of(key), 0, 0, SECTOR_BYTES),
        )
        self.files = StampedFiles(WORKLOAD, parameters, (file,))

    @cached_property
    def index(self) -> SearchIndex:
        """An index of these nodes that has no codes: a walk compares nothing."""
        none, numbers = np.empty(0, np.uint32), np.empty((0, self.layout.dim), np.float32)
        return SearchIndex(
            path=self.files.paths[0],
            layout=self.layout,
            centroid=numbers,
            pivots=numbers,
            offsets=none,
            codes=np.empty((0, 0), np.uint8),
            medoids=none,
            medoid_vectors=numbers,
        )

    @property
    def digest(self) -> str:
        """SHA-256 of what the walk follows from, apart from the trace."""
        text = f"{asdict(self.layout)} {self.spread}"
        return hashlib.sha256(text.encode()).hexdigest()

    def replayed(
        self, searcher: Searcher, queries: Queries, moved: Callable[[int, int], None]
    ) -> Walk:
        """Return the walk that replays a search, which is made and traced."""
        trace = searcher.search(queries, moved, traces=True).trace
        assert trace is not None
        return Walk(
            trace=trace,
            nodes=self.profile.count,
            spread=self.spread,
            hot=hot_nodes(trace, self.profile.count),
            stamps=self.files.files[0].stamps,
        )


def hot_nodes(trace: Trace, count: int) -> NDArray[np.uint8]:
    """Return a bit for each of ``count`` nodes: set where over ``HOT_SHARE`` of queries expand it.

    The bit of node v is bit v % 8 of byte v // 8.
    """
    expanded = trace.nodes[trace.nodes != NO_NODE] & ~np.uint32(constants()["WL_ROUND_END"])
    visits = np.bincount(expanded, minlength=count)
    return np.packbits(visits > HOT_SHARE * len(trace.nodes), bitorder="little")


def _filling_count(layout: NodeLayout, target: Target) -> int:
    """Return how many nodes a file of 80 % of the file system has."""
    status = os.statvfs(target.path)
    reads = (DRIVE_SHARE * status.f_blocks * status.f_frsize - SECTOR_BYTES) // layout.read_bytes
    return int(reads) * max(layout.nodes_per_sector, 1)
