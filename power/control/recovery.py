"""Undo changes that a process left behind when it died."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from wattload.core.errors import PowerError, PowerStateError
from wattload.power.control import change
from wattload.power.control.change import restore_setting
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import (
    ChangeJournal,
    Entry,
    Key,
    Owner,
    Setting,
    lock_controllers,
)
from wattload.power.control.power_settings import (
    Feature,
    SettingValue,
    check_restorable,
    feature_of,
    has_restarted,
    is_foreign,
    left_text,
    read_setting,
    sentence_of,
)
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.admin_timeout import when_settled
from wattload.power.nvme.features import POWER_MANAGEMENT, TIMESTAMP
from wattload.power.nvme.identify import Controller, identify_controller


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The result for one open entry; ``restored`` is the value read back, else ``None``.

    ``feature`` is the identifier of the feature. ``closed`` is false if the entry stays for a later
    start.
    """

    serial: str
    run_id: str
    feature: int
    restored: SettingValue | None
    closed: bool
    sentence: str


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
        return [_unread(Key(serial or "", POWER_MANAGEMENT), error)]
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
    try:
        lock.enter_context(host.journal.lock(entry.serial, needed=True))
        with _opened(host, entry) as (device, controller):
            lock.enter_context(lock_controllers(entry.serial, [device.name]))
            names.append(device.name)
            if host.journal.read(entry.key, entry.owner) != entry:
                return _report(entry, None, "another process has undone it in the meantime")
            if keep:
                return _keep_open(host.journal, entry, device)
            return _undo_open(host.journal, entry, device, controller)
    except _AbsentError as error:
        if not has_restarted(entry):
            return _report(entry, None, str(error), closed=False)
        host.journal.remove(entry)
        return _report(entry, None, f"{error}, and the host has restarted since: nothing to undo")
    except PowerError as error:
        return _report(entry, None, str(error), closed=False)
    finally:
        when_settled(names, lock.close)


def _keep_open(journal: ChangeJournal, entry: Entry, device: AdminDevice) -> Recovery:
    feature = feature_of(entry)
    current = feature.describe(read_setting(device, feature)) if feature.readable else feature.name
    journal.remove(entry)
    return _report(entry, None, f"the present {current} is kept, as requested")


def _undo_open(
    journal: ChangeJournal, entry: Entry, device: AdminDevice, controller: Controller
) -> Recovery:
    if entry.feature == TIMESTAMP:
        journal.remove(entry)
        return _report(entry, None, "a clock that was set to the host's is not reset")
    check_restorable(device, controller, entry)
    feature = feature_of(entry)
    current = read_setting(device, feature) if feature.readable else entry.new
    is_back = feature.same(current, entry.old)
    if is_back and has_restarted(entry):
        journal.remove(entry)
        return _report(
            entry, current, f"it is back at {feature.describe(current)} without our help"
        )
    if is_foreign(feature, controller, current, (entry.old, *entry.sent)):
        if has_restarted(entry):
            journal.remove(entry)
            kept = f"kept at {feature.describe(current)}, as the restart of the host has left it"
            return _report(entry, None, kept)
        if entry.left != current:
            journal.write(replace(entry, left=current))
        return _report(entry, None, left_text(entry, current), closed=False)
    try:
        restored = restore_setting(device, controller, feature, entry.old, current)
    except PowerStateError:
        if not (is_back and _stays_back(entry, device, feature)):
            raise
        journal.remove(entry)
        return _report(entry, current, f"it is back at {feature.describe(current)} and stays there")
    journal.remove(entry)
    return _report(entry, restored, f"restored to {feature.describe(restored)}")


def _stays_back(entry: Entry, device: AdminDevice, feature: Feature) -> bool:
    """Return whether the drive keeps the old value during its grace period though it refuses it.

    Such a drive has refused the new value too, or the run died before sending it.
    """
    time.sleep(change.GRACE_S)
    return feature.readable and feature.same(read_setting(device, feature), entry.old)


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
            if name == renumbered or entry.controller_id in (None, controller.controller_id):
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


def _report(entry: Entry, restored: Setting | None, what: str, *, closed: bool = True) -> Recovery:
    return Recovery(
        serial=entry.serial,
        run_id=entry.run_id,
        feature=entry.feature,
        restored=None if restored is None else feature_of(entry).decode(restored.value),
        closed=closed,
        sentence=sentence_of(entry, what),
    )
