"""The queue of the engine's shared library, through ctypes.

Field order and meaning are those of ``loaders/engine/src/wattload_engine.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import BUCKET_COUNT
from wattload.loaders.engine import library
from wattload.loaders.engine.library import OK, Error
from wattload.loaders.engine.targets import (
    FAILURE_LIMIT,
    Failure,
    Target,
    TargetStruct,
    target_array,
)
from wattload.loaders.gpu.native import TIMED, NativeError, Progress

ENGINES = {"null": 0, "memory": 1, "storage": 2}
PATTERNS = {"uniform": 0, "regions": 1, "zipf": 2}
"""The last for tests of the cache."""
FAULTS = {"none": 0, "lost": 1, "twice": 2, "swapped": 3, "silent": 4}
HANGS = -19


class _Setup(ctypes.Structure):
    """``wl_queue_setup``."""

    _fields_ = (
        *(
            (name, c_uint32)
            for name in (
                "struct_bytes",
                "engine",
                "block_bytes",
                "read_bytes",
                "requesters",
                "queue_pairs",
                "queue_size",
                "pollers",
                "pattern",
                "requester_threads",
                "sample_every",
                "trace_every",
                "fault",
                "hang_ms",
            )
        ),
        *(
            (name, c_uint64)
            for name in (
                "first_number",
                "table_bytes",
                "cache_bytes",
                "duration_ns",
                "ceiling_ns",
                "seed",
            )
        ),
        ("targets", POINTER(TargetStruct)),
        ("target_count", c_uint32),
        ("cpu_count", c_uint32),
        ("cpus", POINTER(c_uint32)),
        ("gpu", c_char_p),
        ("image", c_char_p),
    )


class Result(ctypes.Structure):
    """``wl_queue_result``."""

    _fields_ = (
        *(
            (name, c_uint64)
            for name in (
                "start_ns",
                "end_ns",
                "cpu_ns",
                "requests",
                "taken",
                "answered",
                "operations",
                "delivered",
                "failed",
                "wrong",
                "unanswered",
                "asked",
                "coalesced",
                "hits",
                "joined",
                "passed",
                "wrong_offset",
            )
        ),
        ("wrong_target", c_uint32),
        ("reserved", c_uint32),
        *(
            (name, c_uint64)
            for name in (
                "compared_bytes",
                "bad_blocks",
                "pull_requests",
                "pull_ns",
                "null_requests",
                "null_ns",
                "clock_step_ns",
            )
        ),
        ("failures", Failure * FAILURE_LIMIT),
        ("counts", c_uint64 * BUCKET_COUNT),
    )


class TargetResult(ctypes.Structure):
    """``wl_queue_target_result``."""

    _fields_ = (
        ("operations", c_uint64),
        ("latency_sum_ns", c_uint64),
        ("latency_min_ns", c_uint64),
        ("latency_max_ns", c_uint64),
        ("counts", c_uint64 * BUCKET_COUNT),
    )


class PollerResult(ctypes.Structure):
    """``wl_queue_poller_result``."""

    _fields_ = (("taken", c_uint64), ("answered", c_uint64), ("busy_ns", c_uint64))


_ERROR = POINTER(Error)
_PROTOTYPES = {
    "wl_cuda_capability": ([c_char_p, POINTER(c_uint32), _ERROR], c_int32),
    "wl_queue_open": ([POINTER(_Setup), POINTER(c_void_p), _ERROR], c_int32),
    "wl_queue_start": ([c_void_p], None),
    "wl_queue_stop": ([c_void_p], None),
    "wl_queue_run": ([c_void_p, POINTER(Result), _ERROR], c_int32),
    "wl_queue_progress_of": ([c_void_p, POINTER(Progress)], None),
    "wl_queue_target_of": ([c_void_p, c_uint32, POINTER(TargetResult)], None),
    "wl_queue_poller_of": ([c_void_p, c_uint32, POINTER(PollerResult)], None),
    "wl_queue_trace": ([c_void_p, POINTER(c_uint64)], c_void_p),
    "wl_queue_close": ([c_void_p], None),
}


@lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    """Return the engine's library with the types of these functions set; errors as its own."""
    return library.load_with(_PROTOTYPES)


def architecture(gpu: str) -> str:
    """Return what kernels are compiled for to run on a GPU, as ``sm_90``.

    Raises:
        NativeError: there is no driver, or no such GPU.
    """
    capability, error = c_uint32(), Error()
    code = load().wl_cuda_capability(gpu.encode(), ctypes.byref(capability), ctypes.byref(error))
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
        listed = target_array(targets)
        setup = _Setup(
            struct_bytes=ctypes.sizeof(_Setup),
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
            cpus=(c_uint32 * len(cpus))(*cpus),
            gpu=gpu.encode() if gpu else None,
            image=image,
        )
        self._queue, error = c_void_p(), Error()
        code = load().wl_queue_open(
            ctypes.byref(setup), ctypes.byref(self._queue), ctypes.byref(error)
        )
        if code != OK:
            raise NativeError.of(error)

    def start(self) -> None:
        """Let the timed stage start; from any thread."""
        load().wl_queue_start(self._queue)

    def stop(self) -> None:
        """End the timed stage; from any thread."""
        load().wl_queue_stop(self._queue)

    def run(self) -> tuple[Result, NativeError | None]:
        """Run all stages; other Python threads run meanwhile."""
        result, error = Result(), Error()
        code = load().wl_queue_run(self._queue, ctypes.byref(result), ctypes.byref(error))
        return result, None if code == OK else NativeError.of(error)

    def progress(self) -> Progress:
        """Return what has been answered so far; the timed stage is over when ``run`` returns."""
        progress = Progress()
        load().wl_queue_progress_of(self._queue, ctypes.byref(progress))
        progress.stage = min(progress.stage, TIMED)
        return progress

    def trace(self) -> NDArray[np.void]:
        """Return the traced reads (``TRACE_DTYPE``, by time of submission), after ``run``."""
        return library.trace_rows(load().wl_queue_trace, self._queue)

    def target(self, number: int) -> TargetResult:
        result = TargetResult()
        load().wl_queue_target_of(self._queue, number, ctypes.byref(result))
        return result

    def poller(self, number: int) -> PollerResult:
        result = PollerResult()
        load().wl_queue_poller_of(self._queue, number, ctypes.byref(result))
        return result

    def close(self) -> None:
        load().wl_queue_close(self._queue)
