"""Composes overrides into a typed ``RunConfig``, and builds the workload that it names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from typing import Any

from wattload.core.errors import ConfigError
from wattload.core.settings import shown
from wattload.core.storage.targets import TargetKind
from wattload.core.workload import Workload
from wattload.run.config import RunConfig, ScaleConfig
from wattload.run.config_errors import blanks_hint, explaining, known_keys, meant, unknown_setting
from wattload.run.config_folders import (
    SEARCH_PATH,
    config_folders,
    key_of,
    refuse_hydra_settings,
)
from wattload.run.config_groups import (
    CODED_GROUPS,
    EXPERIMENT,
    Composed,
    compose_config,
    compose_run,
    defaults_list,
    group_choices,
    groups,
    option_schemas,
    options,
)

_WORKLOAD_CLASS = "workload._target_"
_CLASS_KEY = re.compile(r"_\w+_")
"""What Hydra takes as an order on how to build an object: ``_target_``, ``_args_``."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """What an experiment's file sets besides the values of a run.

    ``swept`` has the values of swept keys, as on the command line. ``is_sweep`` is whether it is
    one without ``-m``. ``chosen`` are the groups whose option the file chooses.
    """

    swept: Mapping[str, str]
    is_sweep: bool
    chosen: frozenset[str]


def loaders_with(*protocols: type) -> tuple[Any, ...]:  # mypy takes no protocol as type[T]
    """Return the default settings of the loaders with one of the protocols, in order of name."""
    configs = (schema() for schema in option_schemas("loader").values())
    return tuple(config for config in configs if isinstance(config, protocols))


def compose(overrides: Sequence[str]) -> tuple[RunConfig, dict[str, Any]]:
    """Return the typed configuration of one run, and the same as plain data for the record.

    Raises:
        ConfigError: an unknown key (the error names the nearest valid one), a wrong type, an
            unknown option of a group, a missing value or a malformed override.
    """
    from omegaconf import OmegaConf

    composed = composition(overrides).config
    with explaining(overrides):
        config_values = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        typed = OmegaConf.to_object(composed)
    if not isinstance(typed, RunConfig) or not isinstance(config_values, dict):
        raise ConfigError("the configuration does not describe a run; main.yaml may be damaged")
    _refuse_number_as_boolean(typed, overrides)
    _refuse_untyped(typed)
    if config_folders(overrides):
        _refuse_other_scales(typed.scale)
    typed.check()
    return typed, {str(key): value for key, value in config_values.items()}


def lacks_target(overrides: Sequence[str]) -> bool:
    """Return whether neither the overrides, a file of theirs nor the environment has a target."""
    from omegaconf import OmegaConf

    return OmegaConf.is_missing(composition(overrides).config.target, "path")


def composition(overrides: Sequence[str]) -> Composed:
    """Return what the overrides compose, values not resolved and not checked against each other.

    Hydra's own part lacks those that only set values.

    Raises:
        ConfigError: as for ``compose``, but for a missing value.
    """
    _refuse_malformed(overrides)
    _refuse_classes(overrides)
    _refuse_additions(overrides)
    _refuse_half_scales(overrides)
    with explaining(overrides):
        return compose_run(tuple(overrides))


def experiment_of(overrides: Sequence[str]) -> Experiment | None:
    """Return what the chosen experiment sets besides values; ``None`` if none is chosen.

    Raises:
        ConfigError: as for ``compose``.
    """
    if not any(key_of(text) == EXPERIMENT for text in overrides):
        return None
    known = group_choices(overrides, config_folders(overrides))
    chosen = [t for t in overrides if t in known or key_of(t) in (EXPERIMENT, SEARCH_PATH)]
    composed = composition(chosen)
    with explaining(chosen):
        swept = {
            str(key): str(value) for key, value in (composed.hydra.sweeper.params or {}).items()
        }
    return Experiment(
        swept=swept,
        is_sweep=composed.hydra.mode is not None and composed.hydra.mode.name == "MULTIRUN",
        chosen=frozenset(defaults_list(tuple(chosen)).overrides.override_choices),
    )


def defaults_of(overrides: Sequence[str]) -> list[tuple[str, str, bool, str]]:
    """Return Hydra's defaults list in order: each file with its package, ``_self_`` and parent.

    Raises:
        ConfigError: as for ``composition``.
    """
    composition(overrides)
    return [
        (each.config_path or "", each.package or "", each.is_self, each.parent or "")
        for each in defaults_list(tuple(overrides)).defaults
    ]


def _refuse_malformed(overrides: Sequence[str]) -> None:
    """Refuse what is not KEY=VALUE, and a value of a group that is not an option's name."""
    for text in overrides:
        key, equals, value = text.lstrip("+~").partition("=")
        is_removal = text.startswith("~") and len(text) > 1 and "/" not in text
        if not key.strip() or not (equals or is_removal):
            hint = blanks_hint(overrides) or f"; {meant(text)}"
            raise ConfigError(f"malformed override {shown(text)}{hint}")
        if value.strip().startswith(("{", "${")) and key.strip() in groups():
            raise ConfigError(
                f"{key} must be one of {', '.join(options(key.strip()))}, got {shown(value)}; "
                f"its settings are set one by one, as {key}.KEY=VALUE"
            )


def _refuse_number_as_boolean(config: RunConfig, overrides: Sequence[str]) -> None:
    """Refuse numbers except 0 and 1 for a boolean; OmegaConf reads them as true."""
    for text in overrides:
        key, _, value = text.partition("=")
        node: object = config
        for name in key.strip().split("."):
            node = getattr(node, name, None)
        if (
            isinstance(node, bool)
            and re.fullmatch(r"[-+]?[\d_]+", value.strip())
            and value not in "01"
        ):
            raise ConfigError(f"{key} must be true or false, got {shown(value)}")


def _refuse_untyped(config: RunConfig) -> None:
    """Refuse options whose file has no schema: nothing would check their settings."""
    for group in ("workload", "loader", "power", "load"):
        if not is_dataclass(getattr(config, group)):
            raise ConfigError(
                f"the file of the selected {group} has no schema; begin it with defaults: "
                f"[BASE, _self_], where BASE is one of {', '.join(options(group))}"
            )


def _refuse_other_scales(scale: ScaleConfig) -> None:
    """Refuse a scale that is not wattload's: the guards of a scale belong to its name."""
    known = options("scale")
    if (
        scale.name not in known
        or scale.allows_root != compose_config((f"scale={scale.name}",)).config.scale.allows_root
    ):
        raise ConfigError(
            f"a file can't define a scale, as each has its own guards, got {shown(scale.name)}; "
            f"choose one of {', '.join(known)}, and set the counts of the workload"
        )


def _refuse_additions(overrides: Sequence[str]) -> None:
    """Refuse ``+key=``, ``~key`` and Hydra's own settings: the schemas have every setting."""
    refuse_hydra_settings(text for text in overrides if key_of(text) != SEARCH_PATH)
    for text in overrides:
        if text.startswith(("+", "~")):
            key = text.lstrip("+~").partition("=")[0].strip()
            chosen = [each for each in overrides if each.partition("=")[0] in CODED_GROUPS]
            if key not in (*groups(), *known_keys(chosen)):
                raise ConfigError(
                    f"settings can't be added or removed, got {shown(text)}; "
                    f"{unknown_setting(key, chosen)}"
                )
            if text.startswith("~") and key in groups():
                known = options(key)
                instead = (
                    f"{key}=none" if "none" in known else f"{key}= and one of {', '.join(known)}"
                )
                raise ConfigError(f"{key} can't be removed, got {shown(text)}; use {instead}")
            raise ConfigError(
                f"settings can't be added or removed, got {shown(text)}; to change one, write "
                f"{key}=VALUE"
            )


def _refuse_classes(overrides: Sequence[str]) -> None:
    """Refuse ``loader._target_=``, ``_partial_=`` and the like: an option has its own class.

    ``workload._target_`` may name another workload, which ``workload_class`` checks.
    """
    for text in overrides:
        key = text.lstrip("+~").partition("=")[0].strip()
        group = key.partition(".")[0]
        if _CLASS_KEY.fullmatch(key.rpartition(".")[2]) and key != _WORKLOAD_CLASS:
            choose = ""
            if group in groups():
                choose = f"; set {group}= to one of {', '.join(options(group))}"
            raise ConfigError(f"{key} is not a setting, as each option has its own class{choose}")


def _refuse_half_scales(overrides: Sequence[str]) -> None:
    """Refuse ``scale.name=`` and the like: the guards of a scale belong to its name."""
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key.startswith("scale."):
            known = ", ".join(options("scale"))
            raise ConfigError(
                f"{key} can't be set by itself, because each scale has its own guards; got "
                f"{text!r}; set scale= to one of {known}"
            )


def without_session_keys(overrides: Sequence[str]) -> tuple[str, ...]:
    """Return the overrides without those that apply to a session of several runs.

    With an experiment, whose file may make a session, they are of a single run.
    """
    session = ("interleave", "interleave_by", "start_wait_max_s", "repeat")
    single = ("repeat=1", "interleave=none", "sweep=none")
    is_experiment = any(key_of(text) == EXPERIMENT for text in overrides)
    own = tuple(text for text in overrides if key_of(text) not in session)
    return (*own, *single) if is_experiment else own


def build_workload(config: RunConfig) -> Workload:
    """Return the workload that ``workload._target_`` names, built from its own configuration.

    Raises:
        ConfigError: the class can't be imported, or it needs more of a loader than this run's
            loader offers.
    """
    factory = workload_class(config)
    if factory.needs and not isinstance(config.loader, factory.needs):
        allowed = ", ".join(loader.name for loader in loaders_with(*factory.needs))
        raise ConfigError(
            f"loader={config.loader.name} does not support workload={factory.name}; "
            f"use loader={allowed}"
        )
    workload: Workload = factory(config.workload, config.loader, config.accelerator)
    return workload


def require_target_kind(config: RunConfig) -> None:
    """Raise ``ConfigError`` for a kind of target that the workload can't use."""
    if config.target.kind == TargetKind.DIRECTORY:
        return
    workload = workload_class(config)
    if config.target.kind not in getattr(workload, "target_kinds", (TargetKind.DIRECTORY,)):
        raise ConfigError(
            f"workload={workload.name} reads files; use target=directory with target.path= naming "
            "a directory on the drive"
        )


def require_hosts(config: RunConfig, hosts: Sequence[str]) -> None:
    """Raise ``ConfigError`` if the processes are on several hosts and the workload runs on one."""
    workload = workload_class(config)
    if len(hosts) > 1 and workload.over_hosts == "one":
        raise ConfigError(
            f"workload={workload.name} runs on one host, and the processes are on {len(hosts)} "
            f"({', '.join(hosts)}); start all of them on one, for example with --hosts "
            f"{hosts[0]}:{len(hosts)}"
        )


def workload_class(config: RunConfig) -> Any:  # noqa: ANN401 - the class of any workload
    """Return the class that ``workload._target_`` names, without calling it.

    Raises:
        ConfigError: it can't be imported, or is not a workload with the selected one's settings.
    """
    path = config.workload._target_
    module, _, name = path.rpartition(".")
    choose = f"set workload= to one of {', '.join(options('workload'))}"
    try:
        found = getattr(import_module(module), name)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"{_WORKLOAD_CLASS}={path} can't be imported: {reason}; {choose}"
        ) from error
    if not _is_workload(found):
        raise ConfigError(f"{_WORKLOAD_CLASS}={path} is not a workload; {choose}")
    known = option_schemas("workload")
    if found.name in known and not isinstance(config.workload, known[found.name]):
        raise ConfigError(
            f"{_WORKLOAD_CLASS}={path} has other settings than the selected workload; set "
            f"workload={found.name}"
        )
    return found


def _is_workload(found: object) -> bool:
    """Return whether an object is a class with all of the protocol ``Workload``."""
    methods = ("plan", "prepare", "run", "verify")
    return (
        isinstance(found, type)
        and isinstance(getattr(found, "name", None), str)
        and isinstance(getattr(found, "needs", None), tuple)
        and all(callable(getattr(found, method, None)) for method in methods)
    )
