"""The groups of the configuration, their options and schemas, and what Hydra composes of them.

Only this module composes with Hydra; ``run.config_errors`` explains the errors.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wattload.core.record.run import ConfigFile
from wattload.core.workload import Accelerator
from wattload.run.config import RunConfig, ScaleConfig, SweepConfig, TargetConfig, quote_text
from wattload.run.config_folders import (
    CONFIG_MODULE,
    CONFIG_NAME,
    SEARCH_PATH,
    config_folders,
    files_used,
    flat,
    key_of,
    refuse_changed,
    refuse_foreign_classes,
    refuse_resolvers,
    search_override,
)
from wattload.run.host_load.config import LOADS

if TYPE_CHECKING:
    from hydra._internal.defaults_list import DefaultsList  # what ConfigLoader returns
    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig

EXPERIMENT = "experiment"

PACKAGES = {"workload": "wattload.workloads", "loader": "wattload.loaders"}
"""Where options have a module each: the settings of ``workload=dlrm`` are those of
``wattload.workloads.dlrm.config``, of ``workload=null`` those of ``wattload.workloads.null``."""

CODED_GROUPS = (*PACKAGES, "load")
"""Groups whose options have code; all loads are in one module."""


class Composed(NamedTuple):
    """What overrides compose; it is shared, so nobody may change it.

    ``files`` are those of ``--config-dir`` that took part.
    """

    config: DictConfig
    hydra: DictConfig
    files: tuple[ConfigFile, ...]


def options(group: str, folders: Sequence[Path] = ()) -> list[str]:
    """Return the options of a config group, sorted: the names of its YAML files.

    Raises:
        FileNotFoundError: neither wattload nor one of the ``folders`` has such a group.
    """
    places = [files(CONFIG_MODULE), *folders]
    found = [each for each in (p.joinpath(*group.split("/")) for p in places) if each.is_dir()]
    if not found:
        raise FileNotFoundError(group)
    names = {entry.name for place in found for entry in place.iterdir()}
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def groups() -> list[str]:
    return sorted(
        entry.name
        for entry in files(CONFIG_MODULE).iterdir()
        if entry.is_dir() and not entry.name.startswith("_")
    )


@cache
def register_schemas() -> None:
    """Register the schema of every option, once; a new one needs only a module and a YAML file."""
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
    for group in CODED_GROUPS:
        store.repo[group] = _SchemaNodes(group)


class _SchemaNodes(dict[str, Any]):
    """The schemas of a group in Hydra's store; each is imported when Hydra first reads it."""

    def __init__(self, group: str) -> None:
        super().__init__({f"schema_{option}.yaml": None for option in option_schemas(group)})
        self._group = group

    def __getitem__(self, name: str) -> object:
        from hydra.core.config_store import ConfigNode
        from omegaconf import OmegaConf

        if super().__getitem__(name) is None:
            option = name.removeprefix("schema_").removesuffix(".yaml")
            node = OmegaConf.structured(option_schemas(self._group)[option])
            self[name] = ConfigNode(name, node, self._group, package=None, provider=None)
        return super().__getitem__(name)


class _Schemas(Mapping[str, type]):
    """The settings of the options in ``modules``; each is imported when it is looked up."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def __getitem__(self, option: str) -> type:
        schema: type = import_module(self._modules[option]).Config
        return schema

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


@cache
def option_schemas(group: str) -> Mapping[str, type]:
    """Return the options of a group that have code, each with its settings."""
    if group == "load":
        return LOADS
    modules = {}
    for option in options(group):
        spec = find_spec(f"{PACKAGES[group]}.{option}")
        if spec is not None:  # otherwise a preset, which uses the schema of its base option
            is_package = spec.submodule_search_locations is not None
            modules[option] = f"{spec.name}.config" if is_package else spec.name
    return _Schemas(modules)


def schema_of(group: str, option: str) -> type:
    """Return the ``Config`` of an option of a coded group; a preset has that of its base option."""
    import yaml

    schemas = option_schemas(group)
    while option not in schemas:  # a preset, whose file begins with its base option
        text = files(CONFIG_MODULE).joinpath(group, f"{option}.yaml").read_text("utf-8")
        option = yaml.safe_load(text)["defaults"][0]
    return schemas[option]


def options_with(group: str, key: str) -> list[str]:
    """Return the options of a coded group whose schemas have a setting; nothing is composed."""
    from omegaconf import OmegaConf

    schemas = {option: OmegaConf.structured(schema_of(group, option)) for option in options(group)}
    return [
        option
        for option, schema in schemas.items()
        if key in all_keys({group: OmegaConf.to_container(schema)}, "")
    ]


def has_setting(group: str, option: str, key: str, folders: Sequence[Path] = ()) -> bool:
    """Return whether ``key`` is a setting of an option; ``False`` if there is no such option."""
    if option not in options(group, folders):
        return False
    search = [search_override(str(folder)) for folder in folders]
    of_group = {group: compose_values([*search, f"{group}={option}"])[group]}
    return key in all_keys(of_group, "")


def compose_values(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the composed values as plain data; a required setting without one has ``MISSING``."""
    from omegaconf import OmegaConf

    values = OmegaConf.to_container(compose_config(tuple(overrides)).config, resolve=True)
    return {str(key): value for key, value in values.items()} if isinstance(values, dict) else {}


def values_by_scale(overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what ``compose_values`` returns, at each scale.

    It is composed once: what depends on the scale refers to its name, as ``${scale.name}`` does.
    """
    from omegaconf import OmegaConf

    composed = copy.deepcopy(compose_run(tuple(overrides)).config)
    found = {}
    for scale in options("scale"):
        composed.scale = compose_config((f"scale={scale}",)).config.scale
        values = OmegaConf.to_container(composed, resolve=True)
        if isinstance(values, dict):
            found[scale] = {str(key): value for key, value in values.items()}
    return found


@lru_cache(maxsize=64)
def compose_config(overrides: tuple[str, ...]) -> Composed:
    """Return the composed configuration, which is shared."""
    from hydra import compose as hydra_compose
    from omegaconf import OmegaConf, open_dict

    register_schemas()
    folders = config_folders(overrides)
    with _search_path(overrides, folders) as (_, given):
        config = hydra_compose(CONFIG_NAME, overrides=given, return_hydra_config=True)
    hydra = config.hydra
    with open_dict(config):
        del config["hydra"]
    values = OmegaConf.to_container(config)
    refuse_foreign_classes(flat(values, ""))
    if not folders:
        refuse_resolvers(values, "", ())
        return Composed(config, hydra, ())
    names = [each.config_path for each in defaults_list(overrides).defaults if each.config_path]
    used = files_used(names, folders)
    refuse_resolvers(values, "", used)
    refuse_resolvers(OmegaConf.to_container(hydra.sweeper), "hydra.sweeper", used)
    refuse_changed(_hydra_values(hydra), _hydra_values(compose_config(()).hydra))
    return Composed(config, hydra, used)


@lru_cache(maxsize=64)
def compose_run(overrides: tuple[str, ...]) -> Composed:
    """Return what ``compose_config`` does, but for Hydra's own part, in a tenth of the time.

    The runs of a sweep differ in values alone: what Hydra composes of the other overrides is kept,
    and the values are set in a copy, as Hydra does last.
    """
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    texts = [text for text in overrides if _is_value(text)]
    values = OverridesParser.create().parse_overrides([_quoted(text) for text in texts])
    if any(value.is_sweep_override() for value in values):
        return compose_config(overrides)
    composed = compose_config(tuple(text for text in overrides if text not in texts))
    config = copy.deepcopy(composed.config)
    ConfigLoaderImpl._apply_overrides_to_config(values, config)
    plain = OmegaConf.to_container(config)
    refuse_foreign_classes(flat(plain, ""))
    refuse_resolvers(plain, "", ())
    return composed._replace(config=config)


def _is_value(override: str) -> bool:
    """Return whether an override sets a value, and so can't change what else is composed."""
    key = key_of(override)
    is_setting = key.partition(".")[0] in RunConfig.__dataclass_fields__
    return is_setting and ("." in key or key not in groups()) and not set(key) & set("/@:")


@lru_cache(maxsize=64)
def defaults_list(overrides: tuple[str, ...]) -> DefaultsList:
    """Return Hydra's defaults list, which is shared: which files are composed, and why."""
    from hydra.types import RunMode

    with _search_path(overrides, config_folders(overrides)) as (loader, given):
        found: DefaultsList = loader.compute_defaults_list(CONFIG_NAME, given, RunMode.RUN)
    return found


@contextmanager
def _search_path(
    overrides: Sequence[str], folders: Sequence[Path]
) -> Iterator[tuple[ConfigLoader, list[str]]]:
    """Initialise Hydra with these folders before wattload's; yields the overrides for it."""
    from hydra import initialize_config_module
    from hydra.core.global_hydra import GlobalHydra

    given = [_quoted(text) for text in overrides if key_of(text) != SEARCH_PATH]
    with initialize_config_module(CONFIG_MODULE, version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        for folder in folders:
            loader.get_search_path().prepend("--config-dir", f"file://{folder}", anchor="main")
        # Hydra reads a path that was changed only because of this override.
        yield loader, [*given, *([f"{SEARCH_PATH}=[]"] if folders else [])]


def _hydra_values(hydra: DictConfig) -> dict[str, object]:
    from omegaconf import OmegaConf

    return dict(flat(OmegaConf.to_container(hydra), "hydra"))


def _quoted(override: str) -> str:
    """Quote text, and ``null`` in ``workload=null``; unquoted, Hydra reads it as None."""
    key, equals, value = override.partition("=")
    if equals and value == "null" and key in groups():
        return f"{key}='null'"
    return quote_text(override)


def group_choices(overrides: Sequence[str], folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return the overrides that select an option of a group."""
    known = {f"{group}={option}" for group in groups() for option in options(group, folders)}
    return tuple(text for text in overrides if text in known)


def all_keys(node: object, prefix: str) -> Iterator[str]:
    """Yield the keys of composed values, and those of the groups that they are in."""
    if isinstance(node, dict):
        for key, value in node.items():
            name = f"{prefix}.{key}" if prefix else str(key)
            yield name
            yield from all_keys(value, name)
