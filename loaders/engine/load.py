"""A load on this process's host, in the engine's library: threads that copy memory and compute."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

from wattload.loaders.engine import library

PERIOD_US = 9973
"""Of the quotas: a little less than 10 ms, so that the work does not beat with the kernel's ticks,
by which it counts CPU time."""


class Mode(IntEnum):
    """What the threads do; the values are the header's."""

    STOP = 0
    COPY = 1
    COMPUTE = 2
    QUOTAS = 3


class _Setup(ctypes.Structure):
    _fields_ = (
        ("struct_bytes", c_uint32),
        ("threads", c_uint32),
        ("period_us", c_uint32),
        ("reserved", c_uint32),
        ("thread_bytes", c_uint64),
        ("cpus", POINTER(c_uint32)),
    )


class _Counts(ctypes.Structure):
    _fields_ = (
        ("time_ns", c_uint64),
        ("copied_bytes", c_uint64),
        ("due_bytes", c_uint64),
        ("units", c_uint64),
        ("due_units", c_uint64),
    )


_PROTOTYPES = {
    "wl_load_copier": ([], c_char_p),
    "wl_load_open": ([POINTER(_Setup), POINTER(c_void_p), POINTER(library.Error)], c_int32),
    "wl_load_set": ([c_void_p, c_uint32, c_uint64, c_uint64], None),
    "wl_load_read": ([c_void_p, POINTER(_Counts)], None),
    "wl_load_close": ([c_void_p], None),
}


@cache
def _library() -> ctypes.CDLL:
    return library.load_with(_PROTOTYPES)


def copier() -> str:
    """Return how this CPU copies, in words such as ``non-temporal copies (AVX2)``.

    Raises:
        MissingExtraError: the library is not built.
    """
    return str(_library().wl_load_copier().decode())


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
        self._cpus = (c_uint32 * len(cpus))(*cpus)
        setup = _Setup(
            struct_bytes=ctypes.sizeof(_Setup),
            threads=len(cpus),
            period_us=period_us,
            thread_bytes=thread_bytes,
            cpus=self._cpus,
        )
        self._handle, error = c_void_p(), library.Error()
        opened = _library().wl_load_open(
            ctypes.byref(setup), ctypes.byref(self._handle), ctypes.byref(error)
        )
        if opened != library.OK:
            raise library.exception_of(error)

    def set(self, mode: Mode, copy_bytes: int = 0, units: int = 0) -> None:
        """Change what the threads do, from their next chunk on.

        The quotas, of each thread and period, are used with ``Mode.QUOTAS`` only.
        """
        _library().wl_load_set(self._handle, mode, copy_bytes, units)

    def read(self) -> LoadCounts:
        counts = _Counts()
        _library().wl_load_read(self._handle, ctypes.byref(counts))
        return LoadCounts(**{name: getattr(counts, name) for name, *_ in _Counts._fields_})

    def close(self) -> None:
        _library().wl_load_close(self._handle)
