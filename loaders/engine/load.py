"""A load on this process's host, in the engine's library: threads that copy memory and compute."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from wattload.loaders.engine import library
from wattload.loaders.engine.header import constants, setup_of, struct

PERIOD_US = 9973
"""Of the quotas: a little less than 10 ms, so that the work does not beat with the kernel's ticks,
by which it counts CPU time."""


class Mode(IntEnum):
    """What the threads do; the values are the header's."""

    STOP = constants()["WL_LOAD_STOP"]
    COPY = constants()["WL_LOAD_COPY"]
    COMPUTE = constants()["WL_LOAD_COMPUTE"]
    QUOTAS = constants()["WL_LOAD_QUOTAS"]


def copier() -> str:
    """Return how this CPU copies, in words such as ``non-temporal copies (AVX2)``.

    Raises:
        MissingExtraError: the library is not built.
    """
    return str(library.load().wl_load_copier().decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCounts:
    """What the load has done since its start, and what was due by its quotas.

    Copied bytes are read once and written once. A unit is 1024 rounds of integer arithmetic.
    ``time_ns`` is CLOCK_MONOTONIC.
    """

    time_ns: int
    copied_bytes: int
    due_bytes: int
    units: int
    due_units: int


class EngineLoad:
    """A thread on each of some CPUs, with its own buffers on the CPU's NUMA node."""

    def __init__(self, cpus: Sequence[int], thread_bytes: int, period_us: int = PERIOD_US) -> None:
        """Start the threads, and touch ``thread_bytes`` of memory in each; they then wait.

        Raises:
            OSError: a CPU is not allowed, or memory or threads are lacking.
            ConfigError: a number is out of range.
        """
        self._cpus = np.array(cpus, dtype=np.uint32)
        setup = setup_of(
            "wl_load_setup",
            threads=len(cpus),
            period_us=period_us,
            thread_bytes=thread_bytes,
            cpus=self._cpus.ctypes.data,
        )
        self._handle = library.open_handle("wl_load_open", setup)

    def set(self, mode: Mode, copy_bytes: int = 0, units: int = 0) -> None:
        """Change what the threads do, from their next chunk on.

        The quotas, of each thread and period, are used with ``Mode.QUOTAS`` only.
        """
        library.load().wl_load_set(self._handle, mode, copy_bytes, units)

    def read(self) -> LoadCounts:
        counts = struct("wl_load_counts")()
        library.load().wl_load_read(self._handle, ctypes.byref(counts))
        return LoadCounts(**{name: getattr(counts, name) for name, *_ in counts._fields_})

    def close(self) -> None:
        library.load().wl_load_close(self._handle)
