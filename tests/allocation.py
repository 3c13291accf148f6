"""Files with holes and with extents that were never written, made as the kernel makes them."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 0x1, 0x2, 0x10


def punch(path: Path, offset_bytes: int = 8192, length_bytes: int = 16384) -> None:
    """Punch a hole into a file; its size stays."""
    _fallocate(path, _PUNCH_HOLE | _KEEP_SIZE, offset_bytes, length_bytes)


def unwrite(path: Path, offset_bytes: int = 8192, length_bytes: int = 16384) -> None:
    """Turn a range of a file into allocated blocks that were never written."""
    _fallocate(path, _ZERO_RANGE | _KEEP_SIZE, offset_bytes, length_bytes)


def _fallocate(path: Path, mode: int, offset_bytes: int, length_bytes: int) -> None:
    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    descriptor = os.open(path, os.O_RDWR)
    try:
        if call(descriptor, mode, offset_bytes, length_bytes):
            raise OSError(ctypes.get_errno(), "fallocate", str(path))
    finally:
        os.close(descriptor)
