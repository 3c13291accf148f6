"""One plan under way in Python: blocks dealt to threads, files opened and closed as they pass."""

from __future__ import annotations

import threading
import time

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import Histogram
from wattload.core.io import BlockVisitor, ByteCounter, IOKind, IOPlan
from wattload.core.units import NS_PER_S
from wattload.loaders.aligned import PAGE_BYTES, round_up
from wattload.loaders.datafolder.safefiles import sync_folder
from wattload.loaders.python.blockio import Medium, too_short
from wattload.loaders.python.blockplan import Block, PlanFile, blocks_in_order, files_of
from wattload.loaders.stamps import bad_blocks, checksum, join_checksums, stamp


class BlockJob:
    """Deals the blocks of one plan to whoever calls ``work``, until they run out or one fails."""

    def __init__(
        self,
        plan: IOPlan,
        medium: Medium,
        *,
        visit: BlockVisitor | None,
        moved: ByteCounter | None,
        alignment_bytes: int = PAGE_BYTES,
    ) -> None:
        self.moved_bytes = 0
        self.checksum = 0
        self.bad_blocks = 0
        self._plan = plan
        self._medium = medium
        self._visit = visit
        self._moved = moved
        self._alignment_bytes = alignment_bytes
        self._files = files_of(plan)
        self._blocks = blocks_in_order(plan, self._files)
        self._pace = _Pace(plan)
        self._latencies_ns: list[int] = []
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._stop = threading.Event()

    @property
    def operation_count(self) -> int:
        """How many operations are done."""
        return len(self._latencies_ns)

    def latency(self) -> Histogram:
        """Return how long the operations took."""
        return Histogram.of(self._latencies_ns)

    def work(self, buffer: NDArray[np.uint8]) -> float:
        """Move blocks through one buffer until there are no more; returns this thread's CPU s."""
        start_s = time.thread_time()
        move = self._read if self._plan.kind is IOKind.READ else self._write
        try:
            while (taken := self._take()) is not None:
                block, handle = taken
                if block.length_bytes:
                    wait_s = self._pace.due_in_s(block.length_bytes)
                    if wait_s and self._stop.wait(wait_s):
                        break
                    move(block, handle, buffer)
                self._done(block)
        except BaseException as error:  # the caller gets it from raise_failure
            with self._lock:
                self._failure = self._failure or error
            self._stop.set()
        return time.thread_time() - start_s

    def stop(self) -> None:
        """Deal no more blocks; those in flight are still finished, those not due yet dropped."""
        self._stop.set()

    def raise_failure(self) -> None:
        """Raise what the first thread that failed met, if one did."""
        if self._failure is not None:
            raise self._failure

    def finish_files(self) -> None:
        """Finish the files of a plan that repeats, whose last block is known only at its end."""
        for file in self._files.values():
            if file.handle is not None:
                self._finish(file, file.handle)

    def close_files(self) -> None:
        """Close what a stop or a failure left open; to be called when no thread works any more."""
        for file in self._files.values():
            self._close(file)

    def sync_folders(self) -> None:
        """Make the names of the written files durable."""
        for folder in {path.parent for path in self._files}:
            sync_folder(folder)

    def _take(self) -> tuple[Block, int] | None:
        """Return the next block with its file's handle, ``None`` when there is no more to do."""
        with self._lock:
            if self._stop.is_set() or not self._pace.begins_another():
                return None
            block = next(self._blocks, None)
            if block is None:
                return None
            file = block.file
            if file.handle is None:
                file.handle = self._medium.open(file.path, self._plan.kind, file.end_bytes)
            return block, file.handle

    def _read(self, block: Block, handle: int, buffer: NDArray[np.uint8]) -> None:
        asked = buffer[: round_up(block.length_bytes, self._alignment_bytes)]
        payload, path = buffer[: block.length_bytes], block.file.path
        start_ns = time.monotonic_ns()
        count = self._medium.read(handle, path, asked, block.offset_bytes)
        latency_ns = time.monotonic_ns() - start_ns
        if count < block.length_bytes:
            raise too_short(path, block.offset_bytes, block.length_bytes, count)
        stamps, first = self._plan.stamps, block.offset_bytes // PAGE_BYTES
        if stamps is not None:
            self._sum(payload, bad_blocks(payload, stamps, first + stamps.first_block))
        self._count(block.length_bytes, latency_ns)
        self._show(block, payload)

    def _write(self, block: Block, handle: int, buffer: NDArray[np.uint8]) -> None:
        payload = buffer[: block.length_bytes]
        padded = buffer[: round_up(block.length_bytes, self._alignment_bytes)]
        stamps, first = self._plan.stamps, block.offset_bytes // PAGE_BYTES
        if stamps is not None:
            stamp(padded, stamps, first + stamps.first_block)
            self._sum(payload, 0)
        self._show(block, payload)
        start_ns = time.monotonic_ns()
        self._medium.write(handle, block.file.path, padded, block.offset_bytes)
        self._count(block.length_bytes, time.monotonic_ns() - start_ns)

    def _show(self, block: Block, payload: NDArray[np.uint8]) -> None:
        if self._visit is not None:
            extent = self._plan.extents[block.extent_number]
            self._visit(payload, extent, block.offset_bytes)

    def _sum(self, payload: NDArray[np.uint8], bad: int) -> None:
        part = checksum(payload)
        with self._lock:
            self.checksum = join_checksums(self.checksum, part)
            self.bad_blocks += bad

    def _count(self, moved_bytes: int, latency_ns: int) -> None:
        with self._lock:
            self.moved_bytes += moved_bytes
            self._latencies_ns.append(latency_ns)
        if self._moved is not None:
            self._moved(moved_bytes)

    def _done(self, block: Block) -> None:
        file = block.file
        with self._lock:
            file.blocks_left -= file.blocks_left > 0
            if file.blocks_left or file.handle is None:
                return
        self._finish(file, file.handle)

    def _finish(self, file: PlanFile, handle: int) -> None:
        if self._plan.kind is IOKind.WRITE:
            self._medium.finish(handle, file.path, file.end_bytes, fsync=self._plan.fsync)
        self._close(file)

    def _close(self, file: PlanFile) -> None:
        if file.handle is not None:
            self._medium.close(file.handle)
            file.handle = None


class _Pace:
    """When the next operation may begin, and whether another one may at all."""

    def __init__(self, plan: IOPlan) -> None:
        self._left = plan.operation_count
        self._rate = plan.rate_bytes_per_s
        self._start_ns = time.monotonic_ns()
        self._end_ns = None
        if plan.duration_s is not None:
            self._end_ns = self._start_ns + round(plan.duration_s * NS_PER_S)
        self._begun_bytes = 0
        self._lock = threading.Lock()

    def begins_another(self) -> bool:
        """Return whether another block is to be taken; counts it."""
        if self._end_ns is not None and time.monotonic_ns() >= self._end_ns:
            return False
        if self._left is None:
            return True
        self._left -= 1
        return self._left >= 0

    def due_in_s(self, size_bytes: int) -> float:
        """Return after which time the bytes begun so far are no more than the rate allows."""
        if self._rate is None:
            return 0.0
        with self._lock:
            due_ns = self._start_ns + round(self._begun_bytes / self._rate * NS_PER_S)
            self._begun_bytes += size_bytes
        return max(due_ns - time.monotonic_ns(), 0) / NS_PER_S
