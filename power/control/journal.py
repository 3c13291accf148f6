"""The journal of changes that must be undone, on disk before a change is made.

It is a host-wide folder with one file per controller and feature, keyed by serial and controller
identifier: a drive's name changes between boots, and one drive may have two controllers. An entry
is written and fsynced before Set Features is sent, and removed after the old value has been read
back. So the next process to start can finish the work of one that died.
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

from pydantic_core import from_json

from wattload.core.errors import PowerError
from wattload.power.nvme.features import POWER_MANAGEMENT

SCHEMA_VERSION = 3
"""3 adds the controller. Also read: 2 (any feature) and 1 (power states only)."""

_SUFFIX = ".json"
_STATE_PREFIX = "power-state-"
"""Feature 02h keeps its name of version 1, so that an older wattload finds the entry too."""

_FEATURE_PREFIX = "feature-"

_CONTROLLER_MARK = "@"
"""Separates the serial from the controller; quoted serials never contain it."""

Owner = Literal["run", "user"]
"""Who made a change: a run (undone at the next start) or ``power set`` (kept until restored)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value of a feature: the dword of Set Features, and for some features a buffer."""

    value: int
    data: bytes = b""


class Key(NamedTuple):
    """What identifies an entry besides its owner: one feature of one controller."""

    serial: str
    feature: int
    controller_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One change of a drive's feature that has not been undone yet.

    ``old`` is the value to restore, ``new`` the requested one. ``uuid_index`` identifies who
    defined the feature; 0 is the specification. ``controller_id`` (CNTLID) distinguishes
    controllers with the same serial; it is ``None`` in entries of older versions. ``boot_id`` shows
    whether the host has restarted since.
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
        """The key of the entry."""
        return Key(self.serial, self.feature, self.controller_id)


def default_state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the journal, shared by all runs of this host and user."""
    named = environment.get("WATTLOAD_STATE_DIR")
    if named:
        return Path(named)
    if os.geteuid() == 0 and os.access("/var/lib", os.W_OK):
        return Path("/var/lib/wattload")
    base = environment.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local/state") / "wattload"


def boot_id() -> str:
    """Return the kernel's identifier of this boot; empty if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class ChangeJournal:
    """The open changes of a host, and the locks that allow one run per controller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, entry: Entry) -> None:
        """Store an entry so that it survives a power cut; replaces an entry with the same key.

        Raises:
            PowerError: the folder is not writable, so the change must not be made.
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
                f"{path} can't be written ({error.strerror}), so the drive is not changed; "
                "set WATTLOAD_STATE_DIR to a writable folder"
            ) from error

    def read(self, key: Key, owner: Owner) -> Entry | None:
        """Return the open entry of a controller's feature, or ``None``.

        Raises:
            PowerError: the file is damaged; a crash of wattload can't cause that.
        """
        path = self._path(key, owner)
        if not path.exists():
            return None
        entry = _read(path)
        if (entry.key, entry.owner) != (key, owner):
            raise PowerError(
                f"{path} describes another drive or feature than its name; compare the "
                "drive's state with `wattload power states`, then remove the file"
            )
        return entry

    def changes(self, owner: Owner) -> list[Key]:
        """Return the keys of this owner's open entries, in order of serials."""
        ending = f".{owner}{_SUFFIX}"
        names = [path.name.removesuffix(ending) for path in self.folder.glob(f"*{ending}")]
        keys = [key for name in names if (key := _key_of(name)) is not None]
        return sorted(keys, key=lambda key: (key.serial, key.controller_id or 0, key.feature))

    def remove(self, entry: Entry) -> None:
        """Close an entry whose change has been undone. Safe to call twice."""
        path = self._path(entry.key, entry.owner)
        if path.exists():
            path.unlink()
            _sync_folder(self.folder)

    @contextmanager
    def lock(self, serial: str, *, needed: bool) -> Iterator[None]:
        """Lock a controller for one run: a second run on the same drive would invalidate both.

        The kernel releases the lock when this process ends for any reason. A process that can't
        write to the folder can't change a drive either; unless the lock is ``needed``, it goes on
        without it.

        Raises:
            PowerError: another run holds the lock.
        """
        try:
            descriptor = self._open_lock(serial)
        except PowerError:
            if needed:
                raise
            yield
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise PowerError(
                f"controller {serial} is in use by another run; wait until that run has ended, and "
                "the drive has answered its last command"
            ) from error
        try:
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
                f"{path} can't be opened ({error.strerror}); set WATTLOAD_STATE_DIR to a "
                "writable folder"
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
        """Create the folder and fsync every new part of its path, or a power cut could lose it."""
        missing = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in missing:
            _sync_folder(each.parent)


def _key_of(name: str) -> Key | None:
    """Return the key that a file name stands for; ``None`` for a foreign file."""
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
        document = from_json(path.read_bytes())
        version = document.pop("schema_version")
        if version not in range(1, SCHEMA_VERSION + 1):
            raise PowerError(
                f"{path} has schema version {version}; this wattload reads 1 to {SCHEMA_VERSION}"
            )
        return Entry(**(_from_version_1(document) if version == 1 else _decoded(document)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise PowerError(
            f"{path} is not a valid journal entry ({error}); compare the drive's state "
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
