"""A shard by ``torch.save`` and fsync, as DLIO writes it: the baseline of the direct store.

``torch.save`` writes each storage once, however many tensors are views of it, so every tensor here
has a storage of its own. Tensors go into files of at most ``bucket_bytes`` of payload; one that is
larger is saved in pieces. The container adds its directory and an alignment of 64 bytes.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import DataError, content_fault
from wattload.core.files import choose_folder, sync_folder
from wattload.core.io import BlockIdentity, ByteCounter, DataPath
from wattload.core.workload import missing_error
from wattload.loaders.aligned_io import PAGE_BYTES, aligned_buffer, round_down
from wattload.loaders.checkpoint_store import (
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
from wattload.loaders.stamps import StampedMemory, bad_blocks
from wattload.loaders.torch.config import Config


@dataclass(frozen=True, slots=True)
class _Bucket:
    """One file: its name, the tensors in it, and the number of its first 4096-byte block."""

    name: str
    tensors: tuple[Tensor, ...]
    first_block: int


def make_store(config: Config, shard: Shard, *, seed: int, diskless: bool) -> TorchStore:
    """Return the store that saves a shard by ``torch.save`` and fsync."""
    return TorchStore(shard, bucket_bytes=config.bucket_bytes, seed=seed, diskless=diskless)


class TorchStore:
    """Saves a shard by ``torch.save`` + fsync, and loads it by ``torch.load``: by the page cache.

    With ``diskless`` the same calls use memory, which then holds the whole shard.
    """

    def __init__(
        self, shard: Shard, *, bucket_bytes: int, seed: int, diskless: bool = False
    ) -> None:
        self._torch = _import_torch()
        self._buckets = list(_buckets(shard, max(round_down(bucket_bytes, PAGE_BYTES), PAGE_BYTES)))
        self._images: dict[str, io.BytesIO] | None = {} if diskless else None
        self._synced_count = 0
        largest = max(sum(padded_bytes(t) for t in bucket.tensors) for bucket in self._buckets)
        memory = aligned_buffer(largest)
        fill_tiled(memory, seed=seed, rank=shard.rank)
        # Summed once, outside the timed save, so that it times the same work as the direct store.
        self._memory = StampedMemory(memory)

    @property
    def file_names(self) -> Sequence[str]:
        return tuple(bucket.name for bucket in self._buckets)

    @property
    def overhead_limit_bytes(self) -> int:
        """What the zip container may add: 2 kB a tensor, 16 kB a file."""
        tensors = sum(len(bucket.tensors) for bucket in self._buckets)
        return 2048 * tensors + 16384 * len(self._buckets)

    def save(
        self, folder: Path, identity: BlockIdentity, moved: ByteCounter, *, fsync: bool
    ) -> Saved:
        """Save file after file; with ``fsync`` sync each, and then the folder."""
        start_s = time.process_time()
        self._synced_count = 0
        files = tuple(
            self._save(folder / bucket.name, bucket, identity, moved, fsync=fsync)
            for bucket in self._buckets
        )
        if fsync and self._images is None:
            sync_folder(folder)
        cpu_s = time.process_time() - start_s
        return Saved(files=files, cpu_s=cpu_s, synced_count=self._synced_count)

    def load(
        self, folder: Path, files: Sequence[ShardFile], identity: BlockIdentity, moved: ByteCounter
    ) -> Loaded:
        start_s = time.process_time()
        payload_bytes = bad = 0
        bad_files = []
        for bucket in self._buckets:
            found_bytes, wrong = self._load(folder / bucket.name, bucket, identity, moved)
            payload_bytes += found_bytes
            bad += wrong
            if wrong:
                bad_files.append(bucket.name)
        return Loaded(
            payload_bytes=payload_bytes,
            bad_blocks=bad,
            bad_files=tuple(bad_files),
            cpu_s=time.process_time() - start_s,
        )

    def path(self) -> DataPath:
        if self._images is not None:
            return DataPath(data_path="memory", path_requested="memory")
        return DataPath(data_path="torch.save, torch.load", path_requested="page_cache")

    def close(self) -> None:
        self._memory = StampedMemory(aligned_buffer(PAGE_BYTES))
        self._images = {} if self._images is not None else None

    def _save(
        self,
        path: Path,
        bucket: _Bucket,
        identity: BlockIdentity,
        moved: ByteCounter,
        *,
        fsync: bool,
    ) -> ShardFile:
        state = self._state(bucket, identity)
        with self._writing(path, fsync=fsync) as file:
            counting = _CountingFile(file, moved)
            try:
                self._torch.save(state, counting)
            except RuntimeError as error:
                # torch turns an OSError into an error without its number and reason.
                raise counting.failure(path) or error from error
        payload_bytes = sum(tensor.size_bytes for tensor in bucket.tensors)
        return ShardFile(name=bucket.name, payload_bytes=payload_bytes)

    def _state(self, bucket: _Bucket, identity: BlockIdentity) -> dict[str, Any]:
        state: dict[str, Any] = {}
        start = 0
        for tensor in bucket.tensors:
            block = bucket.first_block + start // PAGE_BYTES
            payload = self._memory.stamp(start, tensor.size_bytes, identity, block)
            # from_numpy makes a storage of exactly these bytes, so no tensor is saved as a view.
            flat = self._torch.from_numpy(payload)
            state[tensor_key(tensor, identity)] = flat.view(getattr(self._torch, tensor.dtype))
            start += padded_bytes(tensor)
        return state

    def _load(
        self, path: Path, bucket: _Bucket, identity: BlockIdentity, moved: ByteCounter
    ) -> tuple[int, int]:
        """Return how many tensor bytes one file delivered, and how many blocks are wrong."""
        state = self._read(path, moved)
        payload_bytes = wrong = 0
        block = bucket.first_block
        for tensor in bucket.tensors:
            payload = self._payload(state, tensor, identity, path)
            wrong += bad_blocks(payload, identity, first_block=block)
            payload_bytes += payload.size
            block += padded_bytes(tensor) // PAGE_BYTES
        return payload_bytes, wrong

    def _read(self, path: Path, moved: ByteCounter) -> dict[str, Any]:
        with self._reading(path) as file:
            try:
                state = self._torch.load(file, map_location="cpu", weights_only=True)
            except Exception as error:
                reason = content_fault(error)
                if reason is None:
                    raise
                raise DataError(
                    f"{path} is not a checkpoint that torch.load can read: {reason}"
                ) from error
            moved(file.seek(0, os.SEEK_END))
        if not isinstance(state, dict):
            raise DataError(f"{path} does not hold a dictionary of tensors")
        return state

    def _payload(
        self, state: dict[str, Any], tensor: Tensor, identity: BlockIdentity, path: Path
    ) -> NDArray[np.uint8]:
        loaded = state.pop(tensor_key(tensor, identity), None)
        is_whole = isinstance(loaded, self._torch.Tensor) and loaded.is_contiguous()
        if not is_whole or loaded.nbytes != tensor.size_bytes:
            raise DataError(f"{path} lacks the tensor {tensor.name} of {tensor.size_bytes} bytes")
        payload: NDArray[np.uint8] = loaded.view(self._torch.uint8).numpy()
        return payload

    @contextmanager
    def _writing(self, path: Path, *, fsync: bool) -> Iterator[IO[bytes]]:
        if self._images is not None:
            yield self._images.setdefault(path.name, io.BytesIO())
            self._images[path.name].seek(0)
            return
        with choose_folder(path.parent) as folder:
            descriptor = folder.create(path.name)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if fsync:
                os.fsync(file.fileno())
                self._synced_count += 1

    @contextmanager
    def _reading(self, path: Path) -> Iterator[IO[bytes]]:
        if self._images is not None:
            yield self._images[path.name]
            self._images[path.name].seek(0)
            return
        with path.open("rb") as file:
            yield file


class _CountingFile:
    """The file that ``torch.save`` writes to; counts the bytes written."""

    def __init__(self, file: IO[bytes], moved: ByteCounter) -> None:
        self._file = file
        self._moved = moved
        self._failure: OSError | None = None
        self.flush: Callable[[], None] = file.flush

    def write(self, data: bytes) -> int:
        try:
            count = self._file.write(data)
        except OSError as error:
            self._failure = self._failure or error
            raise
        self._moved(count)
        return count

    def failure(self, path: Path) -> OSError | None:
        """Return the error of a failed write, with the file's name."""
        if self._failure is None:
            return None
        return OSError(self._failure.errno, f"write failed: {self._failure.strerror}", str(path))


def _import_torch() -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise missing_error(Config.requires, user="loader=torch") from error
    return torch


def _buckets(shard: Shard, bucket_bytes: int) -> Iterator[_Bucket]:
    """Distribute a shard's tensors over files of at most ``bucket_bytes`` of payload, in order."""
    held: list[Tensor] = []
    number = block = 0
    for piece in cut_tensors(shard, bucket_bytes):
        if held and sum(t.size_bytes for t in held) + piece.size_bytes > bucket_bytes:
            yield _Bucket(f"rank-{shard.rank:05d}-{number:05d}.pt", tuple(held), block)
            block += sum(padded_bytes(t) for t in held) // PAGE_BYTES
            number, held = number + 1, []
        held.append(piece)
    yield _Bucket(f"rank-{shard.rank:05d}-{number:05d}.pt", tuple(held), block)
