"""``wattload power watch``: what the sources say of a device, line by line."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from wattload.core.clock import utc_text
from wattload.core.errors import ConfigError, PowerError
from wattload.core.power import Channel, PowerSource, SourceFacts
from wattload.core.units import NS_PER_S
from wattload.power.config import PowerConfig
from wattload.power.host import PowerHost
from wattload.power.sampler.schedule import Schedule
from wattload.power.selection import select
from wattload.power.sources import PowerDevice

ZERO_CELSIUS_K = 273.15

Values = Mapping[Channel, float | None]
Reading = tuple[SourceFacts, Values]


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
        counted = Counted()
        for _ in rounds:
            time.sleep(max(0.0, (schedule.due_ns - time.monotonic_ns()) / NS_PER_S))
            readings = [(source.facts(), _values(source)) for source in selection.sources]
            # What moves slowly is not read in every round.
            told = [(facts, values) for facts, values in readings if values]
            for line in _documents(told) if arguments.json else _lines(told, counted):
                sys.stdout.write(line + "\n")
            sys.stdout.flush()
            schedule.advance(time.monotonic_ns())
    finally:
        for source in selection.sources:
            source.close()
    return 0


def _values(source: PowerSource) -> Values:
    return {sample.channel: sample.value for sample in source.read()}


class Counted:
    """What counters of energy stood at when the watch began: they count since long before."""

    def __init__(self) -> None:
        self._first_j: dict[tuple[str, str], float] = {}

    def since_j(self, facts: SourceFacts, energy_j: float) -> float:
        """Return the joules that a counter has moved since it was first read here."""
        return energy_j - self._first_j.setdefault((facts.name, facts.device), energy_j)


def _documents(readings: Sequence[Reading]) -> Iterator[str]:
    for facts, values in readings:
        head = {"time_utc": utc_text(), "device": facts.device_name, "serial": facts.device}
        tail = {"source": facts.name, "evidence": facts.evidence, "scope": facts.scope}
        yield json.dumps({**head, **{str(key): value for key, value in values.items()}, **tail})


def _lines(readings: Sequence[Reading], counted: Counted) -> Iterator[str]:
    """Yield a line per device: what each of its sources says, its state, its temperature."""
    for device in dict.fromkeys(facts.device for facts, _ in readings):
        own = [(facts, values) for facts, values in readings if facts.device == device]
        everything = {key: value for _, values in own for key, value in values.items()}
        parts = [_power(facts, values, counted) for facts, values in own]
        parts += [_state(everything), _temperature(everything)]
        told = "  ".join(part for part in parts if part)
        yield f"{utc_text()[11:19]}  {own[0][0].device_name}  {told}"


def _power(facts: SourceFacts, values: Values, counted: Counted) -> str:
    power_w, energy_j = values.get(Channel.POWER_W), values.get(Channel.ENERGY_J)
    lower_w, upper_w = values.get(Channel.LOWER_W), values.get(Channel.UPPER_W)
    if power_w is not None:
        watts = f"{power_w:.2f} W"
    elif lower_w is not None and upper_w is not None:
        watts = f"{lower_w:g} to {upper_w:g} W"
    elif upper_w is not None:
        watts = f"≤ {upper_w:g} W"
    elif energy_j is not None:
        watts = f"{counted.since_j(facts, energy_j):.3g} J counted"
    else:
        watts = "no power"
    return f"{watts} ({facts.name}, {facts.evidence})"


def _state(values: Values) -> str:
    state = values.get(Channel.POWER_STATE)
    return "" if state is None else f"PS{state:g}"


def _temperature(values: Values) -> str:
    kelvin = values.get(Channel.TEMPERATURE_K)
    return "" if kelvin is None else f"{kelvin - ZERO_CELSIUS_K:.0f} °C"
