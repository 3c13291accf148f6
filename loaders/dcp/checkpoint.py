"""A shard by ``torch.distributed.checkpoint``: what training frameworks save with today.

Each rank saves a checkpoint of its own (``no_dist``) in its own folder, so that no process group is
needed: a framework's ranks write files of their own just so, and share only the plan and the
metadata. Tensors are planned without storage and made when the writer asks (``plan``).
``async_save`` is not called, for it would first copy the whole shard: it is ``dcp.save`` on a
thread after a snapshot, which is what a drain in the background does with every store.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from wattload.core.errors import DataError
from wattload.core.io import ByteCounter, DataPath
from wattload.loaders.aligned import aligned_buffer
from wattload.loaders.checkpoints import Identity, Loaded, Saved, Shard, ShardFile
from wattload.loaders.datafolder.safefiles import sync_folder
from wattload.loaders.dcp import Config
from wattload.loaders.dcp.files import (
    METADATA_NAME,
    METADATA_SCRATCH,
    CountedFiles,
    MemoryFiles,
    Reader,
    unwrapped,
)
from wattload.loaders.dcp.plan import LoadPlanner, Piece, SavePlanner, numbered, state_dict
from wattload.loaders.pieces import fill_tiled, pieces, room, tensor_key
from wattload.loaders.stamps import StampedMemory, bad_blocks, checksum, join_checksums

_SUFFIX = ".distcp"
# What the reader meets in a file that is cut, overwritten, or no checkpoint at all.
_UNREADABLE = (RuntimeError, EOFError, KeyError, ValueError, AssertionError)


class DcpStore:
    """Saves a shard by ``dcp.save`` and loads it by ``dcp.load``: through the page cache.

    With ``diskless`` the same calls run against memory, which then holds the whole shard.
    """

    def __init__(self, config: Config, shard: Shard, *, seed: int, diskless: bool = False) -> None:
        self._config = config
        self._folder = f"rank-{shard.rank:05d}"
        self._pieces = numbered(list(pieces(shard, config.tensor_bytes)))
        self._largest = max(room(piece.tensor) for piece in self._pieces)
        self._kept: dict[Path, bytes] | None = {} if diskless else None
        self._digests: dict[Identity, bytes] = {}
        memories = [aligned_buffer(self._largest) for _ in range(config.thread_count)]
        for memory in memories:
            fill_tiled(memory, seed=seed, rank=shard.rank)
        self._memories = [StampedMemory(memory) for memory in memories]

    @property
    def file_names(self) -> Sequence[str]:
        """The writer's files, then its metadata, in a folder of the rank's own."""
        count = self._config.thread_count if self._one_file else len(self._pieces)
        data = (f"__0_{number}{_SUFFIX}" for number in range(count))
        return tuple(f"{self._folder}/{name}" for name in (*data, METADATA_NAME))

    @property
    def scratch_names(self) -> Sequence[str]:
        """The name that the metadata has until it is whole."""
        return (f"{self._folder}/{METADATA_SCRATCH}",)

    @property
    def overhead_limit_bytes(self) -> int:
        """What the containers and the metadata may add: 4 kB a piece, 16 kB in all."""
        return 4096 * len(self._pieces) + 16384

    def save(self, folder: Path, identity: Identity, moved: ByteCounter, *, fsync: bool) -> Saved:
        """Save the shard's tensors, with the writer's fsync of each file and then of the folders.

        Raises ``OSError`` with the file, and ``DataError`` for a tensor that the writer left out.
        """
        start_s = time.process_time()
        own, files = folder / self._folder, self._files(moved)
        to_disk = fsync and self._kept is None
        planner = SavePlanner(self._pieces, identity, self._memories)
        writer = FileSystemWriter(
            own,
            single_file_per_rank=self._one_file,
            sync_files=to_disk,
            thread_count=self._config.thread_count,
            per_thread_copy_ahead=0,  # nothing comes from a GPU, and one tensor is made at a time
        )
        writer.fs = files
        metadata = self._save(writer, planner, identity, files)
        self._digests[identity] = files.metadata_digest
        if to_disk:
            sync_folder(own)
            sync_folder(folder)
        made = self._shard_files(metadata, planner.checksums, identity)
        cpu_s = time.process_time() - start_s
        return Saved(files=made, cpu_s=cpu_s, synced_count=len(files.synced))

    def load(
        self, folder: Path, files: Sequence[ShardFile], identity: Identity, moved: ByteCounter
    ) -> Loaded:
        """Load tensor after tensor and look at every delivered byte.

        Raises ``DataError`` for a file that is truncated or can't be parsed.
        """
        start_s = time.process_time()
        source = self._files(moved)
        reader = Reader(folder / self._folder, source, self._digests.get(identity))
        found = _Delivered(self._pieces, identity, reader, moved)
        planner = LoadPlanner(self._largest, found.look)
        try:
            with _single(), unwrapped():
                dcp_load(
                    state_dict(self._pieces, identity),
                    storage_reader=reader,
                    planner=planner,
                    no_dist=True,
                )
        except _UNREADABLE as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{source.last_path} is no checkpoint that torch.distributed.checkpoint can read: "
                f"{str(error).splitlines()[0] if str(error) else type(error).__name__}"
            ) from error
        return found.loaded(files, time.process_time() - start_s)

    def path(self) -> DataPath:
        """Return the way the bytes were asked to take, with the writer's settings."""
        if self._kept is not None:
            return DataPath(data_path="memory", path_requested="memory")
        return DataPath(
            data_path=(
                f"torch.distributed.checkpoint, no_dist, thread_count={self._config.thread_count}, "
                f"single_file_per_rank={self._one_file}"
            ),
            path_requested="page_cache",
        )

    def close(self) -> None:
        """Give the memory back."""
        self._memories = []
        self._kept = {} if self._kept is not None else None

    @property
    def _one_file(self) -> bool:
        return self._config.single_file_per_rank

    def _files(self, moved: ByteCounter) -> CountedFiles:
        return CountedFiles(moved) if self._kept is None else MemoryFiles(moved, self._kept)

    def _save(
        self,
        writer: FileSystemWriter,
        planner: SavePlanner,
        identity: Identity,
        files: CountedFiles,
    ) -> Metadata:
        tensors = state_dict(self._pieces, identity)
        try:
            with _single(), unwrapped():
                metadata: Metadata = dcp_save(
                    tensors, storage_writer=writer, planner=planner, no_dist=True
                )
        except RuntimeError as error:
            # What torch makes of an OSError says neither that it was one nor why.
            raise files.failure or error from error
        if files.failure is not None:
            raise files.failure
        missing = tensors.keys() - {index.fqn for index in metadata.storage_data or ()}
        if missing:
            raise DataError(
                f"torch.distributed.checkpoint left out {len(missing)} tensors of {writer.path}, "
                f"{min(missing)} among them: one of its threads failed"
            )
        return metadata

    def _shard_files(
        self, metadata: Metadata, checksums: dict[str, int], identity: Identity
    ) -> tuple[ShardFile, ...]:
        """Return each file with the bytes and the sum of the tensors in it."""
        totals = dict.fromkeys(self.file_names, (0, 0))
        names = {
            index.fqn: f"{self._folder}/{info.relative_path}"
            for index, info in (metadata.storage_data or {}).items()
        }
        for piece in self._pieces:
            key = tensor_key(piece.tensor, identity)
            size_bytes, total = totals[names[key]]
            totals[names[key]] = (
                size_bytes + piece.tensor.size_bytes,
                join_checksums(total, checksums[key]),
            )
        return tuple(
            ShardFile(name=name, payload_bytes=size_bytes, checksum=total)
            for name, (size_bytes, total) in totals.items()
        )


class _Delivered:
    """What a load delivers, tensor by tensor."""

    def __init__(
        self, held: Sequence[Piece], identity: Identity, reader: Reader, moved: ByteCounter
    ) -> None:
        self._blocks = {tensor_key(piece.tensor, identity): piece.first_block for piece in held}
        self._identity = identity
        self._reader = reader
        self._moved = moved
        self._lengths: dict[str, int] = {}
        self._wrong = 0
        self._payload_bytes = 0
        self._checksums: dict[str, int] = {}

    def look(self, name: str, payload: NDArray[np.uint8]) -> None:
        """Compare a tensor's stamps, take its sum, and count its bytes in the file."""
        if not self._lengths:
            stored = self._reader.storage_data.items()
            self._lengths = {index.fqn: info.length for index, info in stored}
        self._moved(self._lengths[name])
        self._wrong += bad_blocks(payload, self._identity, self._blocks[name])
        self._payload_bytes += payload.size
        self._checksums[name] = checksum(payload)

    def loaded(self, files: Sequence[ShardFile], cpu_s: float) -> Loaded:
        """Compare the sums with those of the files."""
        totals: dict[str, int] = {}
        for index, info in self._reader.storage_data.items():
            part = self._checksums.get(index.fqn, 0)
            totals[info.relative_path] = join_checksums(totals.get(info.relative_path, 0), part)
        bad = (file.name for file in files if file.checksum != totals.get(Path(file.name).name, 0))
        return Loaded(
            payload_bytes=self._payload_bytes,
            bad_blocks=self._wrong,
            bad_files=tuple(bad),
            cpu_s=cpu_s,
        )


@contextmanager
def _single() -> Iterator[None]:
    """Keep PyTorch from saying that there is no process group: none is wanted."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
