"""Set a power state, prove that it was taken, and undo it whatever happens.

Order of one change: refuse what can't be run in, lock the controller, journal the old state, send
Set Features without the Save bit, wait the latencies that the drive states, read the state back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from wattload.core.errors import PowerStateError
from wattload.power.change import POWER_STATE, FeatureChange, read_setting
from wattload.power.journal import Journal, Owner, Setting
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.features import Select, read_power_management
from wattload.power.nvme.identify import Controller, identify_controller

HoldsSystem = Callable[[str], bool | None]
"""Whether root or swap lies on a controller, by its name; ``None``: can't be told."""

_STATE_BITS = POWER_STATE.mask
_HINT_BITS = 0xE0
"""Workload hint, bits 7:5: left as it is found, or arms would differ in more than the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A power state that was set: what it was, what was asked for, what was read back."""

    serial: str
    device_name: str
    before: int
    requested: int
    verified: int


class PowerStateControl:
    """The power state of one controller, from the change until it is undone."""

    def __init__(
        self, device: AdminDevice, journal: Journal, *, run_id: str, owner: Owner = "run"
    ) -> None:
        self._device = device
        self._journal = journal
        self._locks = ExitStack()
        self.controller = identify_controller(device)
        self._change = FeatureChange(
            device, self.controller, journal, POWER_STATE, run_id=run_id, owner=owner
        )

    def hold(self, *, exclusive: bool) -> None:
        """Take the controller's lock until ``close``; see ``Journal.lock``."""
        self._locks.enter_context(self._journal.lock(self.controller.serial, exclusive=exclusive))

    def set(
        self, state: int, *, holds_system: HoldsSystem, allow_system_drive: bool = False
    ) -> StateChange:
        """Put the drive into an operational power state and return what was read back.

        Takes the latencies that the drive states for the transition.

        Raises:
            PowerStateError: out of range, non-operational, the system's drive, or refused.
            PowerError: the journal can't be written or the drive can't be asked.
        """
        check_state(self._device.name, self.controller, state)
        if not allow_system_drive:
            check_no_system(self._device.name, self.controller.serial, holds_system)
        before = read_setting(self._device, POWER_STATE)
        verified = self._change.set(
            Setting(value=before.value & _HINT_BITS | state), old=self._return_state(before)
        )
        return StateChange(
            serial=self.controller.serial,
            device_name=self._device.name,
            before=before.value & _STATE_BITS,
            requested=state,
            verified=verified.value & _STATE_BITS,
        )

    def restore(self) -> int | None:
        """Go back to the old state and close the journal entry; safe to call twice.

        Returns the state that was read back, ``None`` where nothing was changed.

        Raises:
            PowerError: the drive does not go back; the entry stays for the next start.
        """
        back = self._change.restore()
        return None if back is None else back.value & _STATE_BITS

    def close(self) -> None:
        """Give the lock and the device back; safe to call twice."""
        self._locks.close()
        self._device.close()

    def _return_state(self, before: Setting) -> Setting:
        """Return where to go back to; a drive found asleep wakes by itself, so to its default."""
        descriptor = self.controller.state(before.value & _STATE_BITS)
        if descriptor is None or descriptor.operational:
            return Setting(value=before.value & (_HINT_BITS | _STATE_BITS))
        if not self.controller.selects_features:
            return Setting(value=0)
        return Setting(value=read_power_management(self._device, Select.DEFAULT).state)


def check_state(name: str, controller: Controller, state: int) -> None:
    """Raise ``PowerStateError`` for a state that the drive lacks or in which it does no I/O."""
    descriptor = controller.state(state)
    if descriptor is not None and descriptor.operational:
        return
    why = (
        f"has no power state {state}"
        if descriptor is None
        else f"does no I/O in power state {state}: it is non-operational"
    )
    usable = ", ".join(
        f"{each.index}" + (f" ({each.max_w:g} W)" if each.max_w is not None else "")
        for each in controller.power_states
        if each.operational
    )
    raise PowerStateError(
        f"{name} ({controller.serial}) {why}; states it can run in: {usable or 'none'}"
    )


def check_no_system(name: str, serial: str, holds_system: HoldsSystem) -> None:
    """Raise ``PowerStateError`` where root or swap lies on the drive, or it can't be told."""
    holds = holds_system(name)
    if holds is False:
        return
    why = "holds root or swap" if holds else "may hold root or swap, which can't be told here"
    raise PowerStateError(
        f"{name} ({serial}) {why}, so its power state is left alone; "
        "power.allow_system_drive=true (or --allow-system-drive) permits it"
    )
