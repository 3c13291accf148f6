"""Change one feature of a drive so that it can be undone: journal, Set Features, read back.

The Save bit is never set: the drive's own saved value survives whatever becomes of this process.
Feature layouts: NVMe Base Specification 2.3, sections on Get and Set Features; C7h: OCP Datacenter
NVMe SSD Specification 2.0, "DSSD Power State".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from wattload.core.clock import utc_text
from wattload.core.errors import PowerError, PowerStateError
from wattload.power.journal import Entry, Journal, Owner, Setting, boot_id
from wattload.power.nvme import limits, measurement
from wattload.power.nvme.admin import SET_FEATURES, AdminCommand, AdminDevice, fetch
from wattload.power.nvme.features import (
    AUTONOMOUS_TRANSITIONS,
    POWER_MANAGEMENT,
    Select,
    get_command,
)
from wattload.power.nvme.identify import Controller
from wattload.power.nvme.status import SUCCESS, describe_status
from wattload.power.nvme.watts import decode_power

GRACE_S = 1.0
"""How long a drive may take beyond its stated latencies before its answer counts as final."""

_LONGEST_WAIT_S = 60.0
_POLL_S = 0.01
_ALL_BITS = 0xFFFF_FFFF
_STATE_BITS = 0x1F


def _no_latency(controller: Controller, old: int, new: int) -> float:  # noqa: ARG001
    return 0.0


def _state_latency_s(controller: Controller, old: int, new: int) -> float:
    leaving, entering = controller.state(old & _STATE_BITS), controller.state(new & _STATE_BITS)
    exit_s = leaving.exit_latency_s if leaving else None
    entry_s = entering.entry_latency_s if entering else None
    return (exit_s or 0.0) + (entry_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """How one feature is got and set.

    ``dword`` carries the value in Set Features (11 to 15); Get Features answers in dword 0.
    ``uuid_index`` says whose feature it is, 0 the specification's. ``mask`` are the bits of the
    value that a change is about: they alone are compared. A feature that is not ``readable`` is
    taken for what was last sent. ``latency_s`` is how long a transition takes by the drive's word.
    """

    identifier: int
    name: str
    dword: int = 11
    uuid_index: int = 0
    mask: int = _ALL_BITS
    readable: bool = True
    latency_s: Callable[[Controller, int, int], float] = _no_latency

    def same(self, one: Setting, other: Setting) -> bool:
        """Return whether two values are the same in what a change is about."""
        return one.value & self.mask == other.value & self.mask and one.data == other.data


POWER_STATE = Feature(
    identifier=POWER_MANAGEMENT, name="power state", mask=_STATE_BITS, latency_s=_state_latency_s
)
TRANSITIONS = Feature(
    identifier=AUTONOMOUS_TRANSITIONS, name="autonomous power state transitions", mask=1
)
POWER_LIMIT = Feature(identifier=limits.POWER_LIMIT, name="power limit", mask=0x3_FFFF)
POWER_MEASUREMENT = Feature(identifier=measurement.POWER_MEASUREMENT, name="power measurement", mask=0xF)
"""ACT, bits 3:0, alone: 0 stops, 1 starts; the stop time counts down by itself."""

DSSD_POWER = Feature(identifier=limits.DSSD_POWER_STATE, name="OCP DSSD power state", mask=0xFF)

_KNOWN = {
    feature.identifier: feature
    for feature in (POWER_STATE, TRANSITIONS, POWER_LIMIT, POWER_MEASUREMENT, DSSD_POWER)
}


def feature_of(entry: Entry) -> Feature:
    """Return the feature that a journal entry is about; an unknown one can't be read back."""
    known = _KNOWN.get(entry.feature)
    if known is None:
        known = Feature(
            identifier=entry.feature, name=f"feature {entry.feature:02X}h", readable=False
        )
    return replace(known, dword=entry.dword, uuid_index=entry.uuid_index)


def read_setting(
    device: AdminDevice, feature: Feature, select: Select = Select.CURRENT
) -> Setting:
    """Return the current, default or saved value of a feature.

    Raises:
        PowerError: the drive has no such feature, or can't be asked.
    """
    command = get_command(feature.identifier, select, uuid_index=feature.uuid_index)
    completion = fetch(device, command)
    return Setting(value=completion.result, data=completion.data)


def send_setting(device: AdminDevice, serial: str, feature: Feature, setting: Setting) -> None:
    """Ask the drive for a value, until its next reset.

    Raises:
        PowerStateError: the drive refuses; the message spells out its status.
        PowerError: the command could not be sent.
    """
    dwords = {f"cdw{feature.dword}": setting.value}
    completion = device.submit(
        AdminCommand(
            name=f"Set Features {feature.identifier:02X}h ({feature.name} {setting.value:#x})",
            opcode=SET_FEATURES,
            cdw10=feature.identifier,
            cdw14=feature.uuid_index,
            payload=setting.data,
            **dwords,
        )
    )
    if completion.code != SUCCESS:
        raise PowerStateError(
            f"{device.name} ({serial}) refuses {describe(feature, setting)}: "
            f"{describe_status(completion.status)}"
        )


def settle(
    device: AdminDevice, controller: Controller, feature: Feature, old: Setting, new: Setting
) -> Setting:
    """Wait the transition's stated latency and return the value that is read back.

    Raises:
        PowerStateError: the drive keeps another value.
    """
    wait_s = feature.latency_s(controller, old.value, new.value)
    time.sleep(min(wait_s, _LONGEST_WAIT_S))
    if not feature.readable:
        return new
    deadline_s = time.monotonic() + GRACE_S
    while not feature.same(current := read_setting(device, feature), new):
        if time.monotonic() >= deadline_s:
            raise PowerStateError(
                f"{device.name} ({controller.serial}) accepted {describe(feature, new)} "
                f"and is in {describe(feature, current)} {GRACE_S:g} s after its stated latency; "
                "it does not follow the host"
            )
        time.sleep(_POLL_S)
    return current


def go_back(
    device: AdminDevice, controller: Controller, feature: Feature, old: Setting, now: Setting
) -> Setting:
    """Return a feature to the value it had before, and what is then read back."""
    send_setting(device, controller.serial, feature, old)
    return settle(device, controller, feature, now, old)


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
        earlier = self._journal.read(self._controller.serial, self._owner, self.feature.identifier)
        before = old if old is not None else read_setting(self._device, self.feature)
        self._entry = self._entry_of(earlier.old if earlier else before, new)
        self._journal.write(self._entry)
        try:
            send_setting(self._device, self._controller.serial, self.feature, new)
        except PowerStateError:
            self._forget_refused(new, earlier)
            raise
        try:
            return settle(self._device, self._controller, self.feature, before, new)
        except PowerError as error:
            try:
                self.restore()
            except PowerError as trouble:
                raise PowerStateError(f"{error}; and it is not put back: {trouble}") from error
            raise

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

    def _entry_of(self, old: Setting, new: Setting) -> Entry:
        return Entry(
            serial=self._controller.serial,
            device_name=self._device.name,
            owner=self._owner,
            feature=self.feature.identifier,
            old=old,
            new=new,
            dword=self.feature.dword,
            uuid_index=self.feature.uuid_index,
            run_id=self._run_id,
            boot_id=boot_id(),
            time_utc=utc_text(),
        )

    def _forget_refused(self, new: Setting, earlier: Entry | None) -> None:
        """Close the entry of a refused change, unless the drive has made it all the same.

        What an earlier ``power set`` must undo still stands.
        """
        if self._entry is None or self._was_taken(new):
            return
        if earlier is not None:
            self._journal.write(earlier)
        else:
            self._journal.remove(self._entry)
        self._entry = None

    def _was_taken(self, new: Setting) -> bool:
        if self._entry is None or self.feature.same(self._entry.old, new):
            return False
        try:
            return self.feature.readable and self.feature.same(
                read_setting(self._device, self.feature), new
            )
        except PowerError:
            return True


def describe(feature: Feature, setting: Setting) -> str:
    """Return a value of a feature as a sentence needs it: ``power state 1``, ``power limit 9 W``."""
    value = setting.value & feature.mask
    if feature.identifier == POWER_LIMIT.identifier:
        limit_w = decode_power(setting.value).watts
        return f"{feature.name} {'none' if limit_w is None else f'{limit_w:g} W'}"
    if feature.identifier == DSSD_POWER.identifier:
        return f"{feature.name} {value} W"
    if feature.identifier in (TRANSITIONS.identifier, POWER_MEASUREMENT.identifier):
        return f"{feature.name} {'on' if value else 'off'}"
    return f"{feature.name} {value}"
