"""Copies of batches to a device while the next ones load.

A batch is first copied from the loader's memory into pinned memory, since the loader may reuse its
own. From there the device copies it, while the caller continues. Two buffers for each accelerator
alternate, so that the caller waits for a copy only when its buffer is needed again. Rows selected
for hashing are copied back from the device, to prove that the bytes are there. On CUDA devices
PyTorch does it, with its own stream and events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.workload import PYTORCH, require_installed

if TYPE_CHECKING:
    import torch


STAGING_THREADS = 4
"""The accelerators wait while a batch is staged, and one core copies some 5 GB/s."""

DRIVER = Path("/dev/nvidiactl")
"""The node of NVIDIA's driver; checked first, since importing PyTorch takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A batch that is on the device.

    ``device_s`` is how long the device took for ``copied_bytes``, by its own clock. ``rows`` are
    those that were copied back, under the keys that ``copy`` received; they are views, valid until
    ``copy`` is called again.
    """

    copied_bytes: int
    device_s: float
    rows: Mapping[int, NDArray[np.uint8]] = field(default_factory=dict)


class CopyBuffer(Protocol):
    """Pinned memory for one batch, and its memory on the device; one copy at a time."""

    @property
    def staging(self) -> NDArray[np.uint8]:
        """The pinned memory, shape ``(batch, resize_bytes)``."""
        ...

    def begin(self, returned_rows: Sequence[int]) -> None:
        """Begin to copy ``staging`` to the device, then to copy these rows of it back."""
        ...

    def wait(self) -> float:
        """Wait until both are done; return the seconds of the copy by the device's clock."""
        ...

    def returned(self, row: int) -> NDArray[np.uint8]:
        """Return a row as it was copied back; valid until the next ``begin``."""
        ...

    def close(self) -> None:
        """Wait for copies in flight and release the memory; safe to call twice."""
        ...


class DeviceCopier:
    """Copies batches to a device through alternating buffers."""

    def __init__(self, buffers: Sequence[CopyBuffer], device: str) -> None:
        self.device = device
        """What the record calls the device, e.g. ``NVIDIA H200``."""
        self._buffers = list(buffers)
        self._in_flight: list[Mapping[int, int] | None] = [None] * len(buffers)
        self._next = 0
        self._threads = ThreadPoolExecutor(STAGING_THREADS, thread_name_prefix="staging")

    def make_room(self) -> list[Arrived]:
        """Wait until the next buffer is free; return the batch it held, if there was one.

        Call it before each ``copy``.
        """
        return self._retire(self._next)

    def copy(self, tensor: NDArray[np.uint8], returned_rows: Mapping[int, int]) -> None:
        """Begin to copy a batch; return once it is staged, so that the loader may reuse its memory.

        ``returned_rows`` maps the rows to copy back to a key for each, unique among the batches in
        flight.
        """
        buffer = self._buffers[self._next]
        parts = (np.array_split(rows, STAGING_THREADS) for rows in (buffer.staging, tensor))
        list(self._threads.map(np.copyto, *parts))
        buffer.begin(tuple(returned_rows))
        self._in_flight[self._next] = returned_rows
        self._next = (self._next + 1) % len(self._buffers)

    def finish(self) -> list[Arrived]:
        """Wait for all copies in flight; return them, the oldest first."""
        count = len(self._buffers)
        places = [(self._next + ahead) % count for ahead in range(count)]
        return [arrived for place in places for arrived in self._retire(place)]

    def close(self) -> None:
        """Release the buffers; safe to call twice."""
        self._threads.shutdown()
        for buffer in self._buffers:
            buffer.close()

    def _retire(self, place: int) -> list[Arrived]:
        returned_rows, self._in_flight[place] = self._in_flight[place], None
        if returned_rows is None:
            return []
        buffer = self._buffers[place]
        device_s = buffer.wait()
        rows = {key: buffer.returned(row) for row, key in returned_rows.items()}
        return [Arrived(copied_bytes=buffer.staging.nbytes, device_s=device_s, rows=rows)]


def require_cuda(
    user: str = "copying batches to a CUDA device", alternative: str = "accelerator.device=none"
) -> None:
    """Return if data can be copied to a CUDA device here.

    ``user`` needs that, and ``alternative`` is the setting that works without.

    Raises:
        ConfigError: there is no driver, or PyTorch finds no device.
        MissingExtraError: PyTorch is not installed.
    """
    if not DRIVER.exists():
        raise ConfigError(
            f"no CUDA device: {DRIVER} is missing, so no NVIDIA driver is loaded; use {alternative}"
        )
    require_installed([PYTORCH], user=user, alternative=alternative)
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(
            f"PyTorch {torch.__version__} finds no CUDA device, but NVIDIA's driver is loaded; "
            f"install a build with CUDA, or use {alternative}"
        )


def cuda_copier(shape: tuple[int, int], *, accelerators: int, local_rank: int) -> DeviceCopier:
    """Return a copier of batches of that shape, with two buffers for each accelerator of the rank.

    Ranks of a host use its devices in rotation. Raises as ``require_cuda``, and ``ConfigError`` if
    the device has too little free memory.
    """
    require_cuda()
    import torch

    number = local_rank % torch.cuda.device_count()
    device = torch.device("cuda", number)
    buffers: list[CopyBuffer] = []
    try:
        with torch.cuda.device(device):  # pinned memory belongs to the current device
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch
            buffers += [CudaBuffer(shape, device, stream) for _ in range(2 * accelerators)]
    except RuntimeError as error:
        raise ConfigError(
            f"{torch.cuda.get_device_name(number)} number {number} can't be used: "
            f"{str(error).splitlines()[0]}; use accelerator.device=none"
        ) from error
    return DeviceCopier(buffers, torch.cuda.get_device_name(number))


class CudaBuffer:
    """Pinned memory for one batch and for its returned rows, and the batch on the device."""

    def __init__(
        self, shape: tuple[int, int], device: torch.device, stream: torch.cuda.Stream
    ) -> None:
        import torch

        self._host = torch.zeros(shape, dtype=torch.uint8, pin_memory=True)
        self._back_host = torch.zeros(shape, dtype=torch.uint8, pin_memory=True)
        self._device_batch = torch.zeros(shape, dtype=torch.uint8, device=device)
        self._stream = stream
        self._start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch
        self._end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch
        self._all = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # torch
        self._staging: NDArray[np.uint8] = self._host.numpy()
        self._returned: NDArray[np.uint8] = self._back_host.numpy()
        torch.cuda.synchronize(device)  # zeroing ran on another stream

    @property
    def staging(self) -> NDArray[np.uint8]:
        """The pinned memory, shape ``(batch, resize_bytes)``."""
        return self._staging

    def begin(self, returned_rows: Sequence[int]) -> None:
        """Begin to copy ``staging`` to the device, then to copy these rows of it back.

        The rows are zeroed first, so that returned bytes can't be those of an earlier copy.
        """
        import torch

        for row in returned_rows:
            self._returned[row] = 0
        with torch.cuda.stream(self._stream):
            self._start.record()
            self._device_batch.copy_(self._host, non_blocking=True)
            self._end.record()
            for row in returned_rows:
                self._back_host[row].copy_(self._device_batch[row], non_blocking=True)
            self._all.record()

    def wait(self) -> float:
        """Wait until both are done; return the seconds of the copy between its two events."""
        self._all.synchronize()
        return float(self._start.elapsed_time(self._end)) / 1e3

    def returned(self, row: int) -> NDArray[np.uint8]:
        found: NDArray[np.uint8] = self._returned[row]
        return found

    def close(self) -> None:
        """Wait for copies in flight; the last reference to this buffer releases the memory."""
        self._stream.synchronize()
