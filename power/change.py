"""Change one feature of a drive so that it can be undone: journal, Set Features, read back.

The Save bit is never set: the drive's own saved value survives whatever becomes of this process.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from wattload.core.clock import utc_text
from wattload.core.errors import PowerError, PowerStateError
from wattload.power.journal import Entry, Journal, Key, Owner, Setting, boot_id
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.features import set_command
from wattload.power.nvme.identify import Controller
from wattload.power.nvme.status import CODE_MASK, INVALID_FIELD, SUCCESS, describe_status
from wattload.power.settings import Feature, read_setting

GRACE_S = 1.0
"""How long a drive may take beyond its stated latencies before its answer counts as final."""

_LONGEST_WAIT_S = 60.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What came of Set Features: the status, and what was read back where it was not refused."""

    status: int
    current: Setting | None = None


def _ask(
    device: AdminDevice, controller: Controller, feature: Feature, old: Setting, new: Setting
) -> _Answer:
    """Send a value, until the drive's next reset, by each dword that may carry it.

    Once the drive has accepted one, a refusal of the next is not the answer: the first may have
    changed something.
    """
    answer = _Answer(status=INVALID_FIELD)
    for dword in feature.dwords:
        command = set_command(
            feature.identifier,
            feature.describe(new),
            value=new.value,
            dword=dword,
            uuid_index=feature.uuid_index,
            payload=new.data,
        )
        status = device.submit(command).status
        if status & CODE_MASK == SUCCESS:
            answer = _Answer(status=status, current=_settle(device, controller, feature, old, new))
            if answer.current is not None and feature.same(answer.current, new):
                break
        elif answer.current is None:
            answer = _Answer(status=status)
        if status & CODE_MASK not in (SUCCESS, INVALID_FIELD):
            break
    return answer


def _settle(
    device: AdminDevice, controller: Controller, feature: Feature, old: Setting, new: Setting
) -> Setting:
    """Wait the transition's stated latency and a grace; return the value that is read back."""
    wait_s = feature.latency_s(controller, old.value, new.value)
    time.sleep(min(wait_s, _LONGEST_WAIT_S))
    if not feature.readable:
        return new
    deadline_s = time.monotonic() + GRACE_S
    while not feature.same(current := read_setting(device, feature), new):
        if time.monotonic() >= deadline_s:
            break
        time.sleep(_POLL_S)
    return current


def go_back(
    device: AdminDevice, controller: Controller, feature: Feature, old: Setting, now: Setting
) -> Setting:
    """Return a feature to the value it had before; returns what is then read back.

    Raises:
        PowerStateError: the drive refuses, or does not follow.
        PowerError: it can't be asked.
    """
    answer = _ask(device, controller, feature, now, old)
    if answer.current is None:
        raise PowerStateError(_refusal(device, controller, feature, old, answer.status))
    if not feature.same(answer.current, old):
        raise PowerStateError(_defiance(device, controller, feature, old, answer.current))
    return answer.current


class FeatureChange:
    """One feature of one drive, from its change until it is undone.

    The caller holds the controller's lock (``Journal.lock``) as long as the change stands.
    """

    def __init__(
        self,
        device: AdminDevice,
        controller: Controller,
        journal: Journal,
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

    def set(self, new: Setting, *, old: Setting | None = None) -> Setting:
        """Journal, send and verify a value; returns what was read back.

        ``old`` is what to go back to, by default the current value. What the drive does not take
        is undone before this raises.

        Raises:
            PowerStateError: the drive refuses, or does not follow.
            PowerError: the journal can't be written, or the drive can't be asked.
        """
        earlier = self._earlier()
        before = old if old is not None else read_setting(self._device, self.feature)
        self._entry = self._entry_of(earlier.old if earlier else before, new)
        self._journal.write(self._entry)
        if earlier is not None and earlier.key != self._entry.key:
            self._journal.remove(earlier)
        try:
            answer = _ask(self._device, self._controller, self.feature, before, new)
        except PowerError as error:
            self._give_up(str(error), error)
            raise
        if answer.current is None:
            sentence = _refusal(self._device, self._controller, self.feature, new, answer.status)
            if self._is_untouched(self._entry.old, new):
                self._forget(earlier)
            else:
                self._give_up(sentence, None)
            raise PowerStateError(sentence)
        if not self.feature.same(answer.current, new):
            sentence = _defiance(self._device, self._controller, self.feature, new, answer.current)
            self._give_up(sentence, None)
            raise PowerStateError(sentence)
        return answer.current

    def restore(self) -> Setting | None:
        """Go back to the old value and close the journal entry; safe to call twice.

        It is sent even if the drive seems to be there already: a change that it has accepted and
        not yet made would follow later. Returns what was read back, ``None`` where nothing was
        changed.

        Raises:
            PowerError: the drive does not go back; the entry stays for the next start.
        """
        if self._entry is None:
            return None
        back = go_back(
            self._device, self._controller, self.feature, self._entry.old, self._entry.new
        )
        self._journal.remove(self._entry)
        self._entry = None
        return back

    def _earlier(self) -> Entry | None:
        """Return the entry that stands already, also one from before entries told controllers."""
        serial, feature = self._controller.serial, self.feature.identifier
        key = Key(serial, feature, self._controller.controller_id)
        entry = self._journal.read(key, self._owner)
        if entry is not None:
            return entry
        older = self._journal.read(Key(serial, feature), self._owner)
        return older if older is not None and older.device_name == self._device.name else None

    def _entry_of(self, old: Setting, new: Setting) -> Entry:
        return Entry(
            serial=self._controller.serial,
            controller_id=self._controller.controller_id,
            device_name=self._device.name,
            owner=self._owner,
            feature=self.feature.identifier,
            old=old,
            new=new,
            uuid_index=self.feature.uuid_index,
            run_id=self._run_id,
            boot_id=boot_id(),
            time_utc=utc_text(),
        )

    def _give_up(self, sentence: str, cause: PowerError | None) -> None:
        """Undo what was begun; says both what failed and that it could not be undone."""
        try:
            self.restore()
        except PowerError as trouble:
            raise PowerStateError(f"{sentence}; and it is not put back: {trouble}") from cause

    def _forget(self, earlier: Entry | None) -> None:
        """Close the entry of a refused change; what an earlier ``power set`` must undo stands."""
        if earlier is not None:
            self._journal.write(earlier)
        if self._entry is not None and (earlier is None or earlier.key != self._entry.key):
            self._journal.remove(self._entry)
        self._entry = None

    def _is_untouched(self, old: Setting, new: Setting) -> bool:
        """Return whether a refused change was truly not made."""
        if not self.feature.readable or self.feature.same(old, new):
            return True
        try:
            return not self.feature.same(read_setting(self._device, self.feature), new)
        except PowerError:
            return False


def _refusal(
    device: AdminDevice, controller: Controller, feature: Feature, setting: Setting, status: int
) -> str:
    return (
        f"{device.name} ({controller.serial}) refuses {feature.describe(setting)}: "
        f"{describe_status(status)}"
    )


def _defiance(
    device: AdminDevice,
    controller: Controller,
    feature: Feature,
    setting: Setting,
    current: Setting,
) -> str:
    return (
        f"{device.name} ({controller.serial}) accepted {feature.describe(setting)} and is in "
        f"{feature.describe(current)} {GRACE_S:g} s after its stated latency; it does not follow "
        "the host"
    )
