"""Bringing batches to a device while the next ones load: staging, double buffering, proof.

A batch is copied from the loader's memory into pinned memory at once, since the loader may use its
own again, and from there to the device by the device's own means, while the caller goes on. Two
buffers for each accelerator take turns, so that a copy is waited for only when its buffer is needed
again. Rows that were chosen for hashing are brought back from the device: the proof that the bytes
are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A batch that is on the device.

    ``device_s`` is how long the device took for ``copied_bytes``, by its own clock. ``rows`` are
    those that were brought back, under the keys that ``copy`` was given; they are views, valid
    until ``copy`` is called again.
    """

    copied_bytes: int
    device_s: float
    rows: Mapping[int, NDArray[np.uint8]] = field(default_factory=dict)


class CopyBuffer(Protocol):
    """Pinned memory for one batch, and its place on the device; one copy at a time."""

    @property
    def staging(self) -> NDArray[np.uint8]:
        """The pinned memory, shape ``(batch, resize_bytes)``."""
        ...

    def begin(self, returned_rows: Sequence[int]) -> None:
        """Begin to copy ``staging`` to the device, then to bring these rows of it back."""
        ...

    def wait(self) -> float:
        """Return when all of that is done: the seconds of the copy by the device's clock."""
        ...

    def returned(self, row: int) -> NDArray[np.uint8]:
        """Return a row as it came back; valid until the next ``begin``."""
        ...

    def close(self) -> None:
        """Wait for what is under way and give the memory back; safe to call twice."""
        ...


class DeviceCopier:
    """Brings batches to a device through buffers that take turns."""

    def __init__(self, buffers: Sequence[CopyBuffer], device: str) -> None:
        self.device = device
        """What the record calls the device, e.g. ``NVIDIA H200``."""
        self._buffers = list(buffers)
        self._under_way: list[Mapping[int, int] | None] = [None] * len(buffers)
        self._next = 0

    def make_room(self) -> list[Arrived]:
        """Wait until the next buffer is free; returns the batch it held before, if there was one.

        To be called before each ``copy``.
        """
        return self._retire(self._next)

    def copy(self, tensor: NDArray[np.uint8], chosen: Mapping[int, int]) -> None:
        """Begin to copy a batch; returns once it is staged, so that the loader may have it back.

        ``chosen`` names the rows to bring back, with a key for each that is unique among the
        batches under way.
        """
        buffer = self._buffers[self._next]
        np.copyto(buffer.staging, tensor)
        buffer.begin(tuple(chosen))
        self._under_way[self._next] = chosen
        self._next = (self._next + 1) % len(self._buffers)

    def finish(self) -> list[Arrived]:
        """Wait for all copies under way; returns them, the oldest first."""
        count = len(self._buffers)
        places = [(self._next + ahead) % count for ahead in range(count)]
        return [arrived for place in places for arrived in self._retire(place)]

    def close(self) -> None:
        """Give the buffers back; safe to call twice."""
        for buffer in self._buffers:
            buffer.close()

    def _retire(self, place: int) -> list[Arrived]:
        chosen, self._under_way[place] = self._under_way[place], None
        if chosen is None:
            return []
        buffer = self._buffers[place]
        device_s = buffer.wait()
        rows = {key: buffer.returned(row) for row, key in chosen.items()}
        return [Arrived(copied_bytes=buffer.staging.nbytes, device_s=device_s, rows=rows)]
