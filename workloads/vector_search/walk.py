"""A walk: the reads of a real search, replayed over a file of any size.

The search is one of a smaller index with equal nodes: its profile. Each node of the profile stands
for as many of the file, except those that many queries expand, near where searches begin: a larger
index has no more of these.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import Stamps
from wattload.core.storage.targets import Target
from wattload.loaders.data.stamped_files import StampedFile, StampedFiles, key_of, nonce_of
from wattload.loaders.vectors.layout import MAX_NODES, SECTOR_BYTES, NodeLayout
from wattload.loaders.vectors.native_search import NO_NODE, ROUND_END
from wattload.loaders.vectors.search import Trace, Walk
from wattload.results.vector_search.facts import Graph
from wattload.workloads.vector_search.config import Config
from wattload.workloads.vector_search.dataset import WORKLOAD

PROFILE_VECTORS = {"demo": 20_000, "quick": 200_000, "full": 200_000}
DRIVE_SHARE = 0.8
HOT_SHARE = 0.01
"""A node that a larger share of queries expands stands for itself alone."""


def profile_of(config: Config, scale: str) -> Config:
    """Return the settings of the profile; of a search that is none, its own."""
    if config.graph is not Graph.walk:
        return config
    most = PROFILE_VECTORS[scale]
    return replace(config, graph=Graph.vamana, vectors=min(config.vectors or most, most))


def walk_layout(config: Config, profile: NodeLayout, target: Target) -> NodeLayout:
    """Return the layout of the file: the nodes that are set, or 80 % of the file system.

    Nodes have numbers of 31 bits, as in an index.
    """
    status, count = os.statvfs(target.path), config.vectors
    if count is None:
        room = DRIVE_SHARE * status.f_blocks * status.f_frsize - SECTOR_BYTES
        count = int(room // profile.read_bytes) * max(profile.nodes_per_sector, 1)
    count = min(count, MAX_NODES)
    return replace(profile, count=max(count // profile.count, 1) * profile.count)


def walk_file(layout: NodeLayout, target: Target) -> StampedFiles:
    """Return the file of so many nodes, which is filled with stamps."""
    parameters = {"walk_bytes": layout.file_bytes}
    key = key_of(WORKLOAD, parameters)
    file = StampedFile(
        target=target,
        key=key,
        name="nodes.bin",
        size_bytes=layout.file_bytes,
        stamps=Stamps(nonce_of(key), 0, 0, SECTOR_BYTES),
    )
    return StampedFiles(WORKLOAD, parameters, (file,))


def walk_of(trace: Trace, profile: NodeLayout, layout: NodeLayout, file: StampedFiles) -> Walk:
    """Return the walk that replays the trace of a search of the profile."""
    return Walk(
        trace=trace,
        nodes=profile.count,
        spread=layout.count // profile.count,
        hot=hot_nodes(trace, profile.count),
        stamps=file.files[0].stamps,
    )


def hot_nodes(trace: Trace, count: int) -> NDArray[np.uint8]:
    """Return a bit for each of ``count`` nodes: set where over ``HOT_SHARE`` of queries expand it.

    The bit of node v is bit v % 8 of byte v // 8.
    """
    expanded = trace.nodes[trace.nodes != NO_NODE] & ~ROUND_END
    visits = np.bincount(expanded, minlength=count)
    return np.packbits(visits > HOT_SHARE * len(trace.nodes), bitorder="little")
