"""Gathers rows of features into the memory of a GPU and prints what came of it, as JSON.

Each line of its input has ``setup`` (of ``RowsSetup``), ``plan`` (of ``write_rows``, with
``folder``, ``outstanding``, and ``kept`` for the most drawn rows), and ``steps``: ``["expect",
rows]``, ``["gather", rows]``, or ``["truncate", [rows]]`` for the first file. The bytes of each
gather are compared with the files, and the last error is kept. It is a process of its own because a
driver of CUDA is loaded once; ``EMULATED_CUDA`` says that it is an emulated one.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.contracts.feature_rows import ROW, write_rows
from tests.loaders.gpu_queue.queue_process import gpu_here
from wattload.core.errors import ConfigError
from wattload.core.io import MemoryRegion
from wattload.loaders.gpu_queue import feature_rows, kernels
from wattload.loaders.gpu_queue.feature_rows import QueueGatherer
from wattload.loaders.gpu_queue.native import RowsSetup


class GpuMemory:
    """Memory of a GPU, in its primary context."""

    def __init__(self, size_bytes: int) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        context, address = ctypes.c_void_p(), ctypes.c_uint64()
        assert self._cuda.cuInit(0) == 0
        assert self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self._cuda.cuCtxSetCurrent(context) == 0
        size = ctypes.c_size_t(size_bytes)
        assert self._cuda.cuMemAlloc_v2(ctypes.byref(address), size) == 0
        assert self._cuda.cuMemsetD8_v2(address, 0xA5, size) == 0
        self.region = MemoryRegion(address=address.value, size_bytes=size_bytes, owner=self)

    def release(self) -> None:
        """Release it."""
        assert self._cuda.cuMemFree_v2(ctypes.c_uint64(self.region.address)) == 0

    def part(self, first_bytes: int, size_bytes: int) -> MemoryRegion:
        """Return a part of it."""
        return replace(
            self.region, address=self.region.address + first_bytes, size_bytes=size_bytes
        )

    def read(self, region: MemoryRegion) -> NDArray[np.uint8]:
        """Return a copy of a part."""
        found = np.zeros(region.size_bytes, dtype=np.uint8)
        code = self._cuda.cuMemcpyDtoH_v2(
            ctypes.c_void_p(found.ctypes.data), ctypes.c_uint64(region.address),
            ctypes.c_size_t(region.size_bytes),
        )  # fmt: skip
        assert code == 0
        return found


def outcome(gpu: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what came of a line."""
    kept = options["plan"].pop("kept", [])
    folder = Path(options["plan"].pop("folder"))
    outstanding = options["plan"].pop("outstanding", 64)
    plan, rows = write_rows(folder, **options["plan"])
    memory = GpuMemory(1001 * ROW)
    plan = replace(
        plan, gpu=gpu, memories=(memory.region,), outstanding=outstanding,
        most_drawn=lambda count: np.array(kept[:count], dtype=np.uint64),
    )  # fmt: skip
    setup = RowsSetup(
        **{"pollers": 1, "requester_threads": 1, "cache_rows": 0, "host_rows": len(kept)}
        | options["setup"]
    )
    found: dict[str, Any] = {"gathers": [], "error": None}
    try:
        gatherer = QueueGatherer(plan, setup, needs_gpu=True)
    except ConfigError as error:
        memory.release()
        return found | {"error": [type(error).__name__, str(error)]}
    for name, listed in options["steps"]:
        numbers = np.array(listed, dtype=np.uint64)
        if name == "truncate":
            os.truncate(plan.paths[0], listed[0] * ROW)
            continue
        if name == "expect":
            gatherer.expect(numbers)
            continue
        into = memory.part(ROW, len(numbers) * ROW)
        try:
            result = gatherer.gather(numbers, into)
        except Exception as error:
            found["error"] = [type(error).__name__, str(error)]
            continue
        right = np.array_equal(memory.read(into).reshape(-1, ROW), rows[numbers.astype(int)])
        found["gathers"].append(
            {
                "right": right,
                "counts": [result.host_rows, result.cache_rows, result.merged_rows,
                           result.storage_rows],
                "storage_bytes": result.storage_bytes,
            }
        )  # fmt: skip
    found["pull"] = gatherer.pull_rows_per_s
    path = gatherer.path()
    found["word"] = path.counts.word if path.counts else None
    gatherer.close()
    memory.release()
    return found


def main() -> None:
    """Answer each line."""
    if "EMULATED_CUDA" in os.environ:
        kernels.compiled = lambda *_: b"emulated"
    feature_rows.PULL_S = 0.02
    gpu, _ = gpu_here(0)
    for line in sys.stdin:
        print(json.dumps(outcome(gpu, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
