"""From overrides on the command line to a typed ``RunConfig``: Hydra at the edge only."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from wattload.config import RunConfig, ScaleConfig, SweepConfig, TargetConfig
from wattload.core.accelerator import Accelerator
from wattload.core.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

CONFIG_MODULE = "wattload.configs"
CONFIG_NAME = "main"

# Groups whose options have code: ``workload=unet3d`` is ``wattload.workloads.unet3d``.
CODED_GROUPS = {"workload": "wattload.workloads", "loader": "wattload.loaders"}


def options(group: str) -> list[str]:
    """Return the options of a config group by name, as the YAML files stand there."""
    folder = files(CONFIG_MODULE).joinpath(group)
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    )


def groups() -> list[str]:
    """Return the names of the config groups."""
    return sorted(
        entry.name
        for entry in files(CONFIG_MODULE).iterdir()
        if entry.is_dir() and not entry.name.startswith("_")
    )


def register_schemas() -> None:
    """Give Hydra the typed schema of every option; a new one needs its module and YAML only."""
    from hydra.core.config_store import ConfigStore

    from wattload.power.config import PowerConfig

    store = ConfigStore.instance()
    store.store(name="schema_run", node=RunConfig)
    for group, schema in (
        ("target", TargetConfig),
        ("scale", ScaleConfig),
        ("accelerator", Accelerator),
        ("power", PowerConfig),
        ("sweep", SweepConfig),
    ):
        store.store(group=group, name=f"schema_{group}", node=schema)
    for group, package in CODED_GROUPS.items():
        for option in options(group):
            module = import_module(f"{package}.{option}")
            store.store(group=group, name=f"schema_{option}", node=module.Config)


def compose(overrides: Sequence[str]) -> tuple[RunConfig, dict[str, Any]]:
    """Return the typed configuration of one run, and the same as plain data for the record.

    Raises:
        ConfigError: an unknown key (the nearest valid one is named), a wrong type, an unknown
            option of a group, a missing value or a malformed override.
    """
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        _refuse_additions(overrides)
        _refuse_half_scales(overrides)
        composed = _compose(overrides)
        plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        typed = OmegaConf.to_object(composed)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error, overrides)) from error
    if not isinstance(typed, RunConfig) or not isinstance(plain, dict):
        raise ConfigError("the configuration did not compose to a run; is main.yaml intact?")
    typed.check()
    return typed, {str(key): value for key, value in plain.items()}


def _compose(overrides: Sequence[str]) -> DictConfig:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module

    register_schemas()
    with initialize_config_module(CONFIG_MODULE, version_base="1.3"):
        return hydra_compose(CONFIG_NAME, overrides=[_quoted(text) for text in overrides])


def _refuse_additions(overrides: Sequence[str]) -> None:
    """Refuse ``+key=`` and ``~key``: every setting there is has its place in a schema."""
    for text in overrides:
        if text.startswith(("+", "~")):
            key = text.lstrip("+~").partition("=")[0]
            raise ConfigError(f"{_unknown_key(key, ())}; settings are neither added nor removed")


def _refuse_half_scales(overrides: Sequence[str]) -> None:
    """Refuse ``scale.name=`` and the like: what a scale allows stands and falls with its name."""
    for text in overrides:
        key = text.partition("=")[0].strip()
        if key.startswith("scale."):
            known = ", ".join(options("scale"))
            raise ConfigError(
                f"{key} can't be set alone, as guards follow from the scale as a whole; got "
                f"{text!r}, choose scale= one of {known}"
            )


def _quoted(override: str) -> str:
    """Return ``workload=null`` as the name of an option; unquoted, Hydra reads it as no option."""
    key, equals, value = override.partition("=")
    return f"{key}='null'" if equals and value == "null" and key in groups() else override


def _explain(error: Exception, overrides: Sequence[str]) -> str:
    """Return one sentence for what Hydra or OmegaConf refused."""
    from hydra.errors import MissingConfigException, OverrideParseException
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException, ValidationError

    # Under a debugger or a coverage tool OmegaConf's own errors have causes too: theirs is the key.
    is_omegaconf = isinstance(error, OmegaConfBaseException)
    cause: BaseException = error if is_omegaconf else error.__cause__ or error
    text = str(error).splitlines()[0]
    if isinstance(error, OverrideParseException):
        return f"an override can't be read ({text}); it looks like workload.batch_size=7"
    if isinstance(error, MissingConfigException):
        return _unknown_option(str(error)) or text
    if isinstance(cause, MissingMandatoryValue) or isinstance(error, MissingMandatoryValue):
        key = _full_key(cause)
        hint = "; e.g. target.path=/mnt/nvme" if key == "target.path" else f"; add {key}=VALUE"
        return f"{key} has no value{hint}"
    if isinstance(cause, ValidationError):
        return f"{_full_key(cause)}: {str(cause).splitlines()[0]}"
    return _explain_text(text, overrides)


def _explain_text(text: str, overrides: Sequence[str]) -> str:
    if text.startswith("Ambiguous value"):
        return (
            f"{text.partition(' argument ')[2]} holds several values; wattload run -m runs once "
            "with each, and [first,second] is one list"
        )
    match = re.search(r"[Cc]ould not override '([^']+)'", text) or re.search(
        r"Could not append to config.*'([^']+)'", text
    )
    return _unknown_key(match.group(1).lstrip("+"), overrides) if match else text


def _full_key(error: BaseException) -> str:
    return str(getattr(error, "full_key", "") or "the configuration")


def _unknown_option(text: str) -> str | None:
    match = re.search(r"Could not find '([^']+)/([^/']+)'", text)
    if not match:
        return None
    group, option = match.groups()
    try:
        known = options(group)
    except OSError:
        return f"{group!r} is no config group; there are {', '.join(groups())}"
    return (
        f"{group}={option} is unknown{_nearest(option, known)}; {group} can be {', '.join(known)}"
    )


def _unknown_key(key: str, overrides: Sequence[str]) -> str:
    known = sorted(_known_keys(overrides))
    parent = key.rpartition(".")[0]
    names = [name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == parent]
    listed = ", ".join(name for name in names if not name.startswith("_"))
    beside = f"; {parent or 'the top level'} has {listed}" if listed else ""
    return f"{key} is no setting{_nearest(key, known)}{beside}"


def _nearest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def _known_keys(overrides: Sequence[str]) -> Iterator[str]:
    """Yield every key there is under the chosen groups."""
    from omegaconf import OmegaConf

    chosen = [text for text in overrides if text.partition("=")[0] in groups()]
    container = OmegaConf.to_container(_compose(chosen), resolve=False)
    yield from _flatten(container, "")


def _flatten(node: object, prefix: str) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            name = f"{prefix}.{key}" if prefix else str(key)
            yield name
            yield from _flatten(value, name)
