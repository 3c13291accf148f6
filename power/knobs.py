"""What a run may ask of a drive's power, each planned: what is sent, and what to go back to.

One of three knobs at a time caps the power: the power state (02h), OCP's whole watts (C7h), the
power limit (23h). Switching autonomous transitions (0Ch) goes with any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from wattload.core.errors import PowerError, PowerStateError
from wattload.power.config import PowerConfig
from wattload.power.journal import Setting
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.features import Select, decode_capabilities, read_power_management
from wattload.power.nvme.identify import Controller
from wattload.power.nvme.uuids import read_ocp_uuid_index
from wattload.power.nvme.watts import encode_power
from wattload.power.settings import (
    DSSD_POWER,
    POWER_LIMIT,
    POWER_STATE,
    TRANSITIONS,
    Feature,
    Figure,
    read_setting,
)

Saved = tuple[Figure | None, str]
"""A drive's own saved value, or ``None`` and why there is none."""

_STATE_BITS = 0x1F
_HINT_BITS = 0xE0
"""Workload hint, bits 7:5: left as it is found, or arms would differ in more than the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One change as it will be sent; ``option`` is the setting of ``PowerConfig`` that asks for it.

    ``before`` is the value that was found, ``old`` the one to go back to: for a drive that was
    found asleep these are two.
    """

    option: str
    feature: Feature
    requested: Figure
    before: Setting
    old: Setting
    new: Setting


def plans(device: AdminDevice, controller: Controller, config: PowerConfig) -> Iterator[Plan]:
    """Yield what a configuration asks of a drive, in the order in which it is sent.

    Each is planned when the one before it was made, for its old value is read here.

    Raises:
        PowerStateError: the drive has nothing of the kind, or does no I/O in that state.
        PowerError: it can't be asked.
    """
    if config.apst is not None:
        yield plan_transitions(device, controller, enabled=config.apst)
    if config.state is not None:
        yield plan_state(device, controller, config.state)
    if config.dssd_watts is not None:
        yield plan_dssd_power(device, controller, config.dssd_watts)
    if config.limit_w is not None:
        yield plan_limit(device, controller, config.limit_w)


def plan_state(device: AdminDevice, controller: Controller, state: int) -> Plan:
    """Return the change into an operational power state."""
    check_state(device.name, controller, state)
    before = read_setting(device, POWER_STATE)
    return Plan(
        option="power.state",
        feature=POWER_STATE,
        requested=state,
        before=before,
        old=_return_state(device, controller, before),
        new=Setting(value=before.value & _HINT_BITS | state),
    )


def plan_dssd_power(device: AdminDevice, controller: Controller, watts: int) -> Plan:
    """Return the change of OCP's feature C7h, which is the vendor's without OCP's UUID index."""
    try:
        uuid_index = read_ocp_uuid_index(device, controller)
        if not uuid_index:
            raise PowerStateError(
                f"{device.name} ({controller.serial}) does not list OCP's UUID, so its feature C7h "
                "may mean anything; use power.state or power.limit_w"
            )
        feature = replace(DSSD_POWER, uuid_index=uuid_index)
        before = read_setting(device, feature)
    except PowerError as error:
        raise PowerStateError(f"power.dssd_watts can't be set: {error}") from error
    return _plan("power.dssd_watts", feature, watts, before, Setting(value=watts))


def plan_limit(device: AdminDevice, controller: Controller, limit_w: float) -> Plan:
    """Return the change of the power limit, feature 23h."""
    if not controller.power_limit:
        raise PowerStateError(
            f"{device.name} ({controller.serial}) has no power limit (bit 20 of CTRATT is 0); use "
            "power.state or power.dssd_watts"
        )
    try:
        new = Setting(value=encode_power(limit_w).dword)
    except PowerError as error:
        raise PowerStateError(f"power.limit_w: {error}") from error
    return _plan("power.limit_w", POWER_LIMIT, limit_w, read_setting(device, POWER_LIMIT), new)


def plan_transitions(device: AdminDevice, controller: Controller, *, enabled: bool) -> Plan:
    """Return the switch of autonomous transitions; their table stays as it is."""
    if not controller.apst_supported:
        raise PowerStateError(
            f"{device.name} ({controller.serial}) has no autonomous power state transitions "
            "(APST); leave power.apst unset"
        )
    before = read_setting(device, TRANSITIONS)
    new = Setting(value=int(enabled), data=before.data)
    return _plan("power.apst", TRANSITIONS, int(enabled), before, new)


def read_saved(device: AdminDevice, controller: Controller, feature: Feature) -> Saved:
    """Return the saved value of a feature (SEL = 2), or ``None`` and why there is none."""
    if not controller.selects_features:
        return None, "the drive answers for the current value only"
    try:
        if not decode_capabilities(
            read_setting(device, feature, Select.CAPABILITIES).value
        ).saveable:
            return None, "the drive can't save it"
        setting = read_setting(device, feature, Select.SAVED)
    except PowerError as error:
        return None, str(error)
    figure = feature.decode(setting.value)
    return figure, "" if figure is not None else "none is saved"


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


def _plan(option: str, feature: Feature, figure: Figure, before: Setting, new: Setting) -> Plan:
    return Plan(
        option=option, feature=feature, requested=figure, before=before, old=before, new=new
    )


def _return_state(device: AdminDevice, controller: Controller, before: Setting) -> Setting:
    """Return where to go back to; a drive found asleep wakes by itself, so to its default."""
    descriptor = controller.state(before.value & _STATE_BITS)
    if descriptor is None or descriptor.operational:
        return Setting(value=before.value & (_HINT_BITS | _STATE_BITS))
    if not controller.selects_features:
        return Setting(value=0)
    return Setting(value=read_power_management(device, Select.DEFAULT).state)
