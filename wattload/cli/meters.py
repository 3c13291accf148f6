"""What measures power here: the drives' energy, and external meters by their settings."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise

from wattload.cli.findings import Answer, Finding, no, partly, yes
from wattload.core.errors import ConfigError, PowerError, WattloadError
from wattload.core.power import Channel, PowerSource, Sample, Scope, SourceFacts
from wattload.core.power_resolution import least_difference_w
from wattload.core.storage.controllers import controllers_under
from wattload.core.storage.targets import counting_devices
from wattload.core.units import NS_PER_S, Unit
from wattload.power.control.host import PowerHost
from wattload.power.registry import meter, meter_names
from wattload.power.sources.base import PowerDevice, find_sources
from wattload.power.sources.selection import describe, select
from wattload.results.quantity import quantity
from wattload.run.compose import compose, lacks_target
from wattload.run.config import RunConfig, TargetConfig
from wattload.run.config_errors import blanks_hint

READINGS, READ_S, RUN_S = 6, 10.0, 60.0
"""How often a meter is read at least, within how long; and the runs whose difference is stated."""
UPDATES_S = 6.0
"""How long the meter of a node is read: several updates of one that updates every second."""


def settings_of(words: Sequence[str]) -> RunConfig:
    """Return the settings of a run, in the current directory if they name no target."""
    return compose([*words, "target.path=."] if lacks_target(words) else words)[0]


def device_in(words: Sequence[str]) -> str | None:
    """Return the device of ``DEVICE | KEY=VALUE...``; ``None`` for settings and for nothing."""
    named = [word for word in words if "=" not in word]
    if named and len(words) > 1:
        raise ConfigError(
            f"give a device or settings, not both, got {' '.join(words)}{blanks_hint(words)}"
        )
    return named[0] if named else None


def devices_under(host: PowerHost, target: TargetConfig) -> list[PowerDevice]:
    """Return the NVMe controllers under a target; without one, the devices that count their I/O."""
    targets = target.resolve(host=host.name, try_direct_io=False)
    names = dict.fromkeys(name for each in targets for name in controllers_under(each))
    if names:
        return [PowerDevice(key=host.serial_of(n), name=n, is_nvme=True) for n in names]
    others = dict.fromkeys(name for each in targets for name in counting_devices(each))
    return [PowerDevice(key=name, name=name, is_nvme=False) for name in others]


def drive_energy(config: RunConfig) -> Answer:
    """Return what measures the energy of the drives under the targets with a run's settings."""
    host = PowerHost()
    try:
        selection = select(devices_under(host, config.target), config.power, host=host.name)
    except WattloadError as error:
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
            if name in config.power.named_meters:
                answer = _answer(name, config)
            yield Finding(f"power={name}", known.measures, *answer)


def node_meters(config: RunConfig) -> Iterator[str]:
    """Read the meters in a run's settings that may be of the node; yield what each can't show.

    Those of a sampler service are left to it.
    """
    for name in () if config.power.service else config.power.named_meters:
        if meter(name).scope is Scope.NODE:
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
        interval_s = min(facts.period_s, seconds / READINGS)
        least_s = min(UPDATES_S, seconds) if facts.scope is Scope.NODE else 0.0
        for _ in range(max(READINGS, math.ceil(least_s / interval_s))):
            time.sleep(interval_s)
            samples += source.read()
    own = [s for s in samples if s.channel is facts.figure_channel and s.value is not None]
    values = [sample.value for sample in own if sample.value is not None]
    if not values:
        raise PowerError(f"{describe(facts)}; no reading in {seconds:g} s has a value")
    passed_s = (own[-1].time_ns - own[0].time_ns) / NS_PER_S
    if facts.figure_channel is Channel.ENERGY_J:
        return f"{describe(facts)}; {values[-1] - values[0]:.4g} J in {passed_s:.1f} s"
    limit = f"; {limit_text(facts, values, passed_s)}" if facts.scope is Scope.NODE else ""
    return f"{describe(facts)}; now {values[-1]:g} W{limit}"


def limit_text(facts: SourceFacts, watts: Sequence[float], passed_s: float) -> str:
    """Return the least difference of two runs that a node's meter shows, by its readings.

    Readings that do not change are held: they are updated as often as they change.
    """
    changes = sum(earlier != later for earlier, later in pairwise(watts))
    steps = {abs(later - earlier) for earlier, later in pairwise(watts)} - {0.0}
    step_w = facts.resolution_w or min(steps, default=None)
    if step_w is None:
        return "its steps are unknown, as all readings are equal"
    least_w = least_difference_w(
        step_w=step_w,
        noise_w=statistics.stdev(watts) if steps else 0.0,
        update_s=max(
            getattr(facts.sensor, "update_period_s", 0.0) or 0.0,
            facts.period_s,
            min(passed_s / changes, RUN_S) if changes else 0.0,
        ),
        seconds=RUN_S,
    )
    least = quantity(least_w, Unit.WATTS, 2)
    return f"at this resolution a difference under {least} can't be shown in {RUN_S:g} s"
