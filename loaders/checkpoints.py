"""What a loader has to do for a checkpoint: save one rank's shard in files, and load it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from wattload.core.io import ByteCounter, DataPath

DType = Literal["float16", "bfloat16", "float32"]

DTYPE_BYTES: dict[DType, int] = {"float16": 2, "bfloat16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a shard: its name, the type of its elements, its size in bytes (above 0)."""

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
class Identity:
    """What makes each 4096-byte block of a checkpoint unlike any other: run, rank, checkpoint.

    ``nonce`` is drawn anew for every run, in [0, 2^64); ``rank`` and ``checkpoint`` are below 2^32.
    """

    nonce: int
    rank: int
    checkpoint: int

    @property
    def word(self) -> int:
        """Rank and checkpoint as one 64-bit word."""
        return self.rank << 32 | self.checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFile:
    """One file of a saved shard: name in its folder, tensor bytes in it, and their checksum.

    ``checksum`` is the sum of the payload's little-endian 64-bit words modulo 2^64.
    """

    name: str
    payload_bytes: int
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a save wrote, with the CPU seconds it took in this process.

    ``synced_count`` is how many of the store's files were fsynced, counted where that was done.
    """

    files: tuple[ShardFile, ...]
    cpu_s: float
    synced_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a load delivered: tensor bytes, what was wrong with them, CPU seconds.

    ``bad_blocks`` counts 4096-byte blocks whose stamp is not the one written there, ``bad_files``
    names the files whose delivered bytes do not have the checksum they were saved with.
    """

    payload_bytes: int
    bad_blocks: int
    bad_files: tuple[str, ...]
    cpu_s: float


class CheckpointLoader(Protocol):
    """What the configuration of a loader offers a checkpoint."""

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        ...

    def require_checkpoint_library(self) -> None:
        """Raise ``MissingExtraError`` where a library is needed that is not installed."""
        ...

    def checkpoint_store(self, shard: Shard, *, seed: int, diskless: bool = False) -> ShardStore:
        """Return a store for one rank's shard; with ``diskless`` it touches no file, for ceilings.

        Raises ``MissingExtraError`` where a library is needed that is not installed.
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
        """The names of the files that ``save`` makes."""
        ...

    @property
    def overhead_limit_bytes(self) -> int:
        """How many bytes the files may hold beyond the tensors, all together; often 0."""
        ...

    def save(self, folder: Path, identity: Identity, moved: ByteCounter, *, fsync: bool) -> Saved:
        """Write the shard's files into a folder; ``moved`` is told of bytes as they move.

        With ``fsync`` the files and their names are durable on return.

        Raises ``OSError`` with the file and, where known, the offset.
        """
        ...

    def load(
        self, folder: Path, files: Sequence[ShardFile], identity: Identity, moved: ByteCounter
    ) -> Loaded:
        """Read the files back and compare every stamp and checksum.

        Raises ``DataError`` for a file that is truncated or can't be parsed.
        """
        ...

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take."""
        ...

    def close(self) -> None:
        """Give threads and buffers back."""
        ...


@runtime_checkable
class LeavesScratch(Protocol):
    """A store whose ``save`` makes files that are gone, or have another name, when it is done."""

    @property
    def scratch_names(self) -> Sequence[str]:
        """The names of these files; an interruption may leave them."""
        ...
