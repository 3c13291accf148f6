"""The engine's shared library, loaded by ctypes: types, functions, backends and errors.

Field order and meaning are those of ``src/wattload_engine.h``. ctypes lets other Python threads run
during every call. ``choose_backend`` returns the backend that runs here.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_float,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from enum import IntFlag
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError, MissingExtraError, TargetError
from wattload.core.histogram import BUCKET_COUNT
from wattload.core.io import TRACE_DTYPE
from wattload.loaders.aligned_io import refuses_direct

ABI = 10
FILE_NAME = "libwattload_engine.so"
PATH_BYTES = 4096
TEXT_BYTES = 512

OK = 0
BAD_PLAN = -1
BAD_SETUP = -2
UNAVAILABLE = -3
SHORT_READ = -4
CHANGED = -5
NOT_DIRECT = -6
SHORT_WRITE = -7
BAD_PAGE = -8
BAD_ID = -9
OTHER_DEVICE = -10
NO_LIBRARY = -11
CUDA = -12
CUFILE = -13
GPU_MEMORY = -14
OTHER_SIZE = -15
NO_GPU = -16
NOT_PINNED = -17
TOO_MANY = -18
HANGS = -19
NO_OFFSET = (1 << 64) - 1

REGISTER_BUFFERS = 1
REGISTER_FILES = 2

AUTO = "auto"
IO_URING = "io_uring"
PREAD = "pread"
MEMORY = "memory"
NULL = "null"


class Error(ctypes.Structure):
    """``wl_error``."""

    _fields_ = (
        ("code", c_int32),
        ("detail", c_int32),
        ("offset", c_uint64),
        ("path", c_char * PATH_BYTES),
        ("text", c_char * TEXT_BYTES),
    )


class BackendInfo(ctypes.Structure):
    """``wl_backend_info``."""

    _fields_ = (("name", c_char_p), ("flags", c_uint32), ("reserved", c_uint32))


class Region(ctypes.Structure):
    """``wl_region``."""

    _fields_ = (("base", c_void_p), ("bytes", c_uint64))


class Setup(ctypes.Structure):
    """``wl_setup``."""

    _fields_ = (
        ("struct_bytes", c_uint32),
        ("depth", c_uint32),
        ("pollers", c_uint32),
        ("block_bytes", c_uint32),
        ("region_count", c_uint32),
        ("flags", c_uint32),
        ("regions", POINTER(Region)),
        ("backend", c_char_p),
    )


class Facts(ctypes.Structure):
    """``wl_facts``."""

    _fields_ = (
        ("buffers_refused", c_int32),
        ("files_refused", c_int32),
        ("threads", c_uint32),
        ("ring_flags", c_uint32),
    )


class Progress(ctypes.Structure):
    """``wl_progress``."""

    _fields_ = (
        ("bytes", c_uint64),
        ("operations", c_uint64),
        ("done", c_uint32),
        ("reserved", c_uint32),
    )


class Reading(ctypes.Structure):
    """``wl_reading``."""

    _fields_ = (
        ("time_ns", c_uint64),
        ("bytes", c_uint64),
        ("operations", c_uint64),
        ("latency_sum_ns", c_uint64),
        ("latency_min_ns", c_uint64),
        ("latency_max_ns", c_uint64),
        ("counts", c_uint64 * BUCKET_COUNT),
    )


class Result(ctypes.Structure):
    """``wl_result``."""

    _fields_ = (
        ("bytes", c_uint64),
        ("operations", c_uint64),
        ("start_ns", c_uint64),
        ("end_ns", c_uint64),
        ("last_io_ns", c_uint64),
        ("cpu_ns", c_uint64),
        ("bad_blocks", c_uint64),
        ("latency_sum_ns", c_uint64),
        ("latency_min_ns", c_uint64),
        ("latency_max_ns", c_uint64),
        ("sync_ns", c_uint64),
        ("extending_files", c_uint32),
        ("stopped", c_uint32),
        ("error", Error),
    )


class TsvProgress(ctypes.Structure):
    """``wl_tsv_progress``."""

    _fields_ = (
        ("taken_bytes", c_uint64),
        ("bad_count", c_uint64),
        ("bad_offsets", c_uint64 * 8),
    )


class IdTable(ctypes.Structure):
    """``wl_id_table``."""

    _fields_ = (
        ("slots", c_void_p),
        ("ids", c_void_p),
        ("counts", c_void_p),
        ("slot_count", c_uint32),
        ("limit", c_uint32),
        ("used", c_uint32),
    )


SYNTHETIC_LANES = 64


class SyntheticColumn(ctypes.Structure):
    """``wl_synthetic_column``."""

    _fields_ = (
        ("gap", c_uint32),
        ("most", c_uint32),
        ("first", c_uint32),
        ("octaves", c_float),
    )


class Synthetic(ctypes.Structure):
    """``wl_synthetic``."""

    _fields_ = (
        ("streams", c_uint32 * (4 * SYNTHETIC_LANES)),
        ("columns", SyntheticColumn * 39),
        ("integers", c_void_p),
        ("row_count", c_uint64),
        ("ones", c_uint32),
        ("held_start", c_uint32),
        ("held_end", c_uint32),
        ("held", c_char * (SYNTHETIC_LANES * 320 + 8)),
    )


class ColumnPages(ctypes.Structure):
    """``wl_column``."""

    _fields_ = (
        ("dictionary_bytes", c_uint64),
        ("data_bytes", c_uint64),
        ("dictionary_count", c_uint32),
        ("null_count", c_uint32),
        ("least", c_int32),
        ("most", c_int32),
    )


_ERROR = POINTER(Error)
_PROTOTYPES = {
    "wl_sources": ([], c_char_p),
    "wl_backend": ([c_uint32], POINTER(BackendInfo)),
    "wl_backend_probe": ([c_char_p, _ERROR], c_int32),
    "wl_engine_open": ([POINTER(Setup), POINTER(c_void_p), _ERROR], c_int32),
    "wl_engine_facts": ([c_void_p, POINTER(Facts)], None),
    "wl_engine_close": ([c_void_p], None),
    "wl_job_submit": ([c_void_p, c_char_p, c_size_t, POINTER(c_void_p), _ERROR], c_int32),
    "wl_job_wait": ([c_void_p, c_uint32], c_int32),
    "wl_job_progress": ([c_void_p, POINTER(Progress)], None),
    "wl_job_stop": ([c_void_p], None),
    "wl_job_result": ([c_void_p, POINTER(Result)], None),
    "wl_job_read": ([c_void_p, POINTER(Reading)], None),
    "wl_job_trace": ([c_void_p, POINTER(c_uint64)], c_void_p),
    "wl_job_free": ([c_void_p], None),
    "wl_plan_check": ([c_char_p, c_size_t, _ERROR], c_int32),
    "wl_seal": ([c_void_p, c_size_t, *[c_uint64] * 5], None),
    "wl_bad_blocks": ([c_void_p, c_size_t, *[c_uint64] * 5], c_uint64),
    "wl_tsv_read": (
        [c_void_p, c_size_t, c_void_p, c_size_t, c_uint32, c_int32, POINTER(TsvProgress)],
        c_uint32,
    ),
    "wl_tsv_pack": (
        [c_void_p, c_size_t, c_void_p, c_uint32, c_int32, c_int32, POINTER(TsvProgress)],
        c_uint32,
    ),
    "wl_ids_count": ([POINTER(IdTable), c_void_p, c_size_t, c_void_p], c_size_t),
    "wl_ids_number": ([POINTER(IdTable), *[c_void_p] * 3, c_size_t, c_void_p], None),
    "wl_synthetic_read": ([POINTER(Synthetic), c_void_p, c_size_t], c_size_t),
    "wl_column_page_bytes": ([c_uint32], c_uint64),
    "wl_column_scratch_bytes": ([c_uint32], c_uint64),
    "wl_column_encode": (
        [c_void_p, c_uint32, c_int32, *[c_void_p] * 3, POINTER(ColumnPages)],
        None,
    ),
    "wl_dictionary_decode": ([c_void_p, c_size_t, c_uint32, c_int32, c_void_p], c_int32),
    "wl_data_decode": (
        [c_void_p, c_size_t, c_uint32, c_int32, c_int32, c_void_p, c_uint32, *[c_void_p] * 3],
        c_int32,
    ),
    "wl_rows_pack": ([c_void_p, c_size_t, c_uint32, c_void_p], None),
    "wl_crc32_available": ([], c_int32),
    "wl_crc32_fold": ([c_uint32, c_void_p, c_size_t], c_uint32),
}


def library_path() -> Path:
    """Return the path of the built library, in the folder of this module."""
    return Path(__file__).with_name(FILE_NAME)


@lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    """Return the library with its functions' types set.

    Raises:
        MissingExtraError: it was not built, can't be loaded, or has another interface version.
    """
    return load_from(library_path())


def load_with(prototypes: Mapping[str, tuple[Any, Any]]) -> ctypes.CDLL:
    """Return the library with the types of further functions set: arguments and result by name.

    Raises:
        MissingExtraError: as ``load``.
    """
    found = load()
    for name, (arguments, result) in prototypes.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, result
    return found


def trace_rows(function: Callable[..., Any], handle: object) -> NDArray[np.void]:
    """Return the rows (``TRACE_DTYPE``) that a function of the library has for a handle."""
    count = c_uint64()
    rows = function(handle, ctypes.byref(count))
    if not rows or not count.value:
        return np.empty(0, dtype=TRACE_DTYPE)
    size_bytes = count.value * TRACE_DTYPE.itemsize
    return np.frombuffer(ctypes.string_at(rows, size_bytes), dtype=TRACE_DTYPE)


def load_from(path: Path) -> ctypes.CDLL:
    """Return the library in a file; errors as in ``load``."""
    if not path.exists():
        raise MissingExtraError(
            f"the I/O engine was not built: {path} is missing; {_how_to_build()}"
        )
    try:
        library = ctypes.CDLL(str(path), use_errno=False)
        library.wl_abi.restype = c_uint32
        found = library.wl_abi()
        functions = {name: getattr(library, name) for name in _PROTOTYPES}
    except (OSError, AttributeError) as error:
        raise MissingExtraError(
            f"the I/O engine can't be loaded: {error}; {_how_to_build()}"
        ) from error
    if found != ABI:
        raise MissingExtraError(
            f"{path} has interface version {found}, this wattload needs {ABI}; {_how_to_build()}"
        )
    for name, (arguments, result) in _PROTOTYPES.items():
        functions[name].argtypes, functions[name].restype = arguments, result
    _check_sources(path, functions["wl_sources"]().decode())
    return library


def close_engine(handle: c_void_p, memory: Sequence[object], owner: int) -> None:
    """Close an engine in the process that opened it; a forked process has no pollers.

    ``memory`` is kept allocated until then.
    """
    if os.getpid() == owner:
        load().wl_engine_close(handle)


def sources_hash(folder: Path) -> str:
    """Return the hash of C sources that the build stores in the library (see ``setup.py``)."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _check_sources(path: Path, built_from: str) -> None:
    """Raise if the library was built from other sources than those in its ``src`` folder.

    Only a checkout has the sources; an installed package has no more than headers, for CUDA.
    """
    folder = path.with_name("src")
    if any(folder.glob("*.c")) and sources_hash(folder) != built_from:
        raise MissingExtraError(
            f"{path} was built from other sources than those in {folder}; {_how_to_build()}"
        )


def _how_to_build() -> str:
    """Return the clause of an error message on how to build the library."""
    return (
        "install a C compiler (e.g. apt-get install gcc) and run `pip install .`, or `make setup` "
        "in a checkout"
    )


class BackendFlag(IntFlag):
    """The properties of a backend; the values are the header's."""

    DISKLESS = 1
    SYNC = 2
    FIXED_BUFFERS = 4
    FIXED_FILES = 8


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """A backend that runs here, with sentences on the choice that a page must print."""

    name: str
    flags: BackendFlag
    remarks: tuple[str, ...] = ()


def backends() -> dict[str, BackendFlag]:
    """Return the flags of every backend of the library, by name, best first."""
    return dict(_listed_backends())


def backend_unavailable(name: str) -> str | None:
    """Return why a backend can't run here, ``None`` if it can."""
    error = Error()
    if load().wl_backend_probe(name.encode(), ctypes.byref(error)) == OK:
        return None
    return str(error.text.decode("utf-8", "replace"))


def choose_backend(requested: str) -> BackendChoice:
    """Return the requested backend; for ``auto``, io_uring where it runs, else pread.

    Raises:
        ConfigError: the backend is unknown, or it can't run here.
        MissingExtraError: the library is not built.
    """
    known = backends()
    name = IO_URING if requested == AUTO else requested
    if name not in known:
        raise ConfigError(f"unknown engine {requested!r}; available: {', '.join(known)}")
    reason = backend_unavailable(name)
    return BackendChoice(name, known[name]) if reason is None else fall_back(requested, reason)


def fall_back(requested: str, reason: str) -> BackendChoice:
    """Return the replacement for io_uring where it can't run, with a sentence that says so.

    Raises:
        ConfigError: a backend other than ``auto`` was requested.
    """
    if requested != AUTO:
        raise ConfigError(
            f"loader.engine={requested} can't run here: {reason}; use loader.engine={AUTO}, which "
            f"falls back to {PREAD}"
        )
    remark = f"io_uring can't run here ({reason}), so a thread pool with {PREAD} was used instead"
    return BackendChoice(PREAD, backends()[PREAD], (f"{remark}.",))


def _listed_backends() -> Iterator[tuple[str, BackendFlag]]:
    number = 0
    while info := load().wl_backend(number):
        yield info.contents.name.decode(), BackendFlag(info.contents.flags)
        number += 1


class UnavailableError(ConfigError):
    """A backend can't run here; the message is a clause with the reason."""


def exception_of(error: Error) -> Exception:
    """Return the exception for a failed call or job; ``error.code`` is not ``OK``."""
    path, text = os.fsdecode(error.path), error.text.decode("utf-8", "replace")
    place = "" if error.offset == NO_OFFSET else f" at offset {error.offset}"
    if error.code > 0:
        verb, _, reason = text.partition(": ")
        reason = reason or os.strerror(error.code)
        return OSError(error.code, f"{verb}{place} failed: {reason}", path)
    kinds: dict[int, Exception] = {
        SHORT_READ: DataError(
            f"{path} is truncated: it ends at offset {error.offset}, before the end of an extent "
            "to be read; remove the data folder to generate it again"
        ),
        CHANGED: DataError(
            f"{path} changed while it was read (its size, mtime or ctime), so the bytes read may "
            "mix two versions; do not modify the data during a run"
        ),
        OTHER_SIZE: DataError(
            f"{path} is {error.offset} bytes long, fewer than planned; remove the data folder to "
            "generate it again"
        ),
        NOT_DIRECT: TargetError(refuses_direct(path)),
        OTHER_DEVICE: TargetError(f"{path} {text}"),
        SHORT_WRITE: OSError(errno.EIO, f"write{place} failed: {text}", path),
        UNAVAILABLE: UnavailableError(text),
        BAD_PLAN: ConfigError(f"{path + ': ' if path else ''}{text}"),
        BAD_SETUP: ConfigError(text),
    }
    return kinds.get(error.code) or RuntimeError(
        f"the I/O engine reported an unknown error code, {error.code}: {text}"
    )
