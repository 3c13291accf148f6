"""A run's folder until its record is written, also by whoever finds it after the run was killed.

The folder appears under its name with all of this inside: the draft of the record, the owner (host
and boot), a lock that the run's first rank holds as long as it lives, and a reserve of space, which
is given up when the record is written. Readers can't take the lock: only its owner can open it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from wattload.core.clock import boot_id
from wattload.core.errors import DataError
from wattload.core.files import Folder, LockHeldError, choose_folder, open_folder
from wattload.core.record.file import DRAFT_FILE, RECORD_FILE

LOCK_FILE = "run.lock"
OWNER_FILE = "owner.json"
RESERVE_FILE = "reserve"

RESERVE_BYTES = 16 << 20
"""More than the record and the traces of a run of hours have."""

UNFINISHED = "it is running or was interrupted"

_UNBORN = ".new"
_UNBORN_NAME = re.compile(r"\..+\.new")
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_unfinished(folder: Path) -> bool:
    """Return whether a run's folder has no record yet: its run lives, or ended without one.

    False for a folder that another user has closed.
    """
    # The methods of Path raise an error for such a folder.
    is_drafted = os.path.isfile(folder / DRAFT_FILE)  # noqa: PTH113 - never raises
    return is_drafted and not os.path.exists(folder / RECORD_FILE)  # noqa: PTH110 - nor this


def unfinished_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the unfinished runs among run folders and in folders of them, by name."""
    found = []
    for path in paths:
        if is_unfinished(path):
            found.append(path)
            continue
        with suppress(OSError):
            folders = sorted(each for each in path.iterdir() if not each.name.startswith("."))
            found += filter(is_unfinished, folders)
    return found


def unborn_folder(folder: Path) -> Path:
    """Return the name under which a run's folder is filled before it appears."""
    return folder.with_name(f".{folder.name}{_UNBORN}")


def remove_unborn(runs: Path) -> None:
    """Remove folders of runs that were killed before their folder appeared."""
    with suppress(OSError), choose_folder(runs) as above:
        for name in filter(_UNBORN_NAME.fullmatch, above.names()):
            with _locked_of_the_dead(runs / name, is_born=False) as folder:
                if not isinstance(folder, str):
                    above.remove_folder(name, folder)


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
    with suppress(OSError, DataError), open_folder(folder) as opened:
        opened.remove(RESERVE_FILE)


def remove_marks(folder: Folder) -> None:
    """Remove what shows that a run is unfinished, except for its draft."""
    folder.remove(RESERVE_FILE, OWNER_FILE, LOCK_FILE)


@contextmanager
def abandoned(folder: Path) -> Iterator[Folder | str]:
    """Yield the folder of a run that ended without a record, or why it must be left alone.

    The run's lock is then held during the block. A run of another host is left alone: whether that
    host lives can't be known here. The same host is the same boot, or the same name in another
    boot, which no process survives. If the folder does not say which host it was, the lock decides:
    the owner file was lost, or was deleted because that host is gone.
    """
    with _locked_of_the_dead(folder, is_born=True) as opened:
        is_recorded = isinstance(opened, Folder) and RECORD_FILE in opened.names()
        yield "it has a record by now" if is_recorded else opened


def unfinished_reason(folder: Path) -> str:
    """Return a clause on a folder without a record: which host its run is of, and what to do."""
    host = None
    with suppress(DataError, OSError), open_folder(folder) as opened:
        host = _other_host(_owner(opened))
    return _unfinished_on(host)


def _unfinished_on(host: str | None) -> str:
    if host is None:
        return f"{UNFINISHED}; `wattload check` on its folder records an interrupted run"
    return (
        f"{UNFINISHED} on host {host!r}; use `wattload check` on its folder there; if that host is "
        f"gone, delete its {OWNER_FILE} and use it here"
    )


@contextmanager
def _locked_of_the_dead(folder: Path, *, is_born: bool) -> Iterator[Folder | str]:
    """Yield a run's folder, locked, if no process works in it; or why it must be left alone.

    A folder that ``is_born`` has all of its files, so one without an owner is not being made now.
    The folder stays open, so that nobody can put another one in its place.
    """
    with ExitStack() as held:
        found: Folder | str
        try:
            found = held.enter_context(open_folder(folder))
            owner = _owner(found)
            if _other_host(owner) is not None or (owner is None and not is_born):
                found = _unfinished_on(_other_host(owner))
            else:
                held.callback(found.lock(LOCK_FILE).release)
        except LockHeldError as error:
            found = f"it is running ({error.strerror})"
        except (DataError, OSError) as error:
            found = f"{UNFINISHED}, and an interrupted run can't be recorded here: {error}"
        yield found


def _owner(folder: Folder) -> tuple[str, str] | None:
    """Return the host and the boot that make a run; ``None`` if the folder does not say."""
    content = folder.read(OWNER_FILE)
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
