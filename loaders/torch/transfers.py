"""Blocks by threads that read or write whole extents, as LMCache's backend for local disks does.

Four threads serve one queue, in which reads go before writes. An extent is moved by one call
through the page cache: read into a tensor that is used again, or written from memory. Files are
synced where the plan says so; LMCache never syncs its own.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import reduce
from io import FileIO
from pathlib import Path
from queue import Empty, PriorityQueue
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError
from wattload.core.files import choose_folder, naming
from wattload.core.histogram import Histogram
from wattload.core.io import (
    Allocation,
    BlockIdentity,
    DataPath,
    Extent,
    IOKind,
    IOPlan,
    IOResult,
    Stamps,
)
from wattload.loaders.aligned_io import PAGE_BYTES, aligned_buffer, round_up
from wattload.loaders.block_transfers import TransferLimits
from wattload.loaders.checkpoint_store import fill_tiled
from wattload.loaders.stamps import StampedMemory, bad_blocks, bad_samples

THREADS = 4
"""As many as LMCache has."""

_PATH = DataPath(
    data_path="page_cache, extending writes",
    path_requested="page_cache",
    engine=f"{THREADS} threads, one call for each extent",
)


class TorchTransfers:
    """The threads, their memory and the queue; implements ``BlockTransfers``.

    As many operations are in flight as there are threads, whatever the queue depth.
    """

    def __init__(self, limits: TransferLimits, *, seed: int) -> None:
        self._largest_bytes = limits.largest_bytes
        self._signal = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._queue: PriorityQueue[tuple[int, int, _Part | None]] = PriorityQueue()
        self._numbers = itertools.count()
        memories = [_Memory(limits.largest_bytes, seed=seed, rank=n) for n in range(THREADS)]
        self._threads = [
            threading.Thread(target=self._serve, args=(memory,), daemon=True) for memory in memories
        ]
        for thread in self._threads:
            thread.start()

    @property
    def signal(self) -> int:
        return self._signal

    def submit(self, plan: IOPlan) -> TorchTransfer:
        """Queue the files of a plan; see the protocol.

        Raises:
            ConfigError: an extent is longer than the limit.
            RuntimeError: the transfers are closed.
        """
        if not self._threads:
            raise RuntimeError("the transfers are closed")
        longest_bytes = max(extent.length_bytes for extent in plan.extents)
        if longest_bytes > self._largest_bytes:
            raise ConfigError(
                f"an extent must have at most {self._largest_bytes} bytes, got {longest_bytes}"
            )
        word = (plan.stamps or Stamps(0, 0)).word
        words = [word] * len(plan.extents) if plan.words is None else plan.words
        files: dict[Path, list[tuple[Extent, int]]] = {}
        for extent, word in zip(plan.extents, words, strict=True):
            files.setdefault(extent.path, []).append((extent, word))
        parts = [_Part(plan, path, extents, Future()) for path, extents in files.items()]
        transfer = TorchTransfer([part.future for part in parts], self._signal)
        for part in parts:
            self._queue.put((int(plan.kind is IOKind.WRITE), next(self._numbers), part))
        return transfer

    def path(self) -> DataPath:
        return _PATH

    def close(self) -> None:
        threads, self._threads = self._threads, []
        for _ in threads:
            self._queue.put((-1, next(self._numbers), None))
        for thread in threads:
            thread.join()
        with suppress(Empty):
            while part := self._queue.get_nowait()[2]:
                part.future.cancel()
        if self._signal >= 0:
            os.close(self._signal)
            self._signal = -1

    def _serve(self, memory: _Memory) -> None:
        while part := self._queue.get()[2]:
            if part.future.set_running_or_notify_cancel():
                try:
                    part.future.set_result(_move(part, memory))
                except Exception as error:  # of any kind: the transfer's result raises it
                    part.future.set_exception(error)


class TorchTransfer:
    """A plan whose files are moved by any of the threads; implements ``Transfer``."""

    def __init__(self, parts: Sequence[Future[IOResult]], signal: int) -> None:
        self._parts, self._signal = parts, signal
        self._lock, self._left = threading.Lock(), len(parts)
        self._ended = threading.Event()
        for part in parts:
            part.add_done_callback(self._part_ended)

    def wait(self, timeout_s: float | None = None) -> bool:
        return self._ended.wait(timeout_s)

    def progress(self) -> tuple[int, int]:
        ended = [part for part in self._parts if part.done() and not part.cancelled()]
        moved = [part.result() for part in ended if not part.exception()]
        return sum(each.moved_bytes for each in moved), sum(each.operation_count for each in moved)

    def result(self) -> IOResult:
        self._ended.wait()
        for part in self._parts:
            if not part.cancelled():
                part.result()  # its failure, not that others were cancelled for it
        moved = [part.result() for part in self._parts]
        return IOResult(
            moved_bytes=sum(each.moved_bytes for each in moved),
            operation_count=sum(each.operation_count for each in moved),
            start_ns=min(each.start_ns for each in moved),
            end_ns=max(each.end_ns for each in moved),
            cpu_s=sum(each.cpu_s for each in moved),
            path=_PATH,
            latency=reduce(Histogram.merged, (each.latency for each in moved if each.latency)),
            bad_blocks=sum(each.bad_blocks for each in moved),
            compared_bytes=sum(each.compared_bytes for each in moved),
            synced_files=sum(each.synced_files for each in moved),
        )

    def discard(self) -> None:
        for part in self._parts:
            part.cancel()
        self._ended.wait()

    def _part_ended(self, part: Future[IOResult]) -> None:
        if not part.cancelled() and part.exception():
            for other in self._parts:
                other.cancel()
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self._ended.set()
        os.eventfd_write(self._signal, 1)


class _Memory:
    """What one thread moves: a tensor that it reads into, and random bytes that it writes."""

    def __init__(self, size_bytes: int, *, seed: int, rank: int) -> None:
        import torch

        self.read: NDArray[np.uint8] = torch.zeros(size_bytes, dtype=torch.uint8).numpy()
        written = aligned_buffer(round_up(size_bytes, PAGE_BYTES))
        fill_tiled(written, seed=seed, rank=rank)
        self.written = StampedMemory(written)


class _Part(NamedTuple):
    """A file of a plan: the extents there, with their stamp words."""

    plan: IOPlan
    path: Path
    extents: Sequence[tuple[Extent, int]]
    future: Future[IOResult]


def _move(part: _Part, memory: _Memory) -> IOResult:
    """Move the extents of a file, and compare or stamp them."""
    plan, reads = part.plan, part.plan.kind is IOKind.READ
    stamps = plan.stamps or Stamps(0, 0)
    start_ns, start_s = time.monotonic_ns(), time.thread_time()
    latencies_ns, bad, compared_bytes = [], 0, 0
    with naming(part.path), FileIO(part.path) if reads else _writing(part) as file:
        for extent, word in part.extents:
            identity, size_bytes = BlockIdentity(stamps.nonce, word), extent.length_bytes
            number = stamps.first_block + extent.offset_bytes // PAGE_BYTES
            content = (
                memory.read[:size_bytes]
                if reads
                else memory.written.stamp(0, size_bytes, identity, number)
            )
            left, begun_ns = content.data, time.monotonic_ns()
            file.seek(extent.offset_bytes)
            while left and (count := file.readinto(left) if reads else file.write(left)):
                left = left[count:]
            latencies_ns.append(time.monotonic_ns() - begun_ns)
            if left:
                raise DataError(
                    f"{part.path} is truncated: it ends before the {size_bytes} bytes at offset "
                    f"{extent.offset_bytes} do"
                )
            if reads and plan.stamps and plan.sampled:
                found = bad_samples(content, identity, first_block=number, seed=plan.seed)
                bad, compared_bytes = bad + found[0], compared_bytes + found[1]
            elif reads and plan.stamps:
                bad += bad_blocks(content, identity, first_block=number)
                compared_bytes += size_bytes
    return IOResult(
        moved_bytes=sum(extent.length_bytes for extent, _ in part.extents),
        operation_count=len(latencies_ns),
        start_ns=start_ns,
        end_ns=time.monotonic_ns(),
        cpu_s=time.thread_time() - start_s,
        path=_PATH,
        latency=Histogram.of(latencies_ns),
        bad_blocks=bad,
        compared_bytes=compared_bytes,
        synced_files=int(plan.fsync and not reads),
    )


@contextmanager
def _writing(part: _Part) -> Iterator[FileIO]:
    """Open the file of a part, new or existing as the plan says, and sync it at the end."""
    with choose_folder(part.path.parent) as folder:
        if part.plan.allocation is Allocation.OVERWRITE:
            descriptor = folder.update(part.path.name, os.O_WRONLY)
        else:
            folder.remove(part.path.name)
            descriptor = folder.create(part.path.name)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            yield file
            if part.plan.fsync:
                os.fsync(descriptor)
                folder.sync()
