"""What was changed on a drive and must be undone, on disk before the change is made.

One file per controller in a folder of the whole host, keyed by serial: a drive keeps its name in
no reboot. An entry is written and fsynced before Set Features is sent and removed when the old
state has been read back, so whatever process starts next can finish the work of one that died.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from wattload.core.errors import PowerError

SCHEMA_VERSION = 1
_SUFFIX = ".json"
_PREFIX = "power-state-"

Owner = Literal["run", "user"]
"""Who made a change: a run, undone at the next start, or ``power set``, kept until restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One change of a power state that is not undone yet.

    ``old_state`` is what to go back to, ``new_state`` what was asked for. ``boot_id`` tells whether
    the host has restarted since, which resets the drive by itself.
    """

    serial: str
    device_name: str
    owner: Owner
    old_state: int
    new_state: int
    run_id: str
    boot_id: str
    time_utc: str


def default_state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where changes are journalled: one folder for all runs of this host and user."""
    named = environment.get("WATTLOAD_STATE_DIR")
    if named:
        return Path(named)
    if os.geteuid() == 0 and os.access("/var/lib", os.W_OK):
        return Path("/var/lib/wattload")
    base = environment.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local/state") / "wattload"


def boot_id() -> str:
    """Return the kernel's name for this boot; empty where it tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Journal:
    """The open changes of a host, and the locks that keep two runs off one controller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, entry: Entry) -> None:
        """Store an entry so that it survives a power cut; replaces the owner's earlier one.

        Raises:
            PowerError: the folder can't be written, so the change must not be made.
        """
        path = self._path(entry.serial, entry.owner)
        temporary = path.with_suffix(".tmp")
        try:
            self._make_folder()
            with temporary.open("w", encoding="utf-8") as file:
                json.dump({"schema_version": SCHEMA_VERSION, **asdict(entry)}, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            self._sync_folder()
        except OSError as error:
            raise PowerError(
                f"{path} can't be written ({error.strerror}), so the drive is left alone; name a "
                "writable folder in WATTLOAD_STATE_DIR"
            ) from error

    def read(self, serial: str, owner: Owner) -> Entry | None:
        """Return the open entry of a controller, or ``None``.

        Raises:
            PowerError: it is spoilt, which no death of ours can do.
        """
        path = self._path(serial, owner)
        return _read(path) if path.exists() else None

    def serials(self, owner: Owner) -> list[str]:
        """Return the serials of the controllers that have an open entry of this owner."""
        ending = f".{owner}{_SUFFIX}"
        names = (path.name for path in self.folder.glob(f"{_PREFIX}*{ending}"))
        return sorted(unquote(name[len(_PREFIX) : -len(ending)]) for name in names)

    def remove(self, entry: Entry) -> None:
        """Close an entry: what it describes is undone. Safe to call twice."""
        path = self._path(entry.serial, entry.owner)
        if path.exists():
            path.unlink()
            self._sync_folder()

    @contextmanager
    def lock(self, serial: str, *, exclusive: bool) -> Iterator[None]:
        """Hold a controller: shared to sample it, exclusive to change its power state.

        The kernel gives the lock back when this process ends, however it ends. Who can't write the
        folder can't change a power state either, and samples without a lock.

        Raises:
            PowerError: another run holds it in a way that excludes this one.
        """
        try:
            descriptor = self._open_lock(serial)
        except PowerError:
            if exclusive:
                raise
            yield
            return
        try:
            _take(descriptor, serial, exclusive=exclusive)
            yield
        finally:
            os.close(descriptor)

    def _open_lock(self, serial: str) -> int:
        path = self.folder / f"lock-{quote(serial, safe='')}"
        try:
            self._make_folder()
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise PowerError(
                f"{path} can't be opened ({error.strerror}); name a writable folder in "
                "WATTLOAD_STATE_DIR"
            ) from error

    def _path(self, serial: str, owner: Owner) -> Path:
        return self.folder / f"{_PREFIX}{quote(serial, safe='')}.{owner}{_SUFFIX}"

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _take(descriptor: int, serial: str, *, exclusive: bool) -> None:
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        why = (
            "is in use by another run, so its power state is left alone"
            if exclusive
            else "is held by a run: another run has set the power state"
        )
        raise PowerError(f"controller {serial} {why}; wait until that run has ended") from error


def _read(path: Path) -> Entry:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document.pop("schema_version")
        entry = Entry(**document)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise PowerError(
            f"{path} is no journal entry of a power state ({error}); compare the drive's state "
            "with `wattload power states`, then remove the file"
        ) from error
    if version != SCHEMA_VERSION:
        raise PowerError(f"{path} has schema version {version}, this wattload reads 1")
    return entry
