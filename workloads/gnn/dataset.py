"""The graph of a run: synthetic or real, and how large its batches will be."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, TargetError
from wattload.core.storage.targets import Target
from wattload.core.units import compared_bytes, format_bytes
from wattload.loaders.feature_rows import FeatureFile
from wattload.loaders.graph.files import GraphFiles, Topology
from wattload.loaders.graph.synthetic import SHAPES, GraphShape
from wattload.workloads.gnn.config import Config

if TYPE_CHECKING:
    from wattload.loaders.graph.igb_folder import IgbFolder

WORKLOAD = "gnn"
FREE_SHARE = 0.05
"""Every run leaves this share of a file system free."""


class Dataset(Protocol):
    """A graph in files."""

    @property
    def shape(self) -> GraphShape:
        """Types of nodes and relations."""
        ...

    @property
    def feature_files(self) -> tuple[FeatureFile, ...]:
        """The files of rows."""
        ...

    @property
    def topology_bytes(self) -> int:
        """The size of the topology in memory."""
        ...

    @property
    def classes(self) -> int:
        """The number of classes."""
        ...

    @property
    def labelled_nodes(self) -> int:
        """The nodes of the first type that have a class: the first ones."""
        ...

    def load_topology(self) -> Topology:
        """Read all relations into memory."""
        ...

    def labels(self, nodes: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return the classes of nodes of the first type."""
        ...


def dataset_of(config: Config, seed: int, targets: Sequence[Target]) -> GraphFiles | IgbFolder:
    """Return the graph of a run, as it exists or as it will be written.

    Raises:
        ConfigError: features of a real graph are not on a target's file system.
        DataError: the folder is incomplete, or of another form.
        TargetError: the graph does not fit the targets.
    """
    if config.source is None:
        files = GraphFiles(WORKLOAD, SHAPES[config.graph], seed, targets)
        _require_room(files, seed, targets)
        return files
    from wattload.loaders.graph.igb_folder import IgbFolder

    folder = IgbFolder(Path(config.source))
    devices = {target.data_folder.parent.stat().st_dev for target in targets}
    for file in folder.feature_files:
        if file.path.stat().st_dev not in devices:
            raise ConfigError(
                f"workload.source={config.source} has its features in {file.path}, on another file "
                "system than target.path, whose drive would be measured while another one is read; "
                "copy the file to the target, or set target.path to a folder on its file system"
            )
    return folder


def expected_counts(
    shape: GraphShape, fanouts: Sequence[Sequence[int]], seeds: int
) -> list[list[float]]:
    """Return about how many nodes of each type a batch has when each layer begins, and at the end.

    Draws are taken as uniform, with min(fan-out, mean degree) of each node: n draws of N nodes
    find N (1 - exp(-n / N)). Popular nodes are drawn more often, so real batches have fewer nodes.
    """
    totals = [each.count for each in shape.node_types]
    found = [0.0] * len(totals)
    drawn = [0.0] * len(totals)
    drawn[0] = found[0] = float(min(seeds, totals[0]))
    counts = [list(found)]
    for layer in reversed(fanouts):
        before = list(found)
        for relation, fanout in zip(shape.relations, layer, strict=True):
            destinations = totals[relation.destination] or 1
            degree = relation.edge_count / destinations
            drawn[relation.source] += before[relation.destination] * min(fanout, degree)
        found = [
            min(float(total), total * -math.expm1(-count / total)) if total else 0.0
            for total, count in zip(totals, drawn, strict=True)
        ]
        found = [max(now, then) for now, then in zip(found, before, strict=True)]
        counts.append(list(found))
    return counts


def _require_room(files: GraphFiles, seed: int, targets: Sequence[Target]) -> None:
    """Raise for a graph that does not fit, naming the largest one that does."""
    if not files.missing_bytes():
        return
    short = _short(files, targets)
    if short is None:
        return
    target, needed, free = short
    shapes = sorted(SHAPES.values(), key=lambda shape: -shape.row_count)
    fitting = (
        f"{shape.name} ({format_bytes(made.target_bytes()[target.index])}) fits"
        for shape in shapes
        if shape.row_count < files.shape.row_count
        for made in [GraphFiles(WORKLOAD, shape, seed, targets)]
        if _short(made, targets) is None
    )
    needed_text, free_text = compared_bytes(needed, free)
    raise TargetError(
        f"{files.shape.name} needs {needed_text} on {target.path}, and {free_text} are free there "
        "above the 5 % that stay free; "
        f"{next(fitting, 'no graph fits')}: set workload.graph, or make room"
    )


def _short(files: GraphFiles, targets: Sequence[Target]) -> tuple[Target, int, int] | None:
    """Return the first target without room for the files, what they need, and what is free."""
    for target, size_bytes in zip(targets, files.target_bytes(), strict=True):
        status = os.statvfs(target.data_folder.parent)
        free = status.f_bavail * status.f_frsize
        free -= int(FREE_SHARE * status.f_blocks * status.f_frsize)
        if size_bytes > max(free, 0) + _present_bytes(target, files.key):
            return target, size_bytes, max(free, 0)
    return None


def _present_bytes(target: Target, key: str) -> int:
    """Return the space that finished and unfinished files of a graph take already."""
    folder = target.data_folder / key
    if not folder.is_dir():
        return 0
    return sum(each.stat().st_blocks * 512 for each in folder.iterdir() if each.is_file())


def shape_facts(dataset: Dataset) -> dict[str, Any]:
    """Return the facts that the shape of a graph is, by name."""
    shape = dataset.shape
    return {
        "graph": shape.name,
        "nodes": {each.name: each.count for each in shape.node_types},
        "edges": {shape.title(each): each.edge_count for each in shape.relations},
        "largest_degree": max(each.largest_degree for each in shape.relations),
    }
