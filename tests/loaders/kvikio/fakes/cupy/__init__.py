"""The part of CuPy that the reader uses, over the stub of libcuda: memory that it allocates."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

__version__ = "14.2.0"

_driver = ctypes.CDLL("libcuda.so.1")
_contexts: dict[int, ctypes.c_void_p] = {}


class _Array(np.ndarray[Any, Any]):
    def get(self) -> Any:
        return np.array(self, copy=True)


class Device:
    """A GPU by its number."""

    def __init__(self, number: int) -> None:
        self.number = number
        if number not in _contexts:
            _contexts[number] = ctypes.c_void_p()
            _check(_driver.cuDevicePrimaryCtxRetain(ctypes.byref(_contexts[number]), number))

    def use(self) -> None:
        _check(_driver.cuCtxSetCurrent(_contexts[self.number]))

    def synchronize(self) -> None:
        self.use()

    def __enter__(self) -> Self:
        self.use()
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def _number_of(address: str) -> int:
    number = ctypes.c_int()
    _check(_driver.cuInit(0))
    _check(_driver.cuDeviceGetByPCIBusId(ctypes.byref(number), address.encode()))
    return number.value


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"CUDA error {code}")


def empty(size: int, dtype: Any) -> Any:
    """Return memory of the current GPU."""
    memory = ctypes.c_uint64()
    _check(_driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)))
    content = (ctypes.c_uint8 * size).from_address(memory.value)
    return np.ctypeslib.as_array(content).view(_Array)


cuda = SimpleNamespace(
    Device=Device,
    runtime=SimpleNamespace(deviceGetByPCIBusId=_number_of),
    set_allocator=lambda allocator: None,
)
