"""What the stores of PyTorch share: tensors cut into pieces, their names, and memory for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.aligned import PAGE_BYTES, round_up
from wattload.loaders.checkpoints import Identity, Shard, Tensor
from wattload.loaders.stamps import fill_random

POOL_BYTES = 32 << 20


def pieces(shard: Shard, most_bytes: int) -> Iterator[Tensor]:
    """Yield the tensors, those above ``most_bytes`` in pieces that are named by their number."""
    for tensor in shard.tensors:
        if tensor.size_bytes <= most_bytes:
            yield tensor
            continue
        for number, start in enumerate(range(0, tensor.size_bytes, most_bytes)):
            size_bytes = min(most_bytes, tensor.size_bytes - start)
            yield replace(tensor, name=f"{tensor.name}[{number}]", size_bytes=size_bytes)


def tensor_key(tensor: Tensor, identity: Identity) -> str:
    """Return a tensor's name in a file.

    With the checkpoint's number in every name, two checkpoints share no block of the directory.
    """
    return f"checkpoint{identity.checkpoint}.rank{identity.rank}.{tensor.name}"


def room(tensor: Tensor) -> int:
    """Return the bytes that a tensor takes in memory, where each starts on a block."""
    return round_up(tensor.size_bytes, PAGE_BYTES)


def fill_tiled(memory: NDArray[np.uint8], *, seed: int, rank: int) -> None:
    """Fill memory, a multiple of 4096 bytes, with random bytes that repeat after the pool."""
    pool = memory[:POOL_BYTES]
    fill_random([pool], seed=seed, rank=rank)
    for start in range(POOL_BYTES, memory.size, POOL_BYTES):
        rest = memory[start : start + POOL_BYTES]
        rest[:] = pool[: rest.size]
