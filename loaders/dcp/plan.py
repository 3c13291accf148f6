"""Planners of ``torch.distributed.checkpoint`` that make and look at tensors one at a time.

A state dictionary of the whole shard would need its memory. The one that is planned with here holds
tensors without storage; their bytes are made when the writer asks for one, and looked at when the
reader delivers one.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import ReadItem, WriteItem

from wattload.loaders.aligned import PAGE_BYTES
from wattload.loaders.checkpoints import DTYPE_BYTES, Identity, Tensor
from wattload.loaders.pieces import room, tensor_key
from wattload.loaders.stamps import StampedMemory


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor as it is saved, and the number of its first 4096-byte block."""

    tensor: Tensor
    first_block: int


def numbered(tensors: Sequence[Tensor]) -> list[Piece]:
    """Return the tensors as pieces, their blocks numbered one after the other."""
    found, block = [], 0
    for tensor in tensors:
        found.append(Piece(tensor, block))
        block += room(tensor) // PAGE_BYTES
    return found


def state_dict(pieces: Sequence[Piece], identity: Identity) -> dict[str, Any]:
    """Return tensors without storage by name, of the types and sizes that are saved."""
    return {
        tensor_key(piece.tensor, identity): torch.empty(
            piece.tensor.size_bytes // DTYPE_BYTES[piece.tensor.dtype],
            dtype=getattr(torch, piece.tensor.dtype),
            device="meta",
        )
        for piece in pieces
    }


class SavePlanner(DefaultSavePlanner):
    """Stamps each tensor in memory of its thread when the writer asks for it.

    ``checksums`` holds what has been stamped, by name. ``memories`` has one for each thread.
    """

    def __init__(
        self, pieces: Sequence[Piece], identity: Identity, memories: Sequence[StampedMemory]
    ) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.checksums: dict[str, int] = {}
        self._pieces = {tensor_key(piece.tensor, identity): piece for piece in pieces}
        self._identity = identity
        self._free = list(memories)
        self._of_thread: dict[int, StampedMemory] = {}
        self._lock = threading.Lock()

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        """Return a tensor's bytes; valid until the same thread asks for the next."""
        name = write_item.index.fqn
        piece = self._pieces[name]
        with self._lock:
            thread = threading.get_ident()
            memory = self._of_thread.get(thread) or self._of_thread.setdefault(
                thread, self._free.pop()
            )
        payload, total = memory.stamp(0, piece.tensor.size_bytes, self._identity, piece.first_block)
        with self._lock:
            self.checksums[name] = total
        return torch.from_numpy(payload).view(getattr(torch, piece.tensor.dtype))


class LoadPlanner(DefaultLoadPlanner):
    """Has each tensor delivered into one memory, and shows it before the next comes.

    ``look`` gets a tensor's name and its bytes.
    """

    def __init__(self, most_bytes: int, look: Callable[[str, NDArray[np.uint8]], None]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._memory = torch.empty(most_bytes, dtype=torch.uint8)
        self._look = look

    def set_up_planner(
        self,
        state_dict: Mapping[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Take the state dictionary as it is: the library's own would make room for all of it."""
        self.state_dict = dict(state_dict)
        self.original_state_dict = self.state_dict
        self.metadata = metadata
        self.is_coordinator = is_coordinator

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        """Return where a tensor goes."""
        wanted = self.lookup_tensor(read_item.dest_index)
        return self._memory[: wanted.nbytes].view(wanted.dtype)

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """Look at a tensor that has been delivered."""
        self._look(read_item.dest_index.fqn, tensor.view(torch.uint8).numpy())
