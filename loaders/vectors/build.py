"""Builds of an index in memory, by C: codes by product quantization, and a Vamana graph.

Results follow from vectors, settings and seed: not from the number of threads, nor from the CPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.engine import library
from wattload.loaders.engine.header import constants, setup_of
from wattload.loaders.vectors.layout import VectorType

CENTROIDS = constants()["WL_CENTROIDS"]
TYPES = {VectorType.f32: constants()["WL_FLOAT32"], VectorType.u8: constants()["WL_UINT8"]}
LLOYD_ITERATIONS, ALPHA, SLICE_S, BLOCK = 12, 1.2, 0.05, 1 << 12

Vectors = NDArray[np.float32] | NDArray[np.uint8]


class Quantizer(NamedTuple):
    """``centroid`` (dim,) is subtracted, row r of ``pivots`` (256, dim) has all chunks' centroid r.

    Chunk c has the numbers from ``offsets[c]`` to before ``offsets[c + 1]``, as uint32.
    """

    centroid: NDArray[np.float32]
    pivots: NDArray[np.float32]
    offsets: NDArray[np.uint32]


def chunk_offsets(dim: int, chunks: int) -> NDArray[np.uint32]:
    """Return where chunks begin and end; the first ones may be wider by one number."""
    widths = [len(each) for each in np.array_split(np.arange(dim), chunks)]
    return np.cumsum([0, *widths], dtype=np.uint32)


def train_codes(sample: NDArray[np.float32], chunks: int, *, seed: int, threads: int) -> Quantizer:
    """Return the mean of a sample, and k-means of each chunk from random vectors of the sample."""
    offsets = chunk_offsets(sample.shape[1], chunks)
    centroid = sample.mean(0, dtype=np.float64).astype(np.float32)
    rows = np.arange(CENTROIDS, dtype=np.uint64) % len(sample)
    _call("wl_graph_permute", seed, len(sample), rows, len(rows))
    trained = Quantizer(centroid, sample[rows] - centroid, offsets)
    for _ in range(LLOYD_ITERATIONS):
        codes = encode(sample, trained, threads=threads)
        for chunk in range(chunks):
            members = np.bincount(codes[:, chunk], minlength=CENTROIDS)
            has_any = members > 0  # a centroid without vectors stays
            for i in range(offsets[chunk], offsets[chunk + 1]):
                sums = np.bincount(codes[:, chunk], sample[:, i], CENTROIDS)
                trained.pivots[has_any, i] = (sums / np.maximum(members, 1) - centroid[i])[has_any]
    return trained


def encode(vectors: Vectors, quantizer: Quantizer, *, threads: int) -> NDArray[np.uint8]:
    """Return codes (count, chunks): the nearest centroid of each chunk."""
    offsets, columns = quantizer.offsets, np.ascontiguousarray(quantizer.pivots.T)
    codes = np.empty((len(vectors), len(offsets) - 1), np.uint8)
    how = quantizer.centroid, offsets, len(offsets) - 1, columns, threads
    _call("wl_pq_encode", vectors, _type(vectors), *vectors.shape, *how, codes)
    return codes


def distance_tables(queries: NDArray[np.float32], quantizer: Quantizer) -> NDArray[np.float32]:
    """Return each query's squared distances to all centroids, (queries, chunks, 256)."""
    offsets, columns = quantizer.offsets, np.ascontiguousarray(quantizer.pivots.T)
    tables = np.empty((len(queries), len(offsets) - 1, CENTROIDS), np.float32)
    for query, table in zip(np.ascontiguousarray(queries), tables, strict=True):
        _call("wl_pq_table", query, quantizer.centroid, offsets, len(table), columns, table)
    return tables


def code_distances(
    table: NDArray[np.float32], codes: NDArray[np.uint8], ids: NDArray[np.uint32] | None = None
) -> NDArray[np.float32]:
    """Return squared distances by codes to the vectors ``ids``, or to all."""
    distances = np.empty(len(codes) if ids is None else len(ids), np.float32)
    _call("wl_pq_distances", table, len(table), codes, ids, len(distances), distances)
    return distances


def node_sums(nodes: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return ``wl_sum`` of each row of bytes; rows may be apart in memory."""
    sums = np.empty(len(nodes), np.uint64)
    library.load().wl_sums(
        nodes.ctypes.data, nodes.strides[0], nodes.shape[1], len(nodes), sums.ctypes.data
    )
    return sums


def medoid_of(vectors: Vectors) -> int:
    """Return the vector nearest to the mean, both in float64; the first one of several."""
    blocks = [vectors[i : i + BLOCK] for i in range(0, len(vectors), BLOCK)]
    mean = sum(block.sum(0, dtype=np.float64) for block in blocks) / len(vectors)
    return int(np.concatenate([np.square(block - mean).sum(1) for block in blocks]).argmin())


def build_graph(
    vectors: Vectors,
    *,
    degree: int,
    build_list: int,
    start: int,
    seed: int,
    threads: int,
    progress: Callable[[int, int], Any] = lambda done, total: None,
) -> NDArray[np.uint32]:
    """Return a Vamana graph (count, 1 + degree): a node's degree, its neighbours, and zeros.

    ``progress`` hears every 50 ms how many nodes of two passes are done. What it raises, and
    Ctrl-C, end the build. Raises ``OSError`` if memory is missing.
    """
    count, dim = vectors.shape
    assert degree <= constants()["WL_DEGREE_LIMIT"]
    assert vectors.flags.c_contiguous
    numbers = {"type": _type(vectors), "dim": dim, "degree": degree, "build_list": build_list}
    more = {"count": count, "start": start, "seed": seed, "threads": threads, "alpha": ALPHA}
    setup = setup_of("wl_vamana_setup", vectors=vectors.ctypes.data, **numbers, **more)
    graph = np.empty((count, 1 + degree), np.uint32)
    done, stop = ctypes.c_uint64(), ctypes.c_uint32()
    arguments = ctypes.byref(setup), graph.ctypes.data, ctypes.byref(done), ctypes.byref(stop)
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(library.invoke, "wl_vamana_build", *arguments)
        try:
            while wait([building], SLICE_S).not_done:
                progress(done.value, 2 * count)
        except BaseException:
            stop.value = 1
            raise
        building.result()
    return graph


def _type(vectors: Vectors) -> int:
    return TYPES[next(kind for kind in VectorType if kind.dtype == vectors.dtype)]


def _call(name: str, *arguments: object) -> None:
    """Call a function of the library with numbers, and addresses of arrays in rows."""
    assert all(a.flags.c_contiguous for a in arguments if isinstance(a, np.ndarray))
    plain = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    getattr(library.load(), name)(*plain)
