"""Reads into GPU memory by the engine's shared library, through ctypes.

Only the reader's own process calls ``Reads`` and the probes: CUDA's driver stays in the process
that opened it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import c_int32, c_uint32, c_uint64
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.host.facts import cpus_of_node
from wattload.core.io import PathCounts
from wattload.core.sysfs import LIVE, Roots, parse_cpus
from wattload.core.units import NS_PER_S
from wattload.loaders.block_reads import ReadFailure, ReadPlan, ReadResult
from wattload.loaders.engine import library
from wattload.loaders.engine.header import array_of, constants, setup_of, struct
from wattload.loaders.engine.library import OK, Error
from wattload.loaders.gpu.failures import NativeError, failure_clause, invoke, open_handle

READY, CHECKING, CHECKED, TIMED, OVER, DONE = range(6)
"""The stages of ``wl_gpu_progress``."""

_GPU_LIMIT = 64
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, slots=True)
class Progress:
    """What has been done so far; see ``wl_gpu_progress``."""

    reads: int
    read_bytes: int
    ended: int
    stage: int
    start_ns: int
    end_ns: int

    @classmethod
    def of(cls, found: ctypes.Structure) -> Progress:
        return cls(
            reads=found.reads,
            read_bytes=found.bytes,
            ended=found.ended,
            stage=found.stage,
            start_ns=found.start_ns,
            end_ns=found.deadline_ns,
        )


def cuda_gpus() -> tuple[str, list[tuple[str, str]]]:
    """Return the CUDA version of the driver, and the address and name of each GPU it shows.

    Raises:
        NativeError: there is no driver, or it refuses.
    """
    gpus, count, version = (struct("wl_gpu") * _GPU_LIMIT)(), c_uint32(), c_int32()
    invoke("wl_cuda_gpus", gpus, _GPU_LIMIT, ctypes.byref(count), ctypes.byref(version))
    found = [(gpu.address.decode(), gpu.name.decode()) for gpu in gpus[: count.value]]
    return _version(version.value), found


def try_cufile() -> tuple[str | None, NativeError | None]:
    """Open and close cuFile's driver; return its version if it gives one, and how it failed.

    It may not return: see ``wl_cufile_try``.
    """
    version, error = c_int32(), Error()
    code = library.load().wl_cufile_try(ctypes.byref(version), ctypes.byref(error))
    failed = None if code == OK else NativeError.of(error)
    return (_version(version.value) if version.value else None), failed


def cufile_version() -> str | None:
    """Return the version of the libcufile that this process has opened, if it gives one."""
    number: int = library.load().wl_cufile_number()
    return _version(number) if number else None


def begin_cufile_counts() -> bool:
    """Have cuFile count the reads of a library that calls it; whether it does.

    Its driver has to be open.
    """
    return bool(library.load().wl_cufile_begin())


def cufile_counts() -> dict[str, int] | None:
    """Return the reads of all GPUs since ``begin_cufile_counts``; ``None`` if cuFile refuses."""
    reads = struct("wl_library_reads")()
    return counted(reads) if library.load().wl_cufile_reads(ctypes.byref(reads)) else None


def counted(reads: ctypes.Structure) -> dict[str, int]:
    """Return what a library has counted, by the names of ``PathCounts``."""
    return {
        "library_reads": reads.total,
        "p2p_reads": reads.p2p,
        "nvfs_reads": reads.nvfs,
        "posix_reads": reads.posix,
        "peer_reads": reads.peer,
    }


def _version(number: int) -> str:
    """Return ``13.0`` for 13000."""
    return f"{number // 1000}.{number % 1000 // 10}"


def block_numbers(
    seed: int, reader: int, numbers: NDArray[np.uint64], blocks: int
) -> NDArray[np.uint64]:
    """Return the blocks of a reader's reads with these numbers, counted from 0, in [0, blocks).

    The same as the C function ``wl_gpu_block``: the header has the formula.
    """
    states = _draw(np.array([seed], dtype=np.uint64), np.array([reader], dtype=np.uint64))
    return _draw(states, numbers) % np.uint64(blocks)


def _draw(seeds: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = seeds + (numbers + np.uint64(1)) * _GOLDEN
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * multiplier
    drawn: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return drawn


def failures_of(found: ctypes.Structure) -> tuple[ReadFailure, ...]:
    """Return the failed reads of a result, with files and first offsets where it knows them."""
    return tuple(
        ReadFailure(
            file=getattr(each, "target", None),
            reason=failure_clause(each.code),
            offset_bytes=getattr(each, "offset", None),
            count=each.count,
        )
        for each in found.failures
        if each.count
    )


class Reads:
    """Threads with registered buffers, ready to read; see ``wl_gpu_open``."""

    def __init__(self, plan: ReadPlan, way: str, pollers: int) -> None:
        """Open and register everything, for a way of the header (``WL_WAY_``).

        Raises:
            NativeError: the GPU, a library, a file or the kernel refuses.
        """
        gpus = list(plan.gpus)
        listed = array_of(
            "wl_gpu_file",
            (
                (os.fsencode(file.path), file.size_bytes, gpus.index(file.gpu or ""), 0,
                 file.stamps.nonce, file.stamps.word, file.stamps.first_block)
                for file in plan.files
            ),
        )  # fmt: skip
        cpus = [np.array(allowed_cpus(node), dtype=np.uint32) for node in plan.gpus.values()]
        places = array_of(
            "wl_gpu_place",
            (
                (gpu.encode(), own.ctypes.data, len(own))
                for gpu, own in zip(gpus, cpus, strict=True)
            ),
        )
        setup = setup_of(
            "wl_gpu_setup",
            way=constants()[f"WL_WAY_{way.upper()}"],
            readers=plan.in_flight,
            pollers=pollers,
            block_bytes=plan.block_bytes,
            checked_reads=plan.checked_reads,
            file_count=len(plan.files),
            gpu_count=len(gpus),
            duration_ns=round(plan.duration_s * 1e9),
            seed=plan.seed & (1 << 64) - 1,
            files=listed,
            gpus=places,
        )
        self._uses_cufile, self._file_count = way == "cufile", len(plan.files)
        self._reads = open_handle("wl_gpu_open", setup)

    def software(self) -> dict[str, str]:
        """Return the versions of CUDA and of cuFile, if that reads."""
        version = cufile_version() if self._uses_cufile else None
        return {"cuda": cuda_gpus()[0], **({} if version is None else {"cufile": version})}

    def start(self) -> None:
        """Let the clock start once the first reads have been checked; from any thread."""
        library.load().wl_gpu_start(self._reads)

    def stop(self) -> None:
        """Do nothing: the end of the process ends the reads."""

    def run(self) -> ReadResult:
        """Make all reads and return the result; other Python threads run meanwhile.

        Between the checked reads and the timed ones it waits for ``start``.

        Raises:
            NativeError: CUDA failed, such as by the loss of a GPU.
        """
        found = struct("wl_gpu_result")()
        invoke("wl_gpu_run", self._reads, ctypes.byref(found))
        file_operations = (c_uint64 * self._file_count)()
        library.load().wl_gpu_file_operations(self._reads, file_operations)
        own: dict[str, int] = {}
        if not self._uses_cufile:
            own = {"pinned_copies": found.pinned_copies, "pinned_bytes": found.pinned_bytes}
        elif found.has_library:
            own = counted(found.library)
        return ReadResult(
            operations=found.operations,
            start_ns=found.start_ns,
            end_ns=found.end_ns,
            cpu_s=found.cpu_ns / NS_PER_S,
            latency=library.histogram_of(found.latencies),
            file_operations=tuple(file_operations),
            counts=PathCounts(reads=found.reads, read_bytes=found.read_bytes, **own),
            failures=failures_of(found),
            compared_bytes=found.compared_bytes,
            bad_blocks=found.bad_blocks,
            cut_s=found.cut_ns / NS_PER_S,
        )

    def progress(self) -> Progress:
        progress = struct("wl_gpu_progress")()
        library.load().wl_gpu_progress_of(self._reads, ctypes.byref(progress))
        return Progress.of(progress)


open_reads = Reads
"""What the reader's process opens."""


def probe(what: str, *, say: Callable[[str, object], None]) -> dict[str, Any]:
    """Return what CUDA shows, and if ``what`` is ``cufile`` whether that works."""
    cuda, gpus = cuda_gpus()
    found: dict[str, Any] = {"cuda": cuda, "gpus": gpus, "cufile": None, "cufile_error": None}
    if what == "cufile":
        say("opening", cufile_version())  # what comes next may not return
        found["cufile"], found["cufile_error"] = try_cufile()
    return found


def allowed_cpus(node: int | None, roots: Roots = LIVE) -> list[int]:
    """Return the CPUs of a node that this process may use; empty for any CPU."""
    if node is None:
        return []
    try:
        return sorted(parse_cpus(cpus_of_node(node, roots)) & os.sched_getaffinity(0))
    except OSError:
        return []
