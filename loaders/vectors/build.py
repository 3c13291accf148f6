"""What an index is built from, computed in C: codes by product quantization, and sums of nodes.

Results follow from vectors, settings and seed: not from the number of threads, nor from the CPU.
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
ROWS_AT_ONCE = 1 << 14
ALPHA = 1.2
SLICE_S = 0.05
TYPES = {VectorType.f32: constants()["WL_FLOAT32"], VectorType.u8: constants()["WL_UINT8"]}

Vectors = NDArray[np.float32] | NDArray[np.uint8]
"""(count, dim), in rows."""


class Quantizer(NamedTuple):
    """Product quantization: chunk c of a vector has the numbers ``offsets[c]`` to ``offsets[c+1]``.

    ``centroid`` (dim,) float32 is subtracted first. Row r of ``pivots`` (256, dim) float32 has
    centroid r of every chunk.
    """

    centroid: NDArray[np.float32]
    pivots: NDArray[np.float32]
    offsets: NDArray[np.uint32]


def chunk_offsets(dim: int, chunks: int) -> NDArray[np.uint32]:
    """Return where chunks begin and end, (chunks + 1,): the first ones are wider by one number.

    Raises:
        ConfigError: there are more chunks than numbers, or none.
    """
    if not 1 <= chunks <= dim:
        raise ConfigError(f"a vector of {dim} numbers has 1 to {dim} chunks, got {chunks}")
    narrow, wider = divmod(dim, chunks)
    return np.array([narrow * i + min(i, wider) for i in range(chunks + 1)], np.uint32)


def train_codes(sample: NDArray[np.float32], chunks: int, *, seed: int, threads: int) -> Quantizer:
    """Return the quantizer of a sample (count, dim); raises as ``chunk_offsets``, and ``OSError``.

    The centroid is the sample's mean. The chunks' centroids are those of k-means, with seeds by
    k-means++.
    """
    count, dim = sample.shape
    offsets = chunk_offsets(dim, chunks)
    centroid = sample.mean(0, dtype=np.float64).astype(np.float32)
    centred = np.ascontiguousarray(sample - centroid)
    pivots = np.empty((CENTROIDS, dim), np.float32)
    library.invoke(
        "wl_pq_train",
        *(centred.ctypes.data, count, dim, offsets.ctypes.data, chunks, LLOYD_ITERATIONS),
        *(seed & (1 << 64) - 1, threads, pivots.ctypes.data),
    )
    return Quantizer(centroid, pivots, offsets)


def encode(vectors: Vectors, quantizer: Quantizer, *, threads: int) -> NDArray[np.uint8]:
    """Return (count, chunks) codes: the nearest centroid of each chunk; raises ``OSError``."""
    centroid, pivots, offsets = quantizer
    codes = np.empty((len(vectors), len(offsets) - 1), np.uint8)
    library.invoke(
        "wl_pq_encode",
        *_described(vectors),
        *(centroid.ctypes.data, offsets.ctypes.data, codes.shape[1], pivots.ctypes.data),
        *(threads, codes.ctypes.data),
    )
    return codes


def distance_tables(queries: NDArray[np.float32], quantizer: Quantizer) -> NDArray[np.float32]:
    """Return each query's squared distances to centroids, (queries, chunks, 256)."""
    centroid, pivots, offsets = quantizer
    columns = np.ascontiguousarray(pivots.T)
    tables = np.empty((len(queries), len(offsets) - 1, CENTROIDS), np.float32)
    for query, table in zip(np.ascontiguousarray(queries), tables, strict=True):
        library.load().wl_pq_table(
            *(query.ctypes.data, centroid.ctypes.data, offsets.ctypes.data),
            *(len(offsets) - 1, columns.ctypes.data, table.ctypes.data),
        )
    return tables


def code_distances(
    table: NDArray[np.float32], codes: NDArray[np.uint8], ids: NDArray[np.uint32] | None = None
) -> NDArray[np.float32]:
    """Return squared distances by codes: to the vectors ``ids``, or to all of them."""
    distances = np.empty(len(codes) if ids is None else len(ids), np.float32)
    library.load().wl_pq_distances(
        *(table.ctypes.data, len(table), codes.ctypes.data),
        *(None if ids is None else ids.ctypes.data, len(distances), distances.ctypes.data),
    )
    return distances


def node_sums(nodes: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return ``wl_sum`` of each row of bytes; rows may be apart."""
    sums = np.empty(len(nodes), np.uint64)
    library.load().wl_sums(
        nodes.ctypes.data, nodes.strides[0], nodes.shape[1], len(nodes), sums.ctypes.data
    )
    return sums


def medoid_of(vectors: Vectors) -> int:
    """Return the vector that is nearest to the mean, both in float64; the first of equal ones."""
    blocks = [vectors[i : i + ROWS_AT_ONCE] for i in range(0, len(vectors), ROWS_AT_ONCE)]
    mean = sum(block.sum(0, dtype=np.float64) for block in blocks) / len(vectors)
    apart = [np.square(block - mean).sum(1) for block in blocks]
    return int(np.concatenate(apart).argmin())


def _described(vectors: Vectors) -> tuple[Any, ...]:
    """Return address, type, count and dim of vectors, as C takes them."""
    assert vectors.flags.c_contiguous
    count, dim = vectors.shape
    kind = next(kind for kind in VectorType if kind.dtype == vectors.dtype)
    return vectors.ctypes.data, TYPES[kind], count, dim


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
    """Return a Vamana graph, (count, 1 + degree): each node's degree, its neighbours, and zeros.

    ``progress`` hears every 50 ms how many nodes are done, of two passes; what it raises, and
    Ctrl-C, end the build.

    Raises:
        ConfigError: a number is out of range.
        OSError: the host refuses memory.
    """
    address, kind, count, dim = _described(vectors)
    graph = np.empty((count, 1 + degree), np.uint32)
    setup = setup_of(
        "wl_vamana_setup",
        **{"type": kind, "dim": dim, "degree": degree, "build_list": build_list},
        **{"count": count, "start": start, "threads": threads, "seed": seed & (1 << 64) - 1},
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
