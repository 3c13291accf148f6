"""The queue of the engine's shared library, through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_char_p, c_uint32, c_void_p

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.engine import library
from wattload.loaders.engine.header import constants, setup_of, struct
from wattload.loaders.engine.library import OK, Error
from wattload.loaders.engine.targets import Target, target_array
from wattload.loaders.gpu.native import TIMED, NativeError

ENGINES = {each: constants()[f"WL_QUEUE_{each.upper()}"] for each in ("null", "memory", "storage")}
PATTERNS = {"uniform": 0, "regions": 1, "zipf": 2}
"""The last for tests of the cache."""
FAULTS = {
    each: constants()[f"WL_FAULT_{each.upper()}"]
    for each in ("none", "lost", "twice", "swapped", "silent")
}


def architecture(gpu: str) -> str:
    """Return what kernels are compiled for to run on a GPU, as ``sm_90``.

    Raises:
        NativeError: there is no driver, or no such GPU.
    """
    capability, error = c_uint32(), Error()
    code = library.load().wl_cuda_capability(
        gpu.encode(), ctypes.byref(capability), ctypes.byref(error)
    )
    if code != OK:
        raise NativeError.of(error)
    return f"sm_{capability.value}"


class Queue:
    """Queue pairs with their pollers and requesters; see ``wl_queue_open``."""

    def __init__(
        self,
        *,
        engine: str,
        targets: Sequence[Target],
        block_bytes: int = 512,
        read_bytes: int = 512,
        requesters: int = 512,
        queue_pairs: int = 8,
        queue_size: int = 1024,
        pollers: int = 1,
        pattern: str = "uniform",
        requester_threads: int = 1,
        sample_every: int = 64,
        trace_every: int = 0,
        fault: str = "none",
        hang_s: float = 10.0,
        first_number: int = 0,
        table_bytes: int = 32 << 20,
        cache_bytes: int = 0,
        duration_s: float,
        ceiling_s: float = 0.0,
        seed: int = 0,
        cpus: Sequence[int] = (),
        gpu: str | None = None,
        image: bytes | None = None,
    ) -> None:
        """Open and register everything, and start the pollers.

        Raises:
            NativeError: the GPU, a file or the kernel refuses.
        """
        listed, own = target_array(targets), np.array(cpus, dtype=np.uint32)
        setup = setup_of(
            "wl_queue_setup",
            engine=ENGINES[engine],
            block_bytes=block_bytes,
            read_bytes=read_bytes,
            requesters=requesters,
            queue_pairs=queue_pairs,
            queue_size=queue_size,
            pollers=pollers,
            pattern=PATTERNS[pattern],
            requester_threads=requester_threads,
            sample_every=sample_every,
            trace_every=trace_every,
            fault=FAULTS[fault],
            hang_ms=round(hang_s * 1000),
            first_number=first_number,
            table_bytes=table_bytes,
            cache_bytes=cache_bytes,
            duration_ns=round(duration_s * 1e9),
            ceiling_ns=round(ceiling_s * 1e9),
            seed=seed & (1 << 64) - 1,
            targets=listed,
            target_count=len(targets),
            cpu_count=len(cpus),
            cpus=own.ctypes.data,
            gpu=gpu.encode() if gpu else None,
            image=ctypes.cast(c_char_p(image), c_void_p),
        )
        self._queue, error = c_void_p(), Error()
        code = library.load().wl_queue_open(
            ctypes.byref(setup), ctypes.byref(self._queue), ctypes.byref(error)
        )
        if code != OK:
            raise NativeError.of(error)

    def start(self) -> None:
        """Let the timed stage start; from any thread."""
        library.load().wl_queue_start(self._queue)

    def stop(self) -> None:
        """End the timed stage; from any thread."""
        library.load().wl_queue_stop(self._queue)

    def run(self) -> tuple[ctypes.Structure, NativeError | None]:
        """Run all stages; other Python threads run meanwhile."""
        result, error = struct("wl_queue_result")(), Error()
        code = library.load().wl_queue_run(self._queue, ctypes.byref(result), ctypes.byref(error))
        return result, None if code == OK else NativeError.of(error)

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
