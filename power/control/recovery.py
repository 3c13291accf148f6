"""Undo changes that a process left behind when it died."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from wattload.core.errors import PowerError
from wattload.power.control.drive_feature import DriveFeature
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import (
    ChangeJournal,
    DriveInUseError,
    Entry,
    Key,
    Owner,
    lock_controllers,
)
from wattload.power.control.power_settings import CLOCK, SettingValue
from wattload.power.control.undo import (
    Undone,
    check_restorable,
    feature_of,
    has_restarted,
    sentence_of,
    undo,
)
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.admin_timeout import when_settled
from wattload.power.nvme.features import POWER_MANAGEMENT
from wattload.power.nvme.identify import Controller, identify_controller


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The result for one open entry; ``restored`` is the value read back, else ``None``.

    ``feature`` is the identifier of the feature. ``closed`` is false if the entry stays for a later
    start. ``in_use`` is true while a run has the drive, whose change it normally is: a run on
    another drive has nothing to say about it.
    """

    serial: str
    run_id: str
    feature: int
    restored: SettingValue | None
    closed: bool
    sentence: str
    in_use: bool = False


def recover_changes(
    host: PowerHost | None = None,
    *,
    owner: Owner = "run",
    serial: str | None = None,
    keep: bool = False,
) -> list[Recovery]:
    """Undo every change whose run has ended; the lock of a running one protects its changes.

    ``owner="user"`` undoes what ``power set`` has set; ``serial`` selects one drive. With ``keep``,
    the drive keeps its present value, and only the entry is closed. A drive never makes this
    raise: a change that can't be undone keeps its entry, and the result gives the reason. So does
    one whose drive has a value that something else has set, unless the host has restarted since.
    """
    here = host or PowerHost()
    try:
        keys = here.journal.changes(owner)
    except PowerError as error:
        return [_unread(Key(serial or "", POWER_MANAGEMENT, 0), error)]
    changes = [each for each in keys if serial in (None, each.serial)]
    undone = (_undo(here, each, owner, keep=keep) for each in changes)
    return [recovery for recovery in undone if recovery is not None]


def _undo(host: PowerHost, key: Key, owner: Owner, *, keep: bool) -> Recovery | None:
    try:
        entry = host.journal.read(key, owner)
    except PowerError as error:
        return _unread(key, error)
    return _undo_entry(host, entry, keep=keep) if entry is not None else None


def _unread(key: Key, error: PowerError) -> Recovery:
    return Recovery(
        serial=key.serial,
        run_id="",
        feature=key.feature,
        restored=None,
        closed=False,
        sentence=str(error),
    )


def _undo_entry(host: PowerHost, entry: Entry, *, keep: bool) -> Recovery:
    lock, names = ExitStack(), list[str]()
    in_use = False
    try:
        lock.enter_context(host.journal.lock(entry.serial, needed=True))
        with _opened(host, entry) as (device, controller):
            lock.enter_context(lock_controllers(entry.serial, [device.name]))
            names.append(device.name)
            if host.journal.read(entry.key, entry.owner) != entry:
                undone = Undone(current=None, text="another process has undone it in the meantime")
            else:
                drive = DriveFeature(device, controller, feature_of(entry))
                undone = _close(host.journal, entry, drive, keep=keep)
    except _AbsentError as error:
        undone = Undone(current=None, text=str(error), is_closed=has_restarted(entry))
        if undone.is_closed:
            host.journal.remove(entry)
            text = f"{error}, and the host has restarted since: nothing to undo"
            undone = Undone(current=None, text=text)
    except PowerError as error:
        in_use = isinstance(error, DriveInUseError)
        undone = Undone(current=None, text=str(error), is_closed=False)
    finally:
        when_settled(names, lock.close)
    return _report(entry, undone, in_use=in_use)


def _close(journal: ChangeJournal, entry: Entry, drive: DriveFeature, *, keep: bool) -> Undone:
    feature = drive.feature
    if keep:
        current = feature.describe(drive.read()) if feature.readable else feature.name
        journal.remove(entry)
        return Undone(current=None, text=f"the present {current} is kept, as requested")
    if feature.identifier == CLOCK.identifier:
        journal.remove(entry)
        return Undone(current=None, text="a clock that was set to the host's is not reset")
    check_restorable(drive, entry)
    return undo(drive, journal, entry)


class _AbsentError(PowerError):
    """Every controller of this host answers, and none has this serial."""


@contextmanager
def _opened(host: PowerHost, entry: Entry) -> Iterator[tuple[AdminDevice, Controller]]:
    """Yield the controller of an entry, whatever its name is now.

    The likeliest controller is tried first, so that one that hangs delays as few others as
    possible.
    """
    refusal, renumbered = "", ""
    names = _by_likelihood(host, entry)
    while names:
        name = names.pop(0)
        with ExitStack() as stack:
            try:
                device = host.open_device(name)
                stack.callback(device.close)
                controller = identify_controller(device)
            except PowerError as error:
                refusal = f": {error}"
                continue
            if controller.serial != entry.serial:
                continue
            if name == renumbered or entry.controller_id == controller.controller_id:
                yield device, controller
                return
            if name == entry.device_name and not has_restarted(entry):
                # A controller on a network may get another identifier when it reconnects.
                renumbered = name
                names.append(name)
    if host.devices is not None:
        served = ", ".join(sorted(host.devices)) or "none"
        refusal = refusal or f": only {served} may be opened"
    kind = PowerError if refusal else _AbsentError
    raise kind(f"no controller with this serial can be opened here{refusal}")


def _by_likelihood(host: PowerHost, entry: Entry) -> list[str]:
    def unlikeliness(name: str) -> tuple[bool, bool]:
        return host.serial_of(name) != entry.serial, name != entry.device_name

    return sorted(host.served_names(), key=unlikeliness)


def _report(entry: Entry, undone: Undone, *, in_use: bool) -> Recovery:
    current = undone.current
    return Recovery(
        serial=entry.serial,
        run_id=entry.run_id,
        feature=entry.feature,
        restored=None if current is None else feature_of(entry).decode(current.value),
        closed=undone.is_closed,
        sentence=sentence_of(entry, undone.text),
        in_use=in_use,
    )
