"""Reads into GPU memory by the engine's shared library, through ctypes.

Field order and meaning are those of ``loaders/engine/src/wattload_engine.h``. Only the reader's own
process calls ``Reads`` and the probes: CUDA's driver stays in the process that opened it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import POINTER, c_char, c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wattload.core.histogram import BUCKET_COUNT
from wattload.loaders.engine import library
from wattload.loaders.engine.library import OK, Error

READY, CHECKING, CHECKED, TIMED, OVER, DONE = range(6)
"""The stages of ``wl_gpu_progress``."""

WAYS = {"bounce": 0, "ring": 1, "cufile": 2}

_FAILURES = 16
_GPU_LIMIT = 64
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class _File(ctypes.Structure):
    """``wl_gpu_file``."""

    _fields_ = (
        ("path", c_char_p),
        ("bytes", c_uint64),
        ("gpu", c_uint32),
        ("reserved", c_uint32),
        ("nonce", c_uint64),
        ("word", c_uint64),
        ("first_block", c_uint64),
    )


class _Place(ctypes.Structure):
    """``wl_gpu_place``."""

    _fields_ = (
        ("address", c_char_p),
        ("cpus", POINTER(c_uint32)),
        ("cpu_count", c_uint32),
        ("reserved", c_uint32),
    )


class _Setup(ctypes.Structure):
    """``wl_gpu_setup``."""

    _fields_ = (
        ("struct_bytes", c_uint32),
        ("way", c_uint32),
        ("readers", c_uint32),
        ("pollers", c_uint32),
        ("block_bytes", c_uint32),
        ("checked_reads", c_uint32),
        ("file_count", c_uint32),
        ("gpu_count", c_uint32),
        ("duration_ns", c_uint64),
        ("seed", c_uint64),
        ("files", POINTER(_File)),
        ("gpus", POINTER(_Place)),
    )


class LibraryReads(ctypes.Structure):
    """``wl_library_reads``."""

    _fields_ = (
        ("total", c_uint64),
        ("p2p", c_uint64),
        ("nvfs", c_uint64),
        ("posix", c_uint64),
        ("peer", c_uint64),
    )


class _Failure(ctypes.Structure):
    """``wl_gpu_failure``."""

    _fields_ = (("code", c_int32), ("reserved", c_uint32), ("count", c_uint64))


class Progress(ctypes.Structure):
    """``wl_gpu_progress``."""

    _fields_ = (
        ("reads", c_uint64),
        ("bytes", c_uint64),
        ("ended", c_uint64),
        ("stage", c_uint32),
        ("reserved", c_uint32),
        ("start_ns", c_uint64),
        ("deadline_ns", c_uint64),
    )


class Result(ctypes.Structure):
    """``wl_gpu_result``."""

    _fields_ = (
        ("start_ns", c_uint64),
        ("end_ns", c_uint64),
        ("cpu_ns", c_uint64),
        ("operations", c_uint64),
        ("bytes", c_uint64),
        ("reads", c_uint64),
        ("read_bytes", c_uint64),
        ("pinned_copies", c_uint64),
        ("pinned_bytes", c_uint64),
        ("compared_bytes", c_uint64),
        ("bad_blocks", c_uint64),
        ("latency_sum_ns", c_uint64),
        ("latency_min_ns", c_uint64),
        ("latency_max_ns", c_uint64),
        ("cut_ns", c_uint64),
        ("library", LibraryReads),
        ("has_library", c_uint32),
        ("reserved", c_uint32),
        ("failures", _Failure * _FAILURES),
        ("counts", c_uint64 * BUCKET_COUNT),
    )


class _Gpu(ctypes.Structure):
    """``wl_gpu``."""

    _fields_ = (("address", c_char * 16), ("name", c_char * 256))


_ERROR = POINTER(Error)
_PROTOTYPES = {
    "wl_cuda_gpus": (
        [POINTER(_Gpu), c_uint32, POINTER(c_uint32), POINTER(c_int32), _ERROR],
        c_int32,
    ),
    "wl_cufile_try": ([POINTER(c_int32), _ERROR], c_int32),
    "wl_cufile_number": ([], c_int32),
    "wl_cufile_begin": ([], c_int32),
    "wl_cufile_reads": ([POINTER(LibraryReads)], c_int32),
    "wl_gpu_block": ([c_uint64] * 4, c_uint64),
    "wl_gpu_open": ([POINTER(_Setup), POINTER(c_void_p), _ERROR], c_int32),
    "wl_gpu_start": ([c_void_p], None),
    "wl_gpu_run": ([c_void_p, POINTER(Result), _ERROR], c_int32),
    "wl_gpu_progress_of": ([c_void_p, POINTER(Progress)], None),
    "wl_gpu_file_operations": ([c_void_p, POINTER(c_uint64)], None),
    "wl_gpu_close": ([c_void_p], None),
}


class NativeError(Exception):
    """A call of the library failed; ``text`` is its clause. See ``wl_error`` for the fields."""

    def __init__(self, *, code: int, detail: int, offset: int, path: str, text: str) -> None:
        self.code, self.detail, self.offset = code, detail, offset
        self.path, self.text = path, text
        super().__init__(text)

    @classmethod
    def of(cls, error: Error) -> NativeError:
        return cls(
            code=int(error.code),
            detail=int(error.detail),
            offset=int(error.offset),
            path=os.fsdecode(error.path),
            text=error.text.decode("utf-8", "replace"),
        )


@dataclass(frozen=True, slots=True)
class File:
    """A file of a setup; ``gpu`` is a number in the list of GPUs."""

    path: str
    size_bytes: int
    gpu: int
    nonce: int
    word: int
    first_block: int


@dataclass(frozen=True, slots=True)
class Place:
    """A GPU by its PCI address, and the CPUs of its threads; none: any."""

    address: str
    cpus: tuple[int, ...]


@lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    """Return the engine's library with the types of these functions set; errors as its own."""
    return library.load_with(_PROTOTYPES)


def cuda_gpus() -> tuple[str, list[tuple[str, str]]]:
    """Return the CUDA version of the driver, and the address and name of each GPU it shows.

    Raises:
        NativeError: there is no driver, or it refuses.
    """
    gpus, error = (_Gpu * _GPU_LIMIT)(), Error()
    count, version = c_uint32(), c_int32()
    code = load().wl_cuda_gpus(
        gpus, _GPU_LIMIT, ctypes.byref(count), ctypes.byref(version), ctypes.byref(error)
    )
    if code != OK:
        raise NativeError.of(error)
    found = [(gpu.address.decode(), gpu.name.decode()) for gpu in gpus[: count.value]]
    return _version(version.value), found


def try_cufile() -> tuple[str | None, NativeError | None]:
    """Open and close cuFile's driver; return its version if it gives one, and how it failed.

    It may not return: see ``wl_cufile_try``.
    """
    version, error = c_int32(), Error()
    code = load().wl_cufile_try(ctypes.byref(version), ctypes.byref(error))
    failed = None if code == OK else NativeError.of(error)
    return (_version(version.value) if version.value else None), failed


def cufile_version() -> str | None:
    """Return the version of the libcufile that this process has opened, if it gives one."""
    number: int = load().wl_cufile_number()
    return _version(number) if number else None


def begin_cufile_counts() -> bool:
    """Have cuFile count the reads of a library that calls it; whether it does.

    Its driver has to be open.
    """
    return bool(load().wl_cufile_begin())


def cufile_reads() -> LibraryReads | None:
    """Return the reads of all GPUs since ``begin_cufile_counts``; ``None`` if cuFile refuses."""
    reads = LibraryReads()
    return reads if load().wl_cufile_reads(ctypes.byref(reads)) else None


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


class Reads:
    """Threads with registered buffers, ready to read; see ``wl_gpu_open``."""

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
        """Open and register everything.

        Raises:
            NativeError: the GPU, a library, a file or the kernel refuses.
        """
        listed = (_File * len(files))(
            *(
                _File(
                    path=os.fsencode(file.path),
                    bytes=file.size_bytes,
                    gpu=file.gpu,
                    nonce=file.nonce,
                    word=file.word,
                    first_block=file.first_block,
                )
                for file in files
            )
        )
        places = (_Place * len(gpus))(
            *(
                _Place(
                    address=gpu.address.encode(),
                    cpus=(c_uint32 * len(gpu.cpus))(*gpu.cpus),
                    cpu_count=len(gpu.cpus),
                )
                for gpu in gpus
            )
        )
        setup = _Setup(
            struct_bytes=ctypes.sizeof(_Setup),
            way=WAYS[way],
            readers=readers,
            pollers=pollers,
            block_bytes=block_bytes,
            checked_reads=checked_reads,
            file_count=len(files),
            gpu_count=len(gpus),
            duration_ns=round(duration_s * 1e9),
            seed=seed & (1 << 64) - 1,
            files=listed,
            gpus=places,
        )
        self._way, self._file_count = way, len(files)
        self._reads, error = c_void_p(), Error()
        code = load().wl_gpu_open(
            ctypes.byref(setup), ctypes.byref(self._reads), ctypes.byref(error)
        )
        if code != OK:
            raise NativeError.of(error)

    def start(self) -> None:
        """Let the clock start once the first reads have been checked; from any thread."""
        load().wl_gpu_start(self._reads)

    def run(self) -> Result:
        """Make all reads and return the result; other Python threads run meanwhile.

        Between the checked reads and the timed ones it waits for ``start``.

        Raises:
            NativeError: CUDA failed, such as by the loss of a GPU.
        """
        result, error = Result(), Error()
        code = load().wl_gpu_run(self._reads, ctypes.byref(result), ctypes.byref(error))
        if code != OK:
            raise NativeError.of(error)
        return result

    def progress(self) -> Progress:
        progress = Progress()
        load().wl_gpu_progress_of(self._reads, ctypes.byref(progress))
        return progress

    def file_operations(self) -> list[int]:
        """Return the timed reads of each file, after ``run``."""
        counts = (c_uint64 * self._file_count)()
        load().wl_gpu_file_operations(self._reads, counts)
        return list(counts)

    def software(self) -> dict[str, str]:
        """Return the versions of the libraries that read, by name."""
        version = cufile_version() if self._way == "cufile" else None
        return {} if version is None else {"cufile": version}

    def close(self) -> None:
        load().wl_gpu_close(self._reads)
