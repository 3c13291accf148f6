"""One plan under way: its blocks are dealt to threads, its files opened and closed as they pass."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError
from wattload.core.io import BlockVisitor, ByteCounter, Extent, IOKind, IOPlan
from wattload.loaders.aligned import PAGE_BYTES, round_up
from wattload.loaders.blockio import Medium, too_short


@dataclass(slots=True)
class _File:
    """A file of the plan: how far it reaches, and how many blocks are still to be done."""

    path: Path
    end_bytes: int = 0
    blocks_left: int = 0
    handle: int | None = None


@dataclass(frozen=True, slots=True)
class _Block:
    file: _File
    extent: Extent
    offset_bytes: int
    length_bytes: int


class BlockJob:
    """Deals the blocks of one plan to whoever calls ``work``, until they run out or one fails."""

    def __init__(
        self,
        plan: IOPlan,
        medium: Medium,
        *,
        visit: BlockVisitor | None,
        moved: ByteCounter | None,
    ) -> None:
        self.moved_bytes = 0
        self.operation_count = 0
        self._plan = plan
        self._medium = medium
        self._visit = visit
        self._moved = moved
        self._files = _files_of(plan)
        self._blocks = self._split()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._stopped = False

    def work(self, buffer: NDArray[np.uint8]) -> float:
        """Move blocks through one buffer until there are no more; returns this thread's CPU s."""
        start_s = time.thread_time()
        move = self._read if self._plan.kind is IOKind.READ else self._write
        try:
            while (taken := self._take()) is not None:
                block, handle = taken
                if block.length_bytes:
                    move(block, handle, buffer)
                self._done(block)
        except BaseException as error:  # the caller gets it from raise_failure
            with self._lock:
                self._failure = self._failure or error
                self._stopped = True
        return time.thread_time() - start_s

    def stop(self) -> None:
        """Deal no more blocks; those in flight are still finished."""
        self._stopped = True

    def raise_failure(self) -> None:
        """Raise what the first thread that failed met, if one did."""
        if self._failure is not None:
            raise self._failure

    def close_files(self) -> None:
        """Close what a stop or a failure left open; to be called when no thread works any more."""
        for file in self._files.values():
            self._close(file)

    def sync_folders(self) -> None:
        """Make the names of the written files durable."""
        for folder in {path.parent for path in self._files}:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _split(self) -> Iterator[_Block]:
        size = self._plan.block_bytes
        for extent in self._plan.extents:
            file = self._files[extent.path]
            for start in range(0, max(extent.length_bytes, 1), size):
                length = min(size, extent.length_bytes - start)
                yield _Block(file, extent, extent.offset_bytes + start, length)

    def _take(self) -> tuple[_Block, int] | None:
        """Return the next block with its file's handle, ``None`` when there is no more to do."""
        with self._lock:
            block = None if self._stopped else next(self._blocks, None)
            if block is None:
                return None
            file = block.file
            if file.handle is None:
                file.handle = self._medium.open(file.path, self._plan.kind, file.end_bytes)
            return block, file.handle

    def _read(self, block: _Block, handle: int, buffer: NDArray[np.uint8]) -> None:
        asked = buffer[: round_up(block.length_bytes, PAGE_BYTES)]
        path = block.file.path
        count = self._medium.read(handle, path, asked, block.offset_bytes)
        if count < block.length_bytes:
            raise too_short(path, block.offset_bytes, block.length_bytes, count)
        self._count(block.length_bytes)
        if self._visit is not None:
            self._visit(buffer[: block.length_bytes], block.extent, block.offset_bytes)

    def _write(self, block: _Block, handle: int, buffer: NDArray[np.uint8]) -> None:
        if self._visit is not None:
            self._visit(buffer[: block.length_bytes], block.extent, block.offset_bytes)
        padded = buffer[: round_up(block.length_bytes, PAGE_BYTES)]
        self._medium.write(handle, block.file.path, padded, block.offset_bytes)
        self._count(block.length_bytes)

    def _count(self, moved_bytes: int) -> None:
        with self._lock:
            self.moved_bytes += moved_bytes
            self.operation_count += 1
        if self._moved is not None:
            self._moved(moved_bytes)

    def _done(self, block: _Block) -> None:
        file = block.file
        with self._lock:
            file.blocks_left -= 1
            if file.blocks_left or file.handle is None:
                return
        if self._plan.kind is IOKind.WRITE:
            self._medium.finish(file.handle, file.path, file.end_bytes, fsync=self._plan.fsync)
        self._close(file)

    def _close(self, file: _File) -> None:
        if file.handle is not None:
            self._medium.close(file.handle)
            file.handle = None


def _files_of(plan: IOPlan) -> dict[Path, _File]:
    """Return the files of a plan with their ends and block counts.

    Raises ``ConfigError`` for an extent that O_DIRECT can't do: one that starts off a multiple of
    4096 bytes, or a written one that ends off it inside its file.
    """
    files: dict[Path, _File] = {}
    for extent in plan.extents:
        if extent.offset_bytes < 0 or extent.length_bytes < 0 or extent.offset_bytes % PAGE_BYTES:
            raise _misaligned(extent)
        file = files.setdefault(extent.path, _File(extent.path))
        file.end_bytes = max(file.end_bytes, extent.offset_bytes + extent.length_bytes)
        file.blocks_left += max(-(-extent.length_bytes // plan.block_bytes), 1)
    for extent in plan.extents:
        end_bytes = extent.offset_bytes + extent.length_bytes
        inside = end_bytes < files[extent.path].end_bytes
        if plan.kind is IOKind.WRITE and inside and end_bytes % PAGE_BYTES:
            raise _misaligned(extent)
    return files


def _misaligned(extent: Extent) -> ConfigError:
    return ConfigError(
        f"{extent.path}: an extent of {extent.length_bytes} bytes at {extent.offset_bytes} can't "
        f"be moved by O_DIRECT; offsets, and ends inside a file, are multiples of {PAGE_BYTES}"
    )
