"""``--cfg`` and ``--info``: the composed configuration, and where Hydra has it from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wattload.core.errors import ConfigError
from wattload.core.settings import shown
from wattload.run.compose import compose, composition, defaults_of
from wattload.run.config_groups import Composed, compose_config
from wattload.session.axes import labelled, read_axes
from wattload.session.loop import different_runs
from wattload.session.schedule import names_of

if TYPE_CHECKING:
    from omegaconf import DictConfig


def print_configuration(
    overrides: Sequence[str], *, multirun: bool, kind: str, package: str | None, resolve: bool
) -> int:
    """Print the configuration as YAML; of a sweep that of each different run, as one document.

    Raises:
        ConfigError: the settings are invalid, or there is no such ``package``.
    """
    from omegaconf import OmegaConf

    for run, name in names_of(different_runs(overrides, multirun=multirun)).items():
        compose(run)  # what is printed is valid
        if name:
            sys.stdout.write(f"--- # {name}\n")
        node = _selected(_of_kind(compose_config(run), kind), package)
        if package not in (None, "_global_"):
            sys.stdout.write(f"# @package {package}\n")
        is_value = not OmegaConf.is_config(node)
        sys.stdout.write(f"{node}\n" if is_value else OmegaConf.to_yaml(node, resolve=resolve))
    return 0


def _of_kind(composed: Composed, kind: str) -> DictConfig:
    from omegaconf import OmegaConf, open_dict

    if kind == "job":
        return composed.config
    whole = OmegaConf.create({"hydra": composed.hydra})
    if kind == "all":
        with open_dict(whole):
            whole.merge_with(composed.config)
    return whole


def _selected(config: DictConfig, package: str | None) -> Any:  # noqa: ANN401 - a node or a value
    from omegaconf import OmegaConf

    if package in (None, "_global_"):
        return config
    found = OmegaConf.select(config, package)
    if found is None:
        raise ConfigError(
            f"--package {shown(package or '')}: the configuration has no such part; it has "
            f"{', '.join(map(str, config))}"
        )
    return found


def print_info(overrides: Sequence[str], *, multirun: bool, info: str) -> int:
    """Print the composed files in order, or the places that Hydra searches; of a sweep's first run.

    Raises:
        ConfigError: the settings are invalid.
    """
    run = next(labelled(read_axes(overrides, multirun=multirun)))
    rows: list[tuple[str, ...]]
    if info == "defaults":
        rows = [("Config path", "Package", "_self_", "Parent")]
        rows += [
            (path, package, str(own), parent) for path, package, own, parent in defaults_of(run)
        ]
    else:
        sources = composition(run).hydra.runtime.config_sources
        rows = [("Provider", "Search path")]
        rows += [(each.provider, f"{each.schema}://{each.path}") for each in sources]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    return 0
