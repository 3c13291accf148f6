"""DiskANN's files of an index, as its branch cpp_main writes them; numbers are little-endian.

* ``<prefix>_disk.index``: nodes (``NodeLayout``). Its first sector is int32 9 and 1, then as uint64
  nodes, dim, medoid, bytes of a node, nodes per sector, 0, 0, 0, bytes of the file;
* ``_pq_pivots.bin``: uint64 offsets of its arrays, which begin at 4096, and of its end: pivots
  (256, dim) float32, centroid (dim, 1) float32, chunk offsets (chunks + 1, 1) uint32;
* ``_pq_compressed.bin``: codes (nodes, chunks) uint8;
* ``_disk.index_medoids.bin`` (n, 1) uint32 and ``_disk.index_centroids.bin`` (n, dim) float32:
  where searches begin, and what decides among them; if missing, the header's medoid.

An array is int32 rows and columns, then its numbers. Other headers are read too: 96 for the 9
(DiskANN in Rust), and uint64 only, with the bytes of the file for dim at the start (knowhere).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wattload.core.errors import DataError
from wattload.core.units import MIB
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.data.media import DirectMedium
from wattload.loaders.vectors.layout import (
    MAX_DEGREE,
    MAX_NODE_BYTES,
    MAX_NODES,
    MAX_NUMBER,
    SECTOR_BYTES,
    NodeLayout,
    VectorType,
)
from wattload.loaders.vectors.search import SearchIndex
from wattload.loaders.vectors.vector_files import FORMATS

NODES, PIVOTS, CODES = "_disk.index", "_pq_pivots.bin", "_pq_compressed.bin"
SEARCHED = NODES, PIVOTS, CODES
MEDOIDS, CENTROIDS = f"{NODES}_medoids.bin", f"{NODES}_centroids.bin"
BLOCK_BYTES = 64 * MIB
_ARRAY = struct.Struct("<2i")
_PIVOTS = 256
_OFFSETS = (4, 5)

Array = NDArray[Any]
Bytes = NDArray[np.uint8]


def array_bytes(array: Array) -> Bytes:
    """Return the file of an array of one or two dimensions."""
    table = np.ascontiguousarray(array.reshape(len(array), -1))
    header = np.frombuffer(_ARRAY.pack(*table.shape), np.uint8)
    return np.concatenate([header, table.view(np.uint8).reshape(-1)])


def pivot_bytes(centroid: Array, pivots: Array, offsets: Array) -> Bytes:
    """Return the file of pivots; see ``SearchIndex`` for shapes and types."""
    arrays = [array_bytes(each) for each in (pivots, centroid, offsets)]
    table = array_bytes(np.cumsum([SECTOR_BYTES, *map(len, arrays)], dtype=np.uint64))
    return np.concatenate([table, np.zeros(SECTOR_BYTES - len(table), np.uint8), *arrays])


def write_nodes(
    handle: int,
    path: Path,
    layout: NodeLayout,
    medoid: int,
    *,
    vectors: Array,
    graph: Array,
    moved: Callable[[int], object],
) -> None:
    """Write the file of nodes, open as ``handle``; ``moved`` hears of the bytes.

    ``vectors`` are (count, dim), ``graph`` (count, 1 + degree) degrees, neighbours and zeros.
    """
    facts = (layout.count, layout.dim, medoid, layout.node_bytes, layout.nodes_per_sector)
    header = struct.pack("<2i9Q", 9, 1, *facts, 0, 0, 0, layout.file_bytes)
    memory, step = _memory(layout)
    memory[: len(header)] = np.frombuffer(header, np.uint8)
    DirectMedium().write(handle, path, memory[:SECTOR_BYTES], 0)
    moved(SECTOR_BYTES)
    for first in range(0, layout.count, step):
        rows = slice(first, min(first + step, layout.count))
        sectors, nodes, places = _nodes_in(memory, layout, rows.stop - first)
        sectors[:] = 0
        nodes["vector"][places] = vectors[rows]
        nodes["edges"][places] = graph[rows, 0]
        nodes["neighbours"][places] = graph[rows, 1:]
        DirectMedium().write(handle, path, sectors, layout.place(first)[0])
        moved(sectors.size)


def read_array(path: Path, dtype: DTypeLike) -> Array:
    """Return the array (rows, columns) that a file is; raises ``DataError`` if it is not one."""
    return _array_in(_read(path), path, dtype)


def read_layout(prefix: Path | str) -> tuple[NodeLayout, int]:
    """Return the layout of an index and its medoid.

    Raises:
        DataError: the file of nodes is missing or cut short, or its header does not fit it.
    """
    path = Path(f"{prefix}{NODES}")
    head, size_bytes = _read(path, SECTOR_BYTES), path.stat().st_size
    _require(size_bytes > SECTOR_BYTES, path, f"has {size_bytes} bytes, and no node")
    words = head[:80].view("<u8").tolist()
    if words[0] in {1 << 32 | 9, 1 << 32 | 96}:
        count, dim, medoid, node_bytes, sharing, frozen, _, reordered, stated = words[1:]
    else:
        stated, count, medoid, node_bytes, sharing, frozen, _, reordered = words[:8]
        dim = _read_pivots(prefix)[1].shape[1] if stated == size_bytes else 0
    fits = [
        layout
        for kind in VectorType
        for room in [node_bytes - dim * kind.dtype.itemsize - 4]
        for layout in [NodeLayout(count=count, dim=dim, vector_type=kind, degree=room // 4)]
        if dim and layout.node_bytes == node_bytes <= MAX_NODE_BYTES
        if 1 <= layout.degree <= MAX_DEGREE and layout.nodes_per_sector == sharing
        if layout.file_bytes == stated == size_bytes and medoid < count <= MAX_NODES
    ]
    _require(
        fits and not frozen and not reordered,
        path,
        f"has {size_bytes} bytes and a header that does not fit: {count} nodes of {dim} numbers "
        f"and {node_bytes} bytes (at most {MAX_NODE_BYTES}), {sharing} in a sector, medoid "
        f"{medoid}, {frozen} frozen and {reordered} reordered (0), {stated} bytes",
    )
    # Bytes with many neighbours take as much as floats with few: one has nodes that are none.
    for layout in fits:
        sample = read_nodes(path, layout, np.arange(min(count, 64)))
        if sample["edges"].any() and not _wrong(sample, layout).any():
            return layout, medoid
    return fits[0], medoid


def load_index(prefix: Path | str, digests: NDArray[np.uint64] | None = None) -> SearchIndex:
    """Read what a search has in memory; ``digests`` are those of its nodes.

    Raises:
        DataError: a file is cut short, or does not fit the others.
    """
    names = (NODES, CODES, MEDOIDS, CENTROIDS)
    path, codes_path, listed, decides = (Path(f"{prefix}{each}") for each in names)
    layout, medoid = read_layout(prefix)
    centroid, pivots, offsets = _read_pivots(prefix)
    codes = read_array(codes_path, np.uint8)
    has, needs = (*codes.shape, len(centroid)), (layout.count, len(offsets) - 1, layout.dim)
    _require(has == needs, codes_path, f"has {has} nodes, bytes of a code, numbers, not {needs}")
    medoids = np.array([medoid], np.uint32)
    if listed.is_file():
        medoids = read_array(listed, np.uint32).reshape(-1)
    is_inside = medoids.size and medoids.max() < layout.count
    _require(is_inside, listed, f"must have medoids below {layout.count}, not {medoids[:8]}")
    starts = read_nodes(path, layout, medoids)["vector"].astype(np.float32)
    if listed.is_file() and decides.is_file():
        size, starts = starts.shape, read_array(decides, np.float32)
        _require(starts.shape == size, decides, f"must have {size} numbers, not {starts.shape}")
    return SearchIndex(
        path=path,
        layout=layout,
        centroid=centroid,
        pivots=pivots,
        offsets=offsets,
        codes=codes,
        medoids=medoids,
        medoid_vectors=starts,
        digests=digests,
    )


def read_nodes(path: Path, layout: NodeLayout, nodes: Array) -> Array:
    """Return some nodes, shape (n,) of ``layout.node``."""
    found = np.zeros(len(nodes), layout.node)
    with path.open("rb", buffering=0) as file:
        for row, node in enumerate(nodes.tolist()):
            memory = found[row : row + 1].view(np.uint8)
            count = os.preadv(file.fileno(), [memory.data], sum(layout.place(node)))
            _require(count == memory.size, path, f"ends before node {node}")
    return found


def node_blocks(path: Path, layout: NodeLayout) -> Iterator[Array]:
    """Yield all nodes by blocks (n,) of ``layout.node``.

    Raises:
        DataError: the file is cut short, or a node can't be one of this index.
    """
    memory, step = _memory(layout)
    with path.open("rb", buffering=0) as file:
        for first in range(0, layout.count, step):
            sectors, nodes, places = _nodes_in(memory, layout, min(step, layout.count - first))
            moved = os.preadv(file.fileno(), [sectors.data], layout.place(first)[0])
            _require(moved == sectors.size, path, f"ends in the {step} nodes from {first}")
            found = nodes[places]
            for row in np.flatnonzero(_wrong(found, layout))[:1].tolist():
                edges, to = found["edges"][row], found["neighbours"][row, :8].tolist()
                limit = f"{layout.degree} below {layout.count}, or numbers not finite or above 1e15"
                fault = f"has node {first + row} with {edges} neighbours {to}, not {limit}"
                _require(False, path, fault)
            yield found


def _memory(layout: NodeLayout) -> tuple[Bytes, int]:
    """Return memory for a block of sectors, and the nodes in it."""
    sharing = layout.nodes_per_sector or 1
    groups = min(-(-layout.count // sharing), BLOCK_BYTES // layout.read_bytes)
    return aligned_buffer(groups * layout.read_bytes), groups * sharing


def _nodes_in(memory: Bytes, layout: NodeLayout, count: int) -> tuple[Bytes, Array, Any]:
    """Return the sectors of ``count`` nodes, their nodes, and the places of these in the nodes."""
    groups, places = divmod(np.arange(count), layout.nodes_per_sector or 1)
    sectors = memory[: (groups[-1] + 1) * layout.read_bytes]
    shape, strides = (groups[-1] + 1, places.max() + 1), (layout.read_bytes, layout.node_bytes)
    return sectors, np.ndarray(shape, layout.node, sectors, strides=strides), (groups, places)


def _wrong(nodes: Array, layout: NodeLayout) -> Array:
    """Return of each node whether it can't be one of the index."""
    used = np.arange(layout.degree) < nodes["edges"][:, np.newaxis]
    outside = (used & (nodes["neighbours"] >= layout.count)).any(axis=1)
    unusual = ~(np.abs(nodes["vector"]) <= MAX_NUMBER).all(axis=1)
    return np.asarray(outside | unusual | (nodes["edges"] > layout.degree))


def _read_pivots(prefix: Path | str) -> tuple[Array, Array, Array]:
    """Return centroid, pivots and chunk offsets; see ``SearchIndex``."""
    path = Path(f"{prefix}{PIVOTS}")
    data = _read(path)
    head = data[: 8 + 8 * data[0]] if data.size and data[0] in _OFFSETS else data
    ends = _array_in(head, path, np.uint64).reshape(-1).tolist()
    parts = [data[start:end] for start, end in pairwise(ends)]
    _require(len(ends) in _OFFSETS, path, f"has {len(ends)} offsets, not 4 or 5")
    pivots, centroid = (_array_in(each, path, np.float32) for each in parts[:2])
    # The fifth offset is of an order of the dimensions.
    *order, offsets = (_array_in(each, path, np.uint32).reshape(-1) for each in parts[2:])
    is_ordered = all((each == np.arange(each.size)).all() for each in order)
    is_turned = Path(f"{path}_rotation_matrix.bin").exists()
    _require(is_ordered and not is_turned, path, "turns or reorders dimensions: not supported")
    rising = np.unique([0, *offsets.clip(max=centroid.size), centroid.size])
    is_finite = np.isfinite(pivots).all() and np.isfinite(centroid).all()
    _require(
        np.array_equal(rising, offsets) and is_finite and pivots.shape == (_PIVOTS, centroid.size),
        path,
        f"must have {_PIVOTS} x {centroid.size} finite pivots, and offsets of chunks that rise "
        f"from 0 to {centroid.size}, not {offsets[:8]}",
    )
    return centroid.reshape(-1), pivots, offsets


def _read(path: Path, most_bytes: int = -1) -> Bytes:
    if not path.is_file():
        raise DataError(
            f"{path} does not exist; name a file of vectors ({', '.join(FORMATS)}), or what is "
            f"before {NODES} in the path of an index"
        )
    return np.fromfile(path, np.uint8, most_bytes)


def _array_in(data: Bytes, path: Path, dtype: DTypeLike) -> Array:
    """Return a copy of the array that is all of some bytes of a file."""
    head = data[: _ARRAY.size].tobytes()
    rows, columns = _ARRAY.unpack(head.ljust(_ARRAY.size, b"\xff"))
    size_bytes = _ARRAY.size + rows * columns * np.dtype(dtype).itemsize
    is_whole = min(rows, columns) >= 0 and data.size == size_bytes
    _require(is_whole, path, f"has {data.size} bytes for an array of {rows} x {columns}")
    found: Array = data[_ARRAY.size :].copy().view(dtype).reshape(rows, columns)
    return found


def _require(is_so: object, path: Path, fault: str) -> None:
    if not is_so:
        raise DataError(f"{path} {fault}; copy the index again, or build it again")
