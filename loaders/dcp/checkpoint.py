"""A shard by ``torch.distributed.checkpoint``, as training frameworks save it today.

Each rank saves its own checkpoint (``no_dist``) in its own folder, so that no process group is
needed. A framework's ranks also write separate files; they share only the plan and the metadata.
Tensors are planned without storage, created when the writer requests them, and inspected when the
reader delivers them. ``async_save`` is not called, since it would first copy the whole shard. It is
``dcp.save`` on a thread after a snapshot, which a background drain does with every store.

The library's metadata is a pickle. It is unpickled only if it is, byte for byte, what this process
wrote: the digest is kept in memory, never on the target.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import ReadItem, WriteItem
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from wattload.core.errors import DataError, content_fault
from wattload.core.files import FOLDER_MODE, choose_folder, sync_folder
from wattload.core.io import BlockIdentity, ByteCounter, DataPath
from wattload.loaders.aligned_io import PAGE_BYTES, aligned_buffer
from wattload.loaders.checkpoint_store import (
    DTYPE_BYTES,
    Loaded,
    Saved,
    Shard,
    ShardFile,
    Tensor,
    cut_tensors,
    fill_tiled,
    padded_bytes,
    tensor_key,
)
from wattload.loaders.dcp.config import Config
from wattload.loaders.stamps import StampedMemory, bad_blocks

METADATA_NAME = ".metadata"
METADATA_SCRATCH = f"{METADATA_NAME}.tmp"


_SUFFIX = ".distcp"


class CountedFiles(FileSystem):
    """The library's file system, which counts bytes written and keeps the first failure.

    The writer's threads do not report their errors, so ``failure`` is checked afterwards.
    ``synced`` are the files whose descriptor the library requested, which it does to fsync them.
    ``metadata_digest`` is the SHA-256 of the metadata written last.
    """

    def __init__(self, moved: ByteCounter) -> None:
        self.failure: OSError | None = None
        self.synced: set[Path] = set()
        self.metadata_digest = b""
        self.last_path = Path()
        self._moved = moved

    @contextmanager
    def create_stream(
        self, path: str | os.PathLike[str], mode: str
    ) -> Generator[io.IOBase, None, None]:
        """Open a file; one that is written is counted."""
        self.last_path = opened = Path(path)
        with self._open(opened, mode) as stream:
            if mode == "rb":
                yield cast("io.IOBase", stream)
                return
            counted = _CountedStream(stream, self, opened)
            yield cast("io.IOBase", counted)
        if opened.name == METADATA_SCRATCH:
            self.metadata_digest = counted.digest.digest()

    def count(self, count: int) -> None:
        self._moved(count)

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Make the rank's folder, which is ours alone."""
        own = Path(path)
        # It is proved when a file in it is opened, and made durable with its files.
        with choose_folder(own.parent) as above, suppress(FileExistsError):
            os.mkdir(own.name, FOLDER_MODE, dir_fd=above.descriptor)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Give a file of the rank's folder another name in it."""
        old, new = Path(path), Path(new_path)
        with choose_folder(old.parent.parent) as above, above.enter(old.parent.name) as own:
            own.rename(old.name, new.name)

    @contextmanager
    def _open(self, path: Path, mode: str) -> Iterator[IO[bytes]]:
        if mode == "rb":
            with path.open("rb") as stream:
                yield stream
            return
        with choose_folder(path.parent.parent) as above, above.enter(path.parent.name) as own:
            descriptor = own.create(path.name)
        with os.fdopen(descriptor, "wb") as stream:
            yield stream


class MemoryFiles(CountedFiles):
    """The same with files kept in memory; the rest of the library's path is unchanged."""

    def __init__(self, moved: ByteCounter, kept: dict[Path, bytes]) -> None:
        super().__init__(moved)
        self._kept = kept

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Do nothing: a folder is only a part of a name here."""

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Return ``False``: metadata of an earlier save does not count."""
        return False

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        self._kept[Path(new_path)] = self._kept.pop(Path(path))

    @contextmanager
    def _open(self, path: Path, mode: str) -> Iterator[IO[bytes]]:
        if mode == "rb":
            yield io.BytesIO(self._kept[path])
            return
        stream = _KeptStream()
        yield stream
        self._kept[path] = stream.getvalue()


class _KeptStream(io.BytesIO):
    """A stream whose bytes can be read after the writer has closed it."""

    def close(self) -> None:
        pass


class _CountedStream:
    """The stream that the library writes to: the file's own methods, with ``write`` counted."""

    def __init__(self, stream: IO[bytes], files: CountedFiles, path: Path) -> None:
        self._stream = stream
        self._files = files
        self._path = path
        self.digest = hashlib.sha256()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the file has
        return getattr(self._stream, name)

    def fileno(self) -> int:
        """Return the descriptor, after flushing the stream's buffer.

        The library requests it to fsync; its metadata is still in that buffer then (torch 2.13), so
        that it would fsync an empty file.
        """
        self._stream.flush()
        descriptor = self._stream.fileno()
        self._files.synced.add(self._path)
        return descriptor

    def write(self, data: bytes) -> int:
        try:
            count = self._stream.write(data)
        except OSError as error:
            reason = f"write failed: {error.strerror}"
            self._files.failure = OSError(error.errno, reason, str(self._path))
            raise
        if self._path.name == METADATA_SCRATCH:
            self.digest.update(data)
        self._files.count(count)
        return count


class CheckpointReader(FileSystemReader):
    """The library's reader, restricted to metadata that this process wrote."""

    def __init__(self, folder: Path, files: CountedFiles, digest: bytes | None) -> None:
        super().__init__(folder)
        self.fs = files
        self._files = files
        self._digest = digest

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the metadata.

        Raises:
            DataError: it is not byte for byte what this run wrote.
        """
        path = Path(self.path) / METADATA_NAME
        with self.fs.create_stream(path, "rb") as stream:
            content = cast("IO[bytes]", stream).read()
        if hashlib.sha256(content).digest() != self._digest:
            raise DataError(
                f"{path} is not the metadata that this run wrote, so it is not unpickled"
            )
        self._files.count(len(content))
        metadata: Metadata = pickle.loads(content)
        if metadata.storage_meta is not None:
            metadata.storage_meta.load_id = self.load_id
        return metadata


@contextmanager
def unwrap_errors() -> Iterator[None]:
    """Raise the original error, an interrupt included, where the library wraps it."""
    try:
        yield
    except CheckpointException as error:
        cause = next(iter(error.failures.values()))[0]
        raise cause from error


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor as it is saved, and the number of its first 4096-byte block."""

    tensor: Tensor
    first_block: int


def numbered(tensors: Sequence[Tensor]) -> list[Piece]:
    """Return the tensors as pieces, with their blocks numbered consecutively."""
    found, block = [], 0
    for tensor in tensors:
        found.append(Piece(tensor, block))
        block += padded_bytes(tensor) // PAGE_BYTES
    return found


def state_dict(pieces: Sequence[Piece], identity: BlockIdentity) -> dict[str, Any]:
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
    """Stamps each tensor in its thread's memory when the writer requests it.

    ``memories`` has one memory for each thread.
    """

    def __init__(
        self, pieces: Sequence[Piece], identity: BlockIdentity, memories: Sequence[StampedMemory]
    ) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._pieces = {tensor_key(piece.tensor, identity): piece for piece in pieces}
        self._identity = identity
        self._free = list(memories)
        self._of_thread: dict[int, StampedMemory] = {}
        self._lock = threading.Lock()

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        """Return a tensor's bytes; valid until the same thread requests the next."""
        piece = self._pieces[write_item.index.fqn]
        with self._lock:
            thread = threading.get_ident()
            memory = self._of_thread.get(thread) or self._of_thread.setdefault(
                thread, self._free.pop()
            )
        payload = memory.stamp(0, piece.tensor.size_bytes, self._identity, piece.first_block)
        return torch.from_numpy(payload).view(getattr(torch, piece.tensor.dtype))


class LoadPlanner(DefaultLoadPlanner):
    """Delivers each tensor into one memory, and has it inspected before the next arrives.

    ``inspect`` receives a tensor's name and its bytes.
    """

    def __init__(self, most_bytes: int, inspect: Callable[[str, NDArray[np.uint8]], None]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._memory = torch.empty(most_bytes, dtype=torch.uint8)
        self._inspect = inspect

    def set_up_planner(
        self,
        state_dict: Mapping[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        """Use the state dictionary unchanged: the library's own method would allocate all of it."""
        self.state_dict = dict(state_dict)
        self.original_state_dict = self.state_dict
        self.metadata = metadata
        self.is_coordinator = is_coordinator

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        wanted = self.lookup_tensor(read_item.dest_index)
        return self._memory[: wanted.nbytes].view(wanted.dtype)

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        self._inspect(read_item.dest_index.fqn, tensor.view(torch.uint8).numpy())


def make_store(config: Config, shard: Shard, *, seed: int, diskless: bool) -> DcpStore:
    """Return the store that saves a shard by ``dcp.save``."""
    return DcpStore(config, shard, seed=seed, diskless=diskless)


class DcpStore:
    """Saves a shard by ``dcp.save`` and loads it by ``dcp.load``: through the page cache.

    With ``diskless`` the same calls use memory, which then holds the whole shard.
    """

    def __init__(self, config: Config, shard: Shard, *, seed: int, diskless: bool = False) -> None:
        self._config = config
        self._folder = f"rank-{shard.rank:05d}"
        self._pieces = numbered(list(cut_tensors(shard, config.tensor_bytes)))
        self._largest = max(padded_bytes(piece.tensor) for piece in self._pieces)
        self._kept: dict[Path, bytes] | None = {} if diskless else None
        self._digests: dict[BlockIdentity, bytes] = {}
        memories = [aligned_buffer(self._largest) for _ in range(config.thread_count)]
        for memory in memories:
            fill_tiled(memory, seed=seed, rank=shard.rank)
        self._memories = [StampedMemory(memory) for memory in memories]

    @property
    def file_names(self) -> Sequence[str]:
        """The writer's files, then its metadata, in a folder of this rank."""
        count = self._config.thread_count if self._one_file else len(self._pieces)
        data = (f"__0_{number}{_SUFFIX}" for number in range(count))
        return tuple(f"{self._folder}/{name}" for name in (*data, METADATA_NAME))

    @property
    def scratch_names(self) -> Sequence[str]:
        return (f"{self._folder}/{METADATA_SCRATCH}",)

    @property
    def overhead_limit_bytes(self) -> int:
        """What the containers and the metadata may add: 4 kB a piece, 16 kB in all."""
        return 4096 * len(self._pieces) + 16384

    def save(
        self, folder: Path, identity: BlockIdentity, moved: ByteCounter, *, fsync: bool
    ) -> Saved:
        """Save the shard's tensors; with ``fsync`` sync each file, then the folders.

        Raises:
            OSError: a write failed; the message has the file.
            DataError: the writer left out a tensor.
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
            per_thread_copy_ahead=0,  # no GPU copies, and one tensor at a time
        )
        writer.fs = files
        metadata = self._save(writer, planner, identity, files)
        self._digests[identity] = files.metadata_digest
        if to_disk:
            sync_folder(own)
            sync_folder(folder)
        made = self._shard_files(metadata, identity)
        cpu_s = time.process_time() - start_s
        return Saved(files=made, cpu_s=cpu_s, synced_count=len(files.synced))

    def load(
        self, folder: Path, files: Sequence[ShardFile], identity: BlockIdentity, moved: ByteCounter
    ) -> Loaded:
        """Load tensor after tensor and check every delivered byte.

        Raises:
            DataError: a file is truncated or can't be parsed.
        """
        start_s = time.process_time()
        source = self._files(moved)
        reader = CheckpointReader(folder / self._folder, source, self._digests.get(identity))
        found = _Delivered(self._pieces, identity, reader, moved)
        planner = LoadPlanner(self._largest, found.inspect)
        try:
            with _ignore_single_process(), unwrap_errors():
                dcp_load(
                    state_dict(self._pieces, identity),
                    storage_reader=reader,
                    planner=planner,
                    no_dist=True,
                )
        except Exception as error:
            reason = content_fault(error)
            if reason is None:
                raise
            raise DataError(
                f"torch.distributed.checkpoint can't read {source.last_path}: {reason}"
            ) from error
        return found.loaded(files, time.process_time() - start_s)

    def path(self) -> DataPath:
        """Return the requested path of the bytes, with the writer's settings."""
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
        identity: BlockIdentity,
        files: CountedFiles,
    ) -> Metadata:
        tensors = state_dict(self._pieces, identity)
        try:
            with _ignore_single_process(), unwrap_errors():
                metadata: Metadata = dcp_save(
                    tensors, storage_writer=writer, planner=planner, no_dist=True
                )
        except RuntimeError as error:
            # torch turns an OSError into an error without its number and reason.
            raise files.failure or error from error
        if files.failure is not None:
            raise files.failure
        missing = tensors.keys() - {index.fqn for index in metadata.storage_data or ()}
        if missing:
            raise DataError(
                f"torch.distributed.checkpoint left out {len(missing)} tensors of "
                f"{writer.path}, such as {min(missing)}: one of its threads failed"
            )
        return metadata

    def _shard_files(self, metadata: Metadata, identity: BlockIdentity) -> tuple[ShardFile, ...]:
        """Return each file with the bytes of the tensors in it."""
        sizes = dict.fromkeys(self.file_names, 0)
        names = {
            index.fqn: f"{self._folder}/{info.relative_path}"
            for index, info in (metadata.storage_data or {}).items()
        }
        for piece in self._pieces:
            sizes[names[tensor_key(piece.tensor, identity)]] += piece.tensor.size_bytes
        return tuple(ShardFile(name=name, payload_bytes=size) for name, size in sizes.items())


class _Delivered:
    """What a load has delivered, tensor by tensor."""

    def __init__(
        self,
        held: Sequence[Piece],
        identity: BlockIdentity,
        reader: CheckpointReader,
        moved: ByteCounter,
    ) -> None:
        self._blocks = {tensor_key(piece.tensor, identity): piece.first_block for piece in held}
        self._identity = identity
        self._reader = reader
        self._moved = moved
        self._lengths: dict[str, int] = {}
        self._wrong = 0
        self._payload_bytes = 0
        self._bad_names: set[str] = set()

    def inspect(self, name: str, payload: NDArray[np.uint8]) -> None:
        """Compare a tensor's stamps and sums, and count its bytes in the file."""
        if not self._lengths:
            stored = self._reader.storage_data.items()
            self._lengths = {index.fqn: info.length for index, info in stored}
        self._moved(self._lengths[name])
        wrong = bad_blocks(payload, self._identity, first_block=self._blocks[name])
        self._payload_bytes += payload.size
        if wrong:
            self._wrong += wrong
            self._bad_names.add(name)

    def loaded(self, files: Sequence[ShardFile], cpu_s: float) -> Loaded:
        """Return what was delivered, with the files that hold wrong blocks."""
        bad = {
            info.relative_path
            for index, info in self._reader.storage_data.items()
            if index.fqn in self._bad_names
        }
        return Loaded(
            payload_bytes=self._payload_bytes,
            bad_blocks=self._wrong,
            bad_files=tuple(file.name for file in files if Path(file.name).name in bad),
            cpu_s=cpu_s,
        )


@contextmanager
def _ignore_single_process() -> Iterator[None]:
    """Suppress PyTorch's warning that there is no process group: none is needed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
