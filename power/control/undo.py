"""What to do with a change that is to be undone: the one rule for runs that end and for recovery.

The drive's value is compared with the one found before the change, and with those that the change
has sent. A value that is neither is somebody else's: it is left, and the journal's entry stays
open. A restart of the host resets drives, so it closes the entry. ``recover_changes`` undoes what a
process left behind when it died.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from wattload.core.clock import boot_id
from wattload.core.errors import PowerError, PowerStateError
from wattload.power.control import power_settings
from wattload.power.control.host import PowerHost
from wattload.power.control.journal import (
    ChangeJournal,
    DriveInUseError,
    Entry,
    Key,
    Owner,
    Setting,
    lock_controllers,
)
from wattload.power.control.power_settings import (
    CLOCK,
    DSSD_POWER,
    KNOWN_FEATURES,
    DriveFeature,
    Feature,
    SettingValue,
    power_state_of,
)
from wattload.power.nvme.admin import AdminDevice, when_settled
from wattload.power.nvme.features import POWER_MANAGEMENT
from wattload.power.nvme.identify import Controller, identify_controller, read_ocp_uuid_index


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What has become of a change.

    ``current`` is the drive's value, if it is the old one again. ``is_closed`` is false if the
    entry stays for a later start.
    """

    current: Setting | None
    text: str
    is_closed: bool = True


def undo(
    drive: DriveFeature, journal: ChangeJournal, entry: Entry, *, was_in_effect: bool = False
) -> Undone:
    """Undo a change, unless something else has set the drive; close the journal's entry.

    The command is sent even if the drive reports the old value: it may have accepted a change
    that it has not made yet. ``was_in_effect`` says that this process has seen the new value in
    effect. If the old one is back then, something else has put it back, and may still set the new
    one again, as the one that it has found. So the entry stays open, and the next start looks
    again.

    Raises:
        PowerError: the old value is not back; the entry stays for the next start.
    """
    feature = drive.feature
    current = drive.read()
    is_back = feature.same(current, entry.old)
    if is_foreign(drive, current, (entry.old, *entry.sent)):
        if has_restarted(entry):
            journal.remove(entry)
            kept = f"kept at {feature.describe(current)}, as the restart of the host has left it"
            return Undone(current=None, text=kept)
        if entry.left != current:
            journal.write(replace(entry, left=current))
        return Undone(current=None, text=left_text(entry, current), is_closed=False)
    if is_back and has_restarted(entry):
        journal.remove(entry)
        return Undone(
            current=current, text=f"it is back at {feature.describe(current)} without our help"
        )
    try:
        restored = drive.send(current, entry.old)
    except PowerStateError:
        if not (is_back and _stays_back(drive, entry)):
            raise
        journal.remove(entry)
        stays = f"it is back at {feature.describe(current)} and stays there"
        return Undone(current=current, text=stays)
    was_put_back = was_in_effect and is_back and not feature.same(current, entry.new)
    if was_put_back and not feature.ends_itself:
        journal.write(replace(entry, left=current))
    else:
        journal.remove(entry)
    return Undone(current=restored, text=f"restored to {feature.describe(restored)}")


def _stays_back(drive: DriveFeature, entry: Entry) -> bool:
    """Return whether the drive keeps the old value during its grace period though it refuses it.

    Such a drive has refused the new value too, or the run died before sending it.
    """
    time.sleep(power_settings.GRACE_S)
    return drive.feature.same(drive.read(), entry.old)


def is_foreign(drive: DriveFeature, current: Setting, own: Iterable[Setting]) -> bool:
    """Return whether something else has set a value: it is none of those found or set by us.

    A state in which a drive sleeps is not foreign: the drive enters it by itself, and does not
    report the state that it will wake to.
    """
    if any(drive.feature.same(current, each) for each in own):
        return False
    if drive.feature.identifier != POWER_MANAGEMENT:
        return True
    descriptor = drive.controller.state(power_state_of(current.value))
    return descriptor is not None and descriptor.operational


def has_restarted(entry: Entry) -> bool:
    return bool(entry.boot_id) and entry.boot_id != boot_id()


def feature_of(entry: Entry) -> Feature:
    """Return the feature of a journal entry; an unknown one is only named."""
    known = KNOWN_FEATURES.get(entry.feature)
    if known is None:
        name = f"feature {entry.feature:02X}h"
        known = Feature(identifier=entry.feature, name=name, readable=False)
    return replace(known, uuid_index=entry.uuid_index)


def sentence_of(entry: Entry, what: str) -> str:
    """Return a sentence about a change: whose it is, and what has become of it."""
    feature = feature_of(entry)
    owner = f"run {entry.run_id}" if entry.owner == "run" else "`power set`"
    when = ", before the host restarted" if has_restarted(entry) else ""
    return (
        f"{entry.device_name} ({entry.serial}), which {owner} had set from "
        f"{feature.describe(entry.old)} to {feature.describe(entry.new)}{when}: {what}"
    )


def left_text(entry: Entry, current: Setting) -> str:
    """Return what becomes of a change whose drive has a value that something else has set."""
    return (
        f"left at {feature_of(entry).describe(current)}, which something else has set since; "
        f"`wattload power restore {entry.device_name} --keep` accepts it"
    )


def check_restorable(drive: DriveFeature, entry: Entry) -> None:
    """Raise ``PowerError`` unless an entry can be a change that wattload itself has made.

    Whatever a journal holds, no other command is sent than those that undo a power setting.
    """
    known = KNOWN_FEATURES.get(entry.feature)
    if known is None:
        restorable = (each for each in KNOWN_FEATURES if each != CLOCK.identifier)
        allowed = ", ".join(f"{each:02X}h" for each in sorted(restorable))
        raise PowerError(
            f"the journal names feature {entry.feature:02X}h, and wattload restores only "
            f"{allowed}: nothing was sent; compare the drive's state with `wattload power "
            "states`, then remove the entry"
        )
    wanted = read_ocp_uuid_index(drive.device, drive.controller) if known is DSSD_POWER else 0
    for setting in (entry.old, *entry.sent):
        fits = setting.value & ~known.mask == 0 and len(setting.data) == known.data_bytes
        if not fits or entry.uuid_index != wanted or (known is DSSD_POWER and not wanted):
            raise PowerError(
                f"the journal has a value of {known.name} that wattload never sets: nothing was "
                "sent; compare the drive's state with `wattload power states`, then remove the "
                "entry"
            )


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
    undone = (_recover(here, each, owner, keep=keep) for each in changes)
    return [recovery for recovery in undone if recovery is not None]


def _recover(host: PowerHost, key: Key, owner: Owner, *, keep: bool) -> Recovery | None:
    try:
        entry = host.journal.read(key, owner)
    except PowerError as error:
        return _unread(key, error)
    return _recover_entry(host, entry, keep=keep) if entry is not None else None


def _unread(key: Key, error: PowerError) -> Recovery:
    return Recovery(
        serial=key.serial,
        run_id="",
        feature=key.feature,
        restored=None,
        closed=False,
        sentence=str(error),
    )


def _recover_entry(host: PowerHost, entry: Entry, *, keep: bool) -> Recovery:
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
