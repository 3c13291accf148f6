"""loader=kvikio: reads into GPU memory by KvikIO, as frameworks make them.

cuDF and Zarr call ``CuFile.read`` or ``pread``, which hand each read to a thread of KvikIO's pool.
``raw_read`` makes the same read on the thread that calls it: what the pool costs is their
difference. Both take cuFile where it works, and POSIX reads with a copy where it does not.

The reads are made in the process of the reader, by Python threads with one read in flight each.
Files, blocks, checks and figures are those of the engine's ways (``native.Reads``). KvikIO and CuPy
are imported there alone.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from wattload.core.files import open_folder
from wattload.core.histogram import BUCKET_COUNT, BUCKETS_PER_OCTAVE, Histogram
from wattload.core.io import DataPath, PathCounts
from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.units import NS_PER_S
from wattload.core.workload import Requirement, require_installed
from wattload.loaders.aligned_io import PAGE_BYTES
from wattload.loaders.block_reads import (
    Ability,
    BlockReader,
    ReadFailure,
    ReadFile,
    ReadPlan,
    ReadResult,
)
from wattload.loaders.engine import library
from wattload.loaders.engine.header import struct
from wattload.loaders.gpu import native
from wattload.loaders.gpu.failures import NativeError, failure_clause
from wattload.loaders.gpu.host import check_host, cufile_io_kb
from wattload.loaders.gpu.native import Progress, allowed_cpus
from wattload.loaders.gpu.process import ProcessReader, Way
from wattload.loaders.stamps import bad_blocks

_PATTERN = 0xA5
"""What memory is filled with before a checked read: no block of ours begins with it."""
_CHUNK = 4096
"""How many block numbers are drawn at once."""
_OTHER = 0
"""The code of failures without one."""

ReadBlock = Callable[[int], int]
"""Reads a block at this offset of its file, and returns the bytes that it got."""


class KvikioReads:
    """Threads with registered buffers, ready to read."""

    def __init__(self, plan: ReadPlan, way: str) -> None:
        """Set KvikIO up, open the files, and allocate and register all memory.

        ``way`` is the method of ``kvikio.CuFile`` that reads: ``read``, which hands the read to a
        thread of KvikIO's pool, as frameworks do, or ``raw_read``, which makes it at once.

        Raises:
            NativeError: a file can't be opened, or is shorter than planned, or a GPU refuses.
        """
        import cupy
        import kvikio
        import kvikio.defaults

        self._cupy, self._kvikio = cupy, kvikio
        self._plan, self._duration_ns = plan, round(plan.duration_s * NS_PER_S)
        block_bytes = self._block_bytes = plan.block_bytes
        cpus = {gpu: allowed_cpus(node) for gpu, node in plan.gpus.items()}
        self._stage = native.READY
        first, *others = cpus.values()
        if first and all(first == other for other in others):
            os.sched_setaffinity(0, first)  # for the threads of KvikIO's pool
        kvikio.defaults.set(
            {
                "gds_threshold": 0,
                "auto_direct_io_read": True,
                "num_threads": plan.in_flight,
                "task_size": max(block_bytes, PAGE_BYTES),
                "bounce_buffer_size": max(block_bytes, PAGE_BYTES),
            }
        )
        self._monitor = kvikio.SummaryMonitor()
        self._opened = [self._open(file) for file in plan.files]
        self._counts_cufile = native.begin_cufile_counts()
        self._registered: list[Any] = []
        self._readers: list[_Reader] = []
        for number in range(plan.in_flight):
            file = plan.files[number % len(plan.files)]
            device, memory = self._allocate(file.gpu or "", block_bytes)
            self._readers.append(
                _Reader(
                    reads=self,
                    file=file,
                    device=device,
                    slot=memory,
                    read=self._reading(way, number, memory),
                    cpus=cpus[file.gpu or ""],
                    blocks=(plan.seed, number, file.size_bytes // block_bytes),
                    checked_reads=plan.checked_reads,
                )
            )
        self._barrier = threading.Barrier(plan.in_flight + 1)
        self.start_ns = self.deadline_ns = 0
        self._started = threading.Event()

    def start(self) -> None:
        """Let the clock start once the first reads have been checked; from any thread."""
        self._started.set()

    def stop(self) -> None:
        """Do nothing: the end of the process ends the reads."""

    def run(self) -> ReadResult:
        threads = [threading.Thread(target=reader.run, daemon=True) for reader in self._readers]
        for thread in threads:
            thread.start()
        self._stage = native.CHECKING
        self.wait()  # for the reads that are checked first
        self._stage = native.CHECKED
        self._started.wait()
        start_ns, start_cpu_ns = time.monotonic_ns(), time.process_time_ns()
        self.start_ns, self.deadline_ns = start_ns, start_ns + self._duration_ns
        self._stage = native.TIMED
        self.wait()
        time.sleep(max(self.deadline_ns - time.monotonic_ns(), 0) / 1e9)
        cpu_ns = time.process_time_ns() - start_cpu_ns
        self.wait()  # for the reads in flight
        self._stage = native.OVER
        for thread in threads:
            thread.join()
        self._stage = native.DONE
        for reader in self._readers:
            if reader.error is not None:
                raise reader.error
        return self._result(start_ns, cpu_ns)

    def wait(self) -> None:
        """Wait for all threads, one of which is that of ``run``."""
        self._barrier.wait()

    def progress(self) -> Progress:
        operations = sum(len(reader.latencies_ns) for reader in self._readers)
        return Progress(
            reads=operations,
            read_bytes=operations * self._block_bytes,  # while readers go on, sums would differ
            ended=sum(reader.number for reader in self._readers),
            stage=self._stage,
            start_ns=self.start_ns,
            end_ns=self.deadline_ns,
        )

    def software(self) -> dict[str, str]:
        """Return the versions of the libraries that read, by name."""
        version = native.cufile_version()
        return {
            "cuda": native.cuda_gpus()[0],
            "kvikio": str(self._kvikio.__version__),
            "cupy": str(self._cupy.__version__),
            **({} if version is None else {"cufile": version}),
        }

    def _open(self, file: ReadFile) -> Any:  # noqa: ANN401 - KvikIO has no types
        try:
            size_bytes = file.path.stat().st_size
            if size_bytes < file.size_bytes:
                raise _error(library.OTHER_SIZE, "it is shorter", file.path, offset=size_bytes)
            return self._kvikio.CuFile(str(file.path), "r")
        except OSError as error:
            raise _error(error.errno or errno.EIO, "open", file.path) from error
        except RuntimeError as error:  # what KvikIO's C++ throws
            raise _error(errno.EIO, f"kvikio.CuFile: {error}", file.path) from error

    def _allocate(self, gpu: str, block_bytes: int) -> tuple[Any, Any]:
        """Return a GPU and the memory of one reader, allocated and registered by itself.

        In compatibility mode reads into one registration share its host buffer: 64 threads of
        4 KiB then made 43,000 reads a second on an H100, and 105,000 with one for each.
        """
        runtime = self._cupy.cuda.runtime
        try:
            device = self._cupy.cuda.Device(runtime.deviceGetByPCIBusId(gpu))
            with device:
                self._cupy.cuda.set_allocator(None)  # without a pool: each has its own base
                memory = self._cupy.empty(block_bytes, dtype=np.uint8)
                self._kvikio.memory_register(memory)
                self._registered.append(memory)
        except (RuntimeError, MemoryError) as error:
            raise _error(library.CUDA, f"{gpu}: {error}") from error
        return device, memory

    def _reading(
        self,
        way: str,
        number: int,
        memory: Any,  # noqa: ANN401 - CuPy has no types
    ) -> ReadBlock:
        file, size = self._opened[number % len(self._opened)], self._block_bytes
        if way == "raw_read":
            return lambda offset: int(file.raw_read(memory, size, offset, 0))
        return lambda offset: int(file.read(memory, size, offset))

    def _result(self, start_ns: int, cpu_ns: int) -> ReadResult:
        readers, files = self._readers, len(self._plan.files)
        operations = [0] * files
        for number, reader in enumerate(readers):
            operations[number % files] += len(reader.latencies_ns)
        latencies = np.concatenate(
            [np.frombuffer(reader.latencies_ns, dtype=np.uint64) for reader in readers]
        )
        counts = np.bincount(buckets_of(latencies), minlength=BUCKET_COUNT).astype(np.uint64)
        ends = (int(latencies.min()), int(latencies.max())) if latencies.size else (0, 0)
        failures = sum((reader.failures for reader in readers), Counter[int]())
        return ReadResult(
            operations=latencies.size,
            start_ns=start_ns,
            end_ns=self.deadline_ns,
            cpu_s=cpu_ns / NS_PER_S,
            latency=Histogram(counts, int(latencies.sum()), *ends),
            file_operations=tuple(operations),
            counts=PathCounts(
                reads=sum(reader.successes for reader in readers),
                read_bytes=sum(reader.read_bytes for reader in readers),
                **self._library_counts(),
            ),
            failures=tuple(
                ReadFailure(reason=failure_clause(code), count=count)
                for code, count in failures.most_common()
            ),
            compared_bytes=sum(reader.compared_bytes for reader in readers),
            bad_blocks=sum(reader.bad_blocks for reader in readers),
            cut_s=sum(reader.cut_ns for reader in readers) / NS_PER_S,
        )

    def _library_counts(self) -> dict[str, int]:
        """Add up KvikIO's reads without cuFile, and cuFile's own count of the others."""
        totals = self._monitor.get().by_backend
        done = {name: each["num_ops"] - each["num_errors"] for name, each in totals.items()}
        counts: dict[str, int] | None = native.counted(struct("wl_library_reads")())
        if done.get("GDS", 0):
            counts = native.cufile_counts() if self._counts_cufile else None
        if counts is None:
            return {}
        posix = done.get("POSIX", 0)
        return {
            **counts,
            "library_reads": counts["library_reads"] + posix,
            "posix_reads": counts["posix_reads"] + posix,
        }


class _Reader:
    """One thread: its place in memory, its figures, and its reads."""

    def __init__(
        self,
        *,
        reads: KvikioReads,
        file: ReadFile,
        device: Any,  # noqa: ANN401 - CuPy has no types
        slot: Any,  # noqa: ANN401 - CuPy has no types
        read: ReadBlock,
        cpus: Sequence[int],
        blocks: tuple[int, int, int],
        checked_reads: int,
    ) -> None:
        self._reads, self._file, self._device, self._slot = reads, file, device, slot
        self._read, self._cpus, self._checked_reads = read, cpus, checked_reads
        self._seed, self._reader, self._blocks = blocks
        self._drawn: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self.number = 0
        self.latencies_ns = array("Q")
        self.failures: Counter[int] = Counter()
        self.successes = self.read_bytes = self.cut_ns = 0
        self.compared_bytes = self.bad_blocks = 0
        self.error: NativeError | None = None

    def run(self) -> None:
        """Make the reads that are checked, the timed ones, and those that are checked again."""
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)
        self._device.use()
        size = int(self._slot.size)
        try:
            for _ in range(self._checked_reads):
                self._checked(size)
        except Exception as error:  # of any kind, or the others would wait for this thread
            self.error = _error(library.CUDA, str(error))
        self._reads.wait()
        self._reads.wait()
        try:
            offset = self._timed(size) if self.error is None else None
        except Exception as error:
            self.error = _error(library.CUDA, str(error))
        self._reads.wait()
        if self.error is not None:
            return
        try:
            if offset is not None:
                self._compare(offset, size)
            for _ in range(self._checked_reads):
                self._checked(size)
        except Exception as error:
            self.error = _error(library.CUDA, str(error))

    def _timed(self, size: int) -> int | None:
        """Read until the deadline; return the offset of the last read, ``None`` if it failed."""
        last: int | None = None
        deadline_ns = self._reads.deadline_ns
        while (start_ns := time.monotonic_ns()) < deadline_ns:
            offset = self._next_offset(size)
            succeeded = self._attempt(offset, size)
            end_ns = time.monotonic_ns()
            last = offset if succeeded else None
            if end_ns > deadline_ns:
                self.cut_ns += deadline_ns - start_ns
            elif succeeded:
                self.latencies_ns.append(end_ns - start_ns)
        return last

    def _checked(self, size: int) -> None:
        self._slot.fill(_PATTERN)
        self._device.synchronize()
        offset = self._next_offset(size)
        if self._attempt(offset, size):
            self._compare(offset, size)

    def _attempt(self, offset: int, size: int) -> bool:
        """Make one read; count it, or its failure."""
        try:
            done = self._read(offset)
        except OSError as error:
            self.failures[error.errno or errno.EIO] += 1
            return False
        except RuntimeError:
            self.failures[_OTHER] += 1
            return False
        if done != size:
            self.failures[library.SHORT_READ] += 1
            return False
        self.successes += 1
        self.read_bytes += size
        return True

    def _compare(self, offset: int, size: int) -> None:
        content, stamps = np.ascontiguousarray(self._slot.get()), self._file.stamps
        self.bad_blocks += bad_blocks(
            content,
            stamps,
            offset_bytes=offset,
            first_block=stamps.first_block,
            unit_bytes=stamps.unit_bytes,
        )
        self.compared_bytes += size

    def _next_offset(self, size: int) -> int:
        place = self.number % _CHUNK
        if not place:
            numbers = np.arange(self.number, self.number + _CHUNK, dtype=np.uint64)
            self._drawn = native.block_numbers(self._seed, self._reader, numbers, self._blocks)
        self.number += 1
        return int(self._drawn[place]) * size


open_reads = KvikioReads
"""What the process of the reader opens, in place of ``native.Reads``."""


def buckets_of(values_ns: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the histogram's bucket of each value, as ``histogram.bucket_of``, for many values."""
    _, exponents = np.frexp(np.maximum(values_ns, 1).astype(np.float64))
    octaves = np.maximum(exponents.astype(np.int64) - BUCKETS_PER_OCTAVE.bit_length(), 0)
    within = (values_ns >> octaves.astype(np.uint64)).astype(np.int64)
    return np.minimum(octaves * BUCKETS_PER_OCTAVE + within, BUCKET_COUNT - 1)


def _error(code: int, text: str, path: Path | str = "", *, offset: int = 0) -> NativeError:
    return NativeError(code, text, str(path), offset)


CONFIGURATION = "cufile.json"
CALLS = ("read", "raw_read")


@dataclass(slots=True, kw_only=True)
class Config:
    """KvikIO's Python interface: a Python thread per read in flight.

    ``gds_threshold`` is 0, so that small reads take cuFile too, and ``auto_direct_io_read`` on, so
    that reads without cuFile bypass the page cache. Its pool has as many threads as are reading, a
    task holds a whole block, and so does each of its bounce buffers.
    """

    name: ClassVar[str] = "kvikio"
    requires: ClassVar[tuple[Requirement, ...]] = (
        Requirement(module="kvikio", software="KvikIO", extra="kvikio"),
        Requirement(module="cupy", software="CuPy", extra="kvikio"),
    )

    _target_: str = "wattload.loaders.kvikio.Config"
    call: str = setting(
        "read",
        "Method of kvikio.CuFile: read goes through KvikIO's pool of threads, raw_read does not.",
        choices=CALLS,
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "loader")

    @property
    def abilities(self) -> Ability:
        return Ability.FILES | Ability.GPU | Ability.THREADS

    def check_block_reads(self, plan: ReadPlan, targets: Sequence[Target]) -> None:
        """Raise if KvikIO or CuPy is not installed, and for what no reader could do."""
        self.check()
        require_installed(self.requires, user="loader=kvikio", alternative="loader=bounce")
        check_host(plan, targets, buffer_bytes=cufile_io_kb(plan.block_bytes) << 10)

    def block_read_bytes(self, plan: ReadPlan) -> int:
        return plan.in_flight * plan.block_bytes

    def block_reader(self, plan: ReadPlan, folder: Path) -> BlockReader:
        """Return the reader; ``folder`` gets cuFile's log, if KvikIO finds cuFile."""
        place = folder.absolute()
        place.mkdir(parents=True, exist_ok=True)
        configuration = {
            "logging": {"dir": str(place)},
            "properties": {"max_direct_io_size_kb": cufile_io_kb(plan.block_bytes)},
        }
        with open_folder(place) as opened:
            opened.write(CONFIGURATION, json.dumps(configuration, indent=2))
        nodes = {*plan.gpus.values()}
        remarks = ("KvikIO's pool of threads runs on any CPU: the GPUs are on several NUMA nodes",)
        path = DataPath(
            data_path="kvikio",
            path_requested="auto",
            engine=(
                f"{plan.in_flight} Python threads with kvikio.CuFile.{self.call}, gds_threshold 0, "
                f"auto_direct_io_read, num_threads {plan.in_flight}"
            ),
            remarks=remarks if self.call == "read" and len(nodes) > 1 else (),
        )
        way = Way(
            module="wattload.loaders.kvikio",
            arguments=(self.call,),
            path=path,
            variables={"CUFILE_ENV_PATH_JSON": str(place / CONFIGURATION)},
        )
        return ProcessReader(plan, way)
