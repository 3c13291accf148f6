"""The index of a run on its target, its queries, and their true neighbours.

An index that is built has a data folder of its own. Of a user's own index nothing is copied: its
folder has the digests of the nodes. Either has a file of queries and what is true of them for each
way to ask.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError, TargetError, remedy
from wattload.core.host.cgroups import usable_cpus
from wattload.core.record.results import Check
from wattload.core.record.run import DataRecord
from wattload.core.storage.targets import Target
from wattload.core.workload import RunContext
from wattload.loaders.data.cold_cache import evict
from wattload.loaders.data.data_folder import DataFolder, existing_on_targets, marker_of
from wattload.loaders.data.stamped_files import REMEDY
from wattload.loaders.vectors import build, files
from wattload.loaders.vectors.search import SearchIndex
from wattload.loaders.vectors.vector_files import FORMATS, VectorFile
from wattload.results.vector_search.facts import BUILD, Build, Data, Metric
from wattload.workloads.vector_search import mixture, truth
from wattload.workloads.vector_search.config import LEAST_QUERIES, Config

WORKLOAD = "vector_search"
BUILDER = 2
"""Counts the changes of what is built from equal vectors."""
PREFIX, DIGESTS = "index", "digests.npy"
TRAINED = 65536
"""Vectors by which the centroids of codes are found."""

Array = NDArray[Any]


class Asked(NamedTuple):
    """Queries (n, dim) as they are asked, the distance to each one's true k-th, and their facts."""

    queries: Array
    kth: NDArray[np.float64]
    data: Data


class Dataset:
    """The index of a configuration, whether it exists or not, and its queries.

    Raises:
        ConfigError: the settings do not fit the source, or it is not on the target's file system.
        DataError: a file of the source can't be used.
    """

    def __init__(self, config: Config, seed: int, target: Target) -> None:
        source = Path(config.source) if config.source else None
        self._file = VectorFile(source) if source and source.suffix in FORMATS else None
        self.is_own = source is not None and self._file is None
        if self.is_own:
            self.layout, _ = files.read_layout(str(config.source))
            parts = {suffix: Path(f"{config.source}{suffix}") for suffix in files.SEARCHED}
            for path in parts.values():
                _require(path.is_file(), f"{path} does not exist; copy all files of the index")
            self.parameters = {suffix: _identity(path) for suffix, path in parts.items()}
            _require(
                parts[files.NODES].stat().st_dev == target.path.stat().st_dev,
                f"workload.source={config.source} is on another file system than target.path, "
                "whose drive is measured; set target.path to a folder on its file system",
            )
            _require(
                config.queries or config.planted_noise is not None,
                f"workload.source={config.source} is an index, from which no queries are held out; "
                "set workload.queries=FILE or workload.planted_noise",
            )
            some = np.arange(min(64, self.layout.count))
            nodes = files.read_nodes(parts[files.NODES], self.layout, some)
            lengths = np.linalg.norm(nodes["vector"].astype(np.float64), axis=1)
            _require(
                config.metric is Metric.l2 or np.allclose(lengths, 1, atol=0.01),
                f"workload.metric={config.metric.value} needs an index of vectors of length 1, and "
                f"{config.source} has one of {lengths[0]:.4g}; build it for this metric, or set l2",
            )
        else:
            config = self._formed(config)
            self.layout = config.layout(config.vectors or 0)
            names = ["vectors", "dim", "degree", "build_list", "pq_bytes"]
            names += [] if self._file else ["latent_dim", "clusters", "separation", "noise"]
            parameters = {name: getattr(config, name) for name in names}
            parameters |= {"dtype": config.dtype.value, "metric": config.metric.value}
            origin = _identity(self._file.path) if self._file else {"mixture": mixture.VERSION}
            self.parameters = parameters | origin | {"builder": BUILDER}
        self._config, self._seed, self._target = config, seed, target
        self.key = str(marker_of(WORKLOAD, self.parameters, seed)["key"])
        self._folder = target.data_folder / self.key
        self.prefix = str(config.source if self.is_own else self._folder / PREFIX)
        self.path = Path(self.prefix + files.NODES).resolve()
        self._query_file = VectorFile(Path(config.queries)) if config.queries else None
        asked_count = self._query_file.count if self._query_file else LEAST_QUERIES
        _require(
            asked_count >= LEAST_QUERIES,
            f"workload.queries={config.queries} has {asked_count} queries, too few for a recall; "
            f"use {LEAST_QUERIES} or more",
        )
        form = self.layout.dim - (config.metric is Metric.ip), self.layout.vector_type
        found = (self._query_file.dim, self._query_file.vector_type) if self._query_file else form
        _require(
            found == form,
            f"workload.queries={config.queries} has vectors of {found[0]} {found[1].value} "
            f"numbers, and the index has {form[0]} {form[1].value} numbers; ask with such vectors",
        )
        _require(
            config.k <= self.layout.count,
            f"workload.k={config.k} are more neighbours than the index has vectors, "
            f"{self.layout.count}; lower it",
        )
        _require(
            config.cache_nodes < self.layout.count,
            f"workload.cache_nodes={config.cache_nodes} holds all {self.layout.count} nodes of the "
            "index, so that no query reads the drive; lower it",
        )
        asked = config.k, config.query_count, config.planted_noise, config.metric.value
        of_file = _identity(self._query_file.path) if self._query_file else None
        text = json.dumps([*asked, of_file])
        self._truth = f"queries-{hashlib.sha256(text.encode()).hexdigest()[:8]}.npz"

    @property
    def sizes(self) -> dict[str, int]:
        """About the size of each file of the data folder."""
        layout, config = self.layout, self._config
        built = {
            PREFIX + files.PIVOTS: 8192 + 4 * (257 * layout.dim + config.pq_bytes),
            PREFIX + files.CODES: 8 + layout.count * config.pq_bytes,
            PREFIX + files.NODES: layout.file_bytes,
        }
        asked_bytes = config.query_count * (4 * layout.dim + 8)
        ours = {DIGESTS: 8 * layout.count, self._truth: asked_bytes}
        return ours if self.is_own else built | ours

    @property
    def missing(self) -> set[str]:
        """The files of the data folder that are still to be made."""
        [folder] = existing_on_targets([self._target], self.key)
        return {name for name in self.sizes if folder is None or not folder.is_valid(name)}

    @property
    def build_bytes(self) -> int:
        """The memory of a build that is still to be made; 0 if there is none."""
        layout, is_built = self.layout, self.missing <= {self._truth}
        sample_bytes = 8 * layout.dim * min(layout.count, TRAINED)
        each_bytes = 2 * layout.node_bytes + self._config.pq_bytes
        return 0 if self.is_own or is_built else layout.count * each_bytes + sample_bytes

    @property
    def held_bytes(self) -> dict[str, int]:
        """What a search holds of the index in memory, by what it is for."""
        layout, codes_bytes = self.layout, self.layout.count * self._config.pq_bytes
        if self.is_own:
            codes_bytes = Path(self.prefix + files.CODES).stat().st_size
        cached_bytes = self._config.cache_nodes * layout.node_bytes
        return {"codes": codes_bytes, "digests": 8 * layout.count, "cached nodes": cached_bytes}

    def prepare(self, context: RunContext, *, timed: bool) -> tuple[DataRecord, Build | None]:
        """Make what is missing; returns the facts of the data, and of the build if there was one.

        An interrupted build begins again: nothing of it is used before its digests are listed.

        Raises:
            DataError: a vector or a node can't be used, or the folder is not wattload's.
            TargetError: the target is full or not writable.
        """
        folder = DataFolder.claim(self._target.path, WORKLOAD, self.parameters, seed=self._seed)
        missing, made = self.missing, None
        if not self.is_own and not missing <= {self._truth}:
            made = self._build(folder, context, timed=timed)
        if missing:
            self._find_truth(folder, context)
        folder.seal()
        folder.close()
        record = DataRecord(
            key=self.key,
            folder=str(folder.path),
            file_count=len(self.sizes),
            data_bytes=sum(folder.entries[name].size_bytes for name in self.sizes),
            reused=not missing,
            parameters=self.parameters | {"seed": self._seed},
        )
        return record, made

    def load(self) -> tuple[SearchIndex, Asked]:
        """Read what a search has in memory, and the queries.

        Raises:
            DataError: a file is not what was written.
        """
        folder = DataFolder(self._folder, self.key)
        for name in self.sizes.keys() - {PREFIX + files.NODES}:
            if _sha256(self._folder / name) != folder.entries[name].sha256:
                raise DataError(f"{self._folder / name} is not what was written; {REMEDY}")
        index = files.load_index(self.prefix, np.load(self._folder / DIGESTS))
        ids, nodes = _breadth_first(index, self._config.cache_nodes)
        data = Data.model_validate(folder.entries[self._truth].result)
        with np.load(self._folder / self._truth) as found:
            asked = Asked(found["queries"], found["kth"], data)
        return replace(index, path=self.path, cached=ids, cached_nodes=nodes), asked

    def verify(self, index: SearchIndex, context: RunContext) -> Iterator[Check]:
        """Yield the checks of all nodes on the drive, and of the medoid of an index of ours."""
        found, apart, mean = [], [], index.centroid.astype(np.float64)
        for vectors, digests in self._blocks(context, "comparing all nodes"):
            found.append(digests)
            apart.append(np.square(vectors - mean).sum(axis=1))
        wrong = np.flatnonzero(np.concatenate(found) != index.digests)
        yield Check(
            name="stored_nodes",
            verdict="fail" if len(wrong) else "pass",
            sentence=f"{len(wrong):,} of all {self.layout.count:,} nodes on the drive have changed "
            f"since the index was made{f', first node {wrong[0]}' if len(wrong) else ''}.",
            figures={"nodes": self.layout.count, "wrong": len(wrong)},
            mandatory=True,
        )
        if not self.is_own:
            squares, start = np.concatenate(apart), int(index.medoids[0])
            nearest = int(squares.argmin())
            # The mean is stored in float32: of two that are as near, it may favour the other one.
            holds = squares[start] <= squares[nearest] * (1 + 1e-5)
            yield Check(
                name="medoid",
                verdict="pass" if holds else "fail",
                sentence=f"Searches begin at node {start}; nearest to the mean is node {nearest}.",
                figures={"start": start, "nearest": nearest},
            )

    def _blocks(self, context: RunContext, task: str) -> Iterator[tuple[Array, NDArray[np.uint64]]]:
        """Yield the vectors and digests of blocks of nodes on the drive."""
        evict([self.path])
        context.progress.begin(task, read_bytes=self.layout.file_bytes)
        for nodes in files.node_blocks(self.path, self.layout):
            context.progress.advance(read_bytes=nodes.nbytes)
            yield nodes["vector"], build.node_sums(_bytes_of(nodes))
        context.progress.end()

    def _formed(self, config: Config) -> Config:
        """Return the settings with the form of a source, and without vectors that are held out."""
        file = self._file
        if file is None:
            return config
        is_held = config.queries is None and config.planted_noise is None
        left = file.count - is_held * config.query_count
        _require(
            left > 1,
            f"workload.source={config.source} has {file.count} vectors, too few to hold out "
            f"workload.query_count={config.query_count}; lower it, or set workload.queries=FILE",
        )
        count = min(config.vectors or left, left)
        formed = replace(config, dim=file.dim, dtype=file.vector_type, vectors=count)
        formed.check_form()
        return formed

    def _build(self, folder: DataFolder, context: RunContext, *, timed: bool) -> Build:
        """Build the index in a phase of its own, then note the digests of its nodes."""
        config, layout, seed, threads = self._config, self.layout, self._seed, usable_cpus()
        context.progress.begin("making the vectors")
        vectors = self._vectors()
        trained = np.sort(np.random.default_rng(seed).permutation(layout.count)[:TRAINED])
        show = context.progress.begin
        show("training codes")
        with context.phase(BUILD, timed=timed) as phase:
            start_s = time.monotonic()
            sample = vectors[trained].astype(np.float32)
            quantizer = build.train_codes(sample, config.pq_bytes, seed=seed, threads=threads)
            codes = build.encode(vectors, quantizer, threads=threads)
            coded_s = time.monotonic()
            medoid = build.medoid_of(vectors)
            graph = build.build_graph(
                vectors,
                degree=config.degree,
                build_list=config.build_list,
                seed=seed,
                threads=threads,
                start=medoid,
                progress=lambda done, total: show(f"linking the nodes, {done / total:.0%}"),
            )
            show("writing the index", written_bytes=layout.file_bytes)
            linked_s, moved = time.monotonic(), phase.count_written
            pivots, coded = files.pivot_bytes(*quantizer).data, files.array_bytes(codes).data
            _publish(folder, PREFIX + files.PIVOTS, lambda file: moved(file.write(pivots)))
            _publish(folder, PREFIX + files.CODES, lambda file: moved(file.write(coded)))
            write = partial(files.write_nodes, path=self.path, layout=layout, medoid=medoid)
            write = partial(write, vectors=vectors, graph=graph, moved=moved)
            _publish(folder, PREFIX + files.NODES, lambda file: write(file.fileno()))
            written_s = time.monotonic()
        nodes = np.hstack([vectors.view(np.uint8), graph.view(np.uint8)])
        _publish(folder, DIGESTS, partial(np.save, arr=build.node_sums(nodes)))
        return Build(
            threads=threads,
            quantization_s=coded_s - start_s,
            graph_s=linked_s - coded_s,
            writing_s=written_s - linked_s,
            peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )

    def _vectors(self) -> Array:
        """Return the vectors to index as the metric has them, (count, dim)."""
        config, layout = self._config, self.layout
        if self._file:
            vectors = self._file.read(0, layout.count)
        else:
            vectors = np.concatenate([*mixture.mixture(config, self._seed, layout.count)])
        if config.metric is Metric.l2:
            return vectors
        longest = float(np.linalg.norm(vectors, axis=1).max())
        found = np.empty((layout.count, layout.dim), np.float32)
        for first in range(0, layout.count, TRAINED):
            some = slice(first, first + TRAINED)
            found[some] = mixture.prepared(vectors[some], config.metric, longest, first)
        return found

    def _queries(self) -> Array:
        """Return queries as the metric has them: of a file, near stored vectors, or held out."""
        config, layout, count = self._config, self.layout, self._config.query_count
        if self._query_file:
            found = self._query_file.read(0, min(count, self._query_file.count))
        elif config.planted_noise is not None:
            near = np.random.default_rng(self._seed).integers(layout.count, size=count)
            stored = files.read_nodes(self.path, layout, near)["vector"]
            stored = stored[:, : layout.dim - (config.metric is Metric.ip)]
            found = mixture.planted(stored, config.planted_noise, self._seed)
        elif self._file:
            found = self._file.read(layout.count, count)
        else:
            found = np.concatenate([*mixture.mixture(config, self._seed, count, mixture.QUERIES)])
        return mixture.prepared(found, config.metric, None)

    def _find_truth(self, folder: DataFolder, context: RunContext) -> None:
        """Note queries and what is true of them; of a user's own index also its digests."""
        index, queries, k = files.load_index(self.prefix), self._queries(), self._config.k
        seen: list[NDArray[np.uint64]] = []

        def blocks() -> Iterator[Array]:
            for vectors, digests in self._blocks(context, "finding true neighbours"):
                seen.append(digests)
                yield vectors

        most = min(max(k, truth.NEIGHBOURS), index.layout.count)
        distances = truth.nearest(queries, blocks(), most)
        if self.is_own:
            _publish(folder, DIGESTS, partial(np.save, arr=np.concatenate(seen)))
        kth = distances[:, k - 1]
        quantizer = build.Quantizer(index.centroid, index.pivots, index.offsets)
        context.progress.begin("finding the recall of codes alone")
        order = truth.code_order(queries, quantizer, index.codes, k, usable_cpus())
        near = truth.hits(order, partial(vectors_at, index), queries, kth)
        data = Data(
            queries=len(queries),
            truth_digest=truth.digest(queries, kth),
            intrinsic_dimension=truth.intrinsic_dimension(distances[:, : truth.NEIGHBOURS])
            if index.layout.count >= 2 * truth.NEIGHBOURS
            else None,
            code_order_hits=tuple(np.bincount(near, minlength=k + 1).tolist()),
        )
        save = partial(np.savez, queries=queries, kth=kth)
        _publish(folder, self._truth, save, data.model_dump())


def _publish(
    folder: DataFolder,
    name: str,
    fill: Callable[[BinaryIO], object],
    result: dict[str, Any] | None = None,
) -> None:
    """Write a file durably and list it, with its SHA-256 unless its nodes have their digests.

    A full target stays usable.
    """
    temporary = folder.announce(name)
    try:
        with folder.open() as opened, os.fdopen(opened.create(temporary), "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        made = folder.path / temporary
        sha256 = None if name == PREFIX + files.NODES else _sha256(made)
        folder.publish(name, made.stat().st_size, sha256, result=result)
    except OSError as error:
        folder.discard(temporary)
        raise TargetError(
            f"writing {folder.path / name} failed: {error.strerror or error}; "
            f"{remedy(error.errno)}; the next run makes the index again"
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _breadth_first(index: SearchIndex, count: int) -> tuple[NDArray[np.uint32], files.Bytes]:
    """Return the first nodes from the medoids on, breadth first, and their bytes."""
    layout, ids, at = index.layout, index.medoids[:count], 0
    nodes = files.read_nodes(index.path, layout, ids)
    is_found = np.zeros(layout.count, bool)
    is_found[ids] = True
    while at < len(ids) < count:
        level, at = nodes[at:], len(ids)
        near = level["neighbours"][np.arange(layout.degree) < level["edges"][:, np.newaxis]]
        near = near[~is_found[near]]
        near = near[np.sort(np.unique(near, return_index=True)[1])][: count - at]
        is_found[near] = True
        ids = np.concatenate([ids, near])
        nodes = np.concatenate([nodes, files.read_nodes(index.path, layout, near)])
    return ids, _bytes_of(nodes)


def vectors_at(index: SearchIndex, ids: Array) -> Array:
    """Return stored vectors (n, dim), read one by one."""
    return files.read_nodes(index.path, index.layout, ids)["vector"]


def _require(holds: object, sentence: str) -> None:
    if not holds:
        raise ConfigError(sentence)


def _bytes_of(nodes: Array) -> files.Bytes:
    return nodes.view(np.uint8).reshape(len(nodes), nodes.itemsize)


def _identity(path: Path) -> dict[str, Any]:
    """Return what tells a file from a later one of its name."""
    status = path.stat()
    return {"path": str(path.resolve()), "bytes": status.st_size, "mtime_ns": status.st_mtime_ns}


def digest_of(content: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(content).data).hexdigest()
