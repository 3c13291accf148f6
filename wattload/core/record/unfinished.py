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

UNFINISHED = "it is running or was interrupted"

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
        with _lock_of_the_dead(folder, is_born=False) as why_not:
            if not why_not:
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
def abandoned(folder: Path) -> Iterator[str]:
    """Yield why a run's folder must be left alone; empty if the run ended without a record.

    The run's lock is then held during the block. A run of another host is left alone: whether that
    host lives can't be known here. The same host is the same boot, or the same name in another
    boot, which no process survives. If the folder does not say which host it was, the lock decides:
    the owner file was lost, or was deleted because that host is gone.
    """
    with _lock_of_the_dead(folder, is_born=True) as why_not:
        yield why_not or ("" if is_unfinished(folder) else "it has a record by now")


def unfinished_reason(folder: Path) -> str:
    """Return a clause on a folder without a record: which host its run is of, and what to do."""
    host = None
    with suppress(DataError, OSError):
        host = _other_host(_owner(folder))
    if host is None:
        return f"{UNFINISHED}; `wattload check` on its folder records an interrupted run"
    return (
        f"{UNFINISHED} on host {host!r}; use `wattload check` on its folder there; if that host is "
        f"gone, delete its {OWNER_FILE} and use it here"
    )


@contextmanager
def _lock_of_the_dead(folder: Path, *, is_born: bool) -> Iterator[str]:
    """Yield why a run's folder must be left alone; empty if no process works in it.

    A folder that ``is_born`` has all of its files, so one without an owner is not being made now.
    """
    lock, why_not = None, ""
    try:
        owner = _owner(folder)
        if _other_host(owner) is not None or (owner is None and not is_born):
            why_not = unfinished_reason(folder)
        else:
            with open_folder(folder) as opened:
                lock = opened.lock(LOCK_FILE)
    except LockHeldError as error:
        why_not = f"it is running ({error.strerror})"
    except (DataError, OSError) as error:
        why_not = f"{UNFINISHED}, and an interrupted run can't be recorded here: {error}"
    try:
        yield why_not
    finally:
        if lock is not None:
            lock.release()


def _owner(folder: Path) -> tuple[str, str] | None:
    """Return the host and the boot that make a run; ``None`` if the folder does not say."""
    with open_folder(folder) as opened:
        content = opened.read(OWNER_FILE)
    try:
        owner = json.loads(content or b"")
        host, boot = owner["host"], owner["boot_id"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return (str(host), str(boot)) if host and boot else None


def _other_host(owner: tuple[str, str] | None) -> str | None:
    """Return the name of the owner's host if that is not this one."""
    if owner is None or owner[1] == boot_id() or owner[0] == socket.gethostname():
        return None
    return owner[0]
