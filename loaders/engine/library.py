"""The engine's shared library, loaded by ctypes: functions, backends and errors.

Structures and functions are those of ``src/wattload_engine.h`` (see ``header``). ctypes lets other
Python threads run during every call. ``choose_backend`` returns the backend that runs here.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
from collections.abc import Callable, Sequence
from ctypes import c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntFlag
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, DataError, MissingExtraError, TargetError
from wattload.core.histogram import Histogram
from wattload.core.io import TRACE_DTYPE
from wattload.loaders.aligned_io import refuses_direct
from wattload.loaders.block_reads import ReadFile
from wattload.loaders.engine.header import array_of, constants, prototypes, struct

ABI = constants()["WL_ABI"]
FILE_NAME = "libwattload_engine.so"
OK = constants()["WL_OK"]
BAD_PLAN = constants()["WL_BAD_PLAN"]
BAD_SETUP = constants()["WL_BAD_SETUP"]
UNAVAILABLE = constants()["WL_UNAVAILABLE"]
SHORT_READ = constants()["WL_SHORT_READ"]
CHANGED = constants()["WL_CHANGED"]
NOT_DIRECT = constants()["WL_NOT_DIRECT"]
SHORT_WRITE = constants()["WL_SHORT_WRITE"]
BAD_ID = constants()["WL_BAD_ID"]
OTHER_DEVICE = constants()["WL_OTHER_DEVICE"]
NO_LIBRARY = constants()["WL_NO_LIBRARY"]
CUDA = constants()["WL_CUDA"]
CUFILE = constants()["WL_CUFILE"]
GPU_MEMORY = constants()["WL_GPU_MEMORY"]
OTHER_SIZE = constants()["WL_OTHER_SIZE"]
NO_GPU = constants()["WL_NO_GPU"]
NOT_PINNED = constants()["WL_NOT_PINNED"]
HANGS = constants()["WL_HANGS"]
BAD_NODE = constants()["WL_BAD_NODE"]
NO_OFFSET = (1 << 64) - 1
TARGET_LIMIT = constants()["WL_MAPPED_TARGETS"]
"""Most files of random reads."""

AUTO = "auto"
IO_URING = "io_uring"
PREAD = "pread"
MEMORY = "memory"
NULL = "null"

Error = struct("wl_error")


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


def invoke(
    name: str, *arguments: object, raises: Callable[[ctypes.Structure], Exception] | None = None
) -> None:
    """Call a function whose last argument is an error, and raise what it leaves there.

    ``raises`` returns the exception for it, by default ``exception_of``.
    """
    error = Error()
    if getattr(load(), name)(*arguments, ctypes.byref(error)) != OK:
        raise (raises or exception_of)(error)


def open_handle(
    name: str,
    setup: ctypes.Structure,
    raises: Callable[[ctypes.Structure], Exception] | None = None,
) -> c_void_p:
    """Return the handle that a function opens for a setup; raises as ``invoke``."""
    handle = c_void_p()
    invoke(name, ctypes.byref(setup), ctypes.byref(handle), raises=raises)
    return handle


def target_array(files: Sequence[ReadFile]) -> ctypes.Array[ctypes.Structure]:
    """Return files of random reads as the library takes them; keep it while the call lasts."""
    return array_of(
        "wl_queue_target",
        (
            (
                os.fsencode(each.path),
                each.size_bytes,
                each.stamps.nonce,
                each.stamps.word,
                each.stamps.first_block,
            )
            for each in files
        ),
    )


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
        functions = [(getattr(library, name), types) for name, *types in prototypes()]
    except (OSError, AttributeError) as error:
        raise MissingExtraError(
            f"the I/O engine can't be loaded: {error}; {_how_to_build()}"
        ) from error
    if found != ABI:
        raise MissingExtraError(
            f"{path} has interface version {found}, this wattload needs {ABI}; {_how_to_build()}"
        )
    for function, (arguments, result) in functions:
        function.argtypes, function.restype = arguments, result
    _check_sources(path, library.wl_sources().decode())
    return library


def histogram_of(found: ctypes.Structure) -> Histogram:
    """Return latencies, a ``wl_latencies``."""
    counts = np.array(found.counts, dtype=np.uint64)
    if not counts.any():
        return Histogram(counts)
    return Histogram(counts, found.sum_ns, found.min_ns, found.max_ns)


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

    DISKLESS = constants()["WL_B_DISKLESS"]
    SYNC = constants()["WL_B_SYNC"]


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """A backend that runs here, with sentences on the choice that a page must print."""

    name: str
    flags: BackendFlag
    remarks: tuple[str, ...] = ()


def backends() -> dict[str, BackendFlag]:
    """Return the flags of every backend of the library, by name, best first."""
    found: dict[str, BackendFlag] = {}
    while info := load().wl_backend(len(found)):
        found[info.contents.name.decode()] = BackendFlag(info.contents.flags)
    return found


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


class UnavailableError(ConfigError):
    """A backend can't run here; the message is a clause with the reason."""


_REPLACE = (
    "wattload clean deletes generated files, which the next run writes again; copy your own again"
)


def exception_of(error: ctypes.Structure) -> Exception:
    """Return the exception for a failed call or job; ``error.code`` is not ``OK``."""
    path, text = os.fsdecode(error.path), error.text.decode("utf-8", "replace")
    place = "" if error.offset == NO_OFFSET else f" at offset {error.offset}"
    if error.code > 0:
        verb, _, reason = text.partition(": ")
        reason = reason or os.strerror(error.code)
        return OSError(error.code, f"{verb}{place} failed: {reason}", path)
    kinds: dict[int, Exception] = {
        SHORT_READ: DataError(
            f"{path} is truncated: it has nothing at offset {error.offset}, which is to be read; "
            f"{_REPLACE}"
        ),
        CHANGED: DataError(
            f"{path} changed while it was read (its size, mtime or ctime), so the bytes read may "
            "mix two versions; do not modify the data during a run"
        ),
        OTHER_SIZE: DataError(
            f"{path} is {error.offset} bytes long, fewer than planned; {_REPLACE}"
        ),
        BAD_NODE: DataError(f"node {error.offset} of {path} {text}; build the index again"),
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
