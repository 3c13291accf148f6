"""Gathers of rows by the engine's shared library, through ctypes.

Field order and meaning are those of ``loaders/engine/src/wattload_engine.h``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int32, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import BUCKET_COUNT
from wattload.loaders.engine import library
from wattload.loaders.engine.library import OK, Error
from wattload.loaders.engine.targets import FAILURE_LIMIT, Failure
from wattload.loaders.gpu.native import NativeError
from wattload.loaders.gpu_queue.native import FAULTS

SLICE_MS = 100
"""Between two looks at a gather from Python, which then hears of signals."""


class _FileStruct(ctypes.Structure):
    """``wl_rows_file``."""

    _fields_ = (
        ("path", c_char_p),
        ("row_count", c_uint64),
        ("first_row", c_uint64),
        ("offset_bytes", c_uint64),
    )


class _Setup(ctypes.Structure):
    """``wl_rows_setup``."""

    _fields_ = (
        *(
            (name, c_uint32)
            for name in (
                "struct_bytes",
                "row_bytes",
                "outstanding",
                "queue_pairs",
                "pollers",
                "requester_threads",
                "fault",
                "hang_ms",
                "is_striped",
                "file_count",
            )
        ),
        *((name, c_uint64) for name in ("row_count", "batch_rows", "kept_rows", "cache_rows")),
        ("files", POINTER(_FileStruct)),
        ("gpu", c_char_p),
        ("image", c_char_p),
    )


class RowsResult(ctypes.Structure):
    """``wl_rows_result``."""

    _fields_ = (
        *(
            (name, c_uint64)
            for name in (
                "start_ns",
                "end_ns",
                "cpu_ns",
                "kept",
                "hits",
                "joined",
                "asked",
                "passed",
                "delivered",
                "failed",
                "unanswered",
                "taken",
                "answered",
                "operations",
                "read_bytes",
                "latency_sum_ns",
                "latency_min_ns",
                "latency_max_ns",
            )
        ),
        ("failures", Failure * FAILURE_LIMIT),
        ("counts", c_uint64 * BUCKET_COUNT),
    )


_ERROR = POINTER(Error)
_ROWS = POINTER(c_uint64)
_PROTOTYPES = {
    "wl_rows_open": ([POINTER(_Setup), POINTER(c_void_p), _ERROR], c_int32),
    "wl_rows_kept": ([c_void_p], c_void_p),
    "wl_rows_keep": ([c_void_p, c_void_p, c_uint64, _ERROR], c_int32),
    "wl_rows_expect": ([c_void_p, c_void_p, c_uint64, _ERROR], c_int32),
    "wl_rows_start": ([c_void_p, c_void_p, c_uint64, c_uint64, c_uint32, _ERROR], c_int32),
    "wl_rows_wait": (
        [c_void_p, c_uint32, POINTER(c_uint32), POINTER(RowsResult), _ERROR],
        c_int32,
    ),
    "wl_rows_abandon": ([c_void_p], None),
    "wl_rows_pull": ([c_void_p, c_uint64, c_uint64, _ROWS, _ROWS, _ERROR], c_int32),
    "wl_rows_close": ([c_void_p], None),
}


@lru_cache(maxsize=1)
def _load() -> ctypes.CDLL:
    """Return the engine's library with the types of these functions set; errors as its own."""
    return library.load_with(_PROTOTYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsFile:
    """A file of rows as the library takes it; see ``FeatureFile``."""

    path: str
    row_count: int
    first_row: int
    offset_bytes: int


class Rows:
    """The queue, its pollers, and what gathers rows with them; see ``wl_rows_open``."""

    def __init__(
        self,
        *,
        files: Sequence[RowsFile],
        row_count: int,
        row_bytes: int,
        outstanding: int,
        batch_rows: int,
        is_striped: bool,
        queue_pairs: int,
        pollers: int,
        requester_threads: int,
        kept_rows: int = 0,
        cache_rows: int = 0,
        fault: str = "none",
        hang_s: float = 10.0,
        gpu: str | None = None,
        image: bytes | None = None,
    ) -> None:
        """Open and register everything, and start the pollers.

        Raises:
            NativeError: the GPU, a file or the kernel refuses.
        """
        listed = (_FileStruct * len(files))(
            *(
                _FileStruct(
                    os.fsencode(each.path), each.row_count, each.first_row, each.offset_bytes
                )
                for each in files
            )
        )
        setup = _Setup(
            struct_bytes=ctypes.sizeof(_Setup),
            row_bytes=row_bytes,
            outstanding=outstanding,
            queue_pairs=queue_pairs,
            pollers=pollers,
            requester_threads=requester_threads,
            fault=FAULTS[fault],
            hang_ms=round(hang_s * 1000),
            is_striped=is_striped,
            file_count=len(files),
            row_count=row_count,
            batch_rows=batch_rows,
            kept_rows=kept_rows,
            cache_rows=cache_rows,
            files=listed,
            gpu=gpu.encode() if gpu else None,
            image=image,
        )
        self._kept_bytes = kept_rows * row_bytes
        self._rows, error = c_void_p(), Error()
        code = _load().wl_rows_open(
            ctypes.byref(setup), ctypes.byref(self._rows), ctypes.byref(error)
        )
        if code != OK:
            raise NativeError.of(error)

    def kept(self) -> NDArray[np.uint8]:
        """Return the buffer of host memory, valid until ``close``; it has a row or more."""
        address = _load().wl_rows_kept(self._rows)
        return np.ctypeslib.as_array((c_uint8 * self._kept_bytes).from_address(address))

    def keep(self, rows: NDArray[np.uint64]) -> None:
        """Say which rows the buffer holds, in its order."""
        self._call("wl_rows_keep", rows.ctypes.data, len(rows))

    def expect(self, rows: NDArray[np.uint64]) -> None:
        """Keep the pages of these rows for a gather to come."""
        self._call("wl_rows_expect", rows.ctypes.data, len(rows))

    def gather(self, rows: NDArray[np.uint64], into: int, *, is_expected: bool) -> RowsResult:
        """Gather rows to an address, from their start to their end.

        Signals are handled meanwhile. Whatever ends it early, nothing uses the memory afterwards,
        but there can be no other gather.

        Raises:
            NativeError: a file hangs, or the GPU is lost.
        """
        result, error, is_over = RowsResult(), Error(), c_uint32()
        try:
            self._call("wl_rows_start", rows.ctypes.data, len(rows), into, int(is_expected))
            while not is_over.value:
                code = _load().wl_rows_wait(
                    self._rows, SLICE_MS, ctypes.byref(is_over), ctypes.byref(result),
                    ctypes.byref(error),
                )  # fmt: skip
                if code != OK:
                    raise NativeError.of(error)
        finally:
            if not is_over.value:
                _load().wl_rows_abandon(self._rows)
        return result

    def pull(self, into: int, duration_s: float) -> float:
        """Return the rows per second that the GPU pulls out of host memory."""
        count, took_ns = c_uint64(), c_uint64()
        self._call(
            "wl_rows_pull", into, round(duration_s * 1e9), ctypes.byref(count),
            ctypes.byref(took_ns),
        )  # fmt: skip
        return count.value * 1e9 / took_ns.value

    def close(self) -> None:
        _load().wl_rows_close(self._rows)

    def _call(self, name: str, *arguments: object) -> None:
        error = Error()
        if getattr(_load(), name)(self._rows, *arguments, ctypes.byref(error)) != OK:
            raise NativeError.of(error)
