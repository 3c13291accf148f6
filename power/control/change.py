"""Change a drive's power settings, verify them, and undo them even after a failure.

One change takes these steps: refuse states that do no I/O, lock the controller, read the value,
journal it, send Set Features without the Save bit, wait the drive's stated latencies, read the
value back. ``undo`` decides what to restore. The drive's clock is the only change that is not
undone: the old time would be wrong by the length of the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from wattload.core.clock import boot_id, utc_text
from wattload.core.errors import PowerError, PowerRefusedError, PowerStateError
from wattload.core.record.energy import PowerSettingRecord
from wattload.power.config import PowerConfig
from wattload.power.control.host import HoldsSystem
from wattload.power.control.journal import (
    ChangeJournal,
    Entry,
    Key,
    Owner,
    Setting,
    lock_controllers,
)
from wattload.power.control.power_settings import (
    CLOCK,
    DriveFeature,
    Plan,
    Saved,
    SettingValue,
    plans,
)
from wattload.power.control.undo import is_foreign, left_text, sentence_of, undo
from wattload.power.nvme.admin import AdminDevice, fetch, when_settled
from wattload.power.nvme.features import TIMESTAMP, TIMESTAMP_BYTES, read_timestamp, set_command
from wattload.power.nvme.identify import Controller, identify_controller

_LOG = logging.getLogger(__name__)

TOLERANCE_MS = 1000
"""Largest difference between the drive's clock and the host's after setting it: covers two admin
commands."""

_NS_PER_MS = 1_000_000
_NOT_READ: Saved = (None, "the run has not ended")


@dataclass(slots=True, kw_only=True)
class Change:
    """One setting of a drive, from its change until it is undone.

    ``verified`` is ``None`` if the drive did not accept the value, ``after`` until the value is
    read before the undo, ``restored`` until the old value is back; ``trouble`` says why it is not.
    ``saved`` and ``saved_after`` are the drive's own saved value, which no change may touch.

    The caller holds the controller's lock (``ChangeJournal.lock``) for as long as the change is in
    effect.
    """

    drive: DriveFeature
    plan: Plan
    journal: ChangeJournal = field(repr=False)
    run_id: str
    owner: Owner = "run"
    verified: SettingValue | None = None
    after: SettingValue | None = None
    restored: SettingValue | None = None
    is_restored: bool = False
    trouble: str = ""
    saved: Saved = _NOT_READ
    saved_after: Saved = _NOT_READ
    _entry: Entry | None = None

    @property
    def before(self) -> SettingValue | None:
        """The value before the change."""
        return self.drive.feature.decode(self.plan.before.value)

    @property
    def was_put_back(self) -> bool:
        """Whether the drive had its old value again before it was restored."""
        return self.is_restored and self.after == self.restored != self.verified

    def make(self) -> None:
        """Journal, send and verify the value.

        If the drive does not accept it, the change is undone before this raises.

        Raises:
            PowerStateError: the drive refuses, reports another value afterwards, or has a value
                that something else has set since it was read, or since an earlier change.
            PowerError: the journal is not writable, or the drive does not answer.
        """
        drive, new = self.drive, self.plan.new
        earlier = self.journal.read(self._key, self.owner)
        current = drive.read()
        found = earlier.old if earlier else self.plan.old
        if is_foreign(drive, current, (found, *earlier.sent) if earlier else (found,)):
            raise PowerStateError(self._set_meanwhile(earlier, current))
        self.verified = None
        self._entry = _entry(drive, found, new, run_id=self.run_id, owner=self.owner)
        self.journal.write(self._entry)
        try:
            current = drive.send(current, new, note=self._note_taken)
        except PowerError as error:
            if isinstance(error, PowerRefusedError) and self._is_unchanged(found):
                self._close_refused(earlier)
            else:
                self._undo_failed(error)
            raise
        self.verified = drive.feature.decode(current.value)

    def restore(self) -> Setting | None:
        """Restore the old value and close the journal entry, as ``undo`` decides.

        Returns the value read back, ``None`` if nothing was changed; safe to call twice.

        Raises:
            PowerStateError: the drive has a value that something else has set; the entry stays.
            PowerError: the old value is not back; the entry stays for the next start.
        """
        if self._entry is None:
            return None
        was_in_effect = self.verified is not None
        undone = undo(self.drive, self.journal, self._entry, was_in_effect=was_in_effect)
        if undone.current is None:
            raise PowerStateError(f"{self.drive.drive_name} is {undone.text}")
        self._entry = None
        return undone.current

    @property
    def _key(self) -> Key:
        controller = self.drive.controller
        return Key(controller.serial, self.drive.feature.identifier, controller.controller_id)

    def _note_taken(self, current: Setting) -> None:
        """Journal a value that the drive took in place of the requested one, such as a rounded one.

        If this process dies now, the next start would take it for somebody else's.
        """
        entry, feature = self._entry, self.drive.feature
        if entry is not None and not any(
            feature.same(current, each) for each in (entry.old, *entry.sent)
        ):
            self._entry = replace(entry, taken=current)
            self.journal.write(self._entry)

    def _set_meanwhile(self, earlier: Entry | None, current: Setting) -> str:
        if earlier is not None:
            return sentence_of(earlier, left_text(earlier, current))
        feature = self.drive.feature
        return (
            f"{self.drive.drive_name} has changed from {feature.describe(self.plan.old)} to "
            f"{feature.describe(current)} before it was set: something else is setting it, so it "
            "is left; try again when that has ended"
        )

    def _undo_failed(self, error: PowerError) -> None:
        """Undo a failed change; if that fails too, raise an error that gives both reasons."""
        try:
            self.restore()
        except PowerError as trouble:
            raise PowerStateError(
                f"{error}; and the old value is not restored: {trouble}"
            ) from error

    def _close_refused(self, earlier: Entry | None) -> None:
        """Close the entry of a refused change; keep the entry of an earlier ``power set``."""
        if earlier is not None:
            self.journal.write(earlier)
        elif self._entry is not None:
            self.journal.remove(self._entry)
        self._entry = None

    def _is_unchanged(self, old: Setting) -> bool:
        """Return whether a refused change left the drive as it was."""
        feature, new = self.drive.feature, self.plan.new
        if feature.same(old, new):
            return True
        try:
            return not feature.same(self.drive.read(), new)
        except PowerError:
            return False


def _undo(change: Change) -> None:
    """Restore one change's old value after reading the current one; note any failure in it."""
    drive = change.drive
    try:
        if change.verified is not None and change.after is None:
            change.after = drive.feature.decode(drive.read().value)
    except PowerError:
        pass  # a missing final value is recorded as missing; the undo is tried all the same
    try:
        back = change.restore()
    except PowerError as error:
        change.trouble = str(error)
        return
    change.trouble = ""
    if back is not None:
        change.restored, change.is_restored = drive.feature.decode(back.value), True
        change.saved_after = drive.read_saved()


class PowerStateControl:
    """The power settings of one controller, from the first change until all are undone."""

    def __init__(
        self, device: AdminDevice, journal: ChangeJournal, *, run_id: str, owner: Owner = "run"
    ) -> None:
        self._device = device
        self._journal = journal
        self._run_id = run_id
        self._owner: Owner = owner
        self._locks = ExitStack()
        self._locked_names: tuple[str, ...] = ()
        self.controller = identify_controller(device)
        self.changes: list[Change] = []

    def hold(self, *, needed: bool, other_names: Collection[str] = ()) -> None:
        """Lock the controller until ``close``, against runs with other state folders too.

        See ``ChangeJournal.lock`` and ``lock_controllers``. ``other_names`` are the names of the
        drive's other controllers, which the locks cover too.
        """
        serial, names = self.controller.serial, (self._device.name, *other_names)
        self._locks.enter_context(self._journal.lock(serial, needed=needed, run_id=self._run_id))
        self._locks.enter_context(lock_controllers(serial, sorted(set(names))))
        self._locked_names = names

    def apply(self, config: PowerConfig, *, holds_system: HoldsSystem) -> None:
        """Make and verify every change that the configuration requests; ``changes`` lists them.

        Raises:
            PowerStateError: the state is out of range or non-operational, the drive holds the
                system, or it refused.
            PowerError: the journal is not writable, or the drive does not answer.
        """
        for plan in plans(self._device, self.controller, config):
            if not config.allow_system_drive:
                check_no_system(self._device.name, self.controller.serial, holds_system)
            drive = DriveFeature(self._device, self.controller, plan.feature)
            change = Change(
                drive=drive,
                plan=plan,
                journal=self._journal,
                run_id=self._run_id,
                owner=self._owner,
                saved=drive.read_saved(),
            )
            self.changes.append(change)
            change.make()

    def restore(self) -> None:
        """Undo every change, the last one first; safe to call twice.

        A change that can't be undone does not stop the others from being undone, even if it hits a
        bug.

        Raises:
            PowerError: the drive did not take an old value back, or has a value that something
                else has set; that journal entry stays for the next start.
        """
        for change in reversed(self.changes):
            try:
                _undo(change)
            except Exception as error:
                change.trouble = f"{type(error).__name__}: {error}"
                _LOG.exception("%s: bug while undoing %s", self._device.name, change.plan.option)
        troubles = [change.trouble for change in self.changes if change.trouble]
        if troubles:
            raise PowerError("; ".join(troubles))

    def close(self) -> None:
        """Release the lock and the device; safe to call twice.

        The lock stays while a timed-out Set Features is pending: the drive may still execute it.
        """
        self._device.close()
        when_settled(self._locked_names, self._locks.close)


def check_no_system(name: str, serial: str, holds_system: HoldsSystem) -> None:
    """Raise ``PowerStateError`` if the drive holds root or swap, or if this can't be determined."""
    holds = holds_system(name)
    if holds is False:
        return
    why = "holds root or swap" if holds else "may hold root or swap (this can't be determined here)"
    raise PowerStateError(
        f"{name} ({serial}) {why}, so its power state is not changed; "
        "power.allow_system_drive=true (or --allow-system-drive) permits it"
    )


def set_clock(
    device: AdminDevice, controller: Controller, journal: ChangeJournal, *, run_id: str
) -> PowerSettingRecord:
    """Set the drive's clock to the host's and read it back.

    Times are in ms since 1970; before a host has set the clock, since the drive's reset.

    Raises:
        PowerStateError: the drive has no clock, refuses, or does not take the time.
        PowerError: the journal is not writable.
    """
    try:
        before_ms = read_timestamp(device)
        requested_ms = time.time_ns() // _NS_PER_MS
        old, new = (
            Setting(value=0, data=ms.to_bytes(TIMESTAMP_BYTES, "little"))
            for ms in (before_ms, requested_ms)
        )
        clock = DriveFeature(device, controller, CLOCK)
        entry = _entry(clock, old, new, run_id=run_id, owner="run")
        journal.write(entry)
        fetch(device, set_command(TIMESTAMP, "timestamp", payload=new.data))
        verified_ms = read_timestamp(device)
        journal.remove(entry)
    except PowerError as error:
        raise PowerStateError(f"power.set_timestamp is not available: {error}") from error
    if abs(verified_ms - time.time_ns() // _NS_PER_MS) > TOLERANCE_MS:
        raise PowerStateError(
            f"{device.name} ({controller.serial}) accepted the time {requested_ms} ms but "
            f"reports {verified_ms} ms; leave power.set_timestamp=false"
        )
    stays = "a clock that was set to the host's is not reset"
    return PowerSettingRecord(
        option="power.set_timestamp",
        feature=TIMESTAMP,
        name=CLOCK.name,
        unit="ms",
        requested=requested_ms,
        before=before_ms,
        verified=verified_ms,
        after=None,
        restored=None,
        saved=None,
        saved_after=None,
        missing=dict.fromkeys(("after", "restored", "saved", "saved_after"), stays),
    )


def _entry(drive: DriveFeature, old: Setting, new: Setting, *, run_id: str, owner: Owner) -> Entry:
    return Entry(
        serial=drive.controller.serial,
        controller_id=drive.controller.controller_id,
        device_name=drive.device.name,
        owner=owner,
        feature=drive.feature.identifier,
        old=old,
        new=new,
        uuid_index=drive.feature.uuid_index,
        run_id=run_id,
        boot_id=boot_id(),
        time_utc=utc_text(),
    )
