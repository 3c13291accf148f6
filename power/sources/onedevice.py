"""Which drive a meter stands for that knows nothing of drives itself."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.errors import ConfigError
from wattload.power.sources import PowerDevice


def the_device(devices: Sequence[PowerDevice], wanted: str, *, setting: str) -> PowerDevice:
    """Return the device of that serial or kernel name; with ``""`` the only one there is.

    Raises:
        ConfigError: none or several fit; the message names ``setting`` and what there is.
    """
    fitting = [device for device in devices if wanted in ("", device.key, device.name)]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(f"{device.name} ({device.key})" for device in devices) or "none"
    raise ConfigError(
        f"{setting} must name the one drive that is measured, by its serial or its name, got "
        f"{wanted!r}; under the target there are: {names}"
    )
