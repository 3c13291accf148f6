"""Change a drive's power settings, verify them, and undo them even after a failure.

One change takes these steps: refuse states that do no I/O, lock the controller, read the value,
journal it, send Set Features without the Save bit, wait the drive's stated latencies, read the
value back. A value that is neither the one found nor one that was sent is somebody else's: it is
left, and its journal entry stays open. The drive's clock is the only change that is not undone: the
old time would be wrong by the length of the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from wattload.core.clock import boot_id, utc_text
from wattload.core.errors import PowerError, PowerStateError
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
    Feature,
    Plan,
    Saved,
    SettingValue,
    is_foreign,
    left_text,
    plans,
    read_saved,
    read_setting,
    sentence_of,
)
from wattload.power.nvme.admin import (
    CODE_MASK,
    INVALID_FIELD,
    SUCCESS,
    AdminDevice,
    describe_status,
    fetch,
)
from wattload.power.nvme.admin_timeout import when_settled
from wattload.power.nvme.features import TIMESTAMP, TIMESTAMP_BYTES, read_timestamp, set_command
from wattload.power.nvme.identify import Controller, identify_controller

_LOG = logging.getLogger(__name__)

GRACE_S = 1.0
"""How long a drive may exceed its stated latencies before its answer counts as final."""

TOLERANCE_MS = 1000
"""Largest difference between the drive's clock and the host's after setting it: covers two admin
commands."""

_LONGEST_WAIT_S = 60.0
_POLL_S = 0.01
_NS_PER_MS = 1_000_000
_NOT_READ: Saved = (None, "the run has not ended")


@dataclass(slots=True, kw_only=True)
class Change:
    """A changed setting: the value before, the requested one, and what was read back since.

    ``verified`` is ``None`` if the drive did not accept the value, ``after`` until the value is
    read before the undo, ``restored`` until the old value is back; ``trouble`` says why it is not.
    ``saved`` and ``saved_after`` are the drive's own saved value, which no change may touch.
    """

    option: str
    feature: Feature
    before: SettingValue | None
    requested: SettingValue
    verified: SettingValue | None = None
    restored: SettingValue | None = None
    is_restored: bool = False
    trouble: str = ""
    after: SettingValue | None = None
    saved: Saved = _NOT_READ
    saved_after: Saved = _NOT_READ
    undo: FeatureChange = field(repr=False)

    @property
    def was_put_back(self) -> bool:
        """Whether the drive had its old value again before it was restored."""
        return self.is_restored and self.after == self.restored != self.verified


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

    def set(
        self, state: int, *, holds_system: HoldsSystem, allow_system_drive: bool = False
    ) -> Change:
        """Put the drive into an operational power state and return the change.

        Takes the latencies that the drive states for the transition. Raises the same errors as
        ``apply``.
        """
        config = PowerConfig(state=state, allow_system_drive=allow_system_drive)
        self.apply(config, holds_system=holds_system)
        return self.changes[-1]

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
            self._make(plan)

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
                self._undo(change)
            except Exception as error:
                change.trouble = f"{type(error).__name__}: {error}"
                _LOG.exception("%s: bug while undoing %s", self._device.name, change.option)
        troubles = [change.trouble for change in self.changes if change.trouble]
        if troubles:
            raise PowerError("; ".join(troubles))

    def close(self) -> None:
        """Release the lock and the device; safe to call twice.

        The lock stays while a timed-out Set Features is pending: the drive may still execute it.
        """
        self._device.close()
        when_settled(self._locked_names, self._locks.close)

    def _make(self, plan: Plan) -> None:
        undo = FeatureChange(
            self._device,
            self.controller,
            self._journal,
            plan.feature,
            run_id=self._run_id,
            owner=self._owner,
        )
        feature = plan.feature
        change = Change(
            option=plan.option,
            feature=feature,
            before=feature.decode(plan.before.value),
            requested=plan.requested,
            saved=read_saved(self._device, self.controller, feature),
            undo=undo,
        )
        self.changes.append(change)
        change.verified = feature.decode(undo.set(plan.new, old=plan.old).value)

    def _undo(self, change: Change) -> None:
        """Restore one change's old value after reading the current one; note any failure in it."""
        try:
            if change.verified is not None and change.after is None:
                change.after = change.feature.decode(
                    read_setting(self._device, change.feature).value
                )
        except PowerError:
            pass  # a missing final value is recorded as missing; the undo is tried all the same
        try:
            back = change.undo.restore()
        except PowerError as error:
            change.trouble = str(error)
            return
        change.trouble = ""
        if back is not None:
            change.restored = change.feature.decode(back.value)
            change.is_restored = True
            change.saved_after = read_saved(self._device, self.controller, change.feature)


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


class FeatureChange:
    """One feature of one drive, from its change until it is undone.

    The caller holds the controller's lock (``ChangeJournal.lock``) for as long as the change is in
    effect.
    """

    def __init__(
        self,
        device: AdminDevice,
        controller: Controller,
        journal: ChangeJournal,
        feature: Feature,
        *,
        run_id: str,
        owner: Owner = "run",
    ) -> None:
        self.feature = feature
        self._device = device
        self._controller = controller
        self._journal = journal
        self._run_id = run_id
        self._owner: Owner = owner
        self._entry: Entry | None = None
        self._own: list[Setting] = []
        self._is_verified = False

    def set(self, new: Setting, *, old: Setting | None = None) -> Setting:
        """Journal, send and verify a value; return the value read back.

        ``old`` is the value to restore later, by default the current one. If the drive does not
        accept the new value, it is undone before this raises.

        Raises:
            PowerStateError: the drive refuses, reports another value afterwards, or has a value
                that something else has set since it was read, or since an earlier change.
            PowerError: the journal is not writable, or the drive does not answer.
        """
        earlier = self._earlier()
        current = self._read(old)
        found = earlier.old if earlier else old or current
        own = (found, *earlier.sent) if earlier else (found,)
        if is_foreign(self.feature, self._controller, current, own):
            raise PowerStateError(self._set_meanwhile(earlier, found, current))
        self._entry = _entry(
            self._device,
            self._controller,
            self.feature,
            found,
            new,
            run_id=self._run_id,
            owner=self._owner,
        )
        self._own, self._is_verified = [found, new], False
        self._journal.write(self._entry)
        if earlier is not None and earlier.key != self._entry.key:
            self._journal.remove(earlier)
        try:
            answer = _send(
                self._device, self._controller, self.feature, current, new, note=self._note_taken
            )
        except PowerError as error:
            self._undo_failed(str(error), error)
            raise
        if answer.current is None:
            sentence = _refusal(self._device, self._controller, self.feature, new, answer.status)
            if self._is_unchanged(self._entry.old, new):
                self._close_refused(earlier)
            else:
                self._undo_failed(sentence, None)
            raise PowerStateError(sentence)
        if not self.feature.same(answer.current, new):
            sentence = _mismatch(self._device, self._controller, self.feature, new, answer.current)
            self._undo_failed(sentence, None)
            raise PowerStateError(sentence)
        self._is_verified = True
        return answer.current

    def restore(self) -> Setting | None:
        """Restore the old value and close the journal entry; safe to call twice.

        The command is sent even if the drive reports the old value: it may have accepted a change
        that it has not made yet. But if the new value had been in effect, something else has put
        the old one back, and may still set the new one again, as the one that it has found. Then
        the entry stays open, and the next start looks again. Returns the value read back, ``None``
        if nothing was changed.

        Raises:
            PowerStateError: the drive has a value that something else has set; the entry stays.
            PowerError: the old value is not back; the entry stays for the next start.
        """
        entry = self._entry
        if entry is None:
            return None
        current = self._read(entry.new)
        if is_foreign(self.feature, self._controller, current, self._own):
            self._entry = replace(entry, left=current)
            self._journal.write(self._entry)
            raise PowerStateError(
                f"{entry.device_name} ({entry.serial}) is {left_text(entry, current)}"
            )
        back = restore_setting(self._device, self._controller, self.feature, entry.old, current)
        if (
            self._is_verified
            and not self.feature.ends_itself
            and not self.feature.same(current, entry.new)
            and self.feature.same(current, entry.old)
        ):
            self._journal.write(replace(entry, left=current))
        else:
            self._journal.remove(entry)
        self._entry = None
        return back

    def _note_taken(self, current: Setting) -> None:
        """Journal a value that the drive took in place of the requested one, such as a rounded one.

        If this process dies now, the next start would take it for somebody else's.
        """
        if self._entry is not None and not any(
            self.feature.same(current, each) for each in self._own
        ):
            self._own.append(current)
            self._entry = replace(self._entry, taken=current)
            self._journal.write(self._entry)

    def _read(self, assumed: Setting | None) -> Setting:
        """Return the drive's value; ``assumed`` if the feature can't be read."""
        if assumed is not None and not self.feature.readable:
            return assumed
        return read_setting(self._device, self.feature)

    def _set_meanwhile(self, earlier: Entry | None, found: Setting, current: Setting) -> str:
        if earlier is not None:
            return sentence_of(earlier, left_text(earlier, current))
        return (
            f"{self._device.name} ({self._controller.serial}) has changed from "
            f"{self.feature.describe(found)} to {self.feature.describe(current)} before it was "
            "set: something else is setting it, so it is left; try again when that has ended"
        )

    def _earlier(self) -> Entry | None:
        """Return the existing entry, including one written before entries named the controller."""
        serial, feature = self._controller.serial, self.feature.identifier
        key = Key(serial, feature, self._controller.controller_id)
        entry = self._journal.read(key, self._owner)
        if entry is not None:
            return entry
        older = self._journal.read(Key(serial, feature), self._owner)
        return older if older is not None and older.device_name == self._device.name else None

    def _undo_failed(self, sentence: str, cause: PowerError | None) -> None:
        """Undo a failed change; if that fails too, raise an error that gives both reasons."""
        try:
            self.restore()
        except PowerError as trouble:
            raise PowerStateError(
                f"{sentence}; and the old value is not restored: {trouble}"
            ) from cause

    def _close_refused(self, earlier: Entry | None) -> None:
        """Close the entry of a refused change; keep the entry of an earlier ``power set``."""
        if earlier is not None:
            self._journal.write(earlier)
        if self._entry is not None and (earlier is None or earlier.key != self._entry.key):
            self._journal.remove(self._entry)
        self._entry = None

    def _is_unchanged(self, old: Setting, new: Setting) -> bool:
        """Return whether a refused change left the drive as it was."""
        if not self.feature.readable or self.feature.same(old, new):
            return True
        try:
            return not self.feature.same(read_setting(self._device, self.feature), new)
        except PowerError:
            return False


def restore_setting(
    device: AdminDevice, controller: Controller, feature: Feature, old: Setting, now: Setting
) -> Setting:
    """Set a feature back to its old value; return the value read back.

    Raises:
        PowerStateError: the drive refuses, or reports another value afterwards.
        PowerError: the drive does not answer.
    """
    answer = _send(device, controller, feature, now, old)
    if answer.current is None:
        raise PowerStateError(_refusal(device, controller, feature, old, answer.status))
    if not feature.same(answer.current, old):
        raise PowerStateError(_mismatch(device, controller, feature, old, answer.current))
    return answer.current


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The result of Set Features: the status, and the value read back unless it was refused."""

    status: int
    current: Setting | None = None


def _send(
    device: AdminDevice,
    controller: Controller,
    feature: Feature,
    current: Setting,
    new: Setting,
    *,
    note: Callable[[Setting], None] | None = None,
) -> _Answer:
    """Send a value, valid until the drive's next reset, in all dwords that may carry it.

    ``note`` is called with each value read back that is not ``new``.

    A drive that reads a dword which does not carry it would see 0, and a power limit of 0 is none.
    So a value goes into one dword alone only if that lifts no limit. After the drive has accepted
    one dword, a refusal of the next is ignored: the first may have taken effect.
    """

    def sent_in(dwords: Collection[int]) -> _Answer:
        status = _submit(device, feature, new, dwords)
        if status & CODE_MASK != SUCCESS:
            return _Answer(status=status)
        settled = _settle(device, controller, feature, current, new, note=note)
        return _Answer(status=status, current=settled)

    answer = sent_in(feature.dwords)
    if answer.status & CODE_MASK != INVALID_FIELD or not _may_be_apart(
        device, feature, current, new
    ):
        return answer
    for dword in feature.dwords:
        last = sent_in((dword,))
        if last.current is not None or answer.current is None:
            answer = last
        if last.status & CODE_MASK not in (SUCCESS, INVALID_FIELD):
            break
        if last.current is not None and feature.same(last.current, new):
            break
    return answer


def _submit(
    device: AdminDevice, feature: Feature, setting: Setting, dwords: Collection[int]
) -> int:
    """Send Set Features; return the status."""
    command = set_command(
        feature.identifier,
        feature.describe(setting),
        value=setting.value,
        dwords=dwords,
        uuid_index=feature.uuid_index,
        payload=setting.data,
    )
    return device.submit(command).status


def _may_be_apart(device: AdminDevice, feature: Feature, current: Setting, new: Setting) -> bool:
    """Return whether a value that was refused in several dwords may go into each alone.

    It may if no limit is in effect, or if the drive refuses even its present value in several
    dwords: it then requires those that it does not read to be 0, and refuses a value in them.
    """
    if len(feature.dwords) == 1 or new.value == 0:
        return False
    if current.value == 0:
        return True
    return _submit(device, feature, current, feature.dwords) & CODE_MASK == INVALID_FIELD


def _settle(
    device: AdminDevice,
    controller: Controller,
    feature: Feature,
    old: Setting,
    new: Setting,
    *,
    note: Callable[[Setting], None] | None,
) -> Setting:
    """Wait for the transition's stated latency plus a grace period; return the value read back."""
    wait_s = feature.latency_s(controller, old.value, new.value)
    time.sleep(min(wait_s, _LONGEST_WAIT_S))
    if not feature.readable:
        return new
    deadline_s = time.monotonic() + GRACE_S
    while not feature.same(current := read_setting(device, feature), new):
        if note is not None:
            note(current)
        if time.monotonic() >= deadline_s:
            break
        time.sleep(_POLL_S)
    return current


def _refusal(
    device: AdminDevice, controller: Controller, feature: Feature, setting: Setting, status: int
) -> str:
    return (
        f"{device.name} ({controller.serial}) refuses {feature.describe(setting)}: "
        f"{describe_status(status)}"
    )


def _mismatch(
    device: AdminDevice,
    controller: Controller,
    feature: Feature,
    setting: Setting,
    current: Setting,
) -> str:
    return (
        f"{device.name} ({controller.serial}) accepted {feature.describe(setting)} "
        f"but reports {feature.describe(current)} {GRACE_S:g} s after its stated "
        "latency: it does not follow the host"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """A drive's clock in ms since 1970; before a host has set it, since the drive's reset."""

    before_ms: int
    requested_ms: int
    verified_ms: int


def set_clock(
    device: AdminDevice, controller: Controller, journal: ChangeJournal, *, run_id: str
) -> ClockChange:
    """Set the drive's clock to the host's and read it back.

    Raises:
        PowerStateError: the drive has no clock, refuses, or does not take the time.
        PowerError: the journal is not writable.
    """
    try:
        before_ms = read_timestamp(device).ms
        requested_ms = time.time_ns() // _NS_PER_MS
        old, new = (
            Setting(value=0, data=ms.to_bytes(TIMESTAMP_BYTES, "little"))
            for ms in (before_ms, requested_ms)
        )
        entry = _entry(device, controller, CLOCK, old, new, run_id=run_id, owner="run")
        journal.write(entry)
        fetch(device, set_command(TIMESTAMP, "timestamp", payload=new.data))
        verified_ms = read_timestamp(device).ms
        journal.remove(entry)
    except PowerError as error:
        raise PowerStateError(f"power.set_timestamp is not available: {error}") from error
    if abs(verified_ms - time.time_ns() // _NS_PER_MS) > TOLERANCE_MS:
        raise PowerStateError(
            f"{device.name} ({controller.serial}) accepted the time {requested_ms} ms but "
            f"reports {verified_ms} ms; leave power.set_timestamp=false"
        )
    return ClockChange(before_ms=before_ms, requested_ms=requested_ms, verified_ms=verified_ms)


def _entry(
    device: AdminDevice,
    controller: Controller,
    feature: Feature,
    old: Setting,
    new: Setting,
    *,
    run_id: str,
    owner: Owner,
) -> Entry:
    return Entry(
        serial=controller.serial,
        controller_id=controller.controller_id,
        device_name=device.name,
        owner=owner,
        feature=feature.identifier,
        old=old,
        new=new,
        uuid_index=feature.uuid_index,
        run_id=run_id,
        boot_id=boot_id(),
        time_utc=utc_text(),
    )
