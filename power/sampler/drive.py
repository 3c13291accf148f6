"""One controller of a run: opened, locked, its power settings changed, read, and put back."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import ExitStack

from wattload.core.errors import PowerError
from wattload.core.record.energy import PowerStateRecord
from wattload.power.config import PowerConfig
from wattload.power.control import HoldsSystem, PowerStateControl
from wattload.power.drive_clock import set_clock
from wattload.power.journal import Journal
from wattload.power.knobs import read_saved
from wattload.power.nvme.admin import AdminDevice, OpenDevice
from wattload.power.nvme.features import read_power_state
from wattload.power.nvme.patience import OBEY_LIMIT_S, PatientDevice
from wattload.power.nvme.state import (
    power_capabilities,
    power_state_facts,
    read_state,
    unreadable_state,
)
from wattload.power.sampler.reports import ControllerReading
from wattload.power.sampler.told import DriveStory
from wattload.power.settings import POWER_STATE

_LOG = logging.getLogger(__name__)

ANSWER_LIMIT_S = OBEY_LIMIT_S
"""How long a controller is waited for that was opened without a limit of its own."""


class Drive:
    """A controller by its name; one that can't be opened stays, with the reason."""

    def __init__(self, name: str, *, serial: str, journal: Journal, run_id: str) -> None:
        self.name = name
        self._journal = journal
        self._run_id = run_id
        self._device: AdminDevice | None = None
        self._control: PowerStateControl | None = None
        self._refusal: PowerError | None = None
        self._locks = ExitStack()
        self._story = DriveStory(name=name, serial=serial)

    @property
    def serial(self) -> str:
        """The controller's serial; its name where it tells none."""
        return self._story.serial

    @property
    def is_open(self) -> bool:
        """Whether the controller answers to its name; one that does not can't be changed."""
        return self._control is not None

    def open(self, open_device: OpenDevice) -> None:
        """Open the controller and read the power state that the run finds it in."""
        story = self._story
        try:
            device = open_device(self.name)
            self._device = (
                device
                if isinstance(device, PatientDevice)
                else PatientDevice(device, limit_s=ANSWER_LIMIT_S)
            )
            self._control = PowerStateControl(self._device, self._journal, run_id=self._run_id)
            # A drive that tells none is known by its name, as the rest of the record has it.
            story.serial = self._control.controller.serial or story.serial
            story.changes = self._control.changes
            story.before = read_power_state(self._device)
            story.saved = read_saved(self._device, self._control.controller, POWER_STATE)
        except PowerError as error:
            self._refusal = error
            story.refusal = str(error)

    def hold(self, *, needed: bool, beside: Collection[str] = ()) -> None:
        """Lock the drive against other runs; raises ``PowerError`` if one holds it.

        ``beside`` are the names of its other controllers. A drive that may not be opened is locked
        as well: two runs on it disturb each other whether they see its power or not. A name that
        the host shows no drive of has nothing to be locked, and must leave no file of that name.
        """
        if self._control is not None:
            self._control.hold(needed=needed, beside=beside)
        elif self.serial != self.name:
            self._locks.enter_context(self._journal.lock(self.serial, needed=needed))

    def apply(self, config: PowerConfig, *, holds_system: HoldsSystem) -> None:
        """Make the changes that are asked for; raises ``PowerError`` where that can't be done."""
        self._story.knob, self._story.requested = config.knob, config.state
        control, device = self._control, self._device
        if control is None or device is None or self._refusal is not None:
            kind = type(self._refusal) if self._refusal else PowerError
            raise kind(f"{config.changes} can't be had: {self._refusal}")
        control.apply(config, holds_system=holds_system)
        if config.set_timestamp:
            self._story.clock = set_clock(
                device, control.controller, self._journal, run_id=self._run_id
            )

    def read(self) -> ControllerReading:
        """Return what admin commands tell of it now."""
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
            power_states=tuple(map(power_state_facts, controller.power_states)),
            power=power_capabilities(controller),
        )

    def restore(self) -> None:
        """Put it back; what can't be put back keeps its journal entry and says why.

        A drive that does not tell its state is put back all the same, whatever breaks in reading.
        """
        story, control, device = self._story, self._control, self._device
        if device is None or control is None:
            return
        try:
            if story.after is None:
                story.after = read_power_state(device)
        except PowerError as error:
            story.unread = str(error)
        except Exception as error:
            story.unread = f"{type(error).__name__}: {error}"
            _LOG.exception("%s: a bug in reading its power state", self.name)
        try:
            control.restore()
        except PowerError as error:
            story.trouble = f"not put back: {error}"
            return
        story.trouble = ""
        if self._refusal is None:
            story.saved_after = read_saved(device, control.controller, POWER_STATE)

    def close(self) -> None:
        """Give lock and device back; safe to call twice."""
        self._locks.close()
        if self._control is not None:
            self._control.close()
        elif self._device is not None:
            self._device.close()

    def record(self, host: str) -> PowerStateRecord:
        """Return what has become of its power state so far."""
        return self._story.record(host)


def hold_all(drives: Sequence[Drive], *, needed: bool) -> None:
    """Lock each drive once, for a run may have two controllers of one; see ``Drive.hold``.

    A controller that is open holds the lock before one that is not: it is the one to be changed.
    """
    held: set[str] = set()
    for drive in sorted(drives, key=lambda each: not each.is_open):
        names = [each.name for each in drives if each.serial == drive.serial]
        if drive.serial not in held:
            drive.hold(needed=needed, beside=names)
            held.add(drive.serial)


def apply_all(drives: Sequence[Drive], config: PowerConfig, *, holds_system: HoldsSystem) -> None:
    """Make the changes that are asked for on every drive.

    Raises:
        PowerError: one of them can't be made, or there is no drive to change.
    """
    if not config.changes:
        return
    if not drives:
        raise PowerError(
            f"{config.changes} can't be had: no NVMe controller lies under the target; leave it "
            "unset"
        )
    for drive in drives:
        drive.apply(config, holds_system=holds_system)
