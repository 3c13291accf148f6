"""Mapped files of the engine's shared library, through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_void_p
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.engine import library
from wattload.loaders.engine.header import array_of, setup_of, struct
from wattload.loaders.engine.library import OK, Error
from wattload.loaders.engine.targets import Target, target_array

ADVICE = {"normal": 0, "random": 1}
PATTERNS = {"uniform": 0, "regions": 1}
THREAD_LIMIT = 1024


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
    listed = array_of("wl_mapping", mappings)
    if library.load().wl_guard_begin(listed, len(mappings), ctypes.byref(error)) != OK:
        raise library.exception_of(error)
    try:
        yield found
    finally:
        address = library.load().wl_guard_end()
        for number, (start, size_bytes) in enumerate(mappings):
            if start <= address < start + size_bytes:
                found.fault = number, address - start


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
        setup = setup_of(
            "wl_mapped_setup",
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
        code = library.load().wl_mapped_open(
            ctypes.byref(setup), ctypes.byref(self._mapped), ctypes.byref(error)
        )
        if code != OK:
            self._mapped = None
            raise library.exception_of(error)

    def start(self) -> None:
        """Start the threads, once; raises ``OSError`` if the host refuses one."""
        error = Error()
        if library.load().wl_mapped_start(self._mapped, ctypes.byref(error)) != OK:
            raise library.exception_of(error)

    def reads(self) -> int:
        return int(library.load().wl_mapped_reads(self._mapped))

    def finish(self) -> ctypes.Structure:
        """End the threads, each after its read, and return what they did."""
        result = struct("wl_mapped_result")()
        library.load().wl_mapped_finish(self._mapped, ctypes.byref(result))
        return result

    def trace(self) -> NDArray[np.void]:
        """Return the traced reads (``TRACE_DTYPE``, by time), after ``finish``."""
        return library.trace_rows(library.load().wl_mapped_trace, self._mapped)

    def close(self) -> None:
        """End the threads and unmap the files; safe to call twice."""
        if self._mapped is not None:
            library.load().wl_mapped_close(self._mapped)
            self._mapped = None
