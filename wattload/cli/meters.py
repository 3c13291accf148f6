"""What measures power here: the drives' energy, and external meters by their settings."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from wattload.cli.findings import Answer, Finding, no, partly, yes
from wattload.core.errors import ConfigError, PowerError, TargetError, WattloadError
from wattload.core.power import Channel, PowerSource, Sample, Scope, SourceFacts
from wattload.core.power_resolution import least_difference_w
from wattload.core.storage.controllers import controllers_under
from wattload.core.storage.targets import counting_devices
from wattload.core.units import NS_PER_S, Unit
from wattload.power.config import PowerConfig
from wattload.power.control.host import PowerHost
from wattload.power.registry import AUTO, meter, meter_names
from wattload.power.sources.base import PowerDevice, find_sources
from wattload.power.sources.selection import describe, select
from wattload.results.quantity import quantity
from wattload.run.compose import compose, lacks_target
from wattload.run.config import RunConfig, TargetConfig

READINGS, READ_S, RUN_S = 6, 10.0, 60.0
"""How often a meter is read, within how long; and the runs whose difference is stated."""


def settings_of(words: Sequence[str]) -> RunConfig:
    """Return the settings of a run, in the current directory if they name no target."""
    return compose([*words, "target.path=."] if lacks_target(words) else words)[0]


def device_in(words: Sequence[str]) -> str | None:
    """Return the device of ``DEVICE | KEY=VALUE...``; ``None`` for settings and for nothing."""
    named = [word for word in words if "=" not in word]
    if named and len(words) > 1:
        raise ConfigError(f"give a device or settings, not both, got {' '.join(words)}")
    return named[0] if named else None


def devices_under(host: PowerHost, target: TargetConfig) -> list[PowerDevice]:
    """Return the NVMe controllers under a target; without one, the devices that count their I/O."""
    targets = target.resolve(host=host.name, try_direct_io=False)
    names = dict.fromkeys(name for each in targets for name in controllers_under(each))
    if names:
        return [PowerDevice(key=host.serial_of(n), name=n, is_nvme=True) for n in names]
    others = dict.fromkeys(name for each in targets for name in counting_devices(each))
    return [PowerDevice(key=name, name=name, is_nvme=False) for name in others]


def drive_energy(directory: Path) -> Answer:
    """Return what measures the energy of the drives under a directory, as ``power=auto`` finds."""
    host = PowerHost()
    try:
        devices = devices_under(host, TargetConfig(path=str(directory)))
        selection = select(devices, PowerConfig(), host=host.name)
    except (PowerError, TargetError) as error:
        return no(str(error))
    drives = [source.facts() for source in selection.sources if source.facts().scope is Scope.DRIVE]
    for source in selection.sources:
        source.close()
    answer = yes if any(each.measures for each in drives) else partly if drives else no
    return answer(selection.choice.removeprefix("power=auto ").rstrip("."))


def meter_findings(config: RunConfig) -> Iterator[Finding]:
    """Yield a finding for each external meter; those that the settings name are read."""
    for name in meter_names():
        known = meter(name)
        if known.settings:
            answer = no("not configured", f"wattload doctor power={name} {known.settings}")
            if name in (config.power.source, *config.power.beside):
                answer = _answer(name, config)
            yield Finding(f"power={name}", known.measures, *answer)


def node_meters(config: RunConfig) -> Iterator[str]:
    """Read the meters in a run's settings that may be of the node; yield what each can't show.

    Those of a sampler service are left to it.
    """
    for name in () if config.power.service else (config.power.source, *config.power.beside):
        if name != AUTO and meter(name).scope is Scope.NODE:
            _, text, _ = _answer(name, config)
            yield text


def _answer(name: str, config: RunConfig) -> Answer:
    try:
        sources = find_sources(name, devices_under(PowerHost(), config.target), config.power)
        return yes("; ".join(_read(source, READ_S / len(sources)) for source in sources))
    except WattloadError as error:
        return no(str(error))


def _read(source: PowerSource, seconds: float) -> str:
    """Read a source a few times; return its facts and its last reading.

    Raises:
        PowerError: it can't be opened, or no reading has a value.
    """
    samples: list[Sample] = []
    with ExitStack() as stack:
        stack.callback(source.close)
        source.open()
        stack.callback(source.restore)
        source.start()
        facts = source.facts()
        for _ in range(READINGS):
            time.sleep(min(facts.period_s, seconds / READINGS))
            samples += source.read()
    own = [s for s in samples if s.channel is facts.figure_channel and s.value is not None]
    values = [sample.value for sample in own if sample.value is not None]
    if not values:
        raise PowerError(f"{describe(facts)}; no reading in {seconds:g} s has a value")
    if facts.figure_channel is Channel.ENERGY_J:
        passed_s = (own[-1].time_ns - own[0].time_ns) / NS_PER_S
        return f"{describe(facts)}; {values[-1] - values[0]:.4g} J in {passed_s:.1f} s"
    limit = f"; {limit_text(facts, values)}" if facts.scope is Scope.NODE else ""
    return f"{describe(facts)}; now {values[-1]:g} W{limit}"


def limit_text(facts: SourceFacts, watts: Sequence[float]) -> str:
    """Return the least difference of two runs that a node's meter shows, by its readings."""
    steps = {abs(later - earlier) for earlier, later in pairwise(watts)} - {0.0}
    step_w = facts.resolution_w or min(steps, default=None)
    if step_w is None:
        return "its steps are unknown, as all readings are equal"
    least_w = least_difference_w(
        step_w=step_w,
        noise_w=statistics.stdev(watts) if steps else 0.0,
        update_s=max(getattr(facts.sensor, "update_period_s", 0.0) or 0.0, facts.period_s),
        seconds=RUN_S,
    )
    least = quantity(least_w, Unit.WATTS, 2)
    return f"at this resolution a difference under {least} can't be shown in {RUN_S:g} s"
