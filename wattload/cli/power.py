"""``wattload power``: watch power, calibrate meters; list, set, restore power states and limits."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from wattload.cli.terminal import wait_for_reader
from wattload.core.clock import anchor, utc_text
from wattload.core.errors import ConfigError, PowerError
from wattload.core.power import (
    EVIDENCE_RANK,
    Bounds,
    Channel,
    Integral,
    PowerSource,
    Sample,
    Scope,
    SourceFacts,
)
from wattload.core.units import NS_PER_S, Unit
from wattload.power.config import PowerConfig
from wattload.power.control.host import PowerHost
from wattload.power.control.power_settings import POWER_STATE, read_saved
from wattload.power.nvme.admin import AdminDevice
from wattload.power.nvme.features import (
    Select,
    read_dssd_power_w,
    read_power_limit,
    read_power_state,
    read_power_threshold,
    read_transitions,
)
from wattload.power.nvme.identify import (
    Controller,
    identify_controller,
    read_ocp_uuid_index,
)
from wattload.power.nvme.logs import read_supported_pages
from wattload.power.nvme.measurement import read_measurement_setting
from wattload.power.nvme.state import Gathered
from wattload.power.sampler.polling import Schedule
from wattload.power.sources.base import PowerDevice
from wattload.power.sources.selection import select
from wattload.results.quantity import bounded_quantity

if TYPE_CHECKING:
    from wattload.core.record.target import PowerStateFacts
    from wattload.power.control.change import Change
    from wattload.power.control.undo import Recovery

PERIOD_S, CSV_PERIOD_S = 1.0, 0.1
"""Between readings: for people; for a run, whose other readings are as far apart."""
RUN_ID = "power-set"

_NO_MEASUREMENT = "the drive has no power measurement of its own"

ZERO_CELSIUS_K = 273.15

Values = Mapping[Channel, float | None]

Reading = tuple[SourceFacts, Values]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    watch = actions.add_parser("watch", help="live power, power state and temperature")
    watch.add_argument(
        "what",
        nargs="*",
        metavar="DEVICE | KEY=VALUE",
        help="a controller, e.g. nvme0 (default: all), or settings, as of calibrate",
    )
    formats = watch.add_mutually_exclusive_group()
    formats.add_argument("--csv", action="store_true", help="print unix_seconds,watts of a device")
    watch.add_argument(
        "--period",
        type=float,
        metavar="S",
        help="seconds between readings (default: 1, and 0.1 with --csv)",
    )
    watch.add_argument("--count", type=int, metavar="N", help="stop after N readings")
    states = actions.add_parser("states", help="the table of power states")
    states.add_argument("device", nargs="?", help="a controller, e.g. nvme0 (default: all)")
    change = actions.add_parser(
        "set", help="set and verify a power state, OCP watts or a power limit"
    )
    change.add_argument("device", help="a controller, e.g. nvme0")
    change.add_argument("state", nargs="?", type=int, help="the power state, 0 to 31")
    change.add_argument(
        "--watts", type=int, metavar="W", help="instead: OCP's power state in whole watts (C7h)"
    )
    change.add_argument(
        "--limit", type=float, metavar="W", help="instead: the power limit (feature 23h)"
    )
    change.add_argument(
        "--allow-system-drive",
        action="store_true",
        help="even if the drive holds root or swap",
    )
    restore = actions.add_parser("restore", help="restore what was set, or what a killed run left")
    restore.add_argument("device", nargs="?", help="a controller, e.g. nvme0 (default: all)")
    restore.add_argument(
        "--keep",
        action="store_true",
        help="instead: keep the drive's present setting, and forget the old one",
    )
    pulses = actions.add_parser(
        "calibrate", help="how late the meters of a drive are, by reading it in pulses"
    )
    pulses.add_argument(
        "what",
        nargs="*",
        metavar="DEVICE | KEY=VALUE",
        help="a controller, e.g. nvme0, or settings, e.g. target.path=/mnt/nvme power=quarch",
    )
    for action in (formats, states, change, restore, pulses):
        action.add_argument("--json", action="store_true", help="print JSON, an object per line")


def run(arguments: argparse.Namespace, host: PowerHost | None = None) -> int:
    """Run the action on this host; returns the exit status."""
    here = host or PowerHost()
    if arguments.action == "watch":
        return watch(arguments, here)
    if arguments.action == "states":
        return states(arguments, here, _names(here, arguments.device))
    if arguments.action == "calibrate":
        from wattload.cli import calibrate

        return calibrate.run(arguments, here)
    return (_set if arguments.action == "set" else _restore)(arguments, here)


def _names(host: PowerHost, device: str | None) -> Sequence[str]:
    """Return the named controller, or all.

    Raises:
        ConfigError: the host has no controller of this name.
        PowerError: the host has none at all.
    """
    names = host.list_names()
    if device is not None:
        name = device.removeprefix("/dev/")
        if name not in names:
            raise ConfigError(
                f"{device!r} is not an NVMe controller of this host; "
                + (f"it has {', '.join(names)}" if names else "it has none")
            )
        return (name,)
    if not names:
        raise PowerError(
            "this host has no NVMe controller (/sys/class/nvme is empty); in a container, "
            "add the device node: devices: [/dev/nvme0], cap_add: [SYS_ADMIN]"
        )
    return names


def _set(arguments: argparse.Namespace, host: PowerHost) -> int:
    from wattload.power.control.change import PowerStateControl
    from wattload.power.control.undo import recover_changes

    config = _requested_config(arguments)
    (name,) = _names(host, arguments.device)
    # Otherwise the value that a killed run left would be restored later as the drive's own.
    for recovery in recover_changes(host, serial=host.serial_of(name)):
        if not recovery.closed:
            raise PowerError(f"nothing was set: {recovery.sentence}")
        sys.stderr.write(f"{recovery.sentence}\n")
    device = host.open_device(name)
    with ExitStack() as stack:
        stack.callback(device.close)
        control = PowerStateControl(device, host.journal, run_id=RUN_ID, owner="user")
        stack.callback(control.close)
        control.hold(needed=True)
        control.apply(config, holds_system=host.holds_system)
    (change,) = control.changes
    _print_change(name, control.controller.serial, change, as_json=arguments.json)
    return 0


def _requested_config(arguments: argparse.Namespace) -> PowerConfig:
    """Return the one setting to change; raises ``ConfigError`` for none and for several."""
    config = PowerConfig(
        state=arguments.state,
        dssd_watts=arguments.watts,
        limit_w=arguments.limit,
        allow_system_drive=arguments.allow_system_drive,
    )
    config.check()
    if config.first_setting is None:
        raise ConfigError(
            "`wattload power set` needs one of STATE, --watts W or --limit W; "
            "`wattload power states` lists the states"
        )
    return config


def _print_change(name: str, serial: str, change: Change, *, as_json: bool) -> None:
    if as_json:
        _print_json(
            {
                "device": name,
                "serial": serial,
                "option": change.plan.option,
                "unit": change.plan.feature.unit,
                "before": change.before,
                "requested": change.plan.requested,
                "verified": change.verified,
            }
        )
        return
    feature = change.plan.feature
    _print(
        f"{name} ({serial}): {feature.name} {feature.text(change.before)} -> "
        f"{feature.text(change.verified)}, verified; `wattload power restore {name}` undoes it, "
        "and so does a reset of the drive"
    )


def _restore(arguments: argparse.Namespace, host: PowerHost) -> int:
    from wattload.power.control.undo import recover_changes

    serial = None
    if arguments.device is not None:
        (name,) = _names(host, arguments.device)
        serial = host.serial_of(name)
    recoveries = [
        *recover_changes(host, owner="run", serial=serial, keep=arguments.keep),
        *recover_changes(host, owner="user", serial=serial, keep=arguments.keep),
    ]
    if arguments.json:
        for recovery in recoveries:
            _print_json(_recovery_document(recovery))
    else:
        _print("\n".join(each.sentence for each in recoveries) or "Nothing to restore.")
    return 0 if all(recovery.closed for recovery in recoveries) else PowerError.exit_code


def _recovery_document(recovery: Recovery) -> dict[str, Any]:
    return {
        "serial": recovery.serial,
        "feature": recovery.feature,
        "restored": recovery.restored,
        "closed": recovery.closed,
        "sentence": recovery.sentence,
    }


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _print_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")


def states(arguments: argparse.Namespace, host: PowerHost, names: Sequence[str]) -> int:
    """Print the power states of the controllers; returns 0.

    Raises:
        PowerError: a controller can't be opened.
    """
    for name in names:
        with closing(host.open_device(name)) as device:
            controller = identify_controller(device)
            found = _read_settings(device, controller)
        if arguments.json:
            _print_json(_document(name, controller, found))
        else:
            _print("\n".join(_table(name, controller, found)))
    return 0


def _read_settings(device: AdminDevice, controller: Controller) -> Gathered:
    found = Gathered()
    only_current = "the drive reports the current value only"
    found.add("power_state", lambda: read_power_state(device))
    found.add("power_state_default", lambda: _default(device, controller), only_current)
    saved, why_none = read_saved(device, controller, POWER_STATE)
    found.add("power_state_saved", lambda: saved, why_none)
    no_transitions = "the drive has no autonomous transitions"
    found.add("apst", lambda: _transitions(device, controller), no_transitions)
    no_ocp = "the drive does not list OCP's UUID"
    found.add("dssd_watts", lambda: _dssd_watts(device, controller), no_ocp)
    found.add("limit_w", lambda: _limit_w(device, controller), "not set")
    found.add("threshold", lambda: _threshold(device, controller), "not set")
    found.add("measures", lambda: _measures(device, controller))
    no_list = "the drive has no list of its log pages"
    found.add("log_pages", lambda: _log_pages(device, controller), no_list)
    return found


def _default(device: AdminDevice, controller: Controller) -> int | None:
    return read_power_state(device, Select.DEFAULT) if controller.selects_features else None


def _transitions(device: AdminDevice, controller: Controller) -> str | None:
    if not controller.capabilities.autonomous_transitions:
        return None
    table = read_transitions(device)
    rules = ", ".join(
        f"PS{rule.state} to PS{rule.target} after {rule.idle_s:g} s" for rule in table.transitions
    )
    return f"{'on' if table.enabled else 'off'}: {rules or 'no rule'}"


def _dssd_watts(device: AdminDevice, controller: Controller) -> int | None:
    index = read_ocp_uuid_index(device, controller)
    return read_dssd_power_w(device, uuid_index=index) if index else None


def _limit_w(device: AdminDevice, controller: Controller) -> float | None:
    if not controller.capabilities.power_limit:
        raise PowerError("the drive has no power limit")
    return read_power_limit(device).watts


def _threshold(device: AdminDevice, controller: Controller) -> str | None:
    if not controller.capabilities.power_measurement:
        raise PowerError(_NO_MEASUREMENT)
    threshold = read_power_threshold(device)
    if threshold.power.watts is None:
        return None
    event = "" if threshold.event_enabled else ", event disabled"
    return f"{threshold.power.watts:g} W{event}"


def _measures(device: AdminDevice, controller: Controller) -> str:
    if not controller.capabilities.power_measurement:
        raise PowerError(_NO_MEASUREMENT)
    setting = read_measurement_setting(device)
    if not setting.active:
        return "off"
    minutes = setting.stop_after_minutes
    return "on" if minutes is None else f"on, for {minutes} min"


def _log_pages(device: AdminDevice, controller: Controller) -> str | None:
    pages = read_supported_pages(device, controller)
    return None if pages is None else ", ".join(f"{page:02X}h" for page in sorted(pages))


def _document(name: str, controller: Controller, found: Gathered) -> dict[str, Any]:
    return {
        "device": name,
        "serial": controller.serial,
        "model": controller.model,
        **found.fields,
        **dict.fromkeys(found.missing),
        "missing": found.missing,
        "power_states": [state.model_dump() for state in controller.power_states],
    }


def _table(name: str, controller: Controller, found: Gathered) -> list[str]:
    current = found.fields.get("power_state")
    lines = [f"{name}  {controller.model}  {controller.serial}"]
    lines.append("  state   maximum      idle    active      enter       exit")
    lines += [_row(state, is_current=state.index == current) for state in controller.power_states]
    if current is None:
        lines.append(f"  current state unknown: {found.missing['power_state']}")
        return lines
    lines.append(f"  default      {_shown(found, 'power_state_default', 'PS')}")
    lines.append(f"  saved        {_shown(found, 'power_state_saved', 'PS')}")
    lines.append(f"  APST rules   {_shown(found, 'apst')}")
    lines.append(f"  OCP watts    {_shown(found, 'dssd_watts', unit=' W')}")
    lines.append(f"  power limit  {_shown(found, 'limit_w', unit=' W')}")
    lines.append(f"  event above  {_shown(found, 'threshold')}")
    lines.append(f"  measuring    {_shown(found, 'measures')}")
    lines.append(f"  logs         {_shown(found, 'log_pages')}")
    return lines


def _shown(found: Gathered, name: str, prefix: str = "", unit: str = "") -> str:
    if name in found.missing:
        return f"- ({found.missing[name]})"
    value = found.fields[name]
    return f"{prefix}{value:g}{unit}" if isinstance(value, int | float) else str(value)


def _row(state: PowerStateFacts, *, is_current: bool) -> str:
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


def watch(arguments: argparse.Namespace, host: PowerHost) -> int:
    """Print the devices' power until interrupted, or until nobody reads it; returns 0.

    Raises:
        ConfigError: a setting is invalid, or ``--csv`` is ambiguous.
        PowerError: there is no power source for the devices.
    """
    from wattload.cli.meters import device_in, devices_under, settings_of

    device = device_in(arguments.what)
    default_s = CSV_PERIOD_S if arguments.csv else PERIOD_S
    period_s = default_s if arguments.period is None else arguments.period
    if arguments.what and device is None:
        settings = settings_of([f"power.period_s={period_s}", *arguments.what])
        config, devices = settings.power, devices_under(host, settings.target)
    else:
        config, names = PowerConfig(period_s=period_s), _names(host, device)
        devices = [PowerDevice(key=host.serial_of(n), name=n, is_nvme=True) for n in names]
    config.check()
    if arguments.count is not None and arguments.count < 1:
        raise ConfigError(f"--count must be 1 or more, got {arguments.count}")
    selection = select(devices, config, host=host.name)
    if not selection.sources:
        raise PowerError(f"nothing to watch: {selection.choice}")
    with ExitStack() as stack:
        for source in selection.sources:
            stack.callback(source.close)
            stack.callback(source.restore)
        sources = [_single(selection.sources)] if arguments.csv else selection.sources
        for source in sources:
            source.start()
        schedule = Schedule(config.period_s, time.monotonic_ns())
        rounds = itertools.count() if arguments.count is None else range(arguments.count)
        counters, csv = EnergyCounters(), CsvLines()
        for _ in rounds:
            if not wait_for_reader(max(0.0, (schedule.due_ns - time.monotonic_ns()) / NS_PER_S)):
                break
            samples = [(source.facts(), source.read()) for source in sources]
            # Slow sources have no reading in some rounds.
            present = [(f, {s.channel: s.value for s in own}) for f, own in samples if own]
            lines = _documents(present) if arguments.json else _lines(present, counters)
            for line in csv.of(*samples[0]) if arguments.csv else lines:
                sys.stdout.write(line + "\n")
            sys.stdout.flush()
            schedule.advance(time.monotonic_ns())
    return 0


def _single(sources: Sequence[PowerSource]) -> PowerSource:
    """Return the source with the best evidence of the one device, of drives if there are any."""
    read = [each for each in sources if not isinstance(each.facts().sensor, Bounds | Integral)]
    of_drives = [each for each in read if each.facts().scope is Scope.DRIVE] or read
    names = dict.fromkeys(each.facts().device_name for each in of_drives)
    if len(names) != 1:
        found = ", ".join(names) or "none with readings in watts or joules"
        raise ConfigError(f"--csv prints the power of one device, and there is {found}; name one")
    return min(of_drives, key=lambda each: EVIDENCE_RANK[each.facts().evidence])


class CsvLines:
    """Readings as ``unix_seconds,watts``; of a counter the mean since its last change."""

    def __init__(self) -> None:
        self._time_ns, self._energy_j = 0, math.inf

    def of(self, facts: SourceFacts, samples: Sequence[Sample]) -> Iterator[str]:
        now = anchor()
        for sample in samples:
            watts = sample.value
            if sample.channel is not facts.figure_channel or watts is None:
                continue
            if sample.channel is Channel.ENERGY_J:
                rise_j, since_ns = watts - self._energy_j, sample.time_ns - self._time_ns
                if rise_j:
                    self._energy_j, self._time_ns = watts, sample.time_ns
                if rise_j <= 0:  # unchanged, the first one, or the counter has wrapped
                    continue
                watts = rise_j * NS_PER_S / since_ns
            unix_s = (now.realtime_ns + sample.time_ns - now.monotonic_ns) / NS_PER_S
            yield f"{unix_s:.3f},{watts:.6g}"


class EnergyCounters:
    """The first readings of energy counters, which may be far from 0 when the watch begins."""

    def __init__(self) -> None:
        self._first_j: dict[tuple[str, str], float] = {}

    def since_j(self, facts: SourceFacts, energy_j: float) -> float:
        return energy_j - self._first_j.setdefault((facts.name, facts.device), energy_j)


def _documents(readings: Sequence[Reading]) -> Iterator[str]:
    for facts, values in readings:
        head = {"time_utc": utc_text(), "device": facts.device_name, "serial": facts.device}
        tail = {"source": facts.name, "evidence": facts.evidence, "scope": facts.scope}
        yield json.dumps({**head, **{str(key): value for key, value in values.items()}, **tail})


def _lines(readings: Sequence[Reading], counters: EnergyCounters) -> Iterator[str]:
    """Yield a line per device: its power by each source, its state, its temperature."""
    for device in dict.fromkeys(facts.device for facts, _ in readings):
        own = [(facts, values) for facts, values in readings if facts.device == device]
        everything = {key: value for _, values in own for key, value in values.items()}
        parts = [_power(facts, values, counters) for facts, values in own]
        parts += [_state(everything), _temperature(everything)]
        text = "  ".join(part for part in parts if part)
        yield f"{utc_text()[11:19]}  {own[0][0].device_name}  {text}"


def _power(facts: SourceFacts, values: Values, counters: EnergyCounters) -> str:
    power_w, energy_j = values.get(Channel.POWER_W), values.get(Channel.ENERGY_J)
    lower_w, upper_w = values.get(Channel.LOWER_W), values.get(Channel.UPPER_W)
    if power_w is not None or upper_w is not None:
        watts = bounded_quantity(power_w, lower_w, upper_w, Unit.WATTS)
    elif energy_j is not None:
        watts = f"{counters.since_j(facts, energy_j):.3g} J counted"
    else:
        watts = "no power"
    return f"{watts} ({facts.name}, {facts.evidence})"


def _state(values: Values) -> str:
    state = values.get(Channel.POWER_STATE)
    return "" if state is None else f"PS{state:g}"


def _temperature(values: Values) -> str:
    kelvin = values.get(Channel.TEMPERATURE_K)
    return "" if kelvin is None else f"{kelvin - ZERO_CELSIUS_K:.0f} °C"
