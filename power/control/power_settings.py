"""The power settings of a drive: the meaning of their values, the plan of each change, sending it.

A run sets at most one of three limits on power: the power state (02h), OCP's limit in whole watts
(C7h), or the power limit (23h). It can combine any of them with switching autonomous transitions
(0Ch). Layouts: ``wattload.power.nvme``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from wattload.core.errors import PowerError, PowerRefusedError, PowerStateError
from wattload.power.config import PowerConfig
from wattload.power.control.journal import Setting
from wattload.power.nvme import features, measurement
from wattload.power.nvme.admin import (
    CODE_MASK,
    INVALID_FIELD,
    SUCCESS,
    AdminDevice,
    describe_status,
    fetch,
)
from wattload.power.nvme.features import (
    AUTONOMOUS_TRANSITIONS,
    POWER_MANAGEMENT,
    Select,
    get_command,
    is_saveable,
    read_power_state,
    set_command,
)
from wattload.power.nvme.fields import decode_power, encode_power
from wattload.power.nvme.identify import Controller, read_ocp_uuid_index

SettingValue = int | float
"""The meaning of a feature's value: the number of a state, watts, or 1 and 0 for on and off."""

Saved = tuple[SettingValue | None, str]
"""A drive's saved value, or ``None`` and the reason why there is none."""

GRACE_S = 1.0
"""How long a drive may exceed its stated latencies before its answer counts as final."""

_LONGEST_WAIT_S = 60.0
_POLL_S = 0.01

_STATE_BITS = 0x1F
_HINT_BITS = 0xE0
"""Workload hint, bits 7:5: kept as it is, or arms would differ in more than the state."""


def _state_latency_s(controller: Controller, old: int, new: int) -> float:
    leaving, entering = controller.state(power_state_of(old)), controller.state(power_state_of(new))
    exit_s = leaving.exit_latency_s if leaving else None
    entry_s = entering.entry_latency_s if entering else None
    return (exit_s or 0.0) + (entry_s or 0.0)


def power_state_of(value: int) -> int:
    """Return the power state in a value of feature 02h: PS, bits 4:0."""
    return value & _STATE_BITS


def _action(value: int) -> int:
    """Return ACT, bits 3:0, without the stop time, which the drive counts down."""
    return value & 0xF


def _measures(device: AdminDevice) -> int:
    """Return 1 while a measurement runs, else 0, by PME of log 25h."""
    return int(measurement.read_measurement_header(device).active)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """How to get and set one feature.

    ``dwords`` (11 to 13) may carry the value in Set Features; where sources disagree, there are
    several. ``uuid_index`` identifies who defined the feature; 0 is the specification. ``decode``
    gives the meaning of a value, in ``unit``. ``mask`` has the bits that a value may have, and
    ``data_bytes`` is the length of its buffer. Two values with the same meaning and buffer are
    equal. A feature that is not ``readable`` is never restored. ``ends_itself`` says that the drive
    may go back to the old value by itself. ``current`` reads a feature whose Get Features a drive
    may refuse. ``latency_s`` is the transition time that the drive states.
    """

    identifier: int
    name: str
    unit: str = ""
    mask: int = 0xFFFFFFFF
    data_bytes: int = 0
    dwords: tuple[int, ...] = (11,)
    uuid_index: int = 0
    decode: Callable[[int], SettingValue | None] = lambda value: value
    is_switch: bool = False
    readable: bool = True
    ends_itself: bool = False
    current: Callable[[AdminDevice], int] | None = None
    latency_s: Callable[[Controller, int, int], float] = lambda controller, old, new: 0.0

    def same(self, one: Setting, other: Setting) -> bool:
        """Return whether two values have the same meaning and buffer."""
        return self.decode(one.value) == self.decode(other.value) and one.data == other.data

    def describe(self, setting: Setting) -> str:
        """Return a value as text for a message: ``power state 1``, ``power limit 9 W``."""
        return f"{self.name} {self.text(self.decode(setting.value))}"

    def text(self, value: SettingValue | None) -> str:
        """Return the meaning of a value as text: ``1``, ``9 W``, ``on``; ``none`` for ``None``."""
        if value is None:
            return "none"
        if self.is_switch:
            return "on" if value else "off"
        return f"{value:g} {self.unit}".strip()


POWER_STATE = Feature(
    identifier=POWER_MANAGEMENT,
    name="power state",
    mask=_HINT_BITS | _STATE_BITS,
    decode=power_state_of,
    latency_s=_state_latency_s,
)

TRANSITIONS = Feature(
    identifier=AUTONOMOUS_TRANSITIONS,
    name="APST",
    data_bytes=features.APST_BYTES,
    decode=lambda value: value & 1,
    is_switch=True,
)

POWER_LIMIT = Feature(
    identifier=features.POWER_LIMIT,
    name="power limit",
    unit="W",
    dwords=features.LIMIT_DWORDS,
    decode=lambda value: decode_power(value).watts,
)

POWER_MEASUREMENT = Feature(
    identifier=measurement.POWER_MEASUREMENT,
    name="power measurement",
    decode=_action,
    is_switch=True,
    ends_itself=True,
    current=_measures,
)

DSSD_POWER = Feature(
    identifier=features.DSSD_POWER_STATE,
    name="OCP power state",
    unit="W",
    decode=features.decode_dssd_power_w,
)

CLOCK = Feature(
    identifier=features.TIMESTAMP,
    name="timestamp",
    data_bytes=features.TIMESTAMP_BYTES,
    readable=False,
)
KNOWN_FEATURES = {
    feature.identifier: feature
    for feature in (POWER_STATE, TRANSITIONS, POWER_LIMIT, POWER_MEASUREMENT, DSSD_POWER, CLOCK)
}


def read_setting(device: AdminDevice, feature: Feature, select: Select = Select.CURRENT) -> Setting:
    """Return the current, default or saved value of a feature.

    Raises:
        PowerError: the drive lacks the feature, or does not answer.
    """
    if feature.current is not None and select is Select.CURRENT:
        return Setting(value=feature.current(device))
    command = get_command(feature.identifier, select, uuid_index=feature.uuid_index)
    completion = fetch(device, command)
    return Setting(value=completion.result, data=completion.data)


def read_saved(device: AdminDevice, controller: Controller, feature: Feature) -> Saved:
    """Return the saved value of a feature (SEL = 2), or ``None`` and the reason."""
    if not controller.selects_features:
        return None, "the drive reports the current value only"
    try:
        if not is_saveable(device, feature.identifier, uuid_index=feature.uuid_index):
            return None, "the drive can't save this setting"
        setting = read_setting(device, feature, Select.SAVED)
    except PowerError as error:
        return None, str(error)
    figure = feature.decode(setting.value)
    return figure, "" if figure is not None else "the drive has no saved value"


@dataclass(frozen=True, slots=True)
class DriveFeature:
    """A feature of a drive that this process has open."""

    device: AdminDevice
    controller: Controller
    feature: Feature

    @property
    def drive_name(self) -> str:
        return f"{self.device.name} ({self.controller.serial})"

    def read(self) -> Setting:
        return read_setting(self.device, self.feature)

    def read_saved(self) -> Saved:
        return read_saved(self.device, self.controller, self.feature)

    def send(
        self, current: Setting, new: Setting, *, note: Callable[[Setting], None] | None = None
    ) -> Setting:
        """Send a value, valid until the drive's next reset, and return the value read back.

        ``note`` is called with each value read back that is not ``new``.

        The value is in all dwords that may carry it. A drive that reads a dword which does not
        carry it would see 0, and a power limit of 0 sets none. So a value goes into one dword alone
        only if that lifts no limit. After the drive has accepted one dword, a refusal of the next
        is ignored: the first may have taken effect.

        Raises:
            PowerRefusedError: the drive refuses the value.
            PowerStateError: it reports another value afterwards.
            PowerError: it does not answer.
        """
        dwords = self.feature.dwords
        status, settled = self._send_in(dwords, current, new, note)
        if status & CODE_MASK == INVALID_FIELD and self._may_be_apart(current, new):
            for dword in dwords:
                status, last = self._send_in((dword,), current, new, note)
                settled = last or settled
                is_set = last is not None and self.feature.same(last, new)
                if is_set or status & CODE_MASK not in (SUCCESS, INVALID_FIELD):
                    break
        if settled is None:
            what = f"refuses {self.feature.describe(new)}: {describe_status(status)}"
            raise PowerRefusedError(f"{self.drive_name} {what}")
        if not self.feature.same(settled, new):
            raise PowerStateError(
                f"{self.drive_name} accepted {self.feature.describe(new)} "
                f"but reports {self.feature.describe(settled)} {GRACE_S:g} s after its stated "
                "latency: it does not follow the host"
            )
        return settled

    def _send_in(
        self,
        dwords: Collection[int],
        current: Setting,
        new: Setting,
        note: Callable[[Setting], None] | None,
    ) -> tuple[int, Setting | None]:
        """Return the status, and the value read back unless it was refused."""
        status = self._submit(new, dwords)
        if status & CODE_MASK != SUCCESS:
            return status, None
        return status, self._settle(current, new, note)

    def _submit(self, setting: Setting, dwords: Collection[int]) -> int:
        """Send Set Features; return the status."""
        command = set_command(
            self.feature.identifier,
            self.feature.describe(setting),
            value=setting.value,
            dwords=dwords,
            uuid_index=self.feature.uuid_index,
            payload=setting.data,
        )
        return self.device.submit(command).status

    def _may_be_apart(self, current: Setting, new: Setting) -> bool:
        """Return whether a value that was refused in several dwords may go into each alone.

        It may if no limit is in effect, or if the drive refuses even its present value in several
        dwords: it then requires those that it does not read to be 0, and refuses a value in them.
        """
        dwords = self.feature.dwords
        if len(dwords) == 1 or new.value == 0:
            return False
        return current.value == 0 or self._submit(current, dwords) & CODE_MASK == INVALID_FIELD

    def _settle(
        self, old: Setting, new: Setting, note: Callable[[Setting], None] | None
    ) -> Setting:
        """Wait for the transition's latency and a grace period; return the value read back."""
        wait_s = self.feature.latency_s(self.controller, old.value, new.value)
        time.sleep(min(wait_s, _LONGEST_WAIT_S))
        deadline_s = time.monotonic() + GRACE_S
        while not self.feature.same(current := self.read(), new):
            if note is not None:
                note(current)
            if time.monotonic() >= deadline_s:
                break
            time.sleep(_POLL_S)
        return current


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One change as it will be sent; ``option`` is the ``PowerConfig`` setting that requests it.

    ``before`` is the value found, ``old`` the value to restore. They differ for a drive that was
    found asleep.
    """

    option: str
    feature: Feature
    requested: SettingValue
    before: Setting
    old: Setting
    new: Setting


def plans(device: AdminDevice, controller: Controller, config: PowerConfig) -> Iterator[Plan]:
    """Yield the changes that a configuration requests, in the order of sending.

    Each is planned after the one before it was made: its old value is read here.

    Raises:
        PowerStateError: the drive lacks the feature, or does no I/O in the requested state.
        PowerError: the drive does not answer.
    """
    if config.apst is not None:
        yield _plan_transitions(device, controller, enabled=config.apst)
    if config.state is not None:
        yield _plan_state(device, controller, config.state)
    if config.dssd_watts is not None:
        yield _plan_dssd_power(device, controller, config.dssd_watts)
    if config.limit_w is not None:
        yield _plan_limit(device, controller, config.limit_w)


def _plan_state(device: AdminDevice, controller: Controller, state: int) -> Plan:
    _check_state(device.name, controller, state)
    before = read_setting(device, POWER_STATE)
    return Plan(
        option="power.state",
        feature=POWER_STATE,
        requested=state,
        before=before,
        old=_return_state(device, controller, before),
        new=Setting(value=before.value & _HINT_BITS | state),
    )


def _check_state(name: str, controller: Controller, state: int) -> None:
    """Raise ``PowerStateError`` if the drive lacks a state or does no I/O in it."""
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
        f"{name} ({controller.serial}) {why}; operational states: {usable or 'none'}"
    )


def _return_state(device: AdminDevice, controller: Controller, before: Setting) -> Setting:
    """Return the value to restore; for a drive found asleep its default: I/O wakes it."""
    descriptor = controller.state(power_state_of(before.value))
    if descriptor is None or descriptor.operational:
        return Setting(value=before.value & (_HINT_BITS | _STATE_BITS))
    if not controller.selects_features:
        return Setting(value=0)
    return Setting(value=read_power_state(device, Select.DEFAULT))


def _plan_dssd_power(device: AdminDevice, controller: Controller, watts: int) -> Plan:
    """Return the change of OCP's feature C7h; without OCP's UUID index it is vendor-specific."""
    try:
        uuid_index = read_ocp_uuid_index(device, controller)
        if not uuid_index:
            raise PowerStateError(
                f"{device.name} ({controller.serial}) does not list OCP's UUID, so its "
                "feature C7h may mean something else; use power.state or power.limit_w"
            )
        feature = replace(DSSD_POWER, uuid_index=uuid_index)
        before = read_setting(device, feature)
    except PowerError as error:
        raise PowerStateError(f"power.dssd_watts can't be set: {error}") from error
    return _plan("power.dssd_watts", feature, watts, before, Setting(value=watts))


def _plan_limit(device: AdminDevice, controller: Controller, limit_w: float) -> Plan:
    """Return the change of the power limit, feature 23h."""
    if not controller.capabilities.power_limit:
        raise PowerStateError(
            f"{device.name} ({controller.serial}) has no power limit (bit 20 of CTRATT is 0); use "
            "power.state or power.dssd_watts"
        )
    try:
        new = Setting(value=encode_power(limit_w).dword)
    except PowerError as error:
        raise PowerStateError(f"power.limit_w: {error}") from error
    return _plan("power.limit_w", POWER_LIMIT, limit_w, read_setting(device, POWER_LIMIT), new)


def _plan_transitions(device: AdminDevice, controller: Controller, *, enabled: bool) -> Plan:
    """Return the switch of autonomous transitions; their table is not changed."""
    if not controller.capabilities.autonomous_transitions:
        raise PowerStateError(
            f"{device.name} ({controller.serial}) has no autonomous power state transitions "
            "(APST); leave power.apst unset"
        )
    before = read_setting(device, TRANSITIONS)
    new = Setting(value=int(enabled), data=before.data)
    return _plan("power.apst", TRANSITIONS, int(enabled), before, new)


def _plan(
    option: str, feature: Feature, value: SettingValue, before: Setting, new: Setting
) -> Plan:
    return Plan(option=option, feature=feature, requested=value, before=before, old=before, new=new)
