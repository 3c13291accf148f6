"""Parts of a vector search alone: look-ups of codes, and the search for true neighbours."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.child import output
from benchmarks.measure import Comparison, Figures, Row
from wattload.loaders.engine import library
from wattload.workloads.vector_search.truth import TILE, nearest

DIM, CHUNKS, K = 128, 32, 10
CODES = 1_000_000
BATCH, BATCHES = 64, 50_000
"""Neighbours of a node, and nodes."""
SCANNED, ASKED = 200_000, 1_000
LOOK_UPS = Path(__file__).parent / "vector_peers/lookups.c"


def look_ups(folder: Path) -> Comparison:
    """Compare distances by codes of random neighbours, of which no cache has all."""
    program = folder / "lookups.so"
    compiler = ("cc", "-O3", "-march=x86-64-v3", "-shared", "-fPIC")
    output([*compiler, "-o", str(program), str(LOOK_UPS)])
    peers, draw = ctypes.CDLL(str(program)), np.random.default_rng(1)
    codes = draw.integers(0, 256, (CODES, CHUNKS), np.uint8)
    table = draw.random((CHUNKS, 256), np.float32)
    ids = draw.integers(0, CODES, (BATCHES, BATCH), np.uint32)
    distances = np.empty(ids.shape, np.float32)
    pointer, size = ctypes.c_void_p, ctypes.c_uint64
    inputs = (pointer, pointer, ctypes.c_uint32, pointer, pointer)
    peers.repeat.argtypes = (*inputs, size, size, pointer)

    def run(function: Any) -> Figures:  # noqa: ANN401 - ctypes has no type for functions
        start_s = time.monotonic()
        peers.repeat(
            *(ctypes.cast(function, pointer), table.ctypes.data, CHUNKS, codes.ctypes.data),
            *(ids.ctypes.data, BATCH, BATCHES, distances.ctypes.data),
        )
        seconds = time.monotonic() - start_s
        return {"vectors_per_s": ids.size / seconds, "distance": float(distances.mean())}

    rate = Row(name="look-ups", figure="vectors_per_s", unit="M/s", scale=1e-6, goal=1.0)
    both = {"engine": library.load().wl_pq_distances, "DiskANN's loop": peers.diskann}
    ways = {name: partial(run, function) for name, function in both.items()}
    return Comparison(rows=(rate,), ways=ways, warm=True)


def brute_force() -> Comparison:
    """Compare the search for true neighbours with its product of matrices alone."""
    draw = np.random.default_rng(1)
    vectors = draw.standard_normal((SCANNED, DIM), np.float32)
    queries = draw.standard_normal((ASKED, DIM), np.float32)
    product = np.empty((ASKED, TILE), np.float32)

    def multiply() -> None:
        for first in range(0, SCANNED, TILE):
            tile = vectors[first : first + TILE]
            np.matmul(queries, tile.T, out=product[:, : len(tile)])

    def run(scan: Callable[[], object]) -> Figures:
        start_s = time.monotonic()
        scan()
        return {"pairs_per_s": SCANNED * ASKED / (time.monotonic() - start_s)}

    rate = Row(name="brute force", figure="pairs_per_s", unit="M/s", scale=1e-6, goal=0.5)
    scans: dict[str, Callable[[], object]] = {
        "truth": partial(nearest, queries, [vectors], K),
        "sgemm": multiply,
    }
    ways = {name: partial(run, scan) for name, scan in scans.items()}
    return Comparison(rows=(rate,), ways=ways, warm=True)
