"""Which power settings a run may choose; the rest belong to the sampler.

A client may tell a service what it wants, but not where to find it. A setting with a file to read
or a host to contact would make the sampler do so with rights that the client lacks.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from wattload.core.errors import ConfigError, PowerPermissionError
from wattload.power.config import PowerConfig
from wattload.power.nvme.admin import DEVICE_NAME
from wattload.power.sampler.access import SamplerHost
from wattload.power.sources.replay_trace import is_staged

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
"""What a run may choose when it uses a service: numbers, and names of existing sources."""


def power_config(
    request: Mapping[str, Any], devices: Sequence[str], host: SamplerHost
) -> PowerConfig:
    """Return the configuration in a request if this sampler grants it.

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
        raise ConfigError(f"unknown power setting {unknown[0]!r}; available: {sorted(names)}")
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
            f"{nvme[0]} is not served by this sampler (it serves "
            f"{', '.join(sorted(host.devices or ())) or 'none'}); `wattload sampler "
            f"--device {nvme[0]}` adds it"
        )


def _granted(config: PowerConfig, host: SamplerHost) -> PowerConfig:
    """Return the configuration with the service's own values for settings no run may choose."""
    if config.allow_system_drive and not host.allows_system_drive:
        raise PowerPermissionError(
            "a run may not set power.allow_system_drive here: the sampler was started "
            "without --allow-system-drive"
        )
    default = PowerConfig()
    fixed = {
        field.name: getattr(host.settings or default, field.name)
        for field in dataclasses.fields(PowerConfig)
        if field.name not in CLIENT_FIELDS
        and not (
            field.name == "replay" and is_staged(config)
        )  # not a path: it is in the run's own folder
    }
    for name, value in fixed.items():
        requested = getattr(config, name)
        if requested != value and not _is_unset(requested, getattr(default, name)):
            raise PowerPermissionError(
                f"a run may not set power.{name} here, because the sampler would use it with "
                f"its own rights; start the sampler with power.{name}=..., or unset "
                "power.sampler_socket so that the run starts a sampler with your rights"
            )
    return dataclasses.replace(config, **fixed)


def _is_unset(requested: object, default: object) -> bool:
    """Return whether a setting has its default value; in a group, whether all its fields do."""
    if requested == default:
        return True
    is_group = dataclasses.is_dataclass(requested) and not isinstance(requested, type)
    return is_group and requested == type(requested)()
