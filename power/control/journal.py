"""The journal of changes that must be undone, on disk before a change is made.

It is a host-wide folder with one file per controller and feature, keyed by serial and controller
identifier: a drive's name changes between boots, and one drive may have two controllers. An entry
is written and fsynced before Set Features is sent, and removed after the old value has been read
back. So the next process to start can finish the work of one that died.
An entry whose drive has a value that something else has set stays open, with that value in it.

An entry makes its reader send a command. So folder and entries must belong to this user or root,
nobody else may write to the folder; an entry is type-checked; and only features that wattload sets
are restored (``undo.check_restorable``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from urllib.parse import quote, unquote

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from wattload.core.base_models import first_fault
from wattload.core.errors import DataError, ForeignFileError, PowerError
from wattload.core.files import Folder, Lock, LockHeldError, lock_device, open_folder, sync_folder
from wattload.core.home import user_folder
from wattload.power.nvme.features import POWER_MANAGEMENT

_SUFFIX = ".json"
_PREFIX = "feature-"
_ENTRY_MODE = 0o600
_CONTROLLER_MARK = "@"
"""Separates the serial from the controller; quoted serials never contain it."""

_SHORT_HOLD_S = 0.1
"""Longer than a lock is held that is only tested."""

Owner = Literal["run", "user"]
"""Who made a change: a run (undone at the next start) or ``power set`` (kept until restored)."""


_Dword = Annotated[int, Field(ge=0, le=0xFFFFFFFF)]
_Byte = Annotated[int, Field(ge=0, le=0xFF)]


@with_config(ConfigDict(ser_json_bytes="hex", val_json_bytes="hex"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value of a feature: the dword of Set Features, and for some features a buffer."""

    value: _Dword
    data: bytes = b""


class Key(NamedTuple):
    """What identifies an entry besides its owner: one feature of one controller (CNTLID)."""

    serial: str
    feature: int
    controller_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One change of a drive's feature that has not been undone yet.

    ``old`` is the value to restore, ``new`` the requested one. ``uuid_index`` identifies who
    defined the feature; 0 is the specification. ``boot_id`` shows whether the host has restarted
    since. ``left`` is the value that the drive had when the change was to be undone, if something
    else had set it. ``taken`` is the value that the drive took in place of ``new``, as by rounding
    it.
    """

    serial: str
    controller_id: Annotated[int, Field(ge=0, le=0xFFFF)]
    device_name: str
    owner: Owner
    feature: _Byte = POWER_MANAGEMENT
    old: Setting
    new: Setting
    uuid_index: Annotated[int, Field(ge=0, le=0x7F)] = 0
    run_id: str
    boot_id: str
    time_utc: str
    left: Setting | None = None
    taken: Setting | None = None
    schema_version: Literal[1] = 1

    @property
    def sent(self) -> tuple[Setting, ...]:
        """The values that the drive may have because of this change."""
        return (self.new,) if self.taken is None else (self.new, self.taken)

    @property
    def key(self) -> Key:
        return Key(self.serial, self.feature, self.controller_id)


def default_state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the journal, shared by all runs of this host and user."""
    named = environment.get("WATTLOAD_STATE_DIR")
    if named:
        return Path(named)
    if os.geteuid() == 0 and os.access("/var/lib", os.W_OK):
        return Path("/var/lib/wattload")
    return user_folder("XDG_STATE_HOME", ".local/state", environment)


class DriveInUseError(PowerError):
    """A run of this host holds a drive's lock."""


class ChangeJournal:
    """The open changes of a host, and the locks that allow one run per controller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self) -> None:
        """Raise ``PowerError`` if the folder exists and others may change what is in it."""
        with self._opened():
            pass

    def write(self, entry: Entry) -> None:
        """Store an entry so that it survives a power cut; replaces an entry with the same key.

        Raises:
            PowerError: the folder is not ours or not writable, so the change must not be made.
        """
        name = _name_of(entry.key, entry.owner)
        try:
            with self._made() as folder:
                folder.write(name, _entry_type().dump_json(entry), _ENTRY_MODE)
        except OSError as error:
            raise PowerError(
                f"{self.folder / name} can't be written ({error.strerror}), so the drive is not "
                "changed; set WATTLOAD_STATE_DIR to a writable folder"
            ) from error
        except DataError as error:
            raise PowerError(f"the drive is not changed, because {error}") from error

    def read(self, key: Key, owner: Owner) -> Entry | None:
        """Return the open entry of a controller's feature, or ``None``.

        Raises:
            PowerError: the file is damaged or not ours; a crash of wattload can't cause that.
        """
        path = self.folder / _name_of(key, owner)
        with self._opened() as folder:
            try:
                content = None if folder is None else folder.read(path.name)
            except (OSError, DataError) as error:
                raise PowerError(f"the journal entry is not used: {error}") from error
        if content is None:
            return None
        entry = _entry(path, content)
        if (entry.key, entry.owner) != (key, owner):
            raise PowerError(
                f"{path} describes another drive or feature than its name; compare the "
                "drive's state with `wattload power states`, then remove the file"
            )
        return entry

    def changes(self, owner: Owner) -> list[Key]:
        """Return the keys of this owner's open entries, in order of serials.

        Raises:
            PowerError: others may change what is in the folder.
        """
        ending = f".{owner}{_SUFFIX}"
        with self._opened() as folder:
            names = [] if folder is None else folder.names()
        owned = [name.removesuffix(ending) for name in names if name.endswith(ending)]
        keys = [key for name in owned if (key := _key_of(name)) is not None]
        return sorted(keys, key=lambda key: (key.serial, key.controller_id, key.feature))

    def remove(self, entry: Entry) -> None:
        """Close an entry whose change has been undone. Safe to call twice."""
        with self._opened() as folder:
            if folder is None:
                return
            with suppress(FileNotFoundError):
                os.unlink(_name_of(entry.key, entry.owner), dir_fd=folder.descriptor)
                folder.sync()

    @contextmanager
    def lock(self, serial: str, *, needed: bool, run_id: str = "") -> Iterator[None]:
        """Lock a controller for one run: a second run on the same drive would invalidate both.

        The kernel releases the lock when this process ends for any reason. A process that can't
        write to the folder can't change a drive either; unless the lock is ``needed``, it goes on
        without it. A lock that is held is tried once more: ``wattload doctor`` takes it for a
        moment to see whether a run has it.

        Raises:
            DriveInUseError: another run holds the lock.
            PowerError: the lock is needed, and its file can't be opened.
        """
        name, user_name = (f"{kind}-{quote(serial, safe='')}" for kind in ("lock", "user"))
        user = ""
        try:
            with self._made() as folder:
                try:
                    lock = folder.lock(name)
                except LockHeldError:
                    time.sleep(_SHORT_HOLD_S)
                    user = (folder.read(user_name) or b"").decode(errors="replace")
                    lock = folder.lock(name)
                with suppress(OSError, DataError):
                    folder.write(user_name, f"run {run_id}" if run_id else "another process")
        except LockHeldError as error:
            raise DriveInUseError(
                f"controller {serial} is in use by {user or 'another run'}; wait until it has "
                "ended, and the drive has answered its last command"
            ) from error
        except (OSError, DataError) as error:
            if not needed:
                yield
                return
            reason = error.strerror if isinstance(error, OSError) else error
            raise PowerError(
                f"{self.folder / name} can't be opened ({reason}); set WATTLOAD_STATE_DIR to a "
                "writable folder"
            ) from error
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _opened(self) -> Iterator[Folder | None]:
        """Yield the folder, ``None`` if it does not exist or can't be read."""
        try:
            folder = open_folder(self.folder)
        except ForeignFileError as error:
            raise PowerError(
                f"the state folder (WATTLOAD_STATE_DIR) can't be trusted: {error}"
            ) from error
        except OSError:
            yield None
            return
        with folder:
            yield folder

    def _made(self) -> Folder:
        """Open the folder; new parts of its path are fsynced, or a power cut could lose them."""
        missing = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in missing:
            sync_folder(each.parent)
        return open_folder(self.folder)


@contextmanager
def lock_controllers(serial: str, names: Collection[str]) -> Iterator[None]:
    """Lock controllers by their device nodes, as far as this process can open them.

    This excludes runs whose state folder is another one, as in a container; see ``lock_device``. A
    name whose controller does not have this serial is not locked.

    Raises:
        PowerError: a run with another state folder holds a lock.
    """
    with ExitStack() as locks:
        for name in names:
            if (lock := _node_lock(name, serial)) is not None:
                locks.callback(lock.release)
        yield


def _node_lock(name: str, serial: str) -> Lock | None:
    from wattload.core.sysfs import read_text  # a slow import, and no help needs it

    node = Path("/dev") / name
    try:
        number = node.stat().st_rdev
        sysfs = Path(f"/sys/dev/char/{os.major(number)}:{os.minor(number)}")
        if read_text(sysfs / "serial") != serial:
            return None
    except OSError:
        return None
    try:
        return lock_device(node)
    except LockHeldError as error:
        raise PowerError(
            f"controller {serial} is in use by another run, whose state folder is not this one "
            "(perhaps in a container); wait until that run has ended"
        ) from error


def _name_of(key: Key, owner: Owner) -> str:
    which = f"{quote(key.serial, safe='')}{_CONTROLLER_MARK}{key.controller_id:04x}"
    return f"{_PREFIX}{key.feature:02x}-{which}.{owner}{_SUFFIX}"


def _key_of(name: str) -> Key | None:
    """Return the key that a file name stands for; ``None`` for a foreign file."""
    feature, dash, which = name.removeprefix(_PREFIX).partition("-")
    serial, mark, controller = which.partition(_CONTROLLER_MARK)
    if not (name.startswith(_PREFIX) and dash and mark):
        return None
    try:
        return Key(unquote(serial), int(feature, 16), int(controller, 16))
    except ValueError:
        return None


@cache
def _entry_type() -> TypeAdapter[Entry]:
    return TypeAdapter(Entry)


def _entry(path: Path, content: bytes) -> Entry:
    try:
        return _entry_type().validate_json(content, strict=True)
    except ValidationError as error:
        place, message, _ = first_fault(error)
        raise PowerError(
            f"{path} is not a valid journal entry ({place}: {message}); compare the drive's state "
            "with `wattload power states`, then remove the file"
        ) from error
