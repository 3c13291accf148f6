"""The engine's shared library, by ctypes: where it lies, and its types as the header has them.

Field order and meaning are those of ``src/wattload_engine.h``; ctypes lets other Python threads run
during every call.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Sequence
from ctypes import POINTER, c_char, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from functools import lru_cache
from pathlib import Path

from wattload.core.errors import MissingExtraError
from wattload.core.histogram import BUCKET_COUNT

ABI = 2
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
NO_OFFSET = (1 << 64) - 1

REGISTER_BUFFERS = 1
REGISTER_FILES = 2

Counts = c_uint64 * BUCKET_COUNT


class Error(ctypes.Structure):
    """``wl_error``."""

    _fields_ = (
        ("code", c_int32),
        ("reserved", c_uint32),
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


class Result(ctypes.Structure):
    """``wl_result``."""

    _fields_ = (
        ("bytes", c_uint64),
        ("operations", c_uint64),
        ("start_ns", c_uint64),
        ("end_ns", c_uint64),
        ("last_io_ns", c_uint64),
        ("cpu_ns", c_uint64),
        ("checksum", c_uint64),
        ("bad_blocks", c_uint64),
        ("latency_sum_ns", c_uint64),
        ("latency_min_ns", c_uint64),
        ("latency_max_ns", c_uint64),
        ("sync_ns", c_uint64),
        ("extending_files", c_uint32),
        ("stopped", c_uint32),
        ("error", Error),
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
    "wl_job_histogram": ([c_void_p, POINTER(Counts)], None),
    "wl_job_trace": ([c_void_p, POINTER(c_uint64)], c_void_p),
    "wl_job_free": ([c_void_p], None),
    "wl_plan_check": ([c_char_p, c_size_t, _ERROR], c_int32),
    "wl_crc32_available": ([], c_int32),
    "wl_crc32_fold": ([c_uint32, c_void_p, c_size_t], c_uint32),
}


def library_path() -> Path:
    """Return where the library lies once it is built: beside this module."""
    return Path(__file__).with_name(FILE_NAME)


@lru_cache(maxsize=1)
def load() -> ctypes.CDLL:
    """Return the library with its functions' types set.

    Raises:
        MissingExtraError: it was not built, can't be loaded, or is of another version.
    """
    return load_from(library_path())


def load_from(path: Path) -> ctypes.CDLL:
    """Return the library in a file; errors as in ``load``."""
    if not path.exists():
        raise MissingExtraError(
            f"the native I/O engine was not built: {path} is missing; {_mend()}"
        )
    try:
        library = ctypes.CDLL(str(path), use_errno=False)
        library.wl_abi.restype = c_uint32
        found = library.wl_abi()
        functions = {name: getattr(library, name) for name in _PROTOTYPES}
    except (OSError, AttributeError) as error:
        raise MissingExtraError(
            f"the native I/O engine can't be loaded: {error}; {_mend()}"
        ) from error
    if found != ABI:
        raise MissingExtraError(
            f"{path} has interface version {found}, this wattload needs {ABI}; {_mend()}"
        )
    for name, (arguments, result) in _PROTOTYPES.items():
        functions[name].argtypes, functions[name].restype = arguments, result
    _check_sources(path, functions["wl_sources"]().decode())
    return library


def close_engine(handle: c_void_p, memory: Sequence[object], owner: int) -> None:
    """Close an engine over some memory, in the process that opened it: a fork has no pollers."""
    if os.getpid() == owner:
        load().wl_engine_close(handle)


def sources_hash(folder: Path) -> str:
    """Return the hash of C sources that the build puts into the library (see ``setup.py``)."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _check_sources(path: Path, built_from: str) -> None:
    """Raise if the sources lie beside the library, as in a checkout, and it was built from others.

    An installed package has no sources beside it.
    """
    folder = path.with_name("src")
    if folder.is_dir() and sources_hash(folder) != built_from:
        raise MissingExtraError(
            f"{path} was built from other sources than those in {folder}; {_mend()}"
        )


def _mend() -> str:
    """Return how the library comes to be, for the end of a sentence."""
    return (
        "with a C compiler (e.g. apt-get install gcc) `pip install .` builds it, in a checkout "
        "`make setup`; loader.engine=python runs without it, slower"
    )
