"""Reads by KvikIO, in the process of the reader: Python threads with one read in flight each.

The same files, blocks, checks and figures as those of the engine's ways (``native.Reads``), from
KvikIO's Python interface. KvikIO and CuPy are imported here alone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import BUCKET_COUNT, BUCKETS_PER_OCTAVE
from wattload.core.io import BlockIdentity
from wattload.loaders.aligned_io import PAGE_BYTES
from wattload.loaders.engine import library
from wattload.loaders.engine.header import struct
from wattload.loaders.gpu import native
from wattload.loaders.gpu.native import File, NativeError, Place
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

    def __init__(
        self,
        *,
        way: str,
        readers: int,
        pollers: int,
        block_bytes: int,
        checked_reads: int,
        duration_s: float,
        seed: int,
        files: Sequence[File],
        gpus: Sequence[Place],
    ) -> None:
        """Set KvikIO up, open the files, and allocate and register all memory.

        ``way`` is the method of ``kvikio.CuFile`` that reads: ``read``, which hands the read to a
        thread of KvikIO's pool, as frameworks do, or ``raw_read``, which makes it at once. There
        are no pollers, and their number is ignored.

        Raises:
            NativeError: a file can't be opened, or is shorter than planned, or a GPU refuses.
        """
        import cupy
        import kvikio
        import kvikio.defaults

        self._cupy, self._kvikio = cupy, kvikio
        self._files, self._duration_ns = files, round(duration_s * 1e9)
        self._block_bytes = block_bytes
        self._stage = native.READY
        if len({place.cpus for place in gpus}) == 1 and gpus[0].cpus:
            os.sched_setaffinity(0, gpus[0].cpus)  # for the threads of KvikIO's pool
        kvikio.defaults.set(
            {
                "gds_threshold": 0,
                "auto_direct_io_read": True,
                "num_threads": readers,
                "task_size": max(block_bytes, PAGE_BYTES),
                "bounce_buffer_size": max(block_bytes, PAGE_BYTES),
            }
        )
        self._monitor = kvikio.SummaryMonitor()
        self._opened = [self._open(file) for file in files]
        self._counts_cufile = native.begin_cufile_counts()
        self._registered: list[Any] = []
        self._readers: list[_Reader] = []
        for number in range(readers):
            file = files[number % len(files)]
            device, memory = self._allocate(gpus[file.gpu], block_bytes)
            self._readers.append(
                _Reader(
                    reads=self,
                    file=file,
                    device=device,
                    slot=memory,
                    read=self._reading(way, number, memory),
                    cpus=gpus[file.gpu].cpus,
                    blocks=(seed, number, file.size_bytes // block_bytes),
                    checked_reads=checked_reads,
                )
            )
        self._barrier = threading.Barrier(readers + 1)
        self.start_ns = self.deadline_ns = 0
        self._started = threading.Event()

    def start(self) -> None:
        """Let the clock start once the first reads have been checked; from any thread."""
        self._started.set()

    def run(self) -> ctypes.Structure:
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

    def progress(self) -> ctypes.Structure:
        operations = sum(len(reader.latencies_ns) for reader in self._readers)
        return struct("wl_gpu_progress")(
            reads=operations,
            bytes=operations * self._block_bytes,  # while readers go on, sums would differ
            ended=sum(reader.number for reader in self._readers),
            stage=self._stage,
            start_ns=self.start_ns,
            deadline_ns=self.deadline_ns,
        )

    def file_operations(self) -> list[int]:
        """Return the timed reads of each file, after ``run``."""
        counts = [0] * len(self._files)
        for number, reader in enumerate(self._readers):
            counts[number % len(counts)] += len(reader.latencies_ns)
        return counts

    def software(self) -> dict[str, str]:
        """Return the versions of the libraries that read, by name."""
        version = native.cufile_version()
        return {
            "kvikio": str(self._kvikio.__version__),
            "cupy": str(self._cupy.__version__),
            **({} if version is None else {"cufile": version}),
        }

    def close(self) -> None:
        for memory in self._registered:
            self._kvikio.memory_deregister(memory)
        for file in self._opened:
            file.close()
        self._monitor.stop()

    def _open(self, file: File) -> Any:  # noqa: ANN401 - KvikIO has no types
        try:
            size_bytes = Path(file.path).stat().st_size
            if size_bytes < file.size_bytes:
                raise _error(library.OTHER_SIZE, "it is shorter", file.path, offset=size_bytes)
            return self._kvikio.CuFile(file.path, "r")
        except OSError as error:
            raise _error(error.errno or errno.EIO, "open", file.path) from error
        except RuntimeError as error:  # what KvikIO's C++ throws
            raise _error(errno.EIO, f"kvikio.CuFile: {error}", file.path) from error

    def _allocate(self, gpu: Place, block_bytes: int) -> tuple[Any, Any]:
        """Return a GPU and the memory of one reader, allocated and registered by itself.

        In compatibility mode reads into one registration share its host buffer: 64 threads of
        4 KiB then made 43,000 reads a second on an H100, and 105,000 with one for each.
        """
        runtime = self._cupy.cuda.runtime
        try:
            device = self._cupy.cuda.Device(runtime.deviceGetByPCIBusId(gpu.address))
            with device:
                self._cupy.cuda.set_allocator(None)  # without a pool: each has its own base
                memory = self._cupy.empty(block_bytes, dtype=np.uint8)
                self._kvikio.memory_register(memory)
                self._registered.append(memory)
        except (RuntimeError, MemoryError) as error:
            raise _error(library.CUDA, f"{gpu.address}: {error}") from error
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

    def _result(self, start_ns: int, cpu_ns: int) -> ctypes.Structure:
        readers = self._readers
        latencies = np.concatenate(
            [np.frombuffer(reader.latencies_ns, dtype=np.uint64) for reader in readers]
        )
        result = struct("wl_gpu_result")(
            start_ns=start_ns,
            end_ns=self.deadline_ns,
            cpu_ns=cpu_ns,
            operations=latencies.size,
            bytes=latencies.size * self._block_bytes,
            reads=sum(reader.successes for reader in readers),
            read_bytes=sum(reader.read_bytes for reader in readers),
            compared_bytes=sum(reader.compared_bytes for reader in readers),
            bad_blocks=sum(reader.bad_blocks for reader in readers),
            cut_ns=sum(reader.cut_ns for reader in readers),
        )
        if latencies.size:
            result.latency_sum_ns = int(latencies.sum())
            result.latency_min_ns, result.latency_max_ns = (
                int(latencies.min()),
                int(latencies.max()),
            )
        counts = np.bincount(buckets_of(latencies), minlength=BUCKET_COUNT)
        result.counts[:] = [int(count) for count in counts]
        failures = sum((reader.failures for reader in readers), Counter[int]())
        for place, (code, count) in zip(result.failures, failures.most_common(), strict=False):
            place.code, place.count = code, count
        self._count_library(result)
        return result

    def _count_library(self, result: ctypes.Structure) -> None:
        """Add up KvikIO's reads without cuFile, and cuFile's own count of the others."""
        totals = self._monitor.get().by_backend
        done = {name: each["num_ops"] - each["num_errors"] for name, each in totals.items()}
        posix, by_cufile = done.get("POSIX", 0), done.get("GDS", 0)
        counted: ctypes.Structure | None = struct("wl_library_reads")()
        if by_cufile:
            counted = native.cufile_reads() if self._counts_cufile else None
        if counted is None:
            return
        counted.total += posix
        counted.posix += posix
        result.library, result.has_library = counted, 1


class _Reader:
    """One thread: its place in memory, its figures, and its reads."""

    def __init__(
        self,
        *,
        reads: KvikioReads,
        file: File,
        device: Any,  # noqa: ANN401 - CuPy has no types
        slot: Any,  # noqa: ANN401 - CuPy has no types
        read: ReadBlock,
        cpus: tuple[int, ...],
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
        content = np.ascontiguousarray(self._slot.get())
        identity = BlockIdentity(self._file.nonce, self._file.word)
        self.bad_blocks += bad_blocks(
            content, identity, offset_bytes=offset, first_block=self._file.first_block
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


def _error(code: int, text: str, path: str = "", *, offset: int = 0) -> NativeError:
    return NativeError(code=code, detail=0, offset=offset, path=path, text=text)
