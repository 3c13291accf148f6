"""Tensors cut into pieces, and random memory that repeats after its pool."""

from __future__ import annotations

import numpy as np
import pytest

from wattload.core.io import BlockIdentity
from wattload.loaders import checkpoint_store as pieces_module
from wattload.loaders.checkpoint_store import (
    Shard,
    Tensor,
    cut_tensors,
    fill_tiled,
    padded_bytes,
    tensor_key,
)


def test_pieces_hold_every_byte_once_in_order() -> None:
    shard = Shard(0, (Tensor("a", "float16", 10), Tensor("b", "float32", 8192 * 2 + 4)))
    found = list(cut_tensors(shard, 8192))
    assert [(piece.name, piece.size_bytes) for piece in found] == [
        ("a", 10),
        ("b[0]", 8192),
        ("b[1]", 8192),
        ("b[2]", 4),
    ]
    assert [padded_bytes(piece) for piece in found] == [4096, 8192, 8192, 4096]


def test_names_differ_between_checkpoints_and_ranks() -> None:
    tensor = Tensor("a", "float16", 10)
    keys = {
        tensor_key(tensor, BlockIdentity(1, rank << 32 | checkpoint))
        for rank in (0, 1)
        for checkpoint in (0, 1)
    }
    assert len(keys) == 4


def test_memory_repeats_only_after_the_whole_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "POOL_BYTES", 8192)
    memory = np.zeros(5 * 4096, np.uint8)
    fill_tiled(memory, seed=1, rank=0)
    blocks = [memory[start : start + 4096].tobytes() for start in range(0, memory.size, 4096)]
    assert blocks[0] != blocks[1]
    assert blocks[2:] == [blocks[0], blocks[1], blocks[0]]
