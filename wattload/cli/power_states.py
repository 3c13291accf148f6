"""``wattload power states``: the table of power states, and what else caps a drive's power."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from wattload.core.errors import PowerError
from wattload.power.host import PowerHost
from wattload.power.knobs import read_saved
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.features import (
    Select,
    read_power_management,
    read_power_state,
    read_transitions,
)
from wattload.power.nvme.identify import Controller, PowerStateDescriptor, identify_controller
from wattload.power.nvme.limits import read_dssd_power_w, read_power_limit, read_power_threshold
from wattload.power.nvme.measurement import read_measurement_setting
from wattload.power.nvme.pages import read_supported_pages
from wattload.power.nvme.state import power_state_facts
from wattload.power.nvme.uuids import read_ocp_uuid_index
from wattload.power.settings import POWER_STATE

_NO_MEASUREMENT = "the drive has no power measurement of its own"


@dataclass(slots=True, kw_only=True)
class DriveStates:
    """What one drive says of its power states; what it does not say is in ``missing``."""

    name: str
    controller: Controller
    values: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, read: Callable[[], Any]) -> None:
        """Take what ``read`` returns, or the reason why there is nothing."""
        try:
            self.values[name] = read()
        except PowerError as error:
            self.values[name] = None
            self.missing[name] = str(error)


def states(arguments: argparse.Namespace, host: PowerHost, names: Sequence[str]) -> int:
    """Print the power states of the controllers; returns 0.

    Raises:
        PowerError: a controller can't be opened.
    """
    for name in names:
        with closing(host.open_device(name)) as device:
            told = _read(name, device)
        if arguments.json:
            sys.stdout.write(json.dumps(_document(told)) + "\n")
        else:
            sys.stdout.write("\n".join(_table(told)) + "\n")
    return 0


def _read(name: str, device: AdminDevice) -> DriveStates:
    controller = identify_controller(device)
    told = DriveStates(name=name, controller=controller)
    told.add("power_state", lambda: read_power_state(device))
    told.add("power_state_default", lambda: _default(device, controller))
    told.values["power_state_saved"], why = read_saved(device, controller, POWER_STATE)
    if why:
        told.missing["power_state_saved"] = why
    told.add("apst", lambda: _transitions(device, controller))
    told.add("dssd_watts", lambda: _dssd_watts(device, controller))
    told.add("limit_w", lambda: _limit_w(device, controller))
    told.add("threshold", lambda: _threshold(device, controller))
    told.add("measures", lambda: _measures(device, controller))
    told.add("log_pages", lambda: _log_pages(device, controller))
    return told


def _default(device: AdminDevice, controller: Controller) -> int:
    if not controller.selects_features:
        raise PowerError("the drive answers for the current value only")
    return read_power_management(device, Select.DEFAULT).state


def _transitions(device: AdminDevice, controller: Controller) -> str:
    if not controller.apst_supported:
        raise PowerError("the drive has no autonomous transitions")
    table = read_transitions(device)
    rules = ", ".join(
        f"PS{rule.state} to PS{rule.target} after {rule.idle_s:g} s" for rule in table.transitions
    )
    return f"{'on' if table.enabled else 'off'}: {rules or 'no rule'}"


def _dssd_watts(device: AdminDevice, controller: Controller) -> int:
    index = read_ocp_uuid_index(device, controller)
    if not index:
        raise PowerError("the drive does not list OCP's UUID")
    return read_dssd_power_w(device, uuid_index=index)


def _limit_w(device: AdminDevice, controller: Controller) -> float:
    if not controller.power_limit:
        raise PowerError("the drive has no power limit")
    limit_w = read_power_limit(device).watts
    if limit_w is None:
        raise PowerError("none is set")
    return limit_w


def _threshold(device: AdminDevice, controller: Controller) -> str:
    if not controller.power_measurement:
        raise PowerError(_NO_MEASUREMENT)
    threshold = read_power_threshold(device)
    if threshold.power.watts is None:
        raise PowerError("none is set")
    told = "" if threshold.event_enabled else ", and no event tells"
    return f"{threshold.power.watts:g} W{told}"


def _measures(device: AdminDevice, controller: Controller) -> str:
    if not controller.power_measurement:
        raise PowerError(_NO_MEASUREMENT)
    setting = read_measurement_setting(device)
    if not setting.active:
        return "off"
    minutes = setting.stop_after_minutes
    return "on" if minutes is None else f"on, for {minutes} min"


def _log_pages(device: AdminDevice, controller: Controller) -> str:
    pages = read_supported_pages(device, controller)
    if pages is None:
        raise PowerError("the drive keeps no list of its logs")
    return ", ".join(f"{page:02X}h" for page in sorted(pages))


def _document(told: DriveStates) -> dict[str, Any]:
    return {
        "device": told.name,
        "serial": told.controller.serial,
        "model": told.controller.model,
        **told.values,
        "missing": told.missing,
        "power_states": [
            power_state_facts(state).model_dump() for state in told.controller.power_states
        ],
    }


def _table(told: DriveStates) -> list[str]:
    controller, current = told.controller, told.values["power_state"]
    lines = [f"{told.name}  {controller.model}  {controller.serial}"]
    lines.append("  state   maximum      idle    active      enter      leave")
    lines += [_row(state, is_current=state.index == current) for state in controller.power_states]
    if current is None:
        lines.append(f"  current state unknown: {told.missing['power_state']}")
        return lines
    lines.append(f"  default      {_shown(told, 'power_state_default', 'PS')}")
    lines.append(f"  saved        {_shown(told, 'power_state_saved', 'PS')}")
    lines.append(f"  by itself    {_shown(told, 'apst')}")
    lines.append(f"  OCP watts    {_shown(told, 'dssd_watts', unit=' W')}")
    lines.append(f"  power limit  {_shown(told, 'limit_w', unit=' W')}")
    lines.append(f"  event above  {_shown(told, 'threshold')}")
    lines.append(f"  measuring    {_shown(told, 'measures')}")
    lines.append(f"  logs         {_shown(told, 'log_pages')}")
    return lines


def _shown(told: DriveStates, name: str, prefix: str = "", unit: str = "") -> str:
    value = told.values[name]
    if value is None:
        return f"- ({told.missing[name]})"
    return f"{prefix}{value:g}{unit}" if isinstance(value, int | float) else str(value)


def _row(state: PowerStateDescriptor, *, is_current: bool) -> str:
    watts = "".join(
        f"{'-' if each is None else f'{each:.4g} W':>10}"
        for each in (state.max_w, state.idle_w, state.active_w)
    )
    latencies = "".join(
        f"{'-' if each is None else f'{each * 1e6:.0f} us':>11}"
        for each in (state.entry_latency_s, state.exit_latency_s)
    )
    mark = " <- now" if is_current else ""
    sleeps = "" if state.operational else "  no I/O"
    return f"  PS{state.index:<4}{watts}{latencies}{sleeps}{mark}"
