"""Mapped files of the engine's shared library, through ctypes.

Field order and meaning are those of ``loaders/engine/src/wattload_engine.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, c_int32, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import BUCKET_COUNT
from wattload.loaders.engine import library
from wattload.loaders.engine.library import OK, Error
from wattload.loaders.engine.targets import (
    FAILURE_LIMIT,
    TARGET_LIMIT,
    Failure,
    Target,
    TargetStruct,
    target_array,
)

ADVICE = {"normal": 0, "random": 1}
PATTERNS = {"uniform": 0, "regions": 1}
THREAD_LIMIT = 1024


class _Setup(ctypes.Structure):
    """``wl_mapped_setup``."""

    _fields_ = (
        *(
            (name, c_uint32)
            for name in (
                "struct_bytes",
                "threads",
                "block_bytes",
                "requesters",
                "pattern",
                "advice",
                "sample_every",
                "trace_every",
            )
        ),
        ("seed", c_uint64),
        ("targets", POINTER(TargetStruct)),
        ("target_count", c_uint32),
        ("reserved", c_uint32),
    )


class Result(ctypes.Structure):
    """``wl_mapped_result``."""

    _fields_ = (
        *(
            (name, c_uint64)
            for name in (
                "start_ns",
                "end_ns",
                "operations",
                "failed",
                "wrong",
                "wrong_offset",
                "bad_blocks",
            )
        ),
        ("wrong_target", c_uint32),
        ("reserved", c_uint32),
        ("latency_sum_ns", c_uint64),
        ("latency_min_ns", c_uint64),
        ("latency_max_ns", c_uint64),
        ("target_operations", c_uint64 * TARGET_LIMIT),
        ("failures", Failure * FAILURE_LIMIT),
        ("counts", c_uint64 * BUCKET_COUNT),
    )


class _Mapping(ctypes.Structure):
    """``wl_mapping``."""

    _fields_ = (("address", c_uint64), ("bytes", c_uint64))


@dataclass(slots=True)
class Guard:
    """After the block, ``fault`` is the mapping and offset of the first failed read, or ``None``.

    The mapping holds zeros from then on.
    """

    fault: tuple[int, int] | None = None


@contextmanager
def guarded(mappings: Sequence[tuple[int, int]]) -> Iterator[Guard]:
    """Keep failed reads of mapped files from ending this process; see ``wl_guard_begin``.

    Args:
        mappings: address and size in bytes of each mapped file, 64 at most.
    """
    found, error = Guard(), Error()
    listed = (_Mapping * len(mappings))(*(_Mapping(*each) for each in mappings))
    if load().wl_guard_begin(listed, len(mappings), ctypes.byref(error)) != OK:
        raise library.exception_of(error)
    try:
        yield found
    finally:
        address = load().wl_guard_end()
        for number, (start, size_bytes) in enumerate(mappings):
            if start <= address < start + size_bytes:
                found.fault = number, address - start


_ERROR = POINTER(Error)
_PROTOTYPES = {
    "wl_mapped_open": ([POINTER(_Setup), POINTER(c_void_p), _ERROR], c_int32),
    "wl_mapped_start": ([c_void_p, _ERROR], c_int32),
    "wl_mapped_reads": ([c_void_p], c_uint64),
    "wl_mapped_finish": ([c_void_p, POINTER(Result)], None),
    "wl_mapped_trace": ([c_void_p, POINTER(c_uint64)], c_void_p),
    "wl_mapped_close": ([c_void_p], None),
    "wl_guard_begin": ([POINTER(_Mapping), c_uint32, _ERROR], c_int32),
    "wl_guard_end": ([], c_uint64),
}


@lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    """Return the engine's library with the types of these functions set; errors as its own."""
    return library.load_with(_PROTOTYPES)


class Mapped:
    """Mapped files and the threads that read them; see ``wl_mapped_open``."""

    def __init__(
        self,
        *,
        targets: Sequence[Target],
        threads: int,
        block_bytes: int,
        requesters: int,
        pattern: str,
        advice: str,
        sample_every: int,
        trace_every: int,
        seed: int,
    ) -> None:
        """Open and map the files.

        Raises:
            OSError: a file can't be opened or mapped.
            ConfigError: a number is out of range.
            DataError: a file is shorter than planned.
        """
        listed = target_array(targets)
        setup = _Setup(
            struct_bytes=ctypes.sizeof(_Setup),
            threads=threads,
            block_bytes=block_bytes,
            requesters=requesters,
            pattern=PATTERNS[pattern],
            advice=ADVICE[advice],
            sample_every=sample_every,
            trace_every=trace_every,
            seed=seed & (1 << 64) - 1,
            targets=listed,
            target_count=len(targets),
        )
        self._mapped: c_void_p | None = c_void_p()
        error = Error()
        code = load().wl_mapped_open(
            ctypes.byref(setup), ctypes.byref(self._mapped), ctypes.byref(error)
        )
        if code != OK:
            self._mapped = None
            raise library.exception_of(error)

    def start(self) -> None:
        """Start the threads, once; raises ``OSError`` if the host refuses one."""
        error = Error()
        if load().wl_mapped_start(self._mapped, ctypes.byref(error)) != OK:
            raise library.exception_of(error)

    def reads(self) -> int:
        return int(load().wl_mapped_reads(self._mapped))

    def finish(self) -> Result:
        """End the threads, each after its read, and return what they did."""
        result = Result()
        load().wl_mapped_finish(self._mapped, ctypes.byref(result))
        return result

    def trace(self) -> NDArray[np.void]:
        """Return the traced reads (``TRACE_DTYPE``, by time), after ``finish``."""
        return library.trace_rows(load().wl_mapped_trace, self._mapped)

    def close(self) -> None:
        """End the threads and unmap the files; safe to call twice."""
        if self._mapped is not None:
            load().wl_mapped_close(self._mapped)
            self._mapped = None
