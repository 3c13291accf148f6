"""Random reads of mapped files, and what the kernel counts of them.

The threads read the blocks that the requesters of a queue ask for. Every byte of every block is
compared with its stamp. A block is read again later, and blocks share pages, so the page cache
serves some of them: the drives read other bytes than those delivered. What the drives read is
``read_bytes`` of ``/proc/self/io``, which the kernel counts where this process causes a read of
storage, read-ahead included. Major page faults are those that waited for it. Whoever asks for a
cold cache evicts the files beforehand.
"""

from __future__ import annotations

import ctypes
import mmap
import resource
import time
from collections.abc import Sequence
from ctypes import c_void_p
from dataclasses import dataclass, replace
from pathlib import Path

from wattload.core.io import DataPath
from wattload.core.sysfs import LIVE, Roots, read_text
from wattload.loaders.aligned_io import round_down
from wattload.loaders.block_reads import ReadPlan, ReadResult, ReadsWatch
from wattload.loaders.data.cold_cache import read_ahead_remarks
from wattload.loaders.engine import library
from wattload.loaders.engine.header import setup_of, struct
from wattload.loaders.gpu.native import failures_of

ADVICE = {"normal": 0, "random": 1}
PATTERNS = {"uniform": 0, "regions": 1}
THREAD_LIMIT = 1024
SAMPLE_EVERY = 64
TRACE_EVERY = 1024
_SLICE_S = 0.05


@dataclass(frozen=True, slots=True)
class _Counts:
    """What the kernel has counted for this process: bytes from storage, and faults that waited."""

    storage_bytes: int
    major_faults: int

    @classmethod
    def now(cls) -> _Counts:
        return cls(storage_read_bytes(), major_faults())


class MappedReader:
    """Threads over mapped files; implements ``BlockReader``."""

    def __init__(self, plan: ReadPlan, *, threads: int, advice: str) -> None:
        """Map the files; nothing is read yet.

        Raises:
            OSError: a file can't be opened or mapped.
            DataError: a file is shorter than planned.
        """
        self._plan = plan
        self._in_flight = min(threads, plan.in_flight)
        files = [
            replace(file, size_bytes=round_down(file.size_bytes, plan.read_bytes))
            for file in plan.files
        ]
        setup = setup_of(
            "wl_mapped_setup",
            threads=threads,
            block_bytes=plan.block_bytes,
            requesters=plan.per_file,
            pattern=PATTERNS[plan.pattern],
            advice=ADVICE[advice],
            sample_every=SAMPLE_EVERY,
            trace_every=TRACE_EVERY,
            seed=plan.seed & (1 << 64) - 1,
            targets=library.target_array(files),
            target_count=len(files),
        )
        self._library = library.load()
        self._mapped: c_void_p | None = library.open_handle("wl_mapped_open", setup)
        self._path = mapped_path([file.path for file in files], self._in_flight, advice)

    def path(self) -> DataPath:
        """Return the path, with the read-ahead of the drives in its remarks."""
        return self._path

    def run(self, watch: ReadsWatch) -> ReadResult:
        """Read for the planned time; ``watch`` counts the bytes that came from storage."""
        watch.begin()
        start_cpu_s, before = time.process_time(), _Counts.now()
        library.invoke("wl_mapped_start", self._mapped)
        result, after = self._follow(watch, before)
        cpu_s = time.process_time() - start_cpu_s
        watch.end(result.start_ns, result.end_ns)
        return self._result(result, before, after, cpu_s)

    def close(self) -> None:
        """End the threads and unmap the files; safe to call twice."""
        if self._mapped is not None:
            self._library.wl_mapped_close(self._mapped)
            self._mapped = None

    def _follow(self, watch: ReadsWatch, before: _Counts) -> tuple[ctypes.Structure, _Counts]:
        """Report the reads until their time is over; return the figures and the last counts."""
        end_s = time.monotonic() + self._plan.duration_s
        reads, storage_bytes = 0, before.storage_bytes
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _SLICE_S))
            now, now_bytes = self._library.wl_mapped_reads(self._mapped), storage_read_bytes()
            watch.moved(now - reads, now_bytes - storage_bytes)
            reads, storage_bytes = now, now_bytes
        result = struct("wl_mapped_result")()
        self._library.wl_mapped_finish(self._mapped, ctypes.byref(result))
        after = _Counts.now()
        watch.moved(result.operations - reads, after.storage_bytes - storage_bytes)
        return result, after

    def _result(
        self, result: ctypes.Structure, before: _Counts, after: _Counts, cpu_s: float
    ) -> ReadResult:
        return ReadResult(
            operations=result.operations,
            file_operations=tuple(result.target_operations[: len(self._plan.files)]),
            start_ns=result.start_ns,
            end_ns=result.end_ns,
            cpu_s=cpu_s,
            latency=library.histogram_of(result.latencies)
            if any(result.latencies.counts)
            else None,
            failures=failures_of(result),
            wrong_blocks=result.wrong,
            first_wrong=(result.wrong_target, result.wrong_offset) if result.wrong else None,
            compared_bytes=result.operations * self._plan.block_bytes,
            bad_blocks=result.bad_blocks,
            drive_bytes=after.storage_bytes - before.storage_bytes,
            touched_pages=result.operations * max(self._plan.block_bytes // mmap.PAGESIZE, 1),
            major_faults=after.major_faults - before.major_faults,
            in_flight=self._in_flight,
            trace=library.trace_rows(self._library.wl_mapped_trace, self._mapped),
        )


def mapped_path(paths: Sequence[Path], threads: int, advice: str, *, user: str = "") -> DataPath:
    """Return the path of bytes that threads, of a library if named, get by page faults."""
    return DataPath(
        data_path="page_cache",
        path_requested="page_cache",
        engine=f"page faults of {threads} thread{'s' * (threads > 1)}{user}, madvise "
        f"{'MADV_RANDOM' if advice == 'random' else 'MADV_NORMAL'}; into host memory",
        remarks=read_ahead_remarks(paths),
    )


def major_faults() -> int:
    """Return the page faults of this process that have waited for a drive."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def storage_read_bytes(roots: Roots = LIVE) -> int:
    """Return the bytes that this process has caused to be read from storage.

    ``read_bytes`` of ``/proc/self/io`` (proc_pid_io(5)): of all threads, with read-ahead.

    Raises:
        OSError: the kernel does not show the file.
        ValueError: it has no such line.
    """
    for line in read_text(roots.proc / "self/io").splitlines():
        name, _, value = line.partition(":")
        if name == "read_bytes":
            return int(value)
    raise ValueError("/proc/self/io has no read_bytes")
