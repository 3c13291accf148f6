"""The errors a user can meet, each with the exit status of the command line.

A message is one or two sentences: what was wrong, the value, what is allowed and what to do.
Only ``wattload.__main__`` turns an error into an exit status. A fault of the host, which the kernel
reports as an ``OSError`` or a ``MemoryError``, becomes one of them by ``host_fault``.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from wattload.core.units import format_bytes

INTERRUPTED = 130
"""The exit status of a command that a signal has ended."""

CHECK_FAILED = 3
"""The exit status of a command whose runs have finished and of which a check failed."""


class WattloadError(Exception):
    """Any error that is explained to the user without a traceback."""

    exit_code: ClassVar[int] = 1


class ConfigError(WattloadError, ValueError):
    """A setting is unknown, of the wrong type or outside its range."""

    exit_code = 2


class NoGpuError(ConfigError):
    """This host has no NVIDIA GPU, or no driver for it."""


class TargetError(WattloadError, OSError):
    """The target can't be used: missing, not writable, full, read-only, or of a refused kind."""

    exit_code = 2


class DataError(WattloadError, ValueError):
    """A data folder or a data file is foreign, truncated or corrupt."""

    exit_code = 2


class ForeignFileError(DataError):
    """What wattload would write is a link, a pipe, or somebody else's, or others may change it."""


class RecordError(WattloadError, ValueError):
    """A run record is missing, truncated, of another schema or edited."""

    exit_code = 2


class MissingExtraError(WattloadError, ImportError):
    """An optional part of the distribution is needed and not installed."""

    exit_code = 2


class PowerError(WattloadError):
    """A power source or a power state failed."""


class PowerPermissionError(PowerError, PermissionError):
    """This process may not use the drive's admin queue; the message names the capability."""


class PowerDataLostError(PowerError):
    """A meter dropped readings (an overrun) or is gone, so it did not measure the whole run."""


class PowerStateError(PowerError, ValueError):
    """A power state is out of range, non-operational, or refused by the drive."""

    exit_code = 2


class PowerRefusedError(PowerStateError):
    """The drive refuses a value, with the status of Set Features."""


class RunError(WattloadError):
    """The run started but could not be finished."""


class MisplacedRecordError(RunError):
    """The run is finished, but its record had to be written to ``folder``, not to the run's own."""

    def __init__(self, sentence: str, folder: Path) -> None:
        super().__init__(sentence)
        self.folder = folder


class RankLostError(RunError):
    """Another rank failed and reports why; this one ends with the same status."""

    def __init__(self, status: int) -> None:
        super().__init__("another rank of this run has failed")
        self.status = status


_NO_THREAD = "can't start new thread"
_NOT_MAPPED = "failed to map segment"
"""Part of glibc's message if a library can't be mapped; Python raises it as ImportError."""

_FAILED = "the drive or its file system failed: see dmesg for the cause"
_GONE = "check that its file system is still mounted"
_REMEDIES: Mapping[int, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space"),
    **dict.fromkeys((errno.EIO, errno.EREMOTEIO, errno.EUCLEAN, errno.EBADMSG), _FAILED),
    **dict.fromkeys((errno.ENOENT, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ENOTCONN), _GONE),
    errno.EROFS: "mount it read-write; after an error of the drive, see dmesg",
    errno.ENFILE: "close other programs, or raise the host's limit with sysctl fs.file-max",
    errno.ENOMEM: "close other programs, or use fewer processes, fewer workers or smaller buffers",
    errno.EAGAIN: "use fewer processes or workers",
}
_DRIVE_FAILED = "the drive failed: see dmesg for the cause"
_DRIVE_GONE = "check that the drive is still there, with lsblk and dmesg"
_DEVICE_REMEDIES: Mapping[int, str] = {
    errno.ENOSPC: "the device has become smaller than it was when the run began: see dmesg",
    **dict.fromkeys((errno.EIO, errno.EREMOTEIO), _DRIVE_FAILED),
    **dict.fromkeys((errno.ENOENT, errno.ENODEV, errno.ENXIO), _DRIVE_GONE),
    errno.EBUSY: "end what uses the device",
    errno.EROFS: "make it writable with blockdev --setrw; after an error of the drive, see dmesg",
}
"""For a device that is a target itself, without a file system."""
_OTHERWISE = "check the folder and its file system"

_LIMITS: Mapping[int, tuple[str, int, str]] = {
    errno.EMFILE: ("open files", resource.RLIMIT_NOFILE, "ulimit -n"),
    errno.EFBIG: ("per file", resource.RLIMIT_FSIZE, "ulimit -f"),
    errno.EAGAIN: ("processes of this user", resource.RLIMIT_NPROC, "ulimit -u"),
    errno.ENOMEM: ("of address space", resource.RLIMIT_AS, "ulimit -v"),
}
"""What the limit behind an error counts, its number, and the command that raises it."""


def host_fault(error: BaseException) -> WattloadError | None:
    """Return the error that explains a fault of the host; ``None`` for any other error.

    An error that explains itself already, and a reader that closed its pipe, are others.
    """
    if isinstance(error, (WattloadError, BrokenPipeError)):
        return None
    code = _errno_of(error)
    if code is None:
        return None
    name = error.filename if isinstance(error, OSError) else None
    path = os.fsdecode(name) if isinstance(name, str | bytes) else ""
    by_device = _DEVICE_REMEDIES.get(code) if _is_device(path) else None
    where = f"{path}: " if path else ""
    return RunError(f"{where}{_what(error, code)}; {by_device or remedy(code)}")


def content_fault(error: Exception) -> str | None:
    """Return what a library found wrong with a file's content, in one line.

    For damaged files, libraries raise whatever their parsers do: ``TokenError``, ``IndexError``, an
    ``OSError`` without a number, or with EINVAL for a seek to where a damaged header points.
    Returns ``None`` for our own errors and for faults of the host.
    """
    is_seek = isinstance(error, OSError) and error.errno == errno.EINVAL
    if isinstance(error, WattloadError) or (host_fault(error) is not None and not is_seek):
        return None
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def remedy(code: int | None) -> str:
    """Return what to do about an error number of the kernel."""
    if code is not None and code in _LIMITS:
        what, number, command = _LIMITS[code]
        soft, _ = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY:
            size = format_bytes(soft) if code in (errno.EFBIG, errno.ENOMEM) else str(soft)
            return f"the limit is {size} {what}; raise it with {command}"
    return _OTHERWISE if code is None else _REMEDIES.get(code, _OTHERWISE)


def _is_device(path: str) -> bool:
    """Return whether a path names a block device, or one that has left."""
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)  # noqa: PTH116 - it may be empty
    except OSError:
        return path.startswith("/dev/") and not path.startswith("/dev/shm/")


def _errno_of(error: BaseException) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    is_thread = isinstance(error, RuntimeError) and _NO_THREAD in str(error)
    is_library = isinstance(error, ImportError) and _NOT_MAPPED in str(error)
    return errno.ENOMEM if isinstance(error, MemoryError) or is_thread or is_library else None


def _what(error: BaseException, code: int) -> str:
    """Return what failed: the kernel's words, those of the call that added an offset to them."""
    if code == errno.ENOMEM:
        return "out of memory"
    words = error.strerror if isinstance(error, OSError) else None
    return words or os.strerror(code)
