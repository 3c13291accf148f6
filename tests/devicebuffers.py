"""Copies to a device that this host has in any case: a thread and ordinary memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class ThreadBuffer:
    """Stands in for pinned memory and a GPU: ``begin`` has a thread copy, once it may."""

    def __init__(self, shape: tuple[int, int], may_copy: threading.Event | None = None) -> None:
        self.staging: NDArray[np.uint8] = np.zeros(shape, dtype=np.uint8)
        self.device: NDArray[np.uint8] = np.zeros(shape, dtype=np.uint8)
        self.closed = 0
        self._back: NDArray[np.uint8] = np.zeros(shape, dtype=np.uint8)
        self._may_copy = may_copy
        self._thread = threading.Thread()
        self._seconds = 0.0

    def begin(self, returned_rows: Sequence[int]) -> None:
        self._thread = threading.Thread(target=self._copy, args=(tuple(returned_rows),))
        self._thread.start()

    def wait(self) -> float:
        self._thread.join()
        return self._seconds

    def returned(self, row: int) -> NDArray[np.uint8]:
        found: NDArray[np.uint8] = self._back[row]
        return found

    def close(self) -> None:
        self.closed += 1

    def _copy(self, returned_rows: Sequence[int]) -> None:
        if self._may_copy is not None:
            self._may_copy.wait()
        start_ns = time.monotonic_ns()
        self.device[:] = self.staging
        self._seconds = (time.monotonic_ns() - start_ns) / 1e9
        for row in returned_rows:
            self._back[row] = self.device[row]
