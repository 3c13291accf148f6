"""One record on the target: written whole under a temporary name, fsynced, renamed, then listed."""

from __future__ import annotations

import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import ByteCounter, IOKind
from wattload.loaders.aligned import PAGE_BYTES, round_up
from wattload.loaders.datafolder import DataFolder
from wattload.loaders.datafolder.safefiles import sync_folder
from wattload.loaders.formats import RecordFormat, file_bytes
from wattload.loaders.python.blockio import DirectMedium, Medium
from wattload.workloads.unet3d.payload import PayloadPool
from wattload.workloads.unet3d.sizes import Shape, payload_bytes

TEMPORARY_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record to be written: its file, its shape and its place in the data set."""

    folder: DataFolder
    name: str
    shape: Shape
    index: int


class PageCacheMedium(DirectMedium):
    """Files through the page cache, for a target that refuses O_DIRECT."""

    def open(self, path: Path, kind: IOKind, end_bytes: int) -> int:
        """Create for writing."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


class RecordWriter:
    """Writes records through one buffer of whole 4 KiB blocks; one thread at a time uses it.

    ``moved`` is told of the bytes of each chunk when they have moved, filled up to whole blocks.
    """

    def __init__(
        self,
        layout: RecordFormat,
        pool: PayloadPool,
        buffer: NDArray[np.uint8],
        medium: Medium,
        moved: ByteCounter,
    ) -> None:
        self._layout = layout
        self._pool = pool
        self._buffer = buffer
        self._medium = medium
        self._moved = moved

    def write(self, record: Record) -> int:
        """Write one record, durably, and list it in its folder; returns the file's size in bytes.

        Listed is the SHA-256 of the payload, not of the file: it is what loaders deliver. What an
        interruption leaves is announced in the manifest, so that it can be removed.
        """
        folder, temporary = record.folder, record.name + TEMPORARY_SUFFIX
        folder.reserve(record.name)
        folder.reserve(temporary)
        size_bytes = file_bytes(self._layout, record.shape)
        digest = self._write_file(folder.path / temporary, record, size_bytes)
        (folder.path / temporary).replace(folder.path / record.name)
        sync_folder(folder.path)
        folder.record(record.name, size_bytes, digest)
        folder.discard(temporary)
        return size_bytes

    def _write_file(self, path: Path, record: Record, size_bytes: int) -> str:
        handle = self._medium.open(path, IOKind.WRITE, size_bytes)
        try:
            digest = self._write_chunks(handle, path, record, size_bytes)
            self._medium.finish(handle, path, size_bytes, fsync=True)
        finally:
            self._medium.close(handle)
        return digest

    def _write_chunks(self, handle: int, path: Path, record: Record, size_bytes: int) -> str:
        """Write the file chunk by chunk, then its first block again, now with the CRC-32."""
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
            part = chunk[max(start - offset, 0) : max(end - offset, 0)]
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
    """Put ``data``, which starts at ``position`` of the file, where it lies in a chunk."""
    first = max(position, offset)
    last = min(position + len(data), offset + len(chunk))
    if first < last:
        part = data[first - position : last - position]
        chunk[first - offset : last - offset] = np.frombuffer(part, dtype=np.uint8)
