"""Data folders on a target: claimed by a marker, emptied by a manifest.

All data is in ``<target>/wattload-data/<workload>-<12 hex>/``, where the 12 digits begin the
SHA-256 of the canonical JSON of the workload's parameters and seed. The folder also has:

* ``.wattload-marker.json``: the owner of the folder, and how its data was generated;
* ``.wattload-manifest-<part>.jsonl``: one line per file, one part per rank. Each line is on the
  disk before the call that wrote it returns; a torn last line counts as not written;
* ``.wattload-sealed.json``: written when the data is complete;
* ``.wattload-verified.json``: what ``digests`` verified, and the state of the files then.

Files are removed only if they are listed under a valid marker; see ``wattload.core.files`` for how
they are opened. All other files stay, and ``foreign`` lists them.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from pydantic_core import from_json

from wattload.core.errors import DataError, TargetError
from wattload.core.files import (
    Folder,
    Removal,
    checked_parts,
    choose_folder,
    naming,
    open_folder,
    remove_listed,
    temporary_for,
    walk_names,
)
from wattload.core.storage.targets import DATA_FOLDER_NAME, Target

MANIFEST_PREFIX = ".wattload-manifest-"
MANIFEST_SUFFIX = ".jsonl"
TEMPORARY_SUFFIX = ".tmp"
MARKER_NAME = ".wattload-marker.json"
SEAL_NAME = ".wattload-sealed.json"
VERIFIED_NAME = ".wattload-verified.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One finished file: its size in bytes and its SHA-256, ``None`` if it was not hashed.

    ``line_count`` is the number of lines of a text file. ``result`` is JSON that its maker needs in
    order to use the file again.
    """

    size_bytes: int
    sha256: str | None
    line_count: int | None = None
    result: Mapping[str, Any] | None = None


class ManifestPart:
    """The part of a manifest that one rank writes.

    Lines are ``{"name", "size_bytes", "sha256"}`` for a finished file (with ``"line_count"`` and
    ``"result"`` where it has them), ``{"name", "reserved"}`` for an announced one, ``{"name",
    "removed"}`` for a removed one; the last line on a name counts.
    """

    def __init__(self, folder: Path, part: int) -> None:
        self._folder = folder
        self._name = f"{MANIFEST_PREFIX}{part}{MANIFEST_SUFFIX}"
        self._descriptor: int | None = None

    def append(self, entries: Mapping[str, ManifestEntry], *gone: str) -> None:
        """Add finished files, and note that others are ``gone``; all durable on return."""
        lines: list[dict[str, Any]] = []
        for name, entry in entries.items():
            checked_parts(name)
            fields = {"size_bytes": entry.size_bytes, "sha256": entry.sha256}
            rest = {"line_count": entry.line_count, "result": entry.result}
            known = {key: value for key, value in rest.items() if value is not None}
            lines.append({"name": name, **fields, **known})
        self._write(*lines, *({"name": name, "removed": True} for name in gone))

    def reserve(self, names: Sequence[str]) -> None:
        """Add announced files; all of them are durable on return."""
        for name in names:
            checked_parts(name)
        self._write(*({"name": name, "reserved": True} for name in names))

    def close(self) -> None:
        """Close the descriptor; the next line reopens it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, *lines: dict[str, Any]) -> None:
        """Append whole lines durably; after an error the part is as it was before."""
        if self._descriptor is None:
            self._descriptor = self._open()
        with naming(self._folder / self._name):
            size_bytes = _cut_torn_line(self._descriptor)
            try:
                text = "".join(json.dumps(line) + "\n" for line in lines)
                _write_all(self._descriptor, text.encode())
                os.fsync(self._descriptor)
            except OSError:
                # The caller gets an error, so the line must not be kept.
                with suppress(OSError):
                    os.ftruncate(self._descriptor, size_bytes)
                raise

    def _open(self) -> int:
        with open_data_folder(self._folder) as folder:
            descriptor = folder.append(self._name)
            folder.sync()
        return descriptor


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes: when space runs out, the kernel first accepts a part of them."""
    while data:
        data = data[os.write(descriptor, data) :]


def _cut_torn_line(descriptor: int) -> int:
    """Cut off an incomplete last line, so that the next starts a new one; return the bytes left."""
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

    A name that one part lists as finished and another as removed counts as finished: callers check
    the file as well. An incomplete last line is ignored.

    Raises:
        DataError: a line is not a valid manifest line.
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
    *lines, _torn = (_read_text(folder, part) or "").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            fields = from_json(line)
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
                f"{folder / part}, line {number}: invalid manifest line ({error}); "
                "delete the folder yourself if its data is not needed"
            ) from error
    return states


def _entry(fields: dict[str, Any]) -> ManifestEntry:
    size_bytes, sha256 = fields["size_bytes"], fields["sha256"]
    line_count = fields.get("line_count")
    if not isinstance(size_bytes, int) or not isinstance(sha256, str | None):
        raise TypeError("size_bytes must be an integer and sha256 a string or null")
    if not isinstance(line_count, int | None):
        raise TypeError("line_count must be an integer or null")
    result = fields.get("result")
    if not isinstance(result, dict | None):
        raise TypeError("result must be an object or null")
    return ManifestEntry(size_bytes=size_bytes, sha256=sha256, line_count=line_count, result=result)


def marker_of(workload: str, parameters: Mapping[str, object], seed: int) -> dict[str, Any]:
    """Return the marker for a workload's parameters and seed; ``key`` names the folder.

    Raises:
        DataError: JSON can't represent the parameters.
    """
    try:
        made_from = json.dumps({"parameters": parameters, "seed": seed}, sort_keys=True)
    except TypeError as error:
        raise DataError(f"the parameters of {workload} are not plain values: {error}") from error
    digest = hashlib.sha256(made_from.encode()).hexdigest()
    return {
        "made_by": "wattload",
        "format": _FORMAT,
        "workload": workload,
        "key": f"{workload}-{digest[:12]}",
        # Through JSON, so that it compares equal to what is read back (tuples become lists).
        **json.loads(made_from),
    }


def make_folders(target_path: Path, *below: str) -> None:
    """Create ``<target>/wattload-data``, or a folder ``below`` it, durably.

    Raises:
        TargetError: the target is missing or not a directory.
        ForeignFileError: a link, a file or a folder that is not ours is in the place of a folder.
        OSError: the kernel refuses (read-only, full, no permission).
    """
    if not target_path.is_dir():
        raise TargetError(
            f"{target_path} is not a directory; give an existing one with target.path="
        )
    with ExitStack() as opened:
        folder = opened.enter_context(choose_folder(target_path))
        for name in (DATA_FOLDER_NAME, *below):
            folder = opened.enter_context(folder.make(name))


def open_data_folder(path: Path, *below: str) -> Folder:
    """Open a data folder, or a folder ``below`` it; all folders from ``wattload-data`` on are ours.

    Raises:
        ForeignFileError: one of them is not.
        OSError: the kernel refuses, or it does not exist.
    """
    return open_folder(path.parent, path.name, *below)


def claim_marker(path: Path, marker: Mapping[str, Any]) -> None:
    """Write the marker into a new folder, or check that an existing one is equal.

    Raises:
        DataError: the folder is foreign, or was created with other parameters.
    """
    found = read_marker(path)
    if found == marker:
        return
    if found is not None:
        raise DataError(
            f"{path} was created with other parameters ({_difference(found, marker)}); "
            "remove it with `make clean`, or choose another target"
        )
    if _read_text(path, MARKER_NAME) is not None or not _is_new(path):
        raise DataError(
            f"{path} was not created by wattload (no valid {MARKER_NAME} in it), so nothing in it "
            "is changed; move it, or choose another target"
        )
    with open_data_folder(path) as folder:
        folder.write(MARKER_NAME, json.dumps(marker, indent=1))


def read_marker(path: Path) -> dict[str, Any] | None:
    """Return the valid marker of a data folder, ``None`` if there is none.

    A valid marker is a JSON object of ours in a known format, with the folder's name as its key. A
    marker that was copied to another folder is therefore invalid and permits no removal.
    """
    try:
        found = from_json(_read_text(path, MARKER_NAME) or "null")
    except (ValueError, OSError):  # DataError is a ValueError
        return None
    if not isinstance(found, dict) or found.get("made_by") != "wattload":
        return None
    return found if found.get("format") == _FORMAT and found.get("key") == path.name else None


def require_marker(path: Path) -> None:
    """Raise ``DataError`` unless the folder has a valid marker, which removal requires."""
    if read_marker(path) is None:
        raise DataError(
            f"{path} has no valid {MARKER_NAME}, so nothing in it is removed; "
            "delete it yourself if it is not needed"
        )


def _is_new(path: Path) -> bool:
    """Whether a folder without a marker is empty, or what an interrupted claim leaves."""
    return all(temporary_for(entry.name) == MARKER_NAME for entry in path.iterdir())


def _read_text(path: Path, name: str) -> str | None:
    """Return the text of a file of the folder's own, ``None`` if it does not exist.

    Raises:
        DataError: it is not ours, or not UTF-8.
    """
    try:
        with open_data_folder(path) as folder:
            content = folder.read(name)
        return None if content is None else content.decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path / name} can't be read: {error}") from error


def _names_in(path: Path) -> set[str]:
    """Return all names below a data folder; none if it does not exist."""
    try:
        with open_data_folder(path) as folder:
            return set(walk_names(folder))
    except FileNotFoundError:
        return set()


def _remove(path: Path, names: Iterable[str]) -> Removal:
    with open_data_folder(path) as folder:
        return remove_listed(folder, names)


def _regular_size(path: Path) -> int | None:
    """Return the size in bytes of a regular file; ``None`` for anything else."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    names = sorted(name for name in wanted if found.get(name) != wanted[name])
    return f"its {', '.join(names)} differ"


class DataFolder:
    """One data folder of one workload; open it with ``claim``.

    ``entries`` and ``reserved`` are as of the last ``reload``, or of their first use, plus the
    changes by this object. Safe for several threads; each process uses its own ``part``.
    """

    def __init__(self, path: Path, key: str, *, part: int = 0) -> None:
        self.path = path
        self.key = key
        self._lock = threading.Lock()
        self._lists: tuple[dict[str, ManifestEntry], set[str]] | None = None
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
        """Create the folder for these parameters and seed, or reopen it.

        With several ranks, rank 0 claims first; the others follow after a barrier, each with its
        own ``part``.

        Raises:
            TargetError: the target is missing, not a directory, or can't be written.
            DataError: the folder is foreign, or was created with other parameters.
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

    def open(self, *below: str) -> Folder:
        """Open the folder, or one ``below`` it, to write in it; see ``open_data_folder``."""
        return open_data_folder(self.path, *below)

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

    def reserve(self, *names: str) -> None:
        """Announce files that will be written, so that partial ones can be removed after a crash.

        A reserved file is not valid until it is recorded.

        Raises:
            DataError: a name leads out of the folder or is one of our own.
        """
        for name in names:
            _require_free(name)
        with self._lock:
            entries, reserved = self._listed()
            self._part.reserve(names)
            for name in names:
                entries.pop(name, None)
            reserved.update(names)

    def announce(self, name: str) -> str:
        """Reserve a file that ``publish`` will complete; return the name to create it under.

        What an interrupted call left under that name is removed.

        Raises:
            DataError: as ``reserve``.
            ForeignFileError: a link or somebody else's file has one of the names.
        """
        (temporary,) = self.announce_all([name])
        return temporary

    def announce_all(self, names: Sequence[str]) -> Sequence[str]:
        """Do for many files what ``announce`` does for one; the folders below are made."""
        temporaries = [name + TEMPORARY_SUFFIX for name in names]
        self.reserve(*names, *temporaries)
        left = [name for name in temporaries if os.path.lexists(self.path / name)]
        for name in left:
            self.discard(name)
        if left:
            self.reserve(*left)
        for below, group in groupby(names, lambda name: checked_parts(name)[:-1]):
            with self._make(*below) as folder:
                for name in group:
                    folder.require_own(name.rpartition("/")[2])
        return temporaries

    def publish(
        self,
        name: str,
        size_bytes: int,
        sha256: str | None,
        line_count: int | None = None,
        *,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        """Give an announced file, durable under its temporary name, its own one, and list it."""
        self.publish_all({name: ManifestEntry(size_bytes, sha256, line_count, result)})

    def publish_all(self, files: Mapping[str, ManifestEntry]) -> None:
        """Do for many files what ``publish`` does for one."""
        for below, group in groupby(files, lambda name: checked_parts(name)[:-1]):
            with self.open(*below) as folder:
                for last in (name.rpartition("/")[2] for name in group):
                    folder.rename(last + TEMPORARY_SUFFIX, last)
                folder.sync()
        self._record(files, *(name + TEMPORARY_SUFFIX for name in files))

    def record(
        self,
        name: str,
        size_bytes: int,
        sha256: str | None,
        line_count: int | None = None,
        *,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        """List a finished file; the line is on the disk on return.

        Raises:
            DataError: the name leads out of the folder or is one of our own.
        """
        self._record({name: ManifestEntry(size_bytes, sha256, line_count, result)})

    def _record(self, files: Mapping[str, ManifestEntry], *gone: str) -> None:
        for name in files:
            _require_free(name)
        with self._lock:
            entries, reserved = self._listed()
            self._part.append(files, *gone)
            reserved.difference_update(files, gone)
            entries.update(files)

    def is_valid(self, name: str) -> bool:
        """Return whether the file is listed and has its listed size on the disk."""
        entry = self.entries.get(name)
        return entry is not None and _regular_size(self.path / name) == entry.size_bytes

    def seal(self) -> None:
        """Declare the data complete: it consists of the files listed now, over all parts."""
        self.reload()
        with self.open() as folder:
            folder.write(SEAL_NAME, json.dumps(self._summary()))

    @property
    def sealed(self) -> bool:
        """Whether the folder is sealed and still lists the same count and bytes of files."""
        return _read_text(self.path, SEAL_NAME) == json.dumps(self._summary())

    @property
    def verified(self) -> str | None:
        """What ``digests`` wrote down about verified files, ``None`` if nothing.

        Raises ``DataError`` if it can't be read.
        """
        return _read_text(self.path, VERIFIED_NAME)

    @verified.setter
    def verified(self, text: str) -> None:
        with self.open() as folder:
            folder.write(VERIFIED_NAME, text)

    def discard(self, name: str) -> int:
        """Remove one listed or reserved file and return the bytes freed; 0 if it was missing.

        Raises:
            DataError: the name is not listed, or is no longer a regular file.
        """
        if name not in self.entries and name not in self.reserved:
            raise DataError(f"{self.path / name} is not listed in the manifest, so it is kept")
        removal = _remove(self.path, [name])
        if removal.left:
            raise DataError(f"{self.path / name} is no longer a regular file, so it is kept")
        with self._lock:
            self._part.append({}, name)
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
            for name in sorted(_names_in(self.path))
            if name not in ours and name not in parents and not self._is_kept(name)
        )

    def remove_files(self) -> Removal:
        """Remove the listed and reserved files; the manifest stays as it is."""
        listed, found = self.entries.keys() | self.reserved, _names_in(self.path)
        names = {name for name in listed if name in found or f"{name}/" in found}
        # Of names that do not exist, one in each folder: it is removed if it is empty.
        names.update({name.rpartition("/")[0]: name for name in listed}.values())
        return _remove(self.path, sorted(names))

    def empty(self) -> int:
        """Remove the listed files of all parts and the list; return the bytes of data freed.

        Raises:
            DataError: the marker is no longer valid.
        """
        require_marker(self.path)
        self.reload()
        removal = self.remove_files()
        with self._lock:
            self._part.close()
        own = {name for name in _names_in(self.path) if _is_own(name)}
        _remove(self.path, own - {MARKER_NAME})
        self.reload()
        return removal.freed_bytes

    def remove(self) -> int:
        """Remove the listed files, then, if nothing else is left, the folder itself.

        Returns the bytes of data freed. If foreign files stay, so does the marker: the folder
        remains ours, and ``foreign`` lists them.

        Raises:
            DataError: the marker is no longer valid.
        """
        freed_bytes = self.empty()
        if _names_in(self.path) <= {MARKER_NAME}:
            _remove(self.path, [MARKER_NAME])
            with open_folder(self.path.parent) as above:
                os.rmdir(self.path.name, dir_fd=above.descriptor)
        self.close()
        return freed_bytes

    def close(self) -> None:
        """Close the manifest, which is reopened when needed."""
        with self._lock:
            self._part.close()

    def _listed(self) -> tuple[dict[str, ManifestEntry], set[str]]:
        """Return entries and reserved names, read on first use; requires the lock."""
        if self._lists is None:
            self._lists = read_parts(self.path)
        return self._lists

    def _make(self, *below: str) -> Folder:
        """Open a folder below this one, made if it is missing."""
        folder = self.open()
        for name in below:
            with folder as above:
                folder = above.make(name)
        return folder

    def _is_kept(self, name: str) -> bool:
        return _is_own(name) and _regular_size(self.path / name) is not None

    def _summary(self) -> dict[str, int]:
        sizes = [entry.size_bytes for entry in self.entries.values()]
        return {"file_count": len(sizes), "data_bytes": sum(sizes)}


@contextmanager
def noting_what_remains(error: BaseException, folders: Iterable[Path]) -> Iterator[None]:
    """Let a block remove files after an error; if that fails too, note on the error what remains.

    The second failure usually has the cause of the first, so the first is the one to report.
    """
    try:
        yield
    except (OSError, DataError):
        for folder in folders:
            error.add_note(f"  left        files in {folder}; `wattload clean` deletes them")


def list_folders(target_path: Path) -> tuple[DataFolder, ...]:
    """Return the data folders under a target that have a valid marker, by name.

    Their manifests are not read yet, so an unreadable one fails only where it is used.
    """
    data_path = target_path / DATA_FOLDER_NAME
    if not _is_folder(data_path):
        return ()
    return tuple(
        DataFolder(path, path.name)
        for path in sorted(data_path.iterdir())
        if _is_folder(path) and read_marker(path) is not None
    )


def _is_folder(path: Path) -> bool:
    """Return whether a path is a folder and not a link; false where this user may not look."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def claim_on_targets(
    targets: Sequence[Target],
    workload: str,
    parameters: Mapping[str, object],
    *,
    seed: int,
    part: int,
) -> list[DataFolder]:
    """Claim the folder on every target; see ``DataFolder.claim``."""
    return [
        DataFolder.claim(target.data_folder.parent, workload, parameters, seed=seed, part=part)
        for target in targets
    ]


def existing_on_targets(targets: Sequence[Target], key: str) -> list[DataFolder | None]:
    """Return each target's folder with this key, ``None`` where there is none; makes nothing."""
    return [
        next((each for each in list_folders(target.data_folder.parent) if each.key == key), None)
        for target in targets
    ]


def _require_free(name: str) -> None:
    """Raise ``DataError`` for a name that is one of our own."""
    if _is_own(name):
        raise DataError(f"{name}: this name is reserved for the folder's own files")


def _is_own(name: str) -> bool:
    own = temporary_for(name) or name
    return own in {MARKER_NAME, SEAL_NAME, VERIFIED_NAME} or is_manifest_name(name)
