"""The manifest of a data folder: JSON lines, appended and fsynced, in one part per rank."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattload.core.errors import DataError
from wattload.loaders.datafolder.safefiles import (
    checked_parts,
    open_folder,
    open_regular,
    read_text,
)

MANIFEST_PREFIX = ".wattload-manifest-"
MANIFEST_SUFFIX = ".jsonl"

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One finished file: its size in bytes and its SHA-256, ``None`` if it was not hashed."""

    size_bytes: int
    sha256: str | None


class ManifestPart:
    """The part of a manifest that one rank writes.

    Lines are ``{"name", "size_bytes", "sha256"}`` for a finished file, ``{"name", "reserved"}`` for
    one announced, ``{"name", "removed"}`` for one taken away; the last line on a name holds.
    """

    def __init__(self, folder: Path, part: int) -> None:
        self._folder = folder
        self._name = f"{MANIFEST_PREFIX}{part}{MANIFEST_SUFFIX}"
        self._descriptor: int | None = None

    def append(self, name: str, entry: ManifestEntry | None) -> None:
        """Add a finished file, or with no entry an announced one; durable on return."""
        checked_parts(name)
        if entry is None:
            self._write({"name": name, "reserved": True})
        else:
            self._write({"name": name, "size_bytes": entry.size_bytes, "sha256": entry.sha256})

    def forget(self, name: str) -> None:
        """Note that a file was taken away; durable on return."""
        self._write({"name": name, "removed": True})

    def close(self) -> None:
        """Give the descriptor back; the next line reopens it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, line: dict[str, Any]) -> None:
        """Append a whole line and wait for the disk; on an error the part is as it was before."""
        if self._descriptor is None:
            self._descriptor = self._open()
        size_bytes = _cut_torn_line(self._descriptor)
        try:
            _write_all(self._descriptor, (json.dumps(line) + "\n").encode())
            os.fsync(self._descriptor)
        except OSError as error:
            # A line of which the caller was told that it is not there must not come back.
            with suppress(OSError):
                os.ftruncate(self._descriptor, size_bytes)
            path = self._folder / self._name
            raise OSError(error.errno, error.strerror, str(path)) from error

    def _open(self) -> int:
        with open_folder(self._folder) as folder:
            descriptor = open_regular(self._name, _FLAGS, folder)
            os.fsync(folder)
        return descriptor


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes: where space runs out, the kernel takes a part first and refuses the rest."""
    while data:
        data = data[os.write(descriptor, data) :]


def _cut_torn_line(descriptor: int) -> int:
    """Cut a last line without its end off, lest the next be glued to it; returns the bytes left."""
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes == 0 or os.pread(descriptor, 1, size_bytes - 1) == b"\n":
        return size_bytes
    size_bytes = os.pread(descriptor, size_bytes, 0).rfind(b"\n") + 1
    os.ftruncate(descriptor, size_bytes)
    return size_bytes


def is_manifest_name(name: str) -> bool:
    """Return whether this is the file name of a manifest part."""
    return name.startswith(MANIFEST_PREFIX) and name.endswith(MANIFEST_SUFFIX)


def read_parts(folder: Path) -> tuple[dict[str, ManifestEntry], set[str]]:
    """Return the finished files and the announced names of all parts of a manifest.

    A name that one part lists as finished and another took away counts as finished: whoever asks
    looks at the file as well. Raises ``DataError`` for a line that is no line of a manifest; a last
    line without its end is ignored.
    """
    entries: dict[str, ManifestEntry] = {}
    reserved: set[str] = set()
    if not folder.is_dir():
        return entries, reserved
    names = sorted(path.name for path in folder.iterdir())
    for part in filter(is_manifest_name, names):
        for name, entry in _read_part(folder, part).items():
            if entry is None:
                reserved.add(name)
            else:
                entries[name] = entry
    return entries, reserved - entries.keys()


def _read_part(folder: Path, part: str) -> dict[str, ManifestEntry | None]:
    """Return the state of each name after the last line of one part; ``None`` is announced."""
    states: dict[str, ManifestEntry | None] = {}
    *lines, _torn = (read_text(folder, part) or "").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            fields = json.loads(line)
            name = str(fields["name"])
            checked_parts(name)
            if fields.get("removed"):
                states.pop(name, None)
            elif fields.get("reserved"):
                states[name] = None
            else:
                states[name] = _entry(fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{folder / part}, line {number}: not a line of a manifest ({error}); "
                "remove the folder by hand if its data is not needed"
            ) from error
    return states


def _entry(fields: dict[str, Any]) -> ManifestEntry:
    size_bytes, sha256 = fields["size_bytes"], fields["sha256"]
    if not isinstance(size_bytes, int) or not isinstance(sha256, str | None):
        raise TypeError("size_bytes is a whole number and sha256 a text or null")
    return ManifestEntry(size_bytes=size_bytes, sha256=sha256)
