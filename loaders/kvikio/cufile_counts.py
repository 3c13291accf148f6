"""cuFile's own count of the reads of this process, for a library that calls cuFile by itself."""

from __future__ import annotations

import ctypes

from wattload.loaders.gpu.native import LibraryReads

_LEVEL = 3
_GPU_LIMIT = 16
_LEVEL_1_BYTES = {115: 512, 120: 624}
"""By version: from 1.20 on level 1 counts vectors too (``cufile.h`` of both)."""
_SIZES_BYTES, _COUNT_BYTES = 512, 8


class _Status(ctypes.Structure):
    """``CUfileError_t``."""

    _fields_ = (("code", ctypes.c_int), ("cuda_code", ctypes.c_int))


class _OfGpu(ctypes.Structure):
    """``CUfilePerGpuStats_t``."""

    _fields_ = (
        ("uuid", ctypes.c_char * 16),
        ("bytes_and_times", ctypes.c_uint64 * 4),
        ("total", ctypes.c_uint64),
        ("p2p", ctypes.c_uint64),
        ("nvfs", ctypes.c_uint64),
        ("posix", ctypes.c_uint64),
        ("unaligned", ctypes.c_uint64),
        ("peer", ctypes.c_uint64),
        ("rest", ctypes.c_uint64 * 19),
    )


class CufileCounts:
    """Level 3 of cuFile's statistics, begun when this is created and the driver is open."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None
        self._level_1_bytes = 0
        try:
            library = ctypes.CDLL("libcufile.so.0")
            for name in ("GetVersion", "SetStatsLevel", "StatsStart", "GetStatsL3"):
                getattr(library, f"cuFile{name}").restype = _Status
        except (OSError, AttributeError):  # not installed, or older than 1.15
            return
        version = ctypes.c_int()
        library.cuFileGetVersion(ctypes.byref(version))
        known = _LEVEL_1_BYTES.get(version.value // 10)
        if known is None or library.cuFileSetStatsLevel(_LEVEL).code:
            return
        if not library.cuFileStatsStart().code:
            self._library, self._level_1_bytes = library, known

    def reads(self) -> LibraryReads | None:
        """Return the reads of all GPUs since then; ``None`` where cuFile counts none."""
        if self._library is None:
            return None
        start = self._level_1_bytes + _SIZES_BYTES
        room = start + _COUNT_BYTES + _GPU_LIMIT * ctypes.sizeof(_OfGpu)
        memory = (ctypes.c_uint8 * (2 * room))()
        if self._library.cuFileGetStatsL3(memory).code:
            return None
        gpus = ctypes.c_uint32.from_buffer(memory, start).value
        if gpus > _GPU_LIMIT:
            return None
        found = LibraryReads()
        for gpu in (_OfGpu * gpus).from_buffer(memory, start + _COUNT_BYTES):
            for name in ("total", "p2p", "nvfs", "posix", "peer"):
                setattr(found, name, getattr(found, name) + getattr(gpu, name))
        return found
