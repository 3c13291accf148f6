"""From a composed configuration to the workload it names."""

from __future__ import annotations

from wattload.config import RunConfig
from wattload.core.errors import ConfigError
from wattload.core.workload import Workload


def build_workload(config: RunConfig) -> Workload:
    """Return the workload that ``workload._target_`` names, built from its own configuration.

    Raises:
        ConfigError: the class can't be imported.
    """
    from hydra.utils import get_class

    name = config.workload._target_
    try:
        factory = get_class(name)
    except Exception as error:
        raise ConfigError(f"workload._target_={name} can't be imported: {error}") from error
    workload: Workload = factory(config.workload, config.loader, config.accelerator)
    return workload
