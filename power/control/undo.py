"""What to do with a change that is to be undone: the one rule for runs that end and for recovery.

The drive's value is compared with the one found before the change, and with those that the change
has sent. A value that is neither is somebody else's: it is left, and the journal's entry stays
open. A restart of the host resets drives, so it closes the entry.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from wattload.core.clock import boot_id
from wattload.core.errors import PowerError, PowerStateError
from wattload.power.control import drive_feature
from wattload.power.control.drive_feature import DriveFeature
from wattload.power.control.journal import ChangeJournal, Entry, Setting
from wattload.power.control.power_settings import (
    CLOCK,
    DSSD_POWER,
    KNOWN_FEATURES,
    Feature,
    power_state_of,
)
from wattload.power.nvme.features import POWER_MANAGEMENT
from wattload.power.nvme.identify import read_ocp_uuid_index


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
    current = drive.read(entry.new)
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
    time.sleep(drive_feature.GRACE_S)
    return drive.feature.readable and drive.feature.same(drive.read(), entry.old)


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
