"""A small shard, and a store's save and load of it, for the tests of all stores."""

from __future__ import annotations

from pathlib import Path

from wattload.core.io import BlockIdentity
from wattload.loaders.checkpoint_store import (
    CheckpointLoader,
    Loaded,
    Saved,
    Shard,
    ShardStore,
    Tensor,
)
from wattload.loaders.dcp import config as dcp_config
from wattload.loaders.direct import config as direct_config
from wattload.loaders.torch import config as torch_config

IDENTITY = BlockIdentity(0xFEED, 3 << 32 | 9)
TENSORS = (
    Tensor("embedding", "float16", 1_000_002),
    Tensor("norm", "bfloat16", 10),
    Tensor("layer", "bfloat16", 300_000),
    Tensor("optimizer", "float32", 2_000_004),
)
SHARD = Shard(3, TENSORS)
LOADERS: dict[str, CheckpointLoader] = {
    "direct": direct_config.Config(block_bytes=128 << 10, queue_depth=3),
    "torch": torch_config.Config(bucket_bytes=1 << 20),
    "dcp": dcp_config.Config(tensor_bytes=1 << 20),
}


class Count:
    def __init__(self) -> None:
        self.moved_bytes: list[int] = []

    def __call__(self, moved_bytes: int) -> None:
        self.moved_bytes.append(moved_bytes)

    @property
    def total(self) -> int:
        return sum(self.moved_bytes)


def nothing(moved_bytes: int) -> None:
    pass


def save(store: ShardStore, folder: Path, identity: BlockIdentity = IDENTITY) -> Saved:
    return store.save(folder, identity, nothing, fsync=True)


def load(
    store: ShardStore, folder: Path, saved: Saved, identity: BlockIdentity = IDENTITY
) -> Loaded:
    return store.load(folder, saved.files, identity, nothing)


def files_in(folder: Path) -> dict[str, Path]:
    """Return the files below a folder by name, relative to it."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in found}
