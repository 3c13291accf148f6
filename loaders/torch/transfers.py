"""Blocks by threads that read or write whole extents, as LMCache's backend for local disks does.

Four threads serve one queue, in which reads go before writes. An extent is moved by one call
through the page cache: read into a tensor that is used again, or written from memory. Files are
synced where the plan says so; LMCache never syncs its own.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from io import FileIO
from pathlib import Path
from queue import PriorityQueue, SimpleQueue
from threading import Event
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError
from wattload.core.files import choose_folder, naming
from wattload.core.histogram import Histogram
from wattload.core.io import Allocation, BlockIdentity, DataPath, Extent, IOKind, IOPlan, IOResult
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
_Memory = tuple[NDArray[np.uint8], StampedMemory]
"""What one thread moves: a tensor that it reads into, and random bytes that it writes."""


class _Moved(NamedTuple):
    """What a thread did with one file of a plan; the fields are as in ``IOResult``."""

    start_ns: int
    end_ns: int
    cpu_s: float
    sizes_bytes: Sequence[int]
    latencies_ns: Sequence[int]
    bad_blocks: int
    compared_bytes: int


_Queued = tuple[bool, int, Future[_Moved], Callable[[_Memory], _Moved]]
"""Whether a file is written, its number in the queue, and what moves it."""


class TorchTransfers:
    """The threads, their memory and the queue; implements ``BlockTransfers``.

    As many operations are in flight as there are threads, whatever the queue depth.
    """

    def __init__(self, limits: TransferLimits, *, seed: int) -> None:
        import torch

        self._largest_bytes = limits.largest_bytes
        self._memories: SimpleQueue[_Memory] = SimpleQueue()
        for rank in range(THREADS):
            written = aligned_buffer(round_up(limits.largest_bytes, PAGE_BYTES))
            fill_tiled(written, seed=seed, rank=rank)
            read = torch.zeros(limits.largest_bytes, dtype=torch.uint8).numpy()
            self._memories.put((read, StampedMemory(written)))
        self._numbers = itertools.count()
        self._files: PriorityQueue[_Queued] = PriorityQueue()
        self._threads = ThreadPoolExecutor(THREADS)
        self.signal = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def submit(self, plan: IOPlan) -> TorchTransfer:
        """Queue the files of a plan; see the protocol.

        Raises:
            ConfigError: an extent is longer than the limit.
            RuntimeError: the transfers are closed.
        """
        if self.signal < 0:
            raise RuntimeError("the transfers are closed")
        longest_bytes = max(extent.length_bytes for extent in plan.extents)
        if longest_bytes > self._largest_bytes:
            raise ConfigError(
                f"an extent must have at most {self._largest_bytes} bytes, got {longest_bytes}"
            )
        files: dict[Path, list[tuple[Extent, int]]] = {}
        for extent, word in zip(plan.extents, plan.words or (), strict=True):
            files.setdefault(extent.path, []).append((extent, word))
        transfer = TorchTransfer([Future() for _ in files], self.signal, has_fsync=plan.fsync)
        for future, (path, extents) in zip(transfer.files, files.items(), strict=True):
            job = partial(_move, plan, path, extents)
            self._files.put((plan.kind is IOKind.WRITE, next(self._numbers), future, job))
            self._threads.submit(self._move_next)
        return transfer

    def path(self) -> DataPath:
        return _PATH

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        while not self._files.empty():
            self._files.get()[2].cancel()
        if self.signal >= 0:
            os.close(self.signal)
            self.signal = -1

    def _move_next(self) -> None:
        _, _, future, job = self._files.get()
        if future.set_running_or_notify_cancel():
            memory = self._memories.get()
            try:
                future.set_result(job(memory))
            except Exception as error:  # of any kind: the transfer's result raises it
                future.set_exception(error)
            self._memories.put(memory)


class TorchTransfer:
    """A plan whose files are moved by any of the threads; implements ``Transfer``."""

    def __init__(self, files: Sequence[Future[_Moved]], signal: int, *, has_fsync: bool) -> None:
        self.files, self._signal, self._has_fsync = files, signal, has_fsync
        self._count, self._ended = itertools.count(1), Event()
        for file in files:
            file.add_done_callback(self._file_ended)

    def wait(self, timeout_s: float | None = None) -> bool:
        return self._ended.wait(timeout_s)

    def progress(self) -> tuple[int, int]:
        ended = [file for file in self.files if file.done() and not file.cancelled()]
        sizes_bytes = [file.result().sizes_bytes for file in ended if not file.exception()]
        return sum(map(sum, sizes_bytes)), sum(map(len, sizes_bytes))

    def result(self) -> IOResult:
        self._ended.wait()
        moved = [file.result() for file in self.files]
        moved_bytes, operation_count = self.progress()
        return IOResult(
            moved_bytes=moved_bytes,
            operation_count=operation_count,
            start_ns=min(each.start_ns for each in moved),
            end_ns=max(each.end_ns for each in moved),
            cpu_s=sum(each.cpu_s for each in moved),
            path=_PATH,
            latency=Histogram.of(ns for each in moved for ns in each.latencies_ns),
            bad_blocks=sum(each.bad_blocks for each in moved),
            compared_bytes=sum(each.compared_bytes for each in moved),
            synced_files=len(moved) * self._has_fsync,
        )

    def discard(self) -> None:
        for file in self.files:
            file.cancel()
        self._ended.wait()

    def _file_ended(self, _: Future[_Moved]) -> None:
        if next(self._count) == len(self.files):
            self._ended.set()
            os.eventfd_write(self._signal, 1)


def _move(
    plan: IOPlan, path: Path, extents: Sequence[tuple[Extent, int]], memory: _Memory
) -> _Moved:
    """Move the extents of a file, each with its stamp word, and compare or stamp them."""
    reads, (read, written), stamps = plan.kind is IOKind.READ, memory, plan.stamps
    assert stamps is not None  # for mypy
    start_ns, cpu_start_s = time.monotonic_ns(), time.thread_time()
    latencies_ns, bad, compared_bytes = [], 0, 0
    with naming(path), choose_folder(path.parent) as folder:
        if reads or plan.allocation is Allocation.OVERWRITE:
            descriptor = folder.update(path.name, os.O_RDONLY if reads else os.O_WRONLY)
        else:
            folder.remove(path.name)
            descriptor = folder.create(path.name)
        with FileIO(descriptor, "rb" if reads else "wb") as file:
            for extent, word in extents:
                size_bytes, identity = extent.length_bytes, BlockIdentity(stamps.nonce, word)
                first = stamps.first_block + extent.offset_bytes // PAGE_BYTES
                block = (
                    read[:size_bytes] if reads else written.stamp(0, size_bytes, identity, first)
                )
                left, begun_ns = block.data, time.monotonic_ns()
                file.seek(extent.offset_bytes)
                while left and (count := file.readinto(left) if reads else file.write(left)):
                    left = left[count:]
                latencies_ns.append(time.monotonic_ns() - begun_ns)
                if left:
                    raise DataError(
                        f"{path} is truncated: it ends before the {size_bytes} bytes at offset "
                        f"{extent.offset_bytes} do"
                    )
                if reads and plan.sampled:
                    found = bad_samples(block, identity, first_block=first, seed=plan.seed)
                    bad, compared_bytes = bad + found[0], compared_bytes + found[1]
                elif reads:
                    bad += bad_blocks(block, identity, first_block=first)
                    compared_bytes += size_bytes
            if plan.fsync:
                os.fsync(descriptor)
                folder.sync()
    sizes_bytes = [extent.length_bytes for extent, _ in extents]
    end_ns, cpu_s = time.monotonic_ns(), time.thread_time() - cpu_start_s
    return _Moved(start_ns, end_ns, cpu_s, sizes_bytes, latencies_ns, bad, compared_bytes)
