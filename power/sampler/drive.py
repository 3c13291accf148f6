"""One controller of a run: opened, locked, set into a power state, read, and put back."""

from __future__ import annotations

from wattload.core.errors import PowerError
from wattload.core.record.energy import PowerStateRecord
from wattload.power.control import HoldsSystem, PowerStateControl, StateChange
from wattload.power.journal import Journal
from wattload.power.nvme.admin import AdminDevice, OpenDevice
from wattload.power.nvme.features import read_power_state
from wattload.power.nvme.state import power_state_facts, read_state, unreadable_state
from wattload.power.sampler.reports import ControllerReading

_NOT_ASKED = "no power state was asked for"


class Drive:
    """A controller by its name; one that can't be opened stays, with the reason."""

    def __init__(self, name: str, *, serial: str, journal: Journal, run_id: str) -> None:
        self.name = name
        self.serial = serial
        self._journal = journal
        self._run_id = run_id
        self._device: AdminDevice | None = None
        self._control: PowerStateControl | None = None
        self._refusal: PowerError | None = None
        self._requested: int | None = None
        self._before: int | None = None
        self._change: StateChange | None = None
        self._after: int | None = None
        self._restored: int | None = None
        self._trouble = ""

    def open(self, open_device: OpenDevice) -> None:
        """Open the controller and read the power state that the run finds it in."""
        try:
            self._device = open_device(self.name)
            self._control = PowerStateControl(self._device, self._journal, run_id=self._run_id)
            self.serial = self._control.controller.serial
            self._before = read_power_state(self._device)
        except PowerError as error:
            self._refusal = error

    def hold(self, *, exclusive: bool) -> None:
        """Lock the controller against other runs; raises ``PowerError`` if one holds it."""
        if self._control is not None:
            self._control.hold(exclusive=exclusive)

    def set(self, state: int, *, holds_system: HoldsSystem, allow_system_drive: bool) -> None:
        """Put it into a power state, verified; raises ``PowerError`` where that can't be done."""
        self._requested = state
        if self._control is None or self._refusal is not None:
            kind = type(self._refusal) if self._refusal else PowerError
            raise kind(f"power state {state} can't be set: {self._refusal}")
        self._change = self._control.set(
            state, holds_system=holds_system, allow_system_drive=allow_system_drive
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
        )

    def restore(self) -> None:
        """Put it back; what can't be put back keeps its journal entry and says why."""
        if self._device is None or self._control is None:
            return
        try:
            if self._after is None:
                self._after = read_power_state(self._device)
            restored = self._control.restore()
        except PowerError as error:
            self._trouble = f"not put back: {error}"
            return
        if restored is not None:
            self._restored = restored
            self._trouble = ""

    def close(self) -> None:
        """Give lock and device back; safe to call twice."""
        if self._control is not None:
            self._control.close()
        elif self._device is not None:
            self._device.close()

    def record(self, host: str) -> PowerStateRecord:
        """Return what has become of its power state so far."""
        verified = self._change.verified if self._change else None
        values = {
            "requested": (self._requested, _NOT_ASKED),
            "before": (self._before, str(self._refusal)),
            "verified": (verified, _NOT_ASKED if self._requested is None else "it was not set"),
            "after": (self._after, str(self._refusal or "the run has not ended")),
            "restored": (self._restored, self._trouble or self._why_not_restored()),
        }
        return PowerStateRecord(
            host=host,
            serial=self.serial,
            sentence=self._sentence(),
            missing={name: reason for name, (value, reason) in values.items() if value is None},
            **{name: value for name, (value, _) in values.items()},
        )

    def _why_not_restored(self) -> str:
        return "nothing was changed" if self._change is None else "the run has not ended"

    def _sentence(self) -> str:
        if self._refusal is not None:
            return f"{self.name}: {self._refusal}"
        if self._change is None:
            return f"{self.name} ran in the power state it was found in, {self._before}."
        text = f"{self.name} was set from power state {self._before} to {self._change.verified}"
        if self._restored is not None:
            return f"{text} and put back into {self._restored}."
        return f"{text}; {self._trouble or 'it is not put back yet'}."
