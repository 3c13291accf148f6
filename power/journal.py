"""What was changed on a drive and must be undone, on disk before the change is made.

One file per controller and feature in a folder of the whole host, keyed by serial and controller
identifier: a drive keeps its name in no reboot, and may have two controllers. An entry is written
and fsynced before Set Features is sent and removed when the old value has been read back, so
whatever process starts next can finish the work of one that died.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from wattload.core.errors import PowerError
from wattload.power.nvme.features import POWER_MANAGEMENT

SCHEMA_VERSION = 3
"""3: the controller beside the serial. Still read: 2, any feature; 1, power states alone."""

_SUFFIX = ".json"
_STATE_PREFIX = "power-state-"
"""Feature 02h keeps the name that it had in version 1: an older wattload must stumble over it."""

_FEATURE_PREFIX = "feature-"

_CONTROLLER_MARK = "@"
"""Stands in no quoted serial."""

Owner = Literal["run", "user"]
"""Who made a change: a run, undone at the next start, or ``power set``, kept until restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value of a feature: the dword that Set Features takes, and for some a buffer."""

    value: int
    data: bytes = b""


class Key(NamedTuple):
    """What an entry is filed under beside its owner: one feature of one controller."""

    serial: str
    feature: int
    controller_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One change of a feature of a drive that is not undone yet.

    ``old`` is what to go back to, ``new`` what was asked for. ``uuid_index`` says whose feature it
    is, 0 the specification's. ``controller_id`` (CNTLID) tells controllers of one serial apart,
    ``None`` in entries of older versions. ``boot_id`` tells whether the host has restarted since.
    """

    serial: str
    device_name: str
    owner: Owner
    feature: int = POWER_MANAGEMENT
    old: Setting
    new: Setting
    uuid_index: int = 0
    controller_id: int | None = None
    run_id: str
    boot_id: str
    time_utc: str

    @property
    def key(self) -> Key:
        """What it is filed under."""
        return Key(self.serial, self.feature, self.controller_id)


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
        """Store an entry so that it survives a power cut; replaces an earlier one of its kind.

        Raises:
            PowerError: the folder can't be written, so the change must not be made.
        """
        path = self._path(entry.key, entry.owner)
        temporary = path.with_suffix(".tmp")
        try:
            self._make_folder()
            with temporary.open("w", encoding="utf-8") as file:
                json.dump(_document(entry), file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync_folder(self.folder)
        except OSError as error:
            raise PowerError(
                f"{path} can't be written ({error.strerror}), so the drive is left alone; name a "
                "writable folder in WATTLOAD_STATE_DIR"
            ) from error

    def read(self, key: Key, owner: Owner) -> Entry | None:
        """Return the open entry of a feature of a controller, or ``None``.

        Raises:
            PowerError: it is spoilt, which no death of ours can do.
        """
        path = self._path(key, owner)
        if not path.exists():
            return None
        entry = _read(path)
        if (entry.key, entry.owner) != (key, owner):
            raise PowerError(
                f"{path} is about another drive or feature than its name; compare the drive's "
                "state with `wattload power states`, then remove the file"
            )
        return entry

    def changes(self, owner: Owner) -> list[Key]:
        """Return what every open entry of this owner is about, in order of serials."""
        ending = f".{owner}{_SUFFIX}"
        names = [path.name.removesuffix(ending) for path in self.folder.glob(f"*{ending}")]
        keys = [key for name in names if (key := _key_of(name)) is not None]
        return sorted(keys, key=lambda key: (key.serial, key.controller_id or 0, key.feature))

    def remove(self, entry: Entry) -> None:
        """Close an entry: what it describes is undone. Safe to call twice."""
        path = self._path(entry.key, entry.owner)
        if path.exists():
            path.unlink()
            _sync_folder(self.folder)

    @contextmanager
    def lock(self, serial: str, *, needed: bool) -> Iterator[None]:
        """Hold a controller for one run: another one on the same drive would spoil both.

        The kernel gives the lock back when this process ends, however it ends. Who can't write the
        folder can't change a drive either; unless the lock is ``needed`` he goes on without it.

        Raises:
            PowerError: another run holds it.
        """
        try:
            descriptor = self._open_lock(serial)
        except PowerError:
            if needed:
                raise
            yield
            return
        try:
            _take(descriptor, serial)
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

    def _path(self, key: Key, owner: Owner) -> Path:
        prefix = (
            _STATE_PREFIX
            if key.feature == POWER_MANAGEMENT
            else f"{_FEATURE_PREFIX}{key.feature:02x}-"
        )
        which = "" if key.controller_id is None else f"{_CONTROLLER_MARK}{key.controller_id:04x}"
        return self.folder / f"{prefix}{quote(key.serial, safe='')}{which}.{owner}{_SUFFIX}"

    def _make_folder(self) -> None:
        """Make the folder; what is new of its path is fsynced, or a power cut takes it all."""
        missing = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in missing:
            _sync_folder(each.parent)


def _key_of(name: str) -> Key | None:
    """Return what a file's name stands for, ``None`` for a foreign file."""
    feature, dash, which = f"{POWER_MANAGEMENT:02x}", "-", name.removeprefix(_STATE_PREFIX)
    if which == name:
        feature, dash, which = name.removeprefix(_FEATURE_PREFIX).partition("-")
        if not name.startswith(_FEATURE_PREFIX) or not dash:
            return None
    serial, mark, controller = which.partition(_CONTROLLER_MARK)
    try:
        return Key(unquote(serial), int(feature, 16), int(controller, 16) if mark else None)
    except ValueError:
        return None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _take(descriptor: int, serial: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PowerError(
            f"controller {serial} is in use by another run; wait until that run has ended, and the "
            "drive has answered its last command"
        ) from error


def _document(entry: Entry) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "serial": entry.serial,
        "device_name": entry.device_name,
        "owner": entry.owner,
        "feature": entry.feature,
        "old": {"value": entry.old.value, "data": entry.old.data.hex()},
        "new": {"value": entry.new.value, "data": entry.new.data.hex()},
        "uuid_index": entry.uuid_index,
        "controller_id": entry.controller_id,
        "run_id": entry.run_id,
        "boot_id": entry.boot_id,
        "time_utc": entry.time_utc,
    }


def _read(path: Path) -> Entry:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document.pop("schema_version")
        if version not in range(1, SCHEMA_VERSION + 1):
            raise PowerError(
                f"{path} has schema version {version}, this wattload reads 1 to {SCHEMA_VERSION}"
            )
        return Entry(**(_from_version_1(document) if version == 1 else _decoded(document)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise PowerError(
            f"{path} is no journal entry of a changed drive ({error}); compare the drive's state "
            "with `wattload power states`, then remove the file"
        ) from error


def _decoded(document: dict[str, Any]) -> dict[str, Any]:
    document["uuid_index"] = int(document["uuid_index"])
    for name in ("old", "new"):
        setting = document[name]
        document[name] = Setting(value=int(setting["value"]), data=bytes.fromhex(setting["data"]))
    return document


def _from_version_1(document: dict[str, Any]) -> dict[str, Any]:
    document["old"] = Setting(value=int(document.pop("old_state")))
    document["new"] = Setting(value=int(document.pop("new_state")))
    return document
