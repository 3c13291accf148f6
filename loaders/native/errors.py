"""From the engine's error codes to exceptions, each one sentence with the file and the offset."""

from __future__ import annotations

import errno
import os

from wattload.core.errors import ConfigError, DataError, TargetError
from wattload.loaders.aligned import refuses_direct
from wattload.loaders.native import library


class UnavailableError(ConfigError):
    """A backend can't run here: the message is a half sentence that says why."""


def exception(error: library.Error) -> Exception:
    """Return what a failed call or job is to raise; ``error.code`` is not ``OK``."""
    path, text = os.fsdecode(error.path), error.text.decode("utf-8", "replace")
    place = "" if error.offset == library.NO_OFFSET else f" at offset {error.offset}"
    if error.code > 0:
        verb, _, reason = text.partition(": ")
        reason = reason or os.strerror(error.code)
        return OSError(error.code, f"{verb}{place} failed: {reason}", path)
    kinds: dict[int, Exception] = {
        library.SHORT_READ: DataError(
            f"{path} is truncated: it ends at offset {error.offset}, before an extent that is to "
            "be read; remove the data folder to have it made again"
        ),
        library.CHANGED: DataError(
            f"{path} changed while it was read (its size, mtime or ctime), so what was read is no "
            "one version of it; leave the data alone during a run"
        ),
        library.NOT_DIRECT: TargetError(refuses_direct(path)),
        library.SHORT_WRITE: OSError(errno.EIO, f"write{place} failed: {text}", path),
        library.UNAVAILABLE: UnavailableError(text),
    }
    return kinds.get(error.code) or ConfigError(f"{path + ': ' if path else ''}{text}")
