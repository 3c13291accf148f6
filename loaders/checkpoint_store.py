"""Stores for checkpoints: save the shard of one rank in files and load it back.

Also what the PyTorch stores share: tensors cut into pieces, and memory for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import BlockIdentity, ByteCounter, DataPath
from wattload.core.workload import LoaderConfig
from wattload.loaders.aligned_io import PAGE_BYTES, fill_random, round_up

DType = Literal["float16", "bfloat16", "float32"]

DTYPE_BYTES: dict[DType, int] = {"float16": 2, "bfloat16": 2, "float32": 4}


POOL_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a shard: name, element type and size in bytes (above 0)."""

    name: str
    dtype: DType
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Shard:
    """What one rank saves: its tensors in the order in which they are written."""

    rank: int
    tensors: tuple[Tensor, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.size_bytes for tensor in self.tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFile:
    """One file of a saved shard: its name in the folder, and the tensor bytes in it."""

    name: str
    payload_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a save wrote, with the CPU seconds it took in this process.

    ``synced_count`` is how many of the store's files were fsynced, counted at the fsync.
    """

    files: tuple[ShardFile, ...]
    cpu_s: float
    synced_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a load delivered: tensor bytes, errors in them, CPU seconds.

    ``bad_blocks`` counts the 4096-byte blocks with a wrong stamp or sum; ``bad_files`` names the
    files that held them.
    """

    payload_bytes: int
    bad_blocks: int
    bad_files: tuple[str, ...]
    cpu_s: float


@runtime_checkable
class CheckpointLoader(LoaderConfig, Protocol):
    """The configuration of a loader that can save checkpoints."""

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        ...

    def require_checkpoint_library(self) -> None:
        """Raise ``MissingExtraError`` if a library is needed that is not installed."""
        ...

    def checkpoint_store(self, shard: Shard, *, seed: int, diskless: bool = False) -> ShardStore:
        """Return a store for one rank's shard; with ``diskless`` it accesses no file, for ceilings.

        Raises:
            MissingExtraError: a library is needed that is not installed.
        """
        ...

    def checkpoint_memory_bytes(self, shard: Shard) -> int:
        """Return a bound on the buffers of a store, in bytes."""
        ...

    @property
    def checkpoint_path_is_direct(self) -> bool:
        """Whether the target must offer O_DIRECT."""
        ...


class ShardStore(Protocol):
    """Saves and loads one rank's shard."""

    @property
    def file_names(self) -> Sequence[str]:
        """The names of the files that ``save`` creates."""
        ...

    @property
    def overhead_limit_bytes(self) -> int:
        """How many bytes the files together may hold in addition to the tensors; often 0."""
        ...

    def save(
        self, folder: Path, identity: BlockIdentity, moved: ByteCounter, *, fsync: bool
    ) -> Saved:
        """Write the shard's files into a folder; ``moved`` is called as bytes move.

        With ``fsync`` the files and their names are durable on return.

        Raises:
            OSError: the kernel refused; the message has the file and, where known, the offset.
        """
        ...

    def load(
        self, folder: Path, files: Sequence[ShardFile], identity: BlockIdentity, moved: ByteCounter
    ) -> Loaded:
        """Read the files back and compare every stamp and sum.

        Raises:
            DataError: a file is truncated or can't be parsed.
        """
        ...

    def path(self) -> DataPath:
        """Return the requested path of the bytes."""
        ...

    def close(self) -> None:
        """Release threads and buffers."""
        ...


@runtime_checkable
class LeavesScratch(Protocol):
    """A store whose ``save`` creates files that it removes or renames before it returns."""

    @property
    def scratch_names(self) -> Sequence[str]:
        """The names of these files; an interruption may leave them behind."""
        ...


def cut_tensors(shard: Shard, most_bytes: int) -> Iterator[Tensor]:
    """Yield the tensors; those above ``most_bytes`` in pieces named by their number."""
    for tensor in shard.tensors:
        if tensor.size_bytes <= most_bytes:
            yield tensor
            continue
        for number, start in enumerate(range(0, tensor.size_bytes, most_bytes)):
            size_bytes = min(most_bytes, tensor.size_bytes - start)
            yield replace(tensor, name=f"{tensor.name}[{number}]", size_bytes=size_bytes)


def tensor_key(tensor: Tensor, identity: BlockIdentity) -> str:
    """Return a tensor's name in a file.

    With the identity's word in every name, two checkpoints share no block of the directory.
    """
    return f"{identity.word:016x}.{tensor.name}"


def padded_bytes(tensor: Tensor) -> int:
    """Return the bytes that a tensor takes in memory, where each starts on a block boundary."""
    return round_up(tensor.size_bytes, PAGE_BYTES)


def fill_tiled(memory: NDArray[np.uint8], *, seed: int, rank: int) -> None:
    """Fill memory, a multiple of 4096 bytes, with random bytes that repeat after the pool."""
    pool = memory[:POOL_BYTES]
    fill_random([pool], seed=seed, rank=rank)
    for start in range(POOL_BYTES, memory.size, POOL_BYTES):
        rest = memory[start : start + POOL_BYTES]
        rest[:] = pool[: rest.size]


def make_store(config: LoaderConfig, shard: Shard, *, seed: int, diskless: bool) -> ShardStore:
    """Return what ``make_store`` of the loader's module ``checkpoint`` makes.

    Raises:
        MissingExtraError: the library behind the loader is not installed.
    """
    module = import_module(f"wattload.loaders.{config.name}.checkpoint")
    made: ShardStore = module.make_store(config, shard, seed=seed, diskless=diskless)
    return made
