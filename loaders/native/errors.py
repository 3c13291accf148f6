"""From the engine's error codes to exceptions, each one sentence with the file and the offset."""

from __future__ import annotations

import errno
import os

from wattload.core.errors import ConfigError, DataError, TargetError
from wattload.loaders.aligned import refuses_direct
from wattload.loaders.native import library


def exception(error: library.Error) -> Exception:
    """Return what a failed call or job is to raise; ``error.code`` is not ``OK``."""
    path, text = os.fsdecode(error.path), error.text.decode("utf-8", "replace")
    place = "" if error.offset == library.NO_OFFSET else f" at offset {error.offset}"
    if error.code > 0:
        verb, _, reason = text.partition(": ")
        return OSError(
            error.code, f"{verb}{place} failed: {reason or os.strerror(error.code)}", path
        )
    if error.code == library.SHORT_READ:
        return DataError(
            f"{path} is truncated: it ends at offset {error.offset}, before an extent that is to "
            "be read; remove the data folder to have it made again"
        )
    if error.code == library.CHANGED:
        return DataError(f"{path} changed while it was read: {text}; leave it alone during a run")
    if error.code == library.NOT_DIRECT:
        return TargetError(refuses_direct(path))
    if error.code == library.SHORT_WRITE:
        return OSError(errno.EIO, f"write{place} failed: {text}", path)
    return ConfigError(f"{path + ': ' if path else ''}{text}")
