"""Copies of batches to a CUDA device, by PyTorch: pinned memory, a stream of its own, events."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, MissingExtraError
from wattload.loaders.devicecopy import CopyBuffer, DeviceCopier

if TYPE_CHECKING:
    import torch

DRIVER = Path("/dev/nvidiactl")
"""The node of NVIDIA's driver; looked at first, since importing PyTorch takes seconds."""

MISSING_TORCH = (
    "copying batches to a CUDA device needs PyTorch, which is not installed; install it with: "
    "pip install 'wattload[torch]', or use accelerator.device=none"
)


def require_cuda() -> None:
    """Return if batches can be copied to a CUDA device here.

    Raises:
        ConfigError: there is no driver, or PyTorch sees no device.
        MissingExtraError: PyTorch is not installed.
    """
    if not DRIVER.exists():
        raise ConfigError(
            f"there is no CUDA device here: {DRIVER} is missing, so no NVIDIA driver is loaded; "
            "use accelerator.device=none"
        )
    if find_spec("torch") is None:
        raise MissingExtraError(MISSING_TORCH)
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(
            f"PyTorch {torch.__version__} sees no CUDA device, though NVIDIA's driver is there; "
            "install a build of it with CUDA, or use accelerator.device=none"
        )


def cuda_copier(shape: tuple[int, int], *, accelerators: int, local_rank: int) -> DeviceCopier:
    """Return a copier of batches of that shape, with two buffers for each accelerator of the rank.

    Ranks of a host take its devices in turn. Raises as ``require_cuda``, and ``ConfigError`` where
    the device has no memory left.
    """
    require_cuda()
    import torch

    number = local_rank % torch.cuda.device_count()
    device = torch.device("cuda", number)
    buffers: list[CopyBuffer] = []
    try:
        with torch.cuda.device(device):  # pinned memory belongs to the device at hand
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            buffers += [CudaBuffer(shape, device, stream) for _ in range(2 * accelerators)]
    except RuntimeError as error:
        raise ConfigError(
            f"{torch.cuda.get_device_name(number)} number {number} can't be used: "
            f"{str(error).splitlines()[0]}; use accelerator.device=none"
        ) from error
    return DeviceCopier(buffers, torch.cuda.get_device_name(number))


class CudaBuffer:
    """Pinned memory for one batch and for its rows on the way back, and the batch on the device."""

    def __init__(
        self, shape: tuple[int, int], device: torch.device, stream: torch.cuda.Stream
    ) -> None:
        import torch

        self._host = torch.zeros(shape, dtype=torch.uint8, pin_memory=True)
        self._back = torch.zeros(shape, dtype=torch.uint8, pin_memory=True)
        self._there = torch.zeros(shape, dtype=torch.uint8, device=device)
        self._stream = stream
        self._start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._all = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self._staging: NDArray[np.uint8] = self._host.numpy()
        self._returned: NDArray[np.uint8] = self._back.numpy()
        torch.cuda.synchronize(device)  # zeroing ran on another stream

    @property
    def staging(self) -> NDArray[np.uint8]:
        """The pinned memory, shape ``(batch, resize_bytes)``."""
        return self._staging

    def begin(self, returned_rows: Sequence[int]) -> None:
        """Begin to copy ``staging`` to the device, then to bring these rows of it back.

        The rows are wiped first, so that what comes back can't be what came back before.
        """
        import torch

        for row in returned_rows:
            self._returned[row] = 0
        with torch.cuda.stream(self._stream):
            self._start.record()
            self._there.copy_(self._host, non_blocking=True)
            self._end.record()
            for row in returned_rows:
                self._back[row].copy_(self._there[row], non_blocking=True)
            self._all.record()

    def wait(self) -> float:
        """Return when all of that is done: the seconds of the copy between its two events."""
        self._all.synchronize()
        return float(self._start.elapsed_time(self._end)) / 1e3

    def returned(self, row: int) -> NDArray[np.uint8]:
        """Return a row as it came back."""
        there: NDArray[np.uint8] = self._returned[row]
        return there

    def close(self) -> None:
        """Wait for what is under way; the memory goes with the last reference to this buffer."""
        self._stream.synchronize()
