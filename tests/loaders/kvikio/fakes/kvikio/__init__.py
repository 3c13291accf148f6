"""The part of KvikIO 26.10 that the reader uses: its calls, its settings and its statistics.

With FAKE_KVIKIO_BACKEND=GDS a file is read by the stub of libcufile, else by POSIX. Every read
number FAKE_KVIKIO_FAIL_EVERY fails, and so does one that is not into the start of registered
memory: concurrent reads into one registration are slow. FAKE_KVIKIO_SETTINGS is a file that gets
all settings.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

__version__ = "26.10.00"

_driver = ctypes.CDLL("libcuda.so.1")
_lock = threading.Lock()
_registered: set[int] = set()
_totals = {name: {"num_ops": 0, "num_errors": 0} for name in ("POSIX", "GDS", "MMAP")}
_is_gds = os.environ.get("FAKE_KVIKIO_BACKEND") == "GDS"
_fail_every = int(os.environ.get("FAKE_KVIKIO_FAIL_EVERY", "0"))


class _Status(ctypes.Structure):
    _fields_ = (("code", ctypes.c_int), ("cuda_code", ctypes.c_int))


class _Descriptor(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("fd", ctypes.c_uint64), ("operations", ctypes.c_void_p))


def _cufile() -> ctypes.CDLL:
    library = ctypes.CDLL("libcufile.so.0")
    library.cuFileHandleRegister.restype = _Status
    library.cuFileRead.restype = ctypes.c_ssize_t
    library.cuFileRead.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int64),
    ]
    return library


class CuFile:
    def __init__(self, file: str, flags: str = "r") -> None:
        self._fd = os.open(file, os.O_RDONLY)
        self._handle = ctypes.c_void_p()
        if _is_gds:
            described = _Descriptor(1, self._fd, None)
            status = _cufile().cuFileHandleRegister(
                ctypes.byref(self._handle), ctypes.byref(described)
            )
            if status.code:
                raise RuntimeError(f"cuFile error: {status.code}")

    def read(self, buf: Any, size: int, file_offset: int) -> int:
        return self._read(buf, size, file_offset, 0)

    def raw_read(self, buf: Any, size: int, file_offset: int, dev_offset: int) -> int:
        context = ctypes.c_void_p()
        _driver.cuCtxGetCurrent(ctypes.byref(context))
        if context.value is None:
            raise RuntimeError("CUDA_ERROR_INVALID_CONTEXT(invalid device context)")
        return self._read(buf, size, file_offset, dev_offset)

    def _read(self, buf: Any, size: int, file_offset: int, dev_offset: int) -> int:
        total = _totals["GDS" if _is_gds else "POSIX"]
        with _lock:
            total["num_ops"] += 1
            if buf.ctypes.data not in _registered or dev_offset:
                total["num_errors"] += 1
                raise RuntimeError("this read shares its registration with others")
            if _fail_every and total["num_ops"] % _fail_every == 0:
                total["num_errors"] += 1
                raise RuntimeError("cuFile error: cufile io error")
        if _is_gds:
            base = buf.ctypes.data
            return int(_cufile().cuFileRead(self._handle, base, size, file_offset, dev_offset))
        return os.preadv(self._fd, [buf[dev_offset : dev_offset + size]], file_offset)

    def close(self) -> None:
        os.close(self._fd)


class SummaryMonitor:
    def get(self) -> Any:
        return SimpleNamespace(by_backend=_totals)

    def stop(self) -> None:
        pass


def memory_register(buf: Any) -> None:
    _registered.add(buf.ctypes.data)


def memory_deregister(buf: Any) -> None:
    _registered.remove(buf.ctypes.data)


def _note(settings: dict[str, Any]) -> None:
    if "FAKE_KVIKIO_SETTINGS" in os.environ:
        Path(os.environ["FAKE_KVIKIO_SETTINGS"]).write_text(json.dumps(settings))
