"""Small indexes written byte by byte, and DiskANN's beam search over them in plain Python.

All numbers are small integers, so that sums of floats are exact in any order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.vectors.build import node_sums
from wattload.loaders.vectors.layout import NodeLayout, VectorType
from wattload.loaders.vectors.search import SearchIndex

SECTOR = 4096
NOT_THERE = 0xFFFFFFFF


@dataclass(frozen=True)
class SmallIndex:
    """An index on a drive, and all that is in it."""

    search: SearchIndex
    vectors: NDArray[np.float32]
    neighbours: list[NDArray[np.uint32]]
    queries: NDArray[np.float32]
    nodes: NDArray[np.uint8]

    def cached(self, ids: Iterable[int]) -> SmallIndex:
        """Return it with nodes in memory."""
        rows = np.array(list(ids), np.uint32)
        return replace(
            self, search=replace(self.search, cached=rows, cached_nodes=self.nodes[rows])
        )

    def place(self, node: int) -> int:
        """Return where a node begins in the file."""
        size = int(self.nodes.shape[1])
        if size > SECTOR:
            return SECTOR + node * -(-size // SECTOR) * SECTOR
        sharing = SECTOR // size
        return SECTOR + node // sharing * SECTOR + node % sharing * size

    def change(self, node: int, at: int, content: bytes) -> None:
        """Change bytes of a node in the file, and nowhere else."""
        with self.search.path.open("r+b") as file:
            file.seek(self.place(node) + at)
            file.write(content)


def make_index(
    folder: Path,
    *,
    count: int = 700,
    dim: int = 16,
    vector_type: VectorType = VectorType.f32,
    degree: int = 12,
    chunks: int = 4,
    medoids: int = 1,
    seed: int = 1,
) -> SmallIndex:
    """Write an index: edges to the nearest vectors and to others, and to itself and some twice."""
    random = np.random.default_rng(seed)
    low, high = (0, 40) if vector_type is VectorType.u8 else (-20, 20)
    centres = random.integers(low, high, (6, dim))
    drawn = centres[random.integers(6, size=count + 40)] + random.integers(-6, 7, (count + 40, dim))
    drawn = np.clip(drawn, low, high).astype(np.float32)
    vectors, queries = drawn[:count], drawn[count:]
    apart = ((vectors[:, None] - vectors[None]) ** 2).sum(2)
    neighbours = []
    for node, near in enumerate(np.argsort(apart, 1, kind="stable")[:, : degree // 2 + 1]):
        others = random.integers(count, size=degree - len(near))
        keep = degree if node % 7 else degree // 2
        neighbours.append(np.concatenate([near, others])[:keep].astype(np.uint32))
    nodes = []
    for vector, edges in zip(vectors, neighbours, strict=True):
        numbers = vector.astype(np.uint8) if vector_type is VectorType.u8 else vector
        unused = bytes(4 * (degree - len(edges)))
        nodes.append(numbers.tobytes() + struct.pack("<I", len(edges)) + edges.tobytes() + unused)
    path = folder / "small_disk.index"
    path.write_bytes(_file(nodes))
    centroid = np.round(vectors.mean(0)).astype(np.float32)
    offsets = np.linspace(0, dim, chunks + 1).astype(np.uint32)
    pivots = random.integers(-12, 13, (256, dim)).astype(np.float32)
    codes = np.empty((count, chunks), np.uint8)
    for chunk, (start, end) in enumerate(pairwise(offsets)):
        parts = (vectors - centroid)[:, None, start:end] - pivots[None, :, start:end]
        codes[:, chunk] = (parts**2).sum(2).argmin(1)
    starts = random.choice(count, medoids, replace=False).astype(np.uint32)
    table = np.frombuffer(b"".join(nodes), np.uint8).reshape(count, -1)
    layout = NodeLayout(count=count, dim=dim, vector_type=vector_type, degree=degree)
    return SmallIndex(
        SearchIndex(
            path=path, layout=layout, centroid=centroid, pivots=pivots, offsets=offsets,
            codes=codes, medoids=starts, medoid_vectors=vectors[starts], digests=node_sums(table),
        ),
        vectors, neighbours, queries, table,
    )  # fmt: skip


def _file(nodes: list[bytes]) -> bytes:
    """Return whole sectors: a header, then as many nodes in each as fit, or several for a node."""
    size = len(nodes[0])
    sharing = max(SECTOR // size, 1)
    parts = [b"".join(nodes[i : i + sharing]) for i in range(0, len(nodes), sharing)]
    sectors = -(-size // SECTOR)
    return bytes(SECTOR) + b"".join(part.ljust(sectors * SECTOR, b"\0") for part in parts)


@dataclass
class PlainAnswer:
    """What a search did for one query."""

    ids: list[int] = field(default_factory=list)
    rounds: list[list[int]] = field(default_factory=list)
    cached: int = 0
    reading_rounds: int = 0

    @property
    def expanded(self) -> int:
        return sum(map(len, self.rounds))


def plain_search(
    index: SmallIndex, query: NDArray[Any], width: int, beam: int, k: int
) -> PlainAnswer:
    """Search as ``cached_beam_search`` of DiskANN does: with a list, and a set of what was seen."""
    search, found = index.search, PlainAnswer()
    chunks = list(pairwise(search.offsets))
    centred = query - search.centroid

    def by_code(node: int) -> float:
        rows = search.codes[node]
        parts = [
            ((centred[a:b] - search.pivots[row, a:b]) ** 2).sum()
            for row, (a, b) in zip(rows, chunks, strict=True)
        ]
        return float(sum(parts))

    medoids = ((search.medoid_vectors - query) ** 2).sum(1)
    start = int(search.medoids[int(np.argmin(medoids))])
    candidates, seen, expanded = [(by_code(start), start)], {start}, set[int]()
    exact: list[tuple[float, int]] = []
    cached = set(search.cached.tolist())
    while todo := [node for _, node in candidates if node not in expanded][:beam]:
        found.rounds.append(todo)
        expanded.update(todo)
        found.cached += len(cached.intersection(todo))
        found.reading_rounds += not cached.issuperset(todo)
        for node in todo:
            exact.append((float(((index.vectors[node] - query) ** 2).sum()), node))
            for other in index.neighbours[node].tolist():
                if other not in seen:
                    seen.add(other)
                    candidates = sorted([*candidates, (by_code(other), other)])[:width]
    found.ids = [node for _, node in sorted(exact)[:k]]
    found.ids += [NOT_THERE] * (k - len(found.ids))
    return found


def walk_index(path: Path, layout: NodeLayout) -> SearchIndex:
    """Return a file of nodes that a walk reads: there is nothing in memory."""
    numbers, names = np.empty(0, np.float32), np.empty(0, np.uint32)
    return SearchIndex(
        path=path, layout=layout, centroid=numbers, pivots=np.empty((0, 0), np.float32),
        offsets=names, codes=np.empty((0, 0), np.uint8), medoids=names,
        medoid_vectors=np.empty((0, layout.dim), np.float32),
    )  # fmt: skip


def drawn(seed: int, number: int) -> int:
    """Return output ``number`` of splitmix64 (Steele, Lea, Flood 2014) from the state ``seed``."""
    mask = (1 << 64) - 1
    x = (seed + (number + 1) * 0x9E3779B97F4A7C15) & mask
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
    return x ^ (x >> 31)
