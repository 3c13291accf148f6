"""Removal, listing and small durable writes in a data folder: by descriptor, no link followed.

A data folder is two levels under its target (``<target>/wattload-data/<key>``). The target may be
reached through symbolic links, since the user chose it; nothing below it may.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import DataError

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of a removal: bytes of file data freed, and the listed names that were kept.

    A name is kept if a folder, a link or a device is in its place.
    """

    freed_bytes: int
    left: tuple[str, ...]


def checked_parts(name: str) -> tuple[str, ...]:
    """Return the components of a relative file name.

    Raises:
        DataError: the name is empty or absolute, or leads out of its folder.
    """
    parts = tuple(name.split("/"))
    if any(part in {"", ".", ".."} or "\0" in part for part in parts):
        raise DataError(
            f"{name!r} is not the name of a file inside a data folder; "
            "names are relative, without empty, . or .. components"
        )
    return parts


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; raises ``OSError`` if the kernel refuses."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_folder(path: Path, below: Iterable[str] = ()) -> Iterator[int]:
    """Open a data folder, or the folder ``below`` it, and yield its descriptor.

    Raises:
        OSError: a component is a symbolic link (``ELOOP`` or ``ENOTDIR``).
    """
    with descend(path.parent.parent, (path.parent.name, path.name, *below)) as descriptor:
        yield descriptor


@contextmanager
def descend(start: Path, parts: Iterable[str]) -> Iterator[int]:
    """Open the folder at ``parts`` below ``start``, and yield its descriptor.

    Raises:
        OSError: one of the parts is a symbolic link (``ELOOP`` or ``ENOTDIR``).
    """
    descriptor = os.open(start, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            above = descriptor
            descriptor = os.open(part, _FOLDER_FLAGS, dir_fd=above)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(name: str, flags: int, folder: int) -> int:
    """Open a regular file in an open folder and return its descriptor; a new one gets mode 0644.

    Raises:
        OSError: ``ELOOP`` for a symbolic link, ``EISDIR`` for a folder, ``EINVAL`` or ``ENXIO`` for
            a pipe, a socket or a device.
    """
    # Without O_NONBLOCK, opening a pipe without another end would block forever. The flag has no
    # effect on a regular file.
    flags |= os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o644, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return descriptor


def regular_size(path: Path, name: str) -> int | None:
    """Return the size in bytes of a regular file in the folder; ``None`` for anything else."""
    try:
        status = os.lstat(path / name)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def read_text(path: Path, name: str) -> str | None:
    """Return the text of a small file in the folder, ``None`` if it does not exist.

    Raises:
        DataError: it is a link, a folder, a pipe or the like, or not UTF-8.
    """
    try:
        with open_folder(path) as folder:
            descriptor = open_regular(name, os.O_RDONLY, folder)
        with os.fdopen(descriptor, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path / name} can't be read: {error}") from error


def write_durably(path: Path, name: str, text: str) -> None:
    """Write a small file under a temporary name, fsync it, rename it and fsync the folder."""
    temporary = f"{name}.tmp"
    with open_folder(path) as folder:
        descriptor = open_regular(temporary, _CREATE_FLAGS, folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)


def walk_names(path: Path) -> Iterator[str]:
    """Yield all names below the folder, relative to it; folders end in ``/``, links do not."""
    try:
        with open_folder(path) as folder:
            for root, folders, files, descriptor in os.fwalk(dir_fd=folder):
                prefix = os.path.relpath(root, ".") + "/" if root != "." else ""
                for name in folders:
                    mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
                    yield prefix + name + ("/" if stat.S_ISDIR(mode) else "")
                for name in files:
                    yield prefix + name
    except FileNotFoundError:
        return


def remove_listed(path: Path, names: Iterable[str]) -> Removal:
    """Remove regular files by name, then the parent folders that this left empty.

    A missing name frees nothing.

    Raises:
        DataError: a name leads out of the folder.
        OSError: the kernel refuses a removal (read-only, no permission).
    """
    freed_bytes = 0
    left: list[str] = []
    parents: set[tuple[str, ...]] = set()
    for name in names:
        *above, last = checked_parts(name)
        parents.update(tuple(above[:depth]) for depth in range(1, len(above) + 1))
        freed = _remove_file(path, above, last)
        if freed is None:
            left.append(name)
        else:
            freed_bytes += freed
    for parent in sorted(parents, key=len, reverse=True):
        _remove_if_empty(path, parent)
    return Removal(freed_bytes, tuple(left))


def remove_folder(path: Path) -> None:
    """Remove an empty data folder; raises ``OSError`` if it is not empty."""
    with descend(path.parent.parent, (path.parent.name,)) as above:
        os.rmdir(path.name, dir_fd=above)


def _remove_file(path: Path, above: Iterable[str], last: str) -> int | None:
    """Remove one regular file; return its size, 0 if it is missing, ``None`` if not regular."""
    try:
        with open_folder(path, above) as folder:
            status = os.stat(last, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                return None
            os.unlink(last, dir_fd=folder)
            return status.st_size
    except FileNotFoundError:
        return 0
    except NotADirectoryError:  # O_DIRECTORY with O_NOFOLLOW on a link
        return None


def _remove_if_empty(path: Path, parent: tuple[str, ...]) -> None:
    # Not empty, missing, or replaced by a link: in each case nothing of ours is left to remove.
    with suppress(OSError), open_folder(path, parent[:-1]) as folder:
        os.rmdir(parent[-1], dir_fd=folder)
