"""A run's folder until its record is written, also by whoever finds it after the run was killed.

The folder appears under its name with all of this inside: the draft of the record, the owner (host
and boot), a lock that the run's first rank holds as long as it lives, and a reserve of space, which
is given up when the record is written. Readers can't take the lock: only its owner can open it.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree

from wattload.core.clock import boot_id
from wattload.core.errors import DataError
from wattload.core.files import Folder, LockHeldError, open_folder
from wattload.core.record.file import DRAFT_FILE, RECORD_FILE

LOCK_FILE = "run.lock"
OWNER_FILE = "owner.json"
RESERVE_FILE = "reserve"

RESERVE_BYTES = 16 << 20
"""More than the record and the traces of a run of hours have."""

_UNBORN = ".new"
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_unfinished(folder: Path) -> bool:
    """Return whether a run's folder has no record yet: its run lives, or ended without one."""
    return (folder / DRAFT_FILE).is_file() and not (folder / RECORD_FILE).exists()


def unfinished_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the unfinished runs among run folders and in folders of them, by name."""
    found = []
    for path in paths:
        if is_unfinished(path):
            found.append(path)
        elif path.is_dir():
            with suppress(OSError):
                found += sorted(
                    folder
                    for folder in path.iterdir()
                    if not folder.name.startswith(".") and is_unfinished(folder)
                )
    return found


def unborn_folder(folder: Path) -> Path:
    """Return the name under which a run's folder is filled before it appears."""
    return folder.with_name(f".{folder.name}{_UNBORN}")


def remove_unborn(runs: Path) -> None:
    """Remove folders of runs that were killed before their folder appeared."""
    for folder in runs.glob(f".*{_UNBORN}"):
        with _lock_of_the_dead(folder) as is_dead:
            if is_dead:
                rmtree(folder, ignore_errors=True)


def write_owner(folder: Folder) -> None:
    """Write down which host makes the run, and in which boot of it."""
    document = {"host": socket.gethostname(), "boot_id": boot_id()}
    folder.write(OWNER_FILE, json.dumps(document) + "\n")


def reserve_space(folder: Folder) -> None:
    """Reserve the space of the record; does nothing on a file system that reserves none.

    Raises:
        OSError: there is not enough space, or a quota or the limit on the size of files is lower.
    """
    with os.fdopen(folder.create(RESERVE_FILE), "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise


def release_space(folder: Path) -> None:
    """Give up the reserved space, in which the record is then written."""
    with suppress(OSError):
        (folder / RESERVE_FILE).unlink()


def remove_marks(folder: Path) -> None:
    """Remove what shows that a run is unfinished, except for its draft."""
    for name in (RESERVE_FILE, OWNER_FILE, LOCK_FILE):
        with suppress(OSError):
            (folder / name).unlink()


@contextmanager
def abandoned(folder: Path) -> Iterator[bool]:
    """Yield whether the run ended without a record; if so, its lock is held during the block.

    A run of another host is never abandoned: whether that host lives can't be known here. The same
    host is the same boot, or the same name in another boot, which no process survives.
    """
    with _lock_of_the_dead(folder) as is_dead:
        yield is_dead and is_unfinished(folder)


@contextmanager
def _lock_of_the_dead(folder: Path) -> Iterator[bool]:
    """Yield whether no process of this host, and none of another, works in a run's folder."""
    lock = None
    with suppress(LockHeldError, DataError, OSError):
        if _is_of_this_host(folder):
            with open_folder(folder) as opened:
                lock = opened.lock(LOCK_FILE)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


def _is_of_this_host(folder: Path) -> bool:
    with open_folder(folder) as opened:
        content = opened.read(OWNER_FILE)
    try:
        owner = json.loads(content or b"")
        host, boot = owner["host"], owner["boot_id"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return False
    return bool(boot) and (boot == boot_id() or host == socket.gethostname())
