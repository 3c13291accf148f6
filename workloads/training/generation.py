"""Generation of a data set's files: existing ones are reused, missing ones are written.

A record is written under a temporary name, fsynced, renamed, then listed in the manifest; small
records are renamed and listed in groups. Each
block of its payload is sealed, so that a read proves every byte (``loaders.data.verification``).
The ranks that see a target share its missing files. The next call resumes one that was interrupted.
"""

from __future__ import annotations

import hashlib
import os
import queue
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.checks.io import written_extents_check
from wattload.core.errors import TargetError, WattloadError, remedy
from wattload.core.host.cgroups import usable_cpus
from wattload.core.io import BlockIdentity, ByteCounter
from wattload.core.workload import RunContext
from wattload.loaders.aligned_io import PAGE_BYTES, aligned_buffer, round_up
from wattload.loaders.data.data_folder import (
    TEMPORARY_SUFFIX,
    DataFolder,
    ManifestEntry,
    claim_on_targets,
)
from wattload.loaders.data.media import DirectMedium, medium_of
from wattload.loaders.data.record_formats import RecordFormat, file_bytes, record_format
from wattload.loaders.data.verification import record_identity
from wattload.loaders.stamps import seal
from wattload.workloads.training.config import Shape, payload_bytes
from wattload.workloads.training.dataset import Dataset, PreparedData

CHUNK_BYTES = 8 << 20
MAXIMUM_WRITERS = 8

BLOCK_BYTES = 4096
"""The smallest block that drives and file systems compare for deduplication."""
POOL_BYTES = 4 << 20
_WORDS = BLOCK_BYTES // 8


def prepare(dataset: Dataset, context: RunContext) -> tuple[PreparedData, bool]:
    """Claim the folders and write the missing files; return the data and whether all was reused.

    Each rank of those that see a target writes every n-th of its missing files and lists it in its
    own part of the manifest. Data is reused if it was on the targets of all hosts. The next call
    resumes one that was interrupted.

    Raises:
        DataError: a folder is not wattload's, a file has holes, or a verified file was changed.
        TargetError: the target is full or not writable.
    """
    sharers = context.sharers
    if sharers.rank == 0:
        _claim(dataset, 0)
    sharers.barrier()
    folders = _claim(dataset, sharers.rank)
    missing = dataset.missing(folders)
    kept = sorted(set(range(dataset.file_count)) - set(missing))
    sharers.barrier()  # all ranks look before any rank writes
    data = PreparedData(dataset, folders)
    own_kept = kept[sharers.rank :: sharers.world_size]
    written_extents_check([data.paths[index] for index in own_kept], remedy=dataset.remedy)
    if dataset.config.verify_data:
        data.verify(own_kept)
    _make(data, missing[sharers.rank :: sharers.world_size], context)
    sharers.barrier()
    if sharers.rank == 0:
        for folder in folders:
            folder.seal()
    for folder in folders:
        folder.reload()
    return data, all(context.communicator.all_gather(not missing))


def _claim(dataset: Dataset, rank: int) -> list[DataFolder]:
    seed = dataset.config.data_seed
    model, targets = dataset.config.model, dataset.targets
    return claim_on_targets(targets, model, dataset.parameters, seed=seed, part=rank)


def _make(data: PreparedData, indices: Sequence[int], context: RunContext) -> None:
    """Write the files in an untimed phase; an interrupt or failure lets started files finish."""
    if not indices:
        return
    # In whole blocks, and the first one of a file again, with the CRC-32 that is known at its end.
    again_bytes = PAGE_BYTES if record_format(data.dataset.config.record_format).HAS_CRC else 0
    written_bytes = sum(
        round_up(data.dataset.file_bytes[index], PAGE_BYTES) + again_bytes for index in indices
    )
    context.progress.begin("generating", written_bytes=written_bytes)
    try:
        with context.phase("generate", timed=False) as phase:
            _write_all(data, indices, context, lambda size: phase.moved(written_bytes=size))
    finally:
        context.progress.end()


def _write_all(
    data: PreparedData, indices: Sequence[int], context: RunContext, moved: ByteCounter
) -> None:
    count = min(writer_count(context.local.world_size), len(indices))
    free: queue.SimpleQueue[Sequence[RecordWriter]] = queue.SimpleQueue()
    for writers in _writers(data.dataset, count, moved):
        free.put(writers)

    def write(group: Sequence[int]) -> None:
        writers = free.get()
        try:
            _write(data, group, writers)
        finally:
            free.put(writers)

    groups = _groups(data, indices, count)

    with ThreadPoolExecutor(count, thread_name_prefix="generate") as threads:
        try:
            for done in as_completed([threads.submit(write, group) for group in groups]):
                done.result()
        finally:
            threads.shutdown(cancel_futures=True)


def writer_count(host_ranks: int) -> int:
    """Return the number of generating threads on one rank: its share of the host's processors."""
    return max(min(usable_cpus() // host_ranks, MAXIMUM_WRITERS), 1)


def generation_memory_bytes(host_ranks: int) -> int:
    """Return the memory of the generating threads of one rank, in bytes."""
    return POOL_BYTES + writer_count(host_ranks) * CHUNK_BYTES


def _writers(dataset: Dataset, count: int, moved: ByteCounter) -> Iterator[Sequence[RecordWriter]]:
    """Yield one writer per target for each thread; the writers of a thread share its buffer."""
    layout = record_format(dataset.config.record_format)
    pool = PayloadPool(dataset.config.data_seed)
    for _ in range(count):
        buffer = aligned_buffer(CHUNK_BYTES)
        yield [
            RecordWriter(layout, pool, buffer, medium_of(target), moved)
            for target in dataset.targets
        ]


def _groups(data: PreparedData, indices: Sequence[int], writers: int) -> Sequence[Sequence[int]]:
    """Return groups of files on one target each, of at most a chunk's bytes and one for a writer.

    The manifest and the folder are made durable once a group, which small files need.
    """
    targets = len(data.folders)
    size = CHUNK_BYTES // max(data.dataset.file_bytes[index] for index in indices)
    size = max(min(size, len(indices) // (writers * targets)), 1)
    by_target = [[i for i in indices if i % targets == place] for place in range(targets)]
    groups = [own[at : at + size] for own in by_target for at in range(0, len(own), size)]
    return sorted(groups)


def _write(data: PreparedData, group: Sequence[int], writers: Sequence[RecordWriter]) -> None:
    """Write the records of a group; those that are whole when one fails are kept."""
    place = group[0] % len(data.folders)
    folder, names = data.folders[place], [data.dataset.names[index] for index in group]
    finished: dict[str, ManifestEntry] = {}
    try:
        folder.announce_all(names)
        for index, name in zip(group, names, strict=True):
            record = Record(
                folder=folder,
                name=name,
                shape=data.dataset.shapes[index],
                index=index,
                identity=record_identity(data.dataset.nonce, Path(name).name),
            )
            finished[name] = writers[place].write(record)
    except WattloadError:
        raise
    except OSError as error:
        path = data.paths[group[len(finished)]]
        raise TargetError(
            f"writing {path} failed: {error.strerror or error}; "
            f"{remedy(error.errno)}; finished files are kept, and the next run continues from there"
        ) from error
    finally:
        folder.publish_all(finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record to write: its file, its shape, its index in the data set and its stamps."""

    folder: DataFolder
    name: str
    shape: Shape
    index: int
    identity: BlockIdentity


class RecordWriter:
    """Writes records through one buffer of whole 4 KiB blocks; one thread at a time uses it.

    ``moved`` is called after each chunk with its bytes, padding to whole blocks included.
    """

    def __init__(
        self,
        layout: RecordFormat,
        pool: PayloadPool,
        buffer: NDArray[np.uint8],
        medium: DirectMedium,
        moved: ByteCounter,
    ) -> None:
        self._layout = layout
        self._pool = pool
        self._buffer = buffer
        self._medium = medium
        self._moved = moved

    def write(self, record: Record) -> ManifestEntry:
        """Write an announced record durably under its temporary name; return its entry.

        The manifest has the SHA-256 of the payload, not of the file, because loaders deliver the
        payload.
        """
        path = record.folder.path / (record.name + TEMPORARY_SUFFIX)
        size_bytes = file_bytes(self._layout, record.shape)
        with record.folder.open(*Path(record.name).parts[:-1]) as folder:
            handle = self._medium.create(folder, path.name, size_bytes)
        try:
            digest = self._write_chunks(handle, path, record, size_bytes)
            self._medium.finish(handle, path, size_bytes)
        finally:
            os.close(handle)
        return ManifestEntry(size_bytes, digest)

    def _write_chunks(self, handle: int, path: Path, record: Record, size_bytes: int) -> str:
        """Write the file in chunks, then rewrite its first block with the CRC-32."""
        layout, shape = self._layout, record.shape
        crc32 = zlib.crc32(layout.checked_head(shape)) if layout.HAS_CRC else 0
        digest = hashlib.sha256()
        start = len(layout.head(shape))
        end = start + payload_bytes(shape)
        first_block = np.empty(0, dtype=np.uint8)
        for offset in range(0, size_bytes, len(self._buffer)):
            chunk = self._buffer[
                : round_up(min(len(self._buffer), size_bytes - offset), PAGE_BYTES)
            ]
            self._pool.fill(chunk, record.index, offset)
            for position, data in layout.inside(shape):
                _overlay(chunk, offset, position, data)
            part = chunk[max(start - offset, 0) : max(end - offset, 0)]
            seal(part, record.identity, offset_bytes=max(start, offset))
            digest.update(part.data)
            crc32 = zlib.crc32(part.data, crc32) if layout.HAS_CRC else 0
            _overlay(chunk, offset, 0, layout.head(shape))
            _overlay(chunk, offset, end, layout.tail(shape, crc32))
            if offset == 0:
                first_block = chunk[:PAGE_BYTES].copy()
            self._medium.write(handle, path, chunk, offset)
            self._moved(len(chunk))
        if layout.HAS_CRC:
            self._buffer[:PAGE_BYTES] = first_block
            _overlay(self._buffer, 0, 0, layout.head(shape, crc32))
            self._medium.write(handle, path, self._buffer[:PAGE_BYTES], 0)
            self._moved(PAGE_BYTES)
        return digest.hexdigest()


def _overlay(chunk: NDArray[np.uint8], offset: int, position: int, data: bytes) -> None:
    """Copy the part of ``data`` that falls into a chunk; it starts at ``position`` of the file."""
    first = max(position, offset)
    last = min(position + len(data), offset + len(chunk))
    if first < last:
        part = data[first - position : last - position]
        chunk[first - offset : last - offset] = np.frombuffer(part, dtype=np.uint8)


class PayloadPool:
    """Random blocks, XORed with a random word per block of each file, so that no block repeats.

    Every 4 KiB block of a file is one of 1024 random blocks. Each of its 64-bit words is XORed with
    one random word for that block of that file. Blocks stay incompressible, and two are equal only
    if two of these words are equal. A random number for every byte would cost four times as much.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        generator = np.random.Generator(np.random.PCG64(seed))
        words = generator.integers(0, 1 << 64, POOL_BYTES // 8, dtype=np.uint64)
        self._blocks: NDArray[np.uint64] = words.reshape(-1, _WORDS)

    def fill(self, chunk: NDArray[np.uint8], file_index: int, offset_bytes: int) -> None:
        """Fill a chunk of whole 4 KiB blocks that starts at a multiple of the pool's size.

        The bytes depend only on the seed, the index of the file and their offset in it.
        """
        blocks = chunk.view(np.uint64).reshape(-1, _WORDS)
        count = len(self._blocks)
        for first in range(0, len(blocks), count):
            part = blocks[first : first + count]
            place = offset_bytes // BLOCK_BYTES + first
            sequence = np.random.SeedSequence((self._seed, file_index, place))
            generator = np.random.Generator(np.random.PCG64(sequence))
            words = generator.integers(0, 1 << 64, (count, 1), dtype=np.uint64)
            np.bitwise_xor(self._blocks[: len(part)], words[: len(part)], out=part)
