"""The queue of the engine's shared library, and gathers of rows through it, by ctypes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import c_char_p, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.block_reads import ReadFile
from wattload.loaders.engine import library
from wattload.loaders.engine.header import array_of, constants, setup_of, struct
from wattload.loaders.engine.library import target_array
from wattload.loaders.feature_rows import FeaturePlan
from wattload.loaders.gpu.failures import NativeError, invoke, open_handle
from wattload.loaders.gpu.native import TIMED

ENGINES = {each: constants()[f"WL_QUEUE_{each.upper()}"] for each in ("null", "memory", "storage")}
PATTERNS = {"uniform": 0, "regions": 1, "zipf": 2}
"""The last for tests of the cache."""
FAULTS = {
    each: constants()[f"WL_FAULT_{each.upper()}"]
    for each in ("none", "lost", "twice", "swapped", "silent")
}
HANG_S = 10.0
"""Without any answer for so long, a drive or a poller hangs."""
ROW_PAIRS = 8
"""Queue pairs of each file of rows."""
SLICE_MS = 100
"""Between two looks at a gather from Python, which then hears of signals."""


def architecture(gpu: str) -> str:
    """Return what kernels are compiled for to run on a GPU, as ``sm_90``.

    Raises:
        NativeError: there is no driver, or no such GPU.
    """
    capability = c_uint32()
    invoke("wl_cuda_capability", gpu.encode(), ctypes.byref(capability))
    return f"sm_{capability.value}"


class Queue:
    """Queue pairs with their pollers and requesters; see ``wl_queue_open``."""

    def __init__(
        self,
        *,
        engine: str,
        files: Sequence[ReadFile],
        pattern: str = "uniform",
        fault: str = "none",
        hang_s: float = HANG_S,
        duration_s: float,
        ceiling_s: float = 0.0,
        seed: int = 0,
        cpus: Sequence[int] = (),
        gpu: str | None = None,
        image: bytes | None = None,
        **numbers: int,
    ) -> None:
        """Open and register everything, and start the pollers.

        ``numbers`` are those of ``wl_queue_setup`` by their names, such as ``block_bytes``.

        Raises:
            NativeError: the GPU, a file or the kernel refuses.
        """
        listed, own = target_array(files), np.array(cpus, dtype=np.uint32)
        setup = setup_of(
            "wl_queue_setup",
            engine=ENGINES[engine],
            pattern=PATTERNS[pattern],
            fault=FAULTS[fault],
            hang_ms=round(hang_s * 1000),
            duration_ns=round(duration_s * 1e9),
            ceiling_ns=round(ceiling_s * 1e9),
            seed=seed & (1 << 64) - 1,
            targets=listed,
            target_count=len(files),
            cpu_count=len(cpus),
            cpus=own.ctypes.data,
            gpu=gpu.encode() if gpu else None,
            image=ctypes.cast(c_char_p(image), c_void_p),
            **numbers,
        )
        self._queue = open_handle("wl_queue_open", setup)

    def start(self) -> None:
        """Let the timed stage start; from any thread."""
        library.load().wl_queue_start(self._queue)

    def stop(self) -> None:
        """End the timed stage; from any thread."""
        library.load().wl_queue_stop(self._queue)

    def run(self) -> tuple[ctypes.Structure, NativeError | None]:
        """Run all stages; other Python threads run meanwhile."""
        result = struct("wl_queue_result")()
        try:
            invoke("wl_queue_run", self._queue, ctypes.byref(result))
        except NativeError as error:
            return result, error
        return result, None

    def progress(self, each_bytes: int = 0) -> ctypes.Structure:
        """Return what has been answered so far, of which each read moves ``each_bytes``.

        The timed stage is over when ``run`` returns.
        """
        progress = struct("wl_gpu_progress")()
        library.load().wl_queue_progress_of(self._queue, ctypes.byref(progress))
        progress.bytes = progress.reads * each_bytes
        progress.stage = min(progress.stage, TIMED)
        return progress

    def trace(self) -> NDArray[np.void]:
        """Return the traced reads (``TRACE_DTYPE``, by time of submission), after ``run``."""
        return library.trace_rows(library.load().wl_queue_trace, self._queue)

    def target(self, number: int) -> ctypes.Structure:
        result = struct("wl_queue_reads")()
        library.load().wl_queue_target_of(self._queue, number, ctypes.byref(result))
        return result

    def poller(self, number: int) -> ctypes.Structure:
        result = struct("wl_queue_poller_result")()
        library.load().wl_queue_poller_of(self._queue, number, ctypes.byref(result))
        return result

    def close(self) -> None:
        library.load().wl_queue_close(self._queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSetup:
    """How rows are gathered; ``fault`` is what pollers do wrong in tests (``FAULTS``)."""

    pollers: int
    requester_threads: int
    host_rows: int
    cache_rows: int
    fault: str = "none"
    hang_s: float = HANG_S


class Rows:
    """The queue, its pollers, and what gathers rows with them; see ``wl_rows_open``."""

    def __init__(
        self, plan: FeaturePlan, setup: RowsSetup, gpu: str | None, image: bytes | None
    ) -> None:
        """Open and register everything, and start the pollers.

        Raises:
            NativeError: the GPU, a file or the kernel refuses.
        """
        files = array_of(
            "wl_rows_file",
            (
                (os.fsencode(each.path), each.row_count, each.first_row, each.offset_bytes)
                for each in plan.files
            ),
        )
        self._kept_bytes = setup.host_rows * plan.row_bytes
        self._rows = open_handle(
            "wl_rows_open",
            setup_of(
                "wl_rows_setup",
                row_bytes=plan.row_bytes,
                outstanding=plan.outstanding,
                queue_pairs=ROW_PAIRS,
                pollers=setup.pollers,
                requester_threads=setup.requester_threads,
                fault=FAULTS[setup.fault],
                hang_ms=round(setup.hang_s * 1000),
                is_striped=plan.is_striped,
                file_count=len(files),
                row_count=plan.row_count,
                batch_rows=plan.batch_rows,
                kept_rows=setup.host_rows,
                cache_rows=setup.cache_rows,
                files=files,
                gpu=gpu.encode() if gpu else None,
                image=ctypes.cast(c_char_p(image), c_void_p),
            ),
        )

    def kept(self) -> NDArray[np.uint8]:
        """Return the buffer of host memory, valid until ``close``; it has a row or more."""
        kept = library.load().wl_rows_kept(self._rows)
        return np.ctypeslib.as_array(kept, shape=(self._kept_bytes,))

    def keep(self, rows: NDArray[np.uint64]) -> None:
        """Say which rows the buffer holds, in its order."""
        invoke("wl_rows_keep", self._rows, rows.ctypes.data, len(rows))

    def expect(self, rows: NDArray[np.uint64]) -> None:
        """Keep the pages of these rows for a gather to come."""
        invoke("wl_rows_expect", self._rows, rows.ctypes.data, len(rows))

    def gather(self, rows: NDArray[np.uint64], into: int, *, is_expected: bool) -> ctypes.Structure:
        """Gather rows to an address, from their start to their end.

        Signals are handled meanwhile. Whatever ends it early, nothing uses the memory afterwards,
        but there can be no other gather.

        Raises:
            NativeError: a file hangs, or the GPU is lost.
        """
        result, is_over = struct("wl_rows_result")(), c_uint32()
        found = ctypes.byref(is_over), ctypes.byref(result)
        try:
            invoke("wl_rows_start", self._rows, rows.ctypes.data, len(rows), into, int(is_expected))
            while not is_over.value:
                invoke("wl_rows_wait", self._rows, SLICE_MS, *found)
        finally:
            if not is_over.value:
                library.load().wl_rows_abandon(self._rows)
        return result

    def pull(self, into: int, duration_s: float) -> float:
        """Return the rows per second that the GPU pulls out of host memory."""
        count, took_ns = c_uint64(), c_uint64()
        duration_ns = round(duration_s * 1e9)
        invoke(
            "wl_rows_pull", self._rows, into, duration_ns, ctypes.byref(count),
            ctypes.byref(took_ns),
        )  # fmt: skip
        return count.value * 1e9 / took_ns.value

    def close(self) -> None:
        library.load().wl_rows_close(self._rows)
