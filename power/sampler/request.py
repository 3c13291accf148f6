"""What a client asks of power, checked: its fields become a ``PowerConfig`` or one sentence.

A service takes from a client what it wants and never where to find it: a setting that names a file
to read or a host to reach would have the sampler do so with rights that the client lacks.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from wattload.core.errors import ConfigError, PowerError, PowerPermissionError
from wattload.core.power import PowerSource
from wattload.power.config import NONE, PowerConfig
from wattload.power.nvme.admin import DEVICE_NAME
from wattload.power.replay.staging import is_staged
from wattload.power.sampler.host import SamplerHost
from wattload.power.selection import Selection
from wattload.power.sources import PowerDevice, find_sources

STATE_SOURCE = "nvme"

SHORTEST_PERIOD_S = 0.01
LONGEST_PERIOD_S = 60.0

CLIENT_FIELDS = frozenset(
    {
        "source",
        "beside",
        "state",
        "dssd_watts",
        "limit_w",
        "apst",
        "set_timestamp",
        "period_s",
        "idle_s",
        "idle_after_s",
        "quiet_s",
        "tail_max_s",
        "allow_system_drive",
        "profile",
        "hwmon",
    }
)
"""What a run may choose of a service: numbers, and names of what is there. All else is its own."""


def power_config(
    request: Mapping[str, Any], devices: Sequence[str], host: SamplerHost
) -> PowerConfig:
    """Return the configuration in a request, as far as this sampler grants it.

    Raises:
        ConfigError: a field is unknown, of the wrong type or out of range.
        PowerPermissionError: a service does not grant it.
    """
    config = _parsed(request)
    if host.is_service:
        _check_devices(devices, host)
        config = _granted(config, host)
    config.check()
    if not SHORTEST_PERIOD_S <= config.period_s <= LONGEST_PERIOD_S:
        raise ConfigError(
            f"power.period_s must be {SHORTEST_PERIOD_S:g} to {LONGEST_PERIOD_S:g}, got "
            f"{config.period_s}"
        )
    return config


def _parsed(request: Mapping[str, Any]) -> PowerConfig:
    names = {field.name for field in dataclasses.fields(PowerConfig)}
    unknown = sorted(set(request) - names)
    if unknown:
        raise ConfigError(f"power has no setting {unknown[0]!r}; there are {sorted(names)}")
    try:
        return TypeAdapter(PowerConfig).validate_json(json.dumps(request), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"power.{place}: {first['msg']}, got {first['input']!r}") from error


def _check_devices(devices: Sequence[str], host: SamplerHost) -> None:
    foreign = [] if host.devices is None else sorted(set(devices) - host.devices)
    nvme = [name for name in foreign if DEVICE_NAME.fullmatch(name)]
    if nvme:
        raise PowerPermissionError(
            f"{nvme[0]} is none of the controllers that this sampler serves "
            f"({', '.join(sorted(host.devices or ())) or 'none'}); "
            f"`wattload sampler --device {nvme[0]}` adds it"
        )


def _granted(config: PowerConfig, host: SamplerHost) -> PowerConfig:
    """Return the configuration with the service's own settings where a run has no choice."""
    if config.allow_system_drive and not host.allows_system_drive:
        raise PowerPermissionError(
            "power.allow_system_drive is not for a run to say here: the sampler was started "
            "without --allow-system-drive"
        )
    default = PowerConfig()
    own = {
        field.name: getattr(host.settings or default, field.name)
        for field in dataclasses.fields(PowerConfig)
        if field.name not in CLIENT_FIELDS
        and not (field.name == "replay" and is_staged(config))  # no path: the run's own folder
    }
    for name, value in own.items():
        wanted = getattr(config, name)
        if wanted != value and not _says_nothing(wanted, getattr(default, name)):
            raise PowerPermissionError(
                f"power.{name} is not for a run to choose here, for the sampler would use it with "
                f"its own rights: start the sampler with power.{name}=..., or leave "
                "power.sampler_socket unset and the run starts a sampler with yours"
            )
    return dataclasses.replace(config, **own)


def _says_nothing(wanted: object, default: object) -> bool:
    """Return whether a setting is as it is when nobody sets it, a group of them too."""
    if wanted == default:
        return True
    is_group = dataclasses.is_dataclass(wanted) and not isinstance(wanted, type)
    return is_group and wanted == type(wanted)()


def watch_states(
    selection: Selection, devices: Sequence[PowerDevice], config: PowerConfig
) -> list[PowerSource]:
    """Return open sources for the power states of drives whose watts come from elsewhere.

    None where nothing was asked to be measured; a drive that can't be asked is left out, for the
    selection has said why or the user has named another source.
    """
    if config.source == NONE:
        return []
    facts = [source.facts() for source in selection.sources]
    seen = {each.device for each in facts if each.name == STATE_SOURCE}
    unseen = [device for device in devices if device.is_nvme and device.key not in seen]
    watchers = []
    for source in find_sources(STATE_SOURCE, unseen, config):
        if source.facts().name != STATE_SOURCE:
            continue
        try:
            source.open()
        except PowerError:
            continue
        watchers.append(source)
    return watchers
