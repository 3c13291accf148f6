"""The runs of a search for the most accelerators: one data set that fits all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattload.core.errors import ConfigError
from wattload.workloads.unet3d.config import Config
from wattload.workloads.unet3d.job import FULL_SCALE, data_set_rule

LEAST_STEPS = 4
"""Steps of an epoch in a search, at least: a utilisation leaves the first one out."""


def search_settings(
    config: Config,
    *,
    scale: str,
    accelerators: Sequence[int],
    memory_bytes: int,
    file_count: int | None,
) -> Mapping[int, Mapping[str, int]]:
    """Return the settings of the run with each number of accelerators, ascending and at least one.

    All read from one data set, and all have as many steps an epoch, so that nothing but the number
    of accelerators tells them apart; at ``full`` as many as MLPerf's rule asks for each number.
    ``file_count`` is the data set that was asked for, ``None``: as large as the most accelerators
    need. ``memory_bytes`` is that of all hosts.

    Raises:
        ConfigError: the data set that was asked for has too few files for the most accelerators.
    """
    alike = _steps(config, file_count, accelerators[-1])
    steps = {
        count: data_set_rule(config, count, memory_bytes).steps
        if scale == FULL_SCALE and config.steps_per_epoch is None
        else alike
        for count in accelerators
    }
    needed = max(steps[count] * count * config.batch_samples for count in accelerators)
    if file_count is not None and file_count < needed:
        fits = file_count // (config.batch_samples * max(steps.values()))
        raise ConfigError(
            f"workload.file_count is {file_count}; {accelerators[-1]} accelerators with "
            f"{steps[accelerators[-1]]} steps an epoch and batches of {config.batch_samples} need "
            f"{needed}; use {needed} or more, or leave it out"
            + (f", or set sweep.maximum={fits}" if fits else "")
        )
    return {
        count: {"file_count": file_count or needed, "steps_per_epoch": steps[count]}
        for count in accelerators
    }


def _steps(config: Config, file_count: int | None, most: int) -> int:
    """Return the steps that an epoch has with any number of accelerators, outside ``full``."""
    if config.steps_per_epoch is not None:
        return config.steps_per_epoch
    if file_count is not None:
        return max(file_count // (config.batch_samples * most), LEAST_STEPS)
    return max((config.file_count or 0) // config.batch_samples, LEAST_STEPS)
