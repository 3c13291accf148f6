"""What loads of tensors to a GPU have in common: too little memory there, and reading back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import RunError

if TYPE_CHECKING:
    import torch


@contextmanager
def gpu_memory_shortage(device: int | None) -> Iterator[None]:
    """Raise ``RunError`` in place of PyTorch's error for a GPU with too little memory."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise RunError(
            f"GPU {device} has too little memory: {str(error).splitlines()[0]}; use a smaller "
            "model, more ranks (workload.tp) or workload.destination=host"
        ) from error


class ReadBack:
    """Host memory that tensors of a GPU are copied back to, one after the other.

    Fresh memory for each would take longer than the copies.
    """

    def __init__(self) -> None:
        self._memory: torch.Tensor | None = None

    def content(self, tensor: torch.Tensor) -> NDArray[np.uint8]:
        """Return the content of a tensor of bytes; valid until the next call."""
        import torch

        if self._memory is None or len(self._memory) < tensor.nbytes:
            self._memory = torch.empty(tensor.nbytes, dtype=torch.uint8)
        content = self._memory[: tensor.nbytes].view(tensor.shape)
        found: NDArray[np.uint8] = content.copy_(tensor).numpy()
        return found

    def free(self) -> None:
        self._memory = None
