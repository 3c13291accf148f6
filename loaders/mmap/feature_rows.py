"""Rows of features by page faults: mapped files that PyTorch indexes, as IGB's own loader does.

PyTorch spreads the rows of an index over its threads, each with one page fault at a time. The page
cache keeps what it reads, with the kernel's read-ahead around each fault. A fault that fails would
end the process; during a gather it ends the gather.
"""

from __future__ import annotations

import errno
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from wattload.core.io import DataPath
from wattload.loaders.aligned_io import round_up
from wattload.loaders.engine.faults import guarded
from wattload.loaders.feature_rows import (
    FeatureFile,
    FeaturePlan,
    GatherResult,
    Memory,
    RowGatherer,
    host_array,
)
from wattload.loaders.mmap.reader import (
    major_faults,
    mapped_path,
    storage_read_bytes,
)


class MappedGatherer(RowGatherer):
    """Mapped files and the threads of PyTorch; the kernel decides what the page cache keeps."""

    def __init__(self, plan: FeaturePlan, *, threads: int, advice: str) -> None:
        self._plan = plan
        self._threads = threads
        self._advice = advice
        self._memories = [_mapped(plan, file, advice) for file in plan.files]
        self._tensors = list(map(self._rows, plan.files, self._memories))
        self._path = mapped_path(
            plan.paths, threads, advice, user=f" of PyTorch {torch.__version__}"
        )

    def path(self) -> DataPath:
        """Return the path, with the read-ahead of the drives in its remarks."""
        return self._path

    def gather(self, rows: NDArray[np.uint64], into: Memory) -> GatherResult:
        """Index the mapped files; see ``RowGatherer.gather``."""
        self._plan.check_gather(rows, into)
        start_ns, start_cpu_s = time.monotonic_ns(), time.process_time()
        faults, storage_bytes = major_faults(), storage_read_bytes()
        with _threads(self._threads), guarded(self._mappings()) as guard:
            self._index(rows, host_array(into))
        if guard.fault is not None:
            self._fail(*guard.fault)
        return GatherResult(
            rows=len(rows),
            storage_rows=None,
            host_rows=None,
            cache_rows=None,
            merged_rows=None,
            storage_bytes=storage_read_bytes() - storage_bytes,
            start_ns=start_ns,
            end_ns=time.monotonic_ns(),
            cpu_s=time.process_time() - start_cpu_s,
            major_faults=major_faults() - faults,
        )

    def release_pages(self) -> None:
        """Let go of the pages of the page cache that are mapped: no others can be evicted."""
        for memory in self._memories:
            memory.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap the files; safe to call twice."""
        self._tensors, self._memories = [], []

    def _mappings(self) -> list[tuple[int, int]]:
        return [
            (
                tensor.data_ptr() - file.offset_bytes,
                round_up(tensor.nbytes + file.offset_bytes, mmap.PAGESIZE),
            )
            for tensor, file in zip(self._tensors, self._plan.files, strict=True)
        ]

    def _rows(self, file: FeatureFile, memory: mmap.mmap) -> torch.Tensor:
        """Return the rows of a mapped file, shape ``(row_count, row_bytes)``."""
        flat = np.frombuffer(memory, dtype=np.uint8, offset=file.offset_bytes)
        return torch.from_numpy(flat).view(file.row_count, self._plan.row_bytes)

    def _fail(self, number: int, offset: int) -> NoReturn:
        """Map a file again after a failed read, and raise for what failed."""
        file = self._plan.files[number]
        self._memories[number] = _mapped(self._plan, file, self._advice)
        self._tensors[number] = self._rows(file, self._memories[number])
        raise OSError(errno.EIO, f"{os.strerror(errno.EIO)} near offset {offset}", str(file.path))

    def _index(self, rows: NDArray[np.uint64], into: NDArray[np.uint8]) -> None:
        found = torch.from_numpy(into).view(-1, self._plan.row_bytes)
        if len(self._tensors) == 1:
            torch.index_select(
                self._tensors[0], 0, torch.from_numpy(rows.view(np.int64)), out=found
            )
            return
        files, places = self._plan.places(rows)
        for number, tensor in enumerate(self._tensors):
            those = np.flatnonzero(files == number)
            found[torch.from_numpy(those)] = tensor[torch.from_numpy(places[those].view(np.int64))]


def _mapped(plan: FeaturePlan, file: FeatureFile, advice: str) -> mmap.mmap:
    descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size_bytes = os.fstat(descriptor).st_size
        plan.check_file(file, size_bytes)
        # Private, since PyTorch takes writable memory only; nothing writes to it.
        memory = mmap.mmap(descriptor, size_bytes, access=mmap.ACCESS_COPY)
    finally:
        os.close(descriptor)
    memory.madvise(mmap.MADV_RANDOM if advice == "random" else mmap.MADV_NORMAL)
    return memory


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
