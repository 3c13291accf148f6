"""Reads into GPU memory by the engine's shared library, through ctypes.

Only the reader's own process calls ``Reads`` and the probes: CUDA's driver stays in the process
that opened it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import c_int32, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.loaders.engine import library
from wattload.loaders.engine.header import array_of, constants, setup_of, struct
from wattload.loaders.engine.library import OK, Error

READY, CHECKING, CHECKED, TIMED, OVER, DONE = range(6)
"""The stages of ``wl_gpu_progress``."""

WAYS = {way: constants()[f"WL_WAY_{way.upper()}"] for way in ("bounce", "ring", "cufile")}

_GPU_LIMIT = 64
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class NativeError(Exception):
    """A call of the library failed; ``text`` is its clause. See ``wl_error`` for the fields."""

    def __init__(self, *, code: int, detail: int, offset: int, path: str, text: str) -> None:
        self.code, self.detail, self.offset = code, detail, offset
        self.path, self.text = path, text
        super().__init__(text)

    @classmethod
    def of(cls, error: ctypes.Structure) -> NativeError:
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


def cuda_gpus() -> tuple[str, list[tuple[str, str]]]:
    """Return the CUDA version of the driver, and the address and name of each GPU it shows.

    Raises:
        NativeError: there is no driver, or it refuses.
    """
    gpus, error = (struct("wl_gpu") * _GPU_LIMIT)(), Error()
    count, version = c_uint32(), c_int32()
    code = library.load().wl_cuda_gpus(
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


def cufile_reads() -> ctypes.Structure | None:
    """Return the reads of all GPUs since ``begin_cufile_counts``; ``None`` if cuFile refuses."""
    reads = struct("wl_library_reads")()
    return reads if library.load().wl_cufile_reads(ctypes.byref(reads)) else None


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
        listed = array_of(
            "wl_gpu_file",
            (
                (os.fsencode(file.path), file.size_bytes, file.gpu, 0,
                 file.nonce, file.word, file.first_block)
                for file in files
            ),
        )  # fmt: skip
        cpus = [np.array(gpu.cpus, dtype=np.uint32) for gpu in gpus]
        places = array_of(
            "wl_gpu_place",
            (
                (gpu.address.encode(), own.ctypes.data, len(own))
                for gpu, own in zip(gpus, cpus, strict=True)
            ),
        )
        setup = setup_of(
            "wl_gpu_setup",
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
        code = library.load().wl_gpu_open(
            ctypes.byref(setup), ctypes.byref(self._reads), ctypes.byref(error)
        )
        if code != OK:
            raise NativeError.of(error)

    def start(self) -> None:
        """Let the clock start once the first reads have been checked; from any thread."""
        library.load().wl_gpu_start(self._reads)

    def run(self) -> ctypes.Structure:
        """Make all reads and return the result; other Python threads run meanwhile.

        Between the checked reads and the timed ones it waits for ``start``.

        Raises:
            NativeError: CUDA failed, such as by the loss of a GPU.
        """
        result, error = struct("wl_gpu_result")(), Error()
        code = library.load().wl_gpu_run(self._reads, ctypes.byref(result), ctypes.byref(error))
        if code != OK:
            raise NativeError.of(error)
        return result

    def progress(self) -> ctypes.Structure:
        progress = struct("wl_gpu_progress")()
        library.load().wl_gpu_progress_of(self._reads, ctypes.byref(progress))
        return progress

    def file_operations(self) -> list[int]:
        """Return the timed reads of each file, after ``run``."""
        counts = (c_uint64 * self._file_count)()
        library.load().wl_gpu_file_operations(self._reads, counts)
        return list(counts)

    def software(self) -> dict[str, str]:
        """Return the versions of the libraries that read, by name."""
        version = cufile_version() if self._way == "cufile" else None
        return {} if version is None else {"cufile": version}

    def close(self) -> None:
        library.load().wl_gpu_close(self._reads)
