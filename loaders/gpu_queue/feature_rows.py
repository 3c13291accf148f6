"""Rows of features that the threads of a GPU ask for, straight into its memory.

A warp copies rows that are in pinned host memory, or in a cache of the GPU's own; for the others it
asks through the queue (see ``loaders/engine/src/queue_abi.h``), which pollers on the CPU serve. It
runs in the process of its caller, in the GPU's primary context, which PyTorch uses too, and on
streams of its own. Threads of the CPU can gather in the GPU's place, into host memory.
"""

from __future__ import annotations

import ctypes
import os
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError, RunError
from wattload.core.io import DataPath, MemoryRegion, PathCounts
from wattload.core.units import format_bytes
from wattload.loaders.direct.feature_rows import DirectGatherer
from wattload.loaders.engine import library
from wattload.loaders.engine.library import AUTO
from wattload.loaders.feature_rows import (
    BLOCK_BYTES,
    FeaturePlan,
    GatherResult,
    Memory,
    RowGatherer,
    read_bytes_of,
)
from wattload.loaders.gpu.failures import NativeError, lost_error, opening_error
from wattload.loaders.gpu_queue.native import Rows, RowsSetup, architecture
from wattload.loaders.gpu_queue.reads import counted, path_counts

PULL_S = 0.2
"""How long pulls out of host memory are timed, before time starts."""
SET_ROWS = 16
"""Pages of a set of the cache, of a row each."""
_LESS = "use a smaller loader.host_share or fewer outstanding reads"
FILL_ROWS = 65_536
"""Rows that are read into host memory at a time."""

_COUNTS = ("kept", "hits", "merged", "asked", "bypassed", "delivered", "taken", "answered")
"""Of ``wl_rows_result``, those that ``path`` needs."""

_Result = TypeVar("_Result")


class QueueGatherer(RowGatherer):
    """A queue with its pollers, a host buffer and a cache."""

    def __init__(self, plan: FeaturePlan, setup: RowsSetup, *, needs_gpu: bool) -> None:
        """Open and register everything, read the rows to keep, and time pulls.

        The first of the plan's memories is written to, where a GPU's pulls are timed.
        """
        plan.check_files()
        self._plan, self._setup = plan, setup
        self._gpu = plan.gpu if needs_gpu else None
        self._expected: deque[int] = deque()
        self._counts: Counter[str] = Counter()
        self._is_usable = True
        self._rows = _open(plan, setup, self._gpu)
        self._end = weakref.finalize(self, self._rows.close)
        self.pull_rows_per_s: float | None = None
        """What a warp for each row pulls out of pinned host memory; ``None`` on the CPU."""
        try:
            self._fill()
            self.pull_rows_per_s = self._timed_pulls()
        except BaseException:
            self.close()
            raise

    def path(self) -> DataPath:
        """Return the path, with the counts of all gathers that prove it."""
        setup, gpu = self._setup, self._gpu
        who = f"GPU {gpu}" if gpu else counted(setup.requester_threads, "CPU thread")
        kept = f"{setup.host_rows} rows in host memory"
        if gpu:
            kept += f", {setup.cache_rows} in the GPU's"
        remark = "Rows were requested by threads of the CPU (loader.requester=cpu), not by a GPU."
        return DataPath(
            data_path="host_memory",
            path_requested="gpu_pull" if gpu else "cpu_queue",
            engine=f"{self._plan.outstanding} requests in flight by {who}, "
            f"{counted(setup.pollers, 'poller')} with io_uring and O_DIRECT; {kept}",
            counts=self._path_counts() if self._counts else None,
            remarks=() if gpu else (remark,),
        )

    def _path_counts(self) -> PathCounts:
        """Return the counts of all gathers; rows of the host buffer are not requested."""
        counts = self._counts
        derived = {
            "requests": counts["asked"] + counts["hits"] + counts["merged"],
            "coalesced": 0,
            "delivered": counts["delivered"] - counts["kept"],
        }
        return path_counts(self._gpu, {**counts, **derived}, has_cache=bool(self._setup.cache_rows))

    def count_anew(self) -> None:
        """Let the counts of ``path`` be those of the gathers from now on."""
        self._counts.clear()

    def expect(self, rows: NDArray[np.uint64]) -> None:
        """Keep the pages of these rows until their gather; nothing without a cache."""
        if not self._setup.cache_rows:
            return
        self._plan.check_batch(rows)
        self._call(lambda: self._rows.expect(np.ascontiguousarray(rows)))
        self._expected.append(len(rows))

    def gather(self, rows: NDArray[np.uint64], into: Memory) -> GatherResult:
        """Fill ``into``; see ``RowGatherer.gather``."""
        self._plan.check_gather(rows, into)
        if not self._is_usable:
            raise RunError("the queue can gather no rows any more: an earlier gather was ended")
        if self._expected and self._expected[0] != len(rows):
            raise ValueError(
                f"{len(rows)} rows, but {self._expected[0]} were expected in the next gather"
            )
        is_expected = bool(self._expected)
        self._is_usable = False
        listed, start_cpu_s = np.ascontiguousarray(rows), time.thread_time()
        result = self._call(
            lambda: self._rows.gather(listed, self._address(into), is_expected=is_expected)
        )
        self._is_usable = True
        if is_expected:
            self._expected.popleft()
        self._raise_failure(result)
        self._check_counts(result, len(rows))
        for name in _COUNTS:
            self._counts[name] += getattr(result, name)
        self._counts["reads"] += result.reads.operations
        self._counts["read_bytes"] += result.reads.read_bytes
        return self._result(result, len(rows), time.thread_time() - start_cpu_s)

    def _result(self, result: ctypes.Structure, count: int, own_cpu_s: float) -> GatherResult:
        plan = self._plan
        sizes = {read_bytes_of(file, plan.row_bytes) for file in plan.files}
        are_alike = len(sizes) == 1 and plan.row_bytes % BLOCK_BYTES == 0
        return GatherResult(
            rows=count,
            storage_rows=result.asked,
            host_rows=result.kept,
            cache_rows=result.hits,
            merged_rows=result.merged,
            storage_bytes=result.reads.read_bytes,
            operations=result.reads.operations,
            operation_bytes=sizes.pop() if are_alike else None,
            start_ns=result.start_ns,
            end_ns=result.end_ns,
            cpu_s=result.cpu_ns / 1e9 + own_cpu_s,
            latency=library.histogram_of(result.reads.latencies),
        )

    def close(self) -> None:
        """End the pollers and release memory; safe to call twice."""
        self._is_usable = False
        self._end()

    def _call(self, call: Callable[[], _Result]) -> _Result:
        try:
            return call()
        except NativeError as error:
            raise lost_error(error, self._setup.hang_s) from error

    def _address(self, into: Memory) -> int:
        if isinstance(into, MemoryRegion):
            return into.address
        if self._gpu is not None:
            raise TypeError("this loader gathers into the memory of a GPU, not of the host")
        return into.ctypes.data

    def _raise_failure(self, result: ctypes.Structure) -> None:
        """Raise for reads that failed, or a file that ended early."""
        plan = self._plan
        failed = [each for each in result.failures if each.count]
        if not failed:
            return
        first = failed[0]
        path = plan.paths[first.target]
        count = sum(each.count for each in failed)
        if first.code == library.SHORT_READ:
            raise DataError(
                f"{path} is truncated: it ends before the row at offset {first.offset} does; "
                f"{plan.remedy}"
            )
        raise OSError(
            first.code,
            f"{count} of {result.asked} rows can't be read, the first at offset {first.offset}: "
            f"{os.strerror(first.code)}",
            str(path),
        )

    def _check_counts(self, result: ctypes.Structure, count: int) -> None:
        """Raise ``RunError`` unless each row is counted once, and each request by all alike."""
        counted = result.kept + result.hits + result.merged + result.asked
        for name, found, other, expected in (
            ("rows counted", counted, "rows of the gather", count),
            ("rows delivered", result.delivered, "rows of the gather", count),
            ("requests taken by pollers", result.taken, "rows asked for", result.asked),
            ("requests answered by pollers", result.answered, "rows asked for", result.asked),
            ("reads", result.reads.operations, "rows asked for", result.asked),
        ):
            if found != expected:
                raise RunError(f"{found} {name}, {expected} {other}: these must be equal")

    def _fill(self) -> None:
        plan, count = self._plan, self._setup.host_rows
        if not count:
            return
        assert plan.most_drawn is not None
        drawn = np.ascontiguousarray(plan.most_drawn(count), dtype=np.uint64)
        plan.check_rows(drawn)
        if len(drawn) != count or len(np.unique(drawn)) != count:
            raise ValueError(f"most_drawn must return {count} different rows, got {len(drawn)}")
        kept = self._rows.kept()
        reader = DirectGatherer(
            replace(plan, memories=(kept,), batch_rows=FILL_ROWS, gpu=None), backend=AUTO, pollers=1
        )
        try:
            for start in range(0, count, FILL_ROWS):
                rows = drawn[start : start + FILL_ROWS]
                into = kept[start * plan.row_bytes :][: len(rows) * plan.row_bytes]
                reader.gather(rows, into)
        finally:
            reader.close()
        self._call(lambda: self._rows.keep(drawn))

    def _timed_pulls(self) -> float | None:
        regions = [each for each in self._plan.memories if isinstance(each, MemoryRegion)]
        if self._gpu is None or not regions:
            return None
        if regions[0].size_bytes < self._plan.batch_rows * self._plan.row_bytes:
            return None
        return self._call(lambda: self._rows.pull(regions[0].address, PULL_S))


def _open(plan: FeaturePlan, setup: RowsSetup, gpu: str | None) -> Rows:
    try:
        return Rows(plan, setup, gpu, None if gpu is None else compiled_rows(gpu))
    except NativeError as error:
        raise rows_error(error, remedy=plan.remedy) from error


def compiled_rows(gpu: str) -> bytes:
    """Return the kernels of gathers for a GPU.

    Raises:
        NativeError: CUDA does not show the GPU; other errors as of ``kernels.compiled``.
    """
    from wattload.loaders.gpu_queue import kernels

    program = kernels.Program.packaged(kernels.FEATURE_ROWS)
    return kernels.compiled(architecture(gpu), program)


def rows_error(error: NativeError, *, remedy: str) -> Exception:
    """Return the exception for a queue of rows of features that could not be opened.

    ``remedy`` says what to do about a damaged file.
    """
    if error.code == library.OTHER_SIZE:
        return DataError(f"{error.path} is {error.offset} bytes long, fewer than planned; {remedy}")
    if error.code == library.GPU_MEMORY:
        return ConfigError(
            f"the GPU has no {format_bytes(error.offset)} free for {error.text}: use a smaller "
            "loader.cache_share, smaller batches or a smaller graph"
        )
    if error.code == library.NOT_PINNED:
        return ConfigError(
            f"{format_bytes(error.offset)} of host memory can't be pinned ({error.text}): {_LESS}, "
            "or raise ulimit -l and the memory limit of the cgroup"
        )
    return opening_error(error, {}, _LESS)
