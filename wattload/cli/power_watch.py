"""``wattload power watch``: what the sources say of a device, line by line."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Mapping, Sequence

from wattload.core.clock import utc_text
from wattload.core.errors import ConfigError, PowerError
from wattload.core.power import Channel, SourceFacts
from wattload.core.units import NS_PER_S
from wattload.power.config import PowerConfig
from wattload.power.host import PowerHost
from wattload.power.sampler.schedule import Schedule
from wattload.power.selection import select
from wattload.power.sources import PowerDevice

ZERO_CELSIUS_K = 273.15

Values = Mapping[Channel, float | None]


def watch(arguments: argparse.Namespace, host: PowerHost, names: Sequence[str]) -> int:
    """Print what is known of the devices' power until interrupted; returns 0.

    Raises:
        PowerError: nothing tells of the devices' power.
    """
    config = PowerConfig(period_s=arguments.period)
    config.check()
    if arguments.count is not None and arguments.count < 1:
        raise ConfigError(f"--count must be 1 or more, got {arguments.count}")
    devices = [PowerDevice(key=host.serial_of(name), name=name, is_nvme=True) for name in names]
    selection = select(devices, config, host=host.name)
    if not selection.sources:
        raise PowerError(f"there is nothing to watch: {selection.choice}")
    try:
        for source in selection.sources:
            source.start()
        schedule = Schedule(config.period_s, time.monotonic_ns())
        rounds = itertools.count() if arguments.count is None else range(arguments.count)
        for _ in rounds:
            time.sleep(max(0.0, (schedule.due_ns - time.monotonic_ns()) / NS_PER_S))
            for source in selection.sources:
                values = {sample.channel: sample.value for sample in source.read()}
                _tell(source.facts(), values, as_json=arguments.json)
            schedule.advance(time.monotonic_ns())
    finally:
        for source in selection.sources:
            source.close()
    return 0


def _tell(facts: SourceFacts, values: Values, *, as_json: bool) -> None:
    if as_json:
        head = {"time_utc": utc_text(), "device": facts.device_name, "serial": facts.device}
        tail = {"source": facts.name, "evidence": facts.evidence, "scope": facts.scope}
        line = json.dumps({**head, **{str(key): value for key, value in values.items()}, **tail})
    else:
        parts = [_power(facts, values), _state(values), _temperature(values)]
        told = "  ".join(part for part in parts if part)
        line = f"{utc_text()[11:19]}  {facts.device_name}  {told}"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _power(facts: SourceFacts, values: Values) -> str:
    power_w = values.get(Channel.POWER_W)
    lower_w, upper_w = values.get(Channel.LOWER_W), values.get(Channel.UPPER_W)
    if power_w is not None:
        watts = f"{power_w:.2f} W"
    elif lower_w is not None and upper_w is not None:
        watts = f"{lower_w:g} to {upper_w:g} W"
    elif upper_w is not None:
        watts = f"≤ {upper_w:g} W"
    else:
        energy_j = values.get(Channel.ENERGY_J)
        watts = "no power" if energy_j is None else f"{energy_j:.3f} J since its start"
    return f"{watts} ({facts.evidence})"


def _state(values: Values) -> str:
    state = values.get(Channel.POWER_STATE)
    return "" if state is None else f"PS{state:g}"


def _temperature(values: Values) -> str:
    kelvin = values.get(Channel.TEMPERATURE_K)
    return "" if kelvin is None else f"{kelvin - ZERO_CELSIUS_K:.0f} °C"
