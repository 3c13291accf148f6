"""One controller of a run: opened, locked, read, its power settings changed and restored.

The outcome of each setting goes into the record.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from wattload.core.base_models import fields_of
from wattload.core.errors import PowerError
from wattload.core.record.energy import PowerSettingRecord, PowerStateRecord
from wattload.power.config import PowerConfig
from wattload.power.control.change import Change, PowerStateControl, set_clock
from wattload.power.control.host import HoldsSystem
from wattload.power.control.journal import ChangeJournal, lock_controllers
from wattload.power.control.power_settings import POWER_STATE, Saved, read_saved
from wattload.power.nvme.admin import AdminDevice, OpenDevice
from wattload.power.nvme.features import POWER_MANAGEMENT, read_power_state
from wattload.power.nvme.state import (
    read_state,
    unreadable_state,
)
from wattload.power.sampler.protocol import ControllerReading

_LOG = logging.getLogger(__name__)

_NOT_REQUESTED = "no power state was requested"
_NOT_ENDED = "the run has not ended"


class Drive:
    """A controller by its name; one that can't be opened is kept, with the reason."""

    def __init__(self, name: str, *, serial: str, journal: ChangeJournal, run_id: str) -> None:
        self.name = name
        self._journal = journal
        self._run_id = run_id
        self._device: AdminDevice | None = None
        self._control: PowerStateControl | None = None
        self._refusal: PowerError | None = None
        self._locks = ExitStack()
        self._outcome = SettingOutcome(name=name, serial=serial)

    @property
    def serial(self) -> str:
        """The controller's serial, or its name if it reports none."""
        return self._outcome.serial

    @property
    def is_open(self) -> bool:
        """Whether the controller could be opened; only then can it be changed."""
        return self._control is not None

    def open(self, open_device: OpenDevice) -> None:
        outcome = self._outcome
        try:
            self._device = open_device(self.name)
            self._control = PowerStateControl(self._device, self._journal, run_id=self._run_id)
            # A drive without a serial is identified by its name, as in the rest of the record.
            outcome.serial = self._control.controller.serial or outcome.serial
            outcome.changes = self._control.changes
            outcome.before = read_power_state(self._device)
            outcome.saved = read_saved(self._device, self._control.controller, POWER_STATE)
        except PowerError as error:
            self._refusal = error
            outcome.refusal = str(error)

    def hold(self, *, needed: bool, other_names: Collection[str] = ()) -> None:
        """Lock the drive against other runs; raises ``PowerError`` if another run holds it.

        ``other_names`` are the names of its other controllers. A drive that can't be opened is
        locked too, because two runs on it disturb each other anyway. A name without a drive on this
        host is not locked and must leave no lock file.
        """
        if self._control is not None:
            self._control.hold(needed=needed, other_names=other_names)
        elif self.serial != self.name:
            self._locks.enter_context(
                self._journal.lock(self.serial, needed=needed, run_id=self._run_id)
            )
            names = sorted({self.name, *other_names})
            self._locks.enter_context(lock_controllers(self.serial, names))

    def apply(self, config: PowerConfig, *, holds_system: HoldsSystem) -> None:
        """Make the requested changes; raises ``PowerError`` if that fails."""
        self._outcome.knob, self._outcome.requested = config.first_setting, config.state
        control, device = self._control, self._device
        if control is None or device is None or self._refusal is not None:
            kind = type(self._refusal) if self._refusal else PowerError
            raise kind(f"{config.settings_text} is not available: {self._refusal}")
        control.apply(config, holds_system=holds_system)
        if config.set_timestamp:
            self._outcome.clock = set_clock(
                device, control.controller, self._journal, run_id=self._run_id
            )

    def read(self) -> ControllerReading:
        if self._device is None or self._control is None:
            fields, missing = unreadable_state(str(self._refusal))
            return ControllerReading(
                serial=self.serial,
                fields=fields,
                missing=missing,
                nvme_version=None,
                power_states=None,
            )
        fields, missing = read_state(self._device)
        if "smart" in fields:
            fields["smart"] = fields["smart"].model_dump()
        controller = self._control.controller
        return ControllerReading(
            serial=self.serial,
            fields=fields,
            missing=missing,
            nvme_version=controller.version,
            power_states=controller.power_states,
            power=controller.capabilities,
        )

    def restore(self) -> None:
        """Restore its settings; one that can't be restored keeps its journal entry and the reason.

        The settings are restored even if reading the drive's state fails.
        """
        outcome, control, device = self._outcome, self._control, self._device
        if device is None or control is None:
            return
        try:
            if outcome.after is None:
                outcome.after = read_power_state(device)
        except PowerError as error:
            outcome.unread = str(error)
        except Exception as error:
            outcome.unread = f"{type(error).__name__}: {error}"
            _LOG.exception("%s: bug while reading its power state", self.name)
        try:
            control.restore()
        except PowerError as error:
            outcome.trouble = f"not restored: {error}"
            return
        outcome.trouble = ""
        if self._refusal is None:
            outcome.saved_after = read_saved(device, control.controller, POWER_STATE)

    def close(self) -> None:
        """Release lock and device; safe to call twice."""
        self._locks.close()
        if self._control is not None:
            self._control.close()
        elif self._device is not None:
            self._device.close()

    def record(self, host: str) -> PowerStateRecord:
        return self._outcome.record(host)


def hold_all(drives: Sequence[Drive], *, needed: bool) -> None:
    """Lock each drive once, even if a run uses two of its controllers; see ``Drive.hold``.

    A controller that could be opened takes the lock first, since only it can be changed.
    """
    held: set[str] = set()
    for drive in sorted(drives, key=lambda each: not each.is_open):
        names = [each.name for each in drives if each.serial == drive.serial]
        if drive.serial not in held:
            drive.hold(needed=needed, other_names=names)
            held.add(drive.serial)


def apply_all(drives: Sequence[Drive], config: PowerConfig, *, holds_system: HoldsSystem) -> None:
    """Make the requested changes on every drive.

    Raises:
        PowerError: one of them fails, or there is no drive to change.
    """
    if not config.settings_text:
        return
    if not drives:
        raise PowerError(
            f"{config.settings_text} is not available: there is no NVMe controller under the "
            "target; leave it unset"
        )
    for drive in drives:
        drive.apply(config, holds_system=holds_system)


@dataclass(slots=True, kw_only=True)
class SettingOutcome:
    """What is known of one drive so far: initial state, request, changes, restores and failures."""

    name: str
    serial: str
    refusal: str = ""
    knob: str | None = None
    requested: int | None = None
    before: int | None = None
    after: int | None = None
    unread: str = ""
    trouble: str = ""
    saved: Saved = (None, "it was not read")
    saved_after: Saved = (None, _NOT_ENDED)
    clock: PowerSettingRecord | None = None
    changes: Sequence[Change] = field(default_factory=list)

    def record(self, host: str) -> PowerStateRecord:
        state = self._change(POWER_MANAGEMENT)
        values: Mapping[str, tuple[float | str | None, str]] = {
            "requested": (self.requested, _NOT_REQUESTED),
            "before": (self.before, self.refusal),
            "verified": (
                state.verified if state else None,
                _NOT_REQUESTED if self.requested is None else "it was not set",
            ),
            "after": (self.after, self.refusal or self.unread or _NOT_ENDED),
            "restored": (state.restored if state else None, self._why_not_restored(state)),
            "saved": (self.saved[0], self.refusal or self.saved[1]),
            "saved_after": (
                self.saved_after[0],
                self.refusal or self.trouble or self.saved_after[1],
            ),
            "knob": (self.knob, "no setting was requested"),
        }
        return PowerStateRecord(
            host=host,
            serial=self.serial,
            settings=tuple(self._settings()),
            sentence=self._sentence(state),
            **fields_of(values),
        )

    def _change(self, feature: int) -> Change | None:
        found = (each for each in self.changes if each.plan.feature.identifier == feature)
        return next(found, None)

    def _why_not_restored(self, change: Change | None) -> str:
        if change is None:
            return self.trouble or "nothing was changed"
        if change.trouble:
            return f"not restored: {change.trouble}"
        return _NOT_ENDED if change.verified is not None else "it was not set"

    def _settings(self) -> list[PowerSettingRecord]:
        others = [each for each in self.changes if each.plan.feature.identifier != POWER_MANAGEMENT]
        settings = [self._setting(change) for change in others]
        return [*settings, self.clock] if self.clock else settings

    def _setting(self, change: Change) -> PowerSettingRecord:
        none = "the drive has no value"
        values = {
            "before": (change.before, none),
            "verified": (change.verified, "it was not set"),
            "after": (change.after, self.trouble or _NOT_ENDED),
            "restored": (
                change.restored,
                none if change.is_restored else self._why_not_restored(change),
            ),
            "saved": change.saved,
            "saved_after": change.saved_after,
        }
        return PowerSettingRecord(
            option=change.plan.option,
            feature=change.plan.feature.identifier,
            name=change.plan.feature.name,
            unit=change.plan.feature.unit,
            requested=change.plan.requested,
            **fields_of(values),
        )

    def _sentence(self, state: Change | None) -> str:
        if self.refusal:
            return f"{self.name}: {self.refusal}"
        outcomes = [_outcome_text(each) for each in self.changes]
        if self.clock is not None:
            outcomes.append("its clock was set to the host's and is not reset")
        if state is None or state.verified is None:
            why = f" ({self.trouble})" if self.trouble and not outcomes else ""
            outcomes.insert(0, f"it ran in its initial power state, {self.before}{why}")
        return f"{self.name}: {'; '.join(outcomes)}."


def _outcome_text(change: Change) -> str:
    feature = change.plan.feature
    if change.verified is None:
        return f"its {feature.name} was not set"
    text = (
        f"its {feature.name} was set from {feature.text(change.before)} to "
        f"{feature.text(change.verified)}"
    )
    if change.was_put_back:
        back = feature.text(change.restored)
        return f"{text}, and something else had already put it back to {back}"
    if change.is_restored:
        return f"{text} and restored to {feature.text(change.restored)}"
    return f"{text}, and is not restored: {change.trouble or 'the run has not ended'}"
