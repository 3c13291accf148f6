"""Builds of an index in memory: codes by product quantization, and a Vamana graph.

The work is done in C. Its results follow from vectors, settings and seed: not from the number of
threads, nor from the CPU. What is out of range raises ``ConfigError``, missing memory ``OSError``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.loaders.engine import library
from wattload.loaders.engine.header import constants, setup_of
from wattload.loaders.vectors.layout import VectorType

CENTROIDS = constants()["WL_CENTROIDS"]
LLOYD_ITERATIONS = 12
ALPHA = 1.2
SLICE_S = 0.05
BLOCK = 1 << 14
TYPES = {VectorType.f32: constants()["WL_FLOAT32"], VectorType.u8: constants()["WL_UINT8"]}

Vectors = NDArray[np.float32] | NDArray[np.uint8]
"""(count, dim)."""


class Quantizer(NamedTuple):
    """Product quantization: chunk c of a vector has the numbers ``offsets[c]`` to ``offsets[c+1]``.

    ``centroid`` (dim,) float32 is subtracted first. ``offsets`` (chunks + 1,) are uint32. Row r of
    ``pivots`` (256, dim) float32 has centroid r of every chunk.
    """

    centroid: NDArray[np.float32]
    pivots: NDArray[np.float32]
    offsets: NDArray[np.uint32]


def chunk_offsets(dim: int, chunks: int) -> NDArray[np.uint32]:
    """Return where chunks begin and end; the first ones may be wider by one number."""
    if not 1 <= chunks <= dim:
        raise ConfigError(f"a vector of {dim} numbers has 1 to {dim} chunks, got {chunks}")
    narrow, wider = divmod(dim, chunks)
    return np.array([narrow * i + min(i, wider) for i in range(chunks + 1)], np.uint32)


def train_codes(sample: NDArray[np.float32], chunks: int, *, seed: int, threads: int) -> Quantizer:
    """Return the quantizer of a sample: its mean, and k-means of each chunk, seeded by vectors."""
    offsets = chunk_offsets(sample.shape[1], chunks)
    centroid = sample.mean(0, dtype=np.float64).astype(np.float32)
    rows = np.arange(CENTROIDS, dtype=np.uint64) % len(sample)
    library.load().wl_graph_permute(seed, len(sample), rows.ctypes.data, len(rows))
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
    centroid, pivots, offsets = quantizer
    codes = np.empty((len(vectors), len(offsets) - 1), np.uint8)
    library.invoke(
        *("wl_pq_encode", *_described(vectors)),
        *(centroid.ctypes.data, offsets.ctypes.data, codes.shape[1], pivots.ctypes.data),
        *(threads, codes.ctypes.data),
    )
    return codes


def distance_tables(queries: NDArray[np.float32], quantizer: Quantizer) -> NDArray[np.float32]:
    """Return each query's squared distances to all centroids, (queries, chunks, 256)."""
    (centroid, pivots, offsets), fill = quantizer, library.load().wl_pq_table
    columns, chunks = np.ascontiguousarray(pivots.T), len(offsets) - 1
    tables = np.empty((len(queries), chunks, CENTROIDS), np.float32)
    before = centroid.ctypes.data, offsets.ctypes.data, chunks, columns.ctypes.data
    for query, table in zip(np.ascontiguousarray(queries), tables, strict=True):
        fill(query.ctypes.data, *before, table.ctypes.data)
    return tables


def code_distances(
    table: NDArray[np.float32], codes: NDArray[np.uint8], ids: NDArray[np.uint32] | None = None
) -> NDArray[np.float32]:
    """Return squared distances by codes to the vectors ``ids``, or to all."""
    distances = np.empty(len(codes) if ids is None else len(ids), np.float32)
    library.load().wl_pq_distances(
        *(
            table.ctypes.data,
            len(table),
            codes.ctypes.data,
            None if ids is None else ids.ctypes.data,
        ),
        *(len(distances), distances.ctypes.data),
    )
    return distances


def node_sums(nodes: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return ``wl_sum`` of each row of bytes, which may be a part of a row in memory."""
    sums, shape = np.empty(len(nodes), np.uint64), (nodes.shape[1], len(nodes))
    library.load().wl_sums(nodes.ctypes.data, nodes.strides[0], *shape, sums.ctypes.data)
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
    Ctrl-C, end the build.
    """
    address, kind, count, dim = _described(vectors)
    graph = np.empty((count, 1 + degree), np.uint32)
    setup = setup_of(
        "wl_vamana_setup",
        **{"type": kind, "dim": dim, "degree": degree, "build_list": build_list},
        **{"count": count, "start": start, "threads": threads, "seed": seed},
        **{"vectors": address, "alpha": ALPHA},
    )
    done, stop = ctypes.c_uint64(), ctypes.c_uint32()
    arguments = (ctypes.byref(setup), graph.ctypes.data, ctypes.byref(done), ctypes.byref(stop))
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


def _described(vectors: Vectors) -> tuple[int, int, int, int]:
    """Return the address, type, count and dim of vectors, which are in rows."""
    assert vectors.flags.c_contiguous
    kind = next(kind for kind in VectorType if kind.dtype == vectors.dtype)
    return vectors.ctypes.data, TYPES[kind], *vectors.shape
