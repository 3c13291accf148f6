"""The folders that hold our data on a target: claimed by a marker, emptied by a manifest.

All data lies in ``<target>/wattload-data/<workload>-<12 hex>/``, where the 12 digits begin the
SHA-256 of the canonical JSON of the workload's parameters and seed. Beside the data lie:

* ``.wattload-marker.json``: whose folder it is and how its data was made;
* ``.wattload-manifest-<part>.jsonl``: one line per file, one part per rank; each line is on the
  disk before the call that wrote it returns, and a torn last line counts as not written;
* ``.wattload-sealed.json``: written when the data is complete.

Files are removed only if they are listed under a valid marker; the walk goes by descriptors and
follows no symbolic link. Whatever else lies there stays, and ``foreign`` names it.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from wattload.core.errors import DataError, TargetError
from wattload.core.target import DATA_FOLDER_NAME
from wattload.loaders.datafolder.manifest import (
    ManifestEntry,
    ManifestPart,
    is_manifest_name,
    read_parts,
)
from wattload.loaders.datafolder.marker import (
    MARKER_NAME,
    claim_marker,
    make_folders,
    marker_of,
    read_marker,
    require_marker,
)
from wattload.loaders.datafolder.safefiles import (
    open_folder,
    open_regular,
    read_text,
    regular_size,
    remove_folder,
    remove_listed,
    walk_names,
    write_durably,
)

__all__ = ["DataFolder", "ManifestEntry", "list_folders"]

SEAL_NAME = ".wattload-sealed.json"


class DataFolder:
    """One data folder of one workload; open it with ``claim``.

    Both ``entries`` and ``reserved`` are as of the last ``reload``, or of their first use, plus
    what this object did since. Safe for several threads; several processes
    each use their own ``part``.
    """

    def __init__(self, path: Path, key: str, *, part: int = 0) -> None:
        self.path = path
        self.key = key
        self._lock = threading.Lock()
        self._lists: tuple[dict[str, ManifestEntry], set[str]] | None = None
        self._lock_descriptor: int | None = None
        self._part = ManifestPart(path, part)

    @classmethod
    def claim(
        cls,
        target_path: Path,
        workload: str,
        parameters: Mapping[str, object],
        *,
        seed: int,
        part: int = 0,
    ) -> Self:
        """Make the folder for these parameters and seed, or reopen it.

        With several ranks, rank 0 claims first; the others follow after a barrier, each with its
        own ``part``.

        Raises:
            TargetError: the target is missing, not a directory, or can't be written.
            DataError: the folder is somebody else's, or was made with other parameters.
        """
        marker = marker_of(workload, parameters, seed)
        key = str(marker["key"])
        path = target_path / DATA_FOLDER_NAME / key
        try:
            make_folders(target_path, key)
            claim_marker(path, marker)
        except (DataError, TargetError):
            raise
        except OSError as error:
            raise TargetError(
                f"{target_path} can't hold data: {error.strerror}; "
                "choose a target that exists, is writable and has space, with target.path="
            ) from error
        folder = cls(path, key, part=part)
        folder.reload()
        return folder

    @property
    def entries(self) -> dict[str, ManifestEntry]:
        """The size and digest of each listed file by name (relative, with ``/``).

        Raises ``DataError`` on first use for a manifest that can't be read.
        """
        with self._lock:
            return self._listed()[0]

    @property
    def reserved(self) -> set[str]:
        """The names that were announced and not yet recorded.

        Raises ``DataError`` on first use for a manifest that can't be read.
        """
        with self._lock:
            return self._listed()[1]

    def reload(self) -> None:
        """Read all parts of the manifest again, to see what other ranks have recorded.

        Raises ``DataError`` for a manifest that can't be read.
        """
        with self._lock:
            self._lists = read_parts(self.path)

    def reserve(self, name: str) -> None:
        """Announce a file before it is written, so that its torso can be removed after a crash.

        A reserved file is not valid until it is recorded. Raises ``DataError`` for a name that
        leads out of the folder or is one of our own.
        """
        self._append(name, None)

    def record(self, name: str, size_bytes: int, sha256: str | None) -> None:
        """List a finished file; the line is on the disk on return.

        Raises ``DataError`` for a name that leads out of the folder or is one of our own.
        """
        self._append(name, ManifestEntry(size_bytes=size_bytes, sha256=sha256))

    def is_valid(self, name: str) -> bool:
        """Return whether the file is listed and has its listed size on the disk."""
        entry = self.entries.get(name)
        return entry is not None and regular_size(self.path, name) == entry.size_bytes

    def seal(self) -> None:
        """Declare the data complete: what is listed now, over all parts, is all there is."""
        self.reload()
        write_durably(self.path, SEAL_NAME, json.dumps(self._summary()))

    @property
    def sealed(self) -> bool:
        """Whether the folder was sealed and lists since then the same count and bytes of files."""
        return read_text(self.path, SEAL_NAME) == json.dumps(self._summary())

    def discard(self, name: str) -> int:
        """Remove one listed or reserved file and return the bytes freed; 0 if it was gone.

        Raises ``DataError`` for a name that is not listed, or that is no regular file now.
        """
        if name not in self.entries and name not in self.reserved:
            raise DataError(f"{self.path / name} is not listed in the manifest, so it stays")
        removal = remove_listed(self.path, [name])
        if removal.left:
            raise DataError(f"{self.path / name} is no regular file any more, so it stays")
        with self._lock:
            self._part.forget(name)
            entries, reserved = self._listed()
            entries.pop(name, None)
            reserved.discard(name)
        return removal.freed_bytes

    def foreign(self) -> tuple[str, ...]:
        """Return the names in the folder that are not ours, sorted; folders end in ``/``."""
        ours = self.entries.keys() | self.reserved
        parents = {str(parent) + "/" for name in ours for parent in Path(name).parents}
        return tuple(
            name
            for name in sorted(walk_names(self.path))
            if name not in ours and name not in parents and not self._is_kept(name)
        )

    def lock(self) -> None:
        """Keep other runs away until ``close``, ``remove`` or the end of this process.

        Raises ``DataError`` where another run holds the folder.
        """
        with open_folder(self.path) as folder:
            descriptor = open_regular(MARKER_NAME, os.O_RDONLY, folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise DataError(
                f"{self.path} is in use by another run; wait for it, or choose another target"
            ) from error
        self._lock_descriptor = descriptor

    def empty(self) -> int:
        """Remove the listed files of all parts and the list, and return the bytes of data freed.

        Raises ``DataError`` if the marker is not valid any more.
        """
        require_marker(self.path)
        self.reload()
        removal = remove_listed(self.path, sorted(self.entries.keys() | self.reserved))
        with self._lock:
            self._part.close()
        own = {name for name in walk_names(self.path) if _is_own(name)}
        remove_listed(self.path, own - {MARKER_NAME})
        self.reload()
        return removal.freed_bytes

    def remove(self) -> int:
        """Remove the listed files, then, if nothing else is left, the folder itself.

        Returns the bytes of data freed. Where foreign files stay, so does the marker: the folder
        remains ours, and ``foreign`` names them.

        Raises ``DataError`` if the marker is not valid any more.
        """
        freed_bytes = self.empty()
        if set(walk_names(self.path)) <= {MARKER_NAME}:
            remove_listed(self.path, [MARKER_NAME])
            remove_folder(self.path)
        self.close()
        return freed_bytes

    def close(self) -> None:
        """Give the manifest's descriptor and the lock back; the first is reopened when needed."""
        with self._lock:
            self._part.close()
            if self._lock_descriptor is not None:
                os.close(self._lock_descriptor)
                self._lock_descriptor = None

    def _append(self, name: str, entry: ManifestEntry | None) -> None:
        if _is_own(name):
            raise DataError(f"{name}: this name is kept for the folder's own files")
        with self._lock:
            entries, reserved = self._listed()
            self._part.append(name, entry)
            if entry is None:
                entries.pop(name, None)
                reserved.add(name)
            else:
                reserved.discard(name)
                entries[name] = entry

    def _listed(self) -> tuple[dict[str, ManifestEntry], set[str]]:
        """Return entries and reserved names, read if they were not; call it with the lock held."""
        if self._lists is None:
            self._lists = read_parts(self.path)
        return self._lists

    def _is_kept(self, name: str) -> bool:
        return _is_own(name) and regular_size(self.path, name) is not None

    def _summary(self) -> dict[str, int]:
        sizes = [entry.size_bytes for entry in self.entries.values()]
        return {"file_count": len(sizes), "data_bytes": sum(sizes)}


def list_folders(target_path: Path) -> tuple[DataFolder, ...]:
    """Return the data folders under a target that have a valid marker, by name.

    Their manifests are not read yet: one that can't be read is an error only to who needs it.
    """
    data_path = target_path / DATA_FOLDER_NAME
    if not data_path.is_dir() or data_path.is_symlink():
        return ()
    return tuple(
        DataFolder(path, path.name)
        for path in sorted(data_path.iterdir())
        if not path.is_symlink() and path.is_dir() and read_marker(path) is not None
    )


def _is_own(name: str) -> bool:
    own = {MARKER_NAME, SEAL_NAME, f"{MARKER_NAME}.tmp", f"{SEAL_NAME}.tmp"}
    return name in own or is_manifest_name(name)
