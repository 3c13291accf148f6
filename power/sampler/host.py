"""What a sampler serves, and which power settings a run may choose.

A service has rights that its clients lack. So a run that uses one does not choose the hosts that
the sampler contacts with its own credentials: those settings are the service's.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wattload.core.errors import ConfigError, PowerError, PowerPermissionError
from wattload.power.control.host import PowerHost

if TYPE_CHECKING:
    from wattload.power.config import PowerConfig

DEVICE_NAME = re.compile(r"(?!\.)[A-Za-z0-9!._-]+")
"""A controller (``nvme0``) or a block device (``vda``) as the kernel names it; no slash."""

_RUN_SETTINGS = ("profile", "replay", "hwmon")
"""Configurations that a run may choose: they name neither another host nor a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerHost(PowerHost):
    """A host as a sampler serves it.

    ``is_service`` is true if clients may have fewer rights than the sampler. Only then do these
    apply: ``devices``, ``allows_system_drive``, which permits runs to set the power state of a
    drive with root or swap, and ``settings``, the power settings that no run may choose.
    """

    is_service: bool = False
    allows_system_drive: bool = False
    settings: PowerConfig | None = None


def power_config(
    request: Mapping[str, Any],
    devices: Sequence[str],
    host: SamplerHost,
    *,
    is_client: bool = False,
) -> PowerConfig:
    """Return the configuration in a request if this sampler, or client of one, grants it.

    Raises:
        ConfigError: a setting is invalid.
        PowerPermissionError: a service does not grant it.
    """
    config = _parsed(request)
    if host.is_service:
        _check_devices(devices, host)
        config = _granted(config, host)
    try:
        config.check(is_client=is_client)
    except ConfigError as error:
        if not host.is_service:
            raise
        raise ConfigError(f"in the settings of the sampler service: {error}") from error
    return config


def require_device_names(names: Sequence[str]) -> None:
    """Raise ``PowerError`` for a name that could be a path: a service opens what it denotes."""
    for name in names:
        if not DEVICE_NAME.fullmatch(name):
            raise PowerError(f"a device must match {DEVICE_NAME.pattern}, got {name!r}")


def _parsed(request: Mapping[str, Any]) -> PowerConfig:
    from pydantic import TypeAdapter, ValidationError

    from wattload.core.base_models import first_fault
    from wattload.power.config import PowerConfig

    try:
        return TypeAdapter(PowerConfig).validate_json(json.dumps(request), strict=True)
    except ValidationError as error:
        place, message, value = first_fault(error)
        raise ConfigError(f"power.{place}: {message}, got {value!r}") from error


def _check_devices(devices: Sequence[str], host: SamplerHost) -> None:
    from wattload.power.nvme.admin import DEVICE_NAME as CONTROLLER_NAME

    foreign = [] if host.devices is None else sorted(set(devices) - host.devices)
    controllers = [name for name in foreign if CONTROLLER_NAME.fullmatch(name)]
    if controllers:
        raise PowerPermissionError(
            f"{controllers[0]} is not served by this sampler (it serves "
            f"{', '.join(sorted(host.devices or ())) or 'none'}); `wattload sampler "
            f"--device {controllers[0]}` adds it"
        )


def _granted(config: PowerConfig, host: SamplerHost) -> PowerConfig:
    """Return the configuration with the service's own settings of external meters."""
    from wattload.power.config import PowerConfig

    if config.allow_system_drive and not host.allows_system_drive:
        raise PowerPermissionError(
            "a run may not set power.allow_system_drive here: the sampler was started "
            "without --allow-system-drive"
        )
    default, own = PowerConfig(), host.settings or PowerConfig()
    settings = [
        field.name
        for field in dataclasses.fields(PowerConfig)
        if dataclasses.is_dataclass(getattr(own, field.name)) and field.name not in _RUN_SETTINGS
    ]
    for name in settings:
        if getattr(config, name) not in (getattr(default, name), getattr(own, name)):
            raise PowerPermissionError(
                f"a run may not set power.{name} here, because the sampler would use it with "
                f"its own rights; start the sampler with power.{name}=..., or unset "
                "power.sampler_socket so that the run starts a sampler with your rights"
            )
    return dataclasses.replace(config, **{name: getattr(own, name) for name in settings})
