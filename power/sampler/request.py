"""What a client asks of power, checked: its fields become a ``PowerConfig`` or one sentence."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from wattload.core.errors import ConfigError, PowerError
from wattload.core.power import PowerSource
from wattload.power.config import NONE, PowerConfig
from wattload.power.selection import Selection
from wattload.power.sources import PowerDevice, find_sources

STATE_SOURCE = "nvme"


def power_config(request: Mapping[str, Any]) -> PowerConfig:
    """Return the configuration in a request.

    Raises:
        ConfigError: a field is unknown, of the wrong type or out of range.
    """
    names = {field.name for field in dataclasses.fields(PowerConfig)}
    unknown = sorted(set(request) - names)
    if unknown:
        raise ConfigError(f"power has no setting {unknown[0]!r}; there are {sorted(names)}")
    try:
        config = TypeAdapter(PowerConfig).validate_json(json.dumps(request), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"power.{place}: {first['msg']}, got {first['input']!r}") from error
    config.check()
    return config


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
        try:
            source.open()
        except PowerError:
            continue
        watchers.append(source)
    return watchers
