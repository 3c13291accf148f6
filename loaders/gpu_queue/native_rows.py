"""Gathers of rows by the engine's shared library, through ctypes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import c_char_p, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.engine import library
from wattload.loaders.engine.header import array_of, setup_of, struct
from wattload.loaders.engine.library import OK, Error
from wattload.loaders.gpu.native import NativeError
from wattload.loaders.gpu_queue.native import FAULTS

SLICE_MS = 100
"""Between two looks at a gather from Python, which then hears of signals."""


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
        listed = array_of(
            "wl_rows_file",
            (
                (os.fsencode(each.path), each.row_count, each.first_row, each.offset_bytes)
                for each in files
            ),
        )
        setup = setup_of(
            "wl_rows_setup",
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
            image=ctypes.cast(c_char_p(image), c_void_p),
        )
        self._kept_bytes = kept_rows * row_bytes
        self._rows, error = c_void_p(), Error()
        code = library.load().wl_rows_open(
            ctypes.byref(setup), ctypes.byref(self._rows), ctypes.byref(error)
        )
        if code != OK:
            raise NativeError.of(error)

    def kept(self) -> NDArray[np.uint8]:
        """Return the buffer of host memory, valid until ``close``; it has a row or more."""
        kept = library.load().wl_rows_kept(self._rows)
        return np.ctypeslib.as_array(kept, shape=(self._kept_bytes,))

    def keep(self, rows: NDArray[np.uint64]) -> None:
        """Say which rows the buffer holds, in its order."""
        self._call("wl_rows_keep", rows.ctypes.data, len(rows))

    def expect(self, rows: NDArray[np.uint64]) -> None:
        """Keep the pages of these rows for a gather to come."""
        self._call("wl_rows_expect", rows.ctypes.data, len(rows))

    def gather(self, rows: NDArray[np.uint64], into: int, *, is_expected: bool) -> ctypes.Structure:
        """Gather rows to an address, from their start to their end.

        Signals are handled meanwhile. Whatever ends it early, nothing uses the memory afterwards,
        but there can be no other gather.

        Raises:
            NativeError: a file hangs, or the GPU is lost.
        """
        result, error, is_over = struct("wl_rows_result")(), Error(), c_uint32()
        try:
            self._call("wl_rows_start", rows.ctypes.data, len(rows), into, int(is_expected))
            while not is_over.value:
                code = library.load().wl_rows_wait(
                    self._rows, SLICE_MS, ctypes.byref(is_over), ctypes.byref(result),
                    ctypes.byref(error),
                )  # fmt: skip
                if code != OK:
                    raise NativeError.of(error)
        finally:
            if not is_over.value:
                library.load().wl_rows_abandon(self._rows)
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
        library.load().wl_rows_close(self._rows)

    def _call(self, name: str, *arguments: object) -> None:
        error = Error()
        if getattr(library.load(), name)(self._rows, *arguments, ctypes.byref(error)) != OK:
            raise NativeError.of(error)
