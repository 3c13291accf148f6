"""Set a power state, prove that it was taken, and undo it whatever happens.

Order of one change: refuse what can't be run in, lock the controller, journal the old state, send
Set Features without the Save bit, wait the latencies that the drive states, read the state back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from wattload.core.clock import utc_text
from wattload.core.errors import PowerError, PowerStateError
from wattload.power.journal import Entry, Journal, Owner, boot_id
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.features import (
    Select,
    read_power_management,
    read_power_state,
    set_power_state_command,
)
from wattload.power.nvme.identify import Controller, identify_controller
from wattload.power.nvme.status import SUCCESS, describe_status

HoldsSystem = Callable[[str], bool | None]
"""Whether root or swap lies on a controller, by its name; ``None``: can't be told."""

_GRACE_S = 1.0
"""How long a drive may take beyond its stated latencies before its state counts as refused."""

_LONGEST_WAIT_S = 60.0
_POLL_S = 0.01


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
        self._run_id = run_id
        self._owner: Owner = owner
        self._locks = ExitStack()
        self._entry: Entry | None = None
        self.controller = identify_controller(device)

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
        before = read_power_state(self._device)
        verified = self._change_journalled(before, state)
        return StateChange(
            serial=self.controller.serial,
            device_name=self._device.name,
            before=before,
            requested=state,
            verified=verified,
        )

    def restore(self) -> int | None:
        """Go back to the old state and close the journal entry; safe to call twice.

        Returns the state that was read back, ``None`` where nothing was changed.

        Raises:
            PowerError: the drive does not go back; the entry stays for the next start.
        """
        if self._entry is None:
            return None
        restored = go_back(self._device, self.controller, self._entry.old_state)
        self._journal.remove(self._entry)
        self._entry = None
        return restored

    def close(self) -> None:
        """Give the lock and the device back; safe to call twice."""
        self._locks.close()
        self._device.close()

    def _change_journalled(self, before: int, state: int) -> int:
        earlier = self._journal.read(self.controller.serial, self._owner)
        self._entry = Entry(
            serial=self.controller.serial,
            device_name=self._device.name,
            owner=self._owner,
            old_state=earlier.old_state if earlier else self._return_state(before),
            new_state=state,
            run_id=self._run_id,
            boot_id=boot_id(),
            time_utc=utc_text(),
        )
        self._journal.write(self._entry)
        try:
            send(self._device, self.controller, state)
        except PowerStateError:
            # Refused: nothing has changed, and what an earlier `power set` must undo still stands.
            if earlier:
                self._journal.write(earlier)
            else:
                self._journal.remove(self._entry)
            self._entry = None
            raise
        try:
            return settle(self._device, self.controller, before, state)
        except PowerError:
            self.restore()
            raise

    def _return_state(self, before: int) -> int:
        """Return where to go back to; a drive found asleep wakes by itself, so to its default."""
        descriptor = self.controller.state(before)
        if descriptor is None or descriptor.operational:
            return before
        if not self.controller.selects_features:
            return 0
        return read_power_management(self._device, Select.DEFAULT).state


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


def send(device: AdminDevice, controller: Controller, state: int) -> None:
    """Ask the drive for a power state; raises ``PowerStateError`` with its status if it refuses."""
    completion = device.submit(set_power_state_command(state))
    if completion.code != SUCCESS:
        raise PowerStateError(
            f"{device.name} ({controller.serial}) refuses power state {state}: "
            f"{describe_status(completion.status)}"
        )


def settle(device: AdminDevice, controller: Controller, old: int, new: int) -> int:
    """Wait the transition's stated latency and return the state that is read back.

    Raises:
        PowerStateError: the drive stays in another state.
    """
    time.sleep(min(_latency_s(controller, old, new), _LONGEST_WAIT_S))
    deadline_s = time.monotonic() + _GRACE_S
    while (state := read_power_state(device)) != new:
        if time.monotonic() >= deadline_s:
            raise PowerStateError(
                f"{device.name} ({controller.serial}) accepted power state {new} and is in "
                f"{state} {_GRACE_S:g} s after its stated latency; it does not follow the host"
            )
        time.sleep(_POLL_S)
    return state


def go_back(device: AdminDevice, controller: Controller, state: int) -> int:
    """Return the drive to a state that it was in before; nothing is sent if it is there."""
    current = read_power_state(device)
    if current == state:
        return current
    send(device, controller, state)
    return settle(device, controller, current, state)


def _latency_s(controller: Controller, old: int, new: int) -> float:
    leaving, entering = controller.state(old), controller.state(new)
    exit_s = leaving.exit_latency_s if leaving else None
    entry_s = entering.entry_latency_s if entering else None
    return (exit_s or 0.0) + (entry_s or 0.0)
