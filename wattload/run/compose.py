"""Composes overrides into a typed ``RunConfig``, and builds the workload that it names.

Only this module composes with Hydra.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wattload.core.errors import ConfigError
from wattload.core.record.run import ConfigFile
from wattload.core.settings import shown, unit_of
from wattload.core.storage.targets import TargetKind
from wattload.core.workload import Accelerator, Workload
from wattload.run.config import RunConfig, ScaleConfig, SweepConfig, TargetConfig, quote_text
from wattload.run.config_folders import (
    CONFIG_MODULE,
    CONFIG_NAME,
    SEARCH_PATH,
    config_folders,
    files_used,
    flat,
    hydra_refusal,
    refuse_changed,
    refuse_foreign_classes,
    refuse_hydra_settings,
    search_override,
)
from wattload.run.host_load.config import LOADS

if TYPE_CHECKING:
    from hydra._internal.defaults_list import DefaultsList  # what ConfigLoader returns
    from hydra.core.config_loader import ConfigLoader
    from omegaconf import DictConfig

EXPERIMENT = "experiment"

LEAST_LIKENESS = 0.65
"""How alike an unknown setting and a suggested one are at least, from 0 to 1."""
WORD_WEIGHT = 0.9
"""How much the likeness of one word of a name counts, compared with that of all of it."""

_PACKAGES = {"workload": "wattload.workloads", "loader": "wattload.loaders"}
"""Where options have a module each: the settings of ``workload=unet3d`` are those of
``wattload.workloads.unet3d.config``, of ``workload=null`` those of ``wattload.workloads.null``."""

_WORKLOAD_CLASS = "workload._target_"
_CLASS_KEY = re.compile(r"_\w+_")
"""What Hydra takes as an order on how to build an object: ``_target_``, ``_args_``."""

CODED_GROUPS = (*_PACKAGES, "load")
"""Groups whose options have code; all loads are in one module."""


class Composed(NamedTuple):
    """What overrides compose; it is shared, so nobody may change it.

    ``files`` are those of ``--config-dir`` that took part.
    """

    config: DictConfig
    hydra: DictConfig
    files: tuple[ConfigFile, ...]


@dataclass(frozen=True, slots=True)
class Experiment:
    """What an experiment's file sets besides the values of a run.

    ``swept`` has the values of swept keys, as on the command line. ``is_sweep`` is whether it is
    one without ``-m``. ``chosen`` are the groups whose option the file chooses.
    """

    swept: Mapping[str, str]
    is_sweep: bool
    chosen: frozenset[str]


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
        for option, node in _option_schemas(group):
            store.store(group=group, name=f"schema_{option}", node=node)


def _option_schemas(group: str) -> Iterator[tuple[str, type]]:
    """Yield the options of a group that have code, each with its settings."""
    if group == "load":
        yield from LOADS.items()
        return
    for option in options(group):
        found = find_spec(f"{_PACKAGES[group]}.{option}")
        if found is not None:  # otherwise a preset, which uses the schema of its base option
            is_package = found.submodule_search_locations is not None
            module = import_module(f"{found.name}.config" if is_package else found.name)
            yield option, module.Config


def schema_of(group: str, option: str) -> type:
    """Return the ``Config`` of an option of a coded group; a preset has that of its base option."""
    from hydra.utils import get_class

    schemas = dict(_option_schemas(group))
    if option in schemas:
        return schemas[option]
    target: Any = get_class(compose_values([f"{group}={option}"])[group]["_target_"])
    return schemas[target.name]


def loaders_with(*protocols: type) -> tuple[Any, ...]:  # mypy takes no protocol as type[T]
    """Return the default settings of the loaders with one of the protocols, in order of name."""
    configs = (schema() for _, schema in _option_schemas("loader"))
    return tuple(config for config in configs if isinstance(config, protocols))


def compose(overrides: Sequence[str]) -> tuple[RunConfig, dict[str, Any]]:
    """Return the typed configuration of one run, and the same as plain data for the record.

    Raises:
        ConfigError: an unknown key (the error names the nearest valid one), a wrong type, an
            unknown option of a group, a missing value or a malformed override.
    """
    from omegaconf import OmegaConf

    composed = composition(overrides).config
    with _explaining(overrides):
        config_values = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        typed = OmegaConf.to_object(composed)
    if not isinstance(typed, RunConfig) or not isinstance(config_values, dict):
        raise ConfigError("the configuration does not describe a run; main.yaml may be damaged")
    _refuse_number_as_boolean(typed, overrides)
    _refuse_untyped(typed)
    _refuse_other_scales(typed.scale)
    typed.check()
    return typed, {str(key): value for key, value in config_values.items()}


def composition(overrides: Sequence[str]) -> Composed:
    """Return what the overrides compose, values not resolved and not checked against each other.

    Raises:
        ConfigError: as for ``compose``, but for a missing value.
    """
    _refuse_malformed(overrides)
    _refuse_classes(overrides)
    _refuse_additions(overrides)
    _refuse_half_scales(overrides)
    with _explaining(overrides):
        return _compose(tuple(overrides))


@contextmanager
def _explaining(overrides: Sequence[str]) -> Iterator[None]:
    """Raise errors of Hydra and OmegaConf as one sentence each."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        yield
    except ConfigError:
        raise
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error, overrides)) from error
    except AssertionError as error:  # OmegaConf's, for a setting below one that is null
        raise ConfigError(_explain_null(overrides)) from error
    except AttributeError as error:  # OmegaConf's, for {} where such a group is null
        raise ConfigError(_explain_braces(error, overrides)) from error
    except (YAMLError, ValueError, OSError) as error:
        folders = config_folders(overrides)
        if not folders:  # only files that others wrote can be damaged
            raise
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"a file in {', '.join(map(str, folders))} can't be read: {reason}"
        ) from error


def experiment_of(overrides: Sequence[str]) -> Experiment | None:
    """Return what the chosen experiment sets besides values; ``None`` if none is chosen.

    Raises:
        ConfigError: as for ``compose``.
    """
    if not any(_key(text) == EXPERIMENT for text in overrides):
        return None
    known = _selected(overrides, config_folders(overrides))
    chosen = [t for t in overrides if t in known or _key(t) in (EXPERIMENT, SEARCH_PATH)]
    composed = composition(chosen)
    return Experiment(
        swept={
            str(key): str(value) for key, value in (composed.hydra.sweeper.params or {}).items()
        },
        is_sweep=composed.hydra.mode is not None and composed.hydra.mode.name == "MULTIRUN",
        chosen=frozenset(_defaults(tuple(chosen)).overrides.override_choices),
    )


def has_setting(group: str, option: str, key: str, folders: Sequence[Path] = ()) -> bool:
    """Return whether ``key`` is a setting of an option; ``False`` if there is no such option."""
    if option not in options(group, folders):
        return False
    search = [search_override(str(folder)) for folder in folders]
    of_group = {group: compose_values([*search, f"{group}={option}"])[group]}
    return key in _flatten(of_group, "")


def compose_values(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the composed values as plain data; a required setting without one has ``MISSING``."""
    from omegaconf import OmegaConf

    values = OmegaConf.to_container(_compose(tuple(overrides)).config, resolve=True)
    return {str(key): value for key, value in values.items()} if isinstance(values, dict) else {}


def values_by_scale(overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what ``compose_values`` returns, at each scale.

    It is composed once: what depends on the scale refers to its name, as ``${scale.name}`` does.
    """
    from omegaconf import OmegaConf

    composed = copy.deepcopy(_compose(tuple(overrides)).config)
    found = {}
    for scale in options("scale"):
        composed.scale = _compose((f"scale={scale}",)).config.scale
        values = OmegaConf.to_container(composed, resolve=True)
        if isinstance(values, dict):
            found[scale] = {str(key): value for key, value in values.items()}
    return found


@lru_cache(maxsize=64)  # a session composes each run to plan it, and again to make it
def _compose(overrides: tuple[str, ...]) -> Composed:
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
    refuse_foreign_classes(flat(OmegaConf.to_container(config), ""))
    if not folders:
        return Composed(config, hydra, ())
    refuse_changed(_hydra_values(hydra), _hydra_values(_compose(()).hydra))
    names = [each.config_path for each in _defaults(overrides).defaults if each.config_path]
    return Composed(config, hydra, files_used(names, folders))


@lru_cache(maxsize=64)
def _defaults(overrides: tuple[str, ...]) -> DefaultsList:
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

    given = [_quoted(text) for text in overrides if _key(text) != SEARCH_PATH]
    with initialize_config_module(CONFIG_MODULE, version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        for folder in folders:
            loader.get_search_path().prepend("--config-dir", f"file://{folder}", anchor="main")
        # Hydra reads a path that was changed only because of this override.
        yield loader, [*given, *([f"{SEARCH_PATH}=[]"] if folders else [])]


def defaults_of(overrides: Sequence[str]) -> list[tuple[str, str, bool, str]]:
    """Return Hydra's defaults list in order: each file with its package, ``_self_`` and parent.

    Raises:
        ConfigError: as for ``composition``.
    """
    composition(overrides)
    return [
        (each.config_path or "", each.package or "", each.is_self, each.parent or "")
        for each in _defaults(tuple(overrides)).defaults
    ]


def _hydra_values(hydra: DictConfig) -> dict[str, object]:
    from omegaconf import OmegaConf

    return dict(flat(OmegaConf.to_container(hydra), "hydra"))


def _refuse_malformed(overrides: Sequence[str]) -> None:
    """Refuse what is not KEY=VALUE, and a value of a group that is not an option's name."""
    for text in overrides:
        key, equals, value = text.lstrip("+~").partition("=")
        is_removal = text.startswith("~") and len(text) > 1 and "/" not in text
        if not key.strip() or not (equals or is_removal):
            raise ConfigError(f"malformed override {shown(text)}; {_meant(text)}")
        if value.strip().startswith("{") and key.strip() in groups():
            raise ConfigError(
                f"{key} must be one of {', '.join(options(key.strip()))}, got {shown(value)}; "
                f"its settings are set one by one, as {key}.KEY=VALUE"
            )


def _meant(word: str) -> str:
    """Return how to write an override of which only the value, or only the key, is given."""
    group = next((group for group in groups() if word in options(group)), None)
    if group is not None:
        return f"did you mean {group}={word}?"
    if word in groups():
        return f"add = and one of {', '.join(options(word))}"
    if "/" in word or word in (".", "~"):
        return f"did you mean target.path={word}?"
    return "write it as KEY=VALUE, e.g. scale=demo"


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
        or scale.allows_root != _compose((f"scale={scale.name}",)).config.scale.allows_root
    ):
        raise ConfigError(
            f"a file can't define a scale, as each has its own guards, got {shown(scale.name)}; "
            f"choose one of {', '.join(known)}, and set the counts of the workload"
        )


def _refuse_additions(overrides: Sequence[str]) -> None:
    """Refuse ``+key=``, ``~key`` and Hydra's own settings: the schemas have every setting."""
    refuse_hydra_settings(text for text in overrides if _key(text) != SEARCH_PATH)
    for text in overrides:
        if text.startswith(("+", "~")):
            key = text.lstrip("+~").partition("=")[0].strip()
            chosen = [each for each in overrides if each.partition("=")[0] in CODED_GROUPS]
            if key not in (*groups(), *_known_keys(chosen)):
                raise ConfigError(
                    f"{_unknown_key(key, chosen)}; settings can't be added or removed"
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


def _quoted(override: str) -> str:
    """Quote text, and ``null`` in ``workload=null``; unquoted, Hydra reads it as None."""
    key, equals, value = override.partition("=")
    if equals and value == "null" and key in groups():
        return f"{key}='null'"
    return quote_text(override)


def _explain(error: Exception, overrides: Sequence[str]) -> str:
    """Return one sentence that explains an error of Hydra or OmegaConf."""
    from hydra.errors import OverrideParseException
    from omegaconf.errors import (
        InterpolationResolutionError,
        MissingMandatoryValue,
        OmegaConfBaseException,
    )

    # Under a debugger or coverage, errors of OmegaConf have causes too; only the errors have a key.
    is_omegaconf = isinstance(error, OmegaConfBaseException)
    cause: BaseException = error if is_omegaconf else error.__cause__ or error
    text = str(error).splitlines()[0]
    if isinstance(error, OverrideParseException):
        return (
            f"malformed override {shown(error.override or text)}; close its quotes and brackets, "
            "or quote all of its value"
        )
    if explained := _unknown_option(str(error), overrides) or _fault_in_file(error, overrides):
        return explained
    if isinstance(cause, MissingMandatoryValue) or isinstance(error, MissingMandatoryValue):
        key = _full_key(cause)
        hint = "e.g. target.path=/mnt/nvme" if key == "target.path" else f"add {key}=VALUE"
        quoted = ", and quote the name 'null' in a file" if key in _PACKAGES else ""
        return f"{key} has no value; {hint}{quoted}"
    if isinstance(cause, InterpolationResolutionError):
        return (
            f"{_full_key(cause)} has an invalid reference: {str(cause).splitlines()[0]}; "
            "${KEY} must name another setting"
        )
    if isinstance(cause, OmegaConfBaseException):
        wrong_type = _explain_type(_full_key(cause), overrides)
        if wrong_type:
            return wrong_type
    return _explain_text(text, overrides)


def _fault_in_file(error: Exception, overrides: Sequence[str]) -> str:
    """Return the sentence on a setting in a file; empty if the error is none of that kind."""
    found = re.match(
        r"In '([^']+)': (\w+) raised while composing config:\n(.*)\n +full_key: (\S+)", str(error)
    )
    if found is None:
        return ""
    file, kind, fault, key = found.groups()
    if key == EXPERIMENT:
        return f"{file}.yaml must begin with the line # @package _global_"
    if key.startswith("hydra."):
        reason = hydra_refusal(key)
    elif kind == "ConfigKeyError":
        reason = _unknown_key(key, overrides)
    else:
        reason = f"{_explain_type(key, ()) or key}: {fault}"
    return f"{file}.yaml: {reason}"


def _explain_null(overrides: Sequence[str]) -> str:
    """Return the sentence on a setting of an option that is not selected, such as a meter."""
    from omegaconf import OmegaConf

    selected = _chosen_only(overrides)
    for text in overrides:
        key = text.partition("=")[0].strip()
        parent = key.rpartition(".")[0]
        if parent and OmegaConf.select(selected, parent, default="") is None:
            group, _, option = parent.rpartition(".")
            add = f"; add {group}={option}" if group in groups() else ""
            return f"{key} can't be set while {parent} is null{add}"
    return "a setting can't be set while the one above it is null; remove it"


def _explain_braces(error: Exception, overrides: Sequence[str]) -> str:
    """Return the sentence on a group of settings that is given as one value."""
    for text in overrides:
        key, _, value = text.partition("=")
        if value.strip().startswith("{"):
            return f"{key} takes no {{}}, got {shown(value)}; set its settings one by one"
    return str(error).splitlines()[0]


def _explain_type(full_key: str, overrides: Sequence[str]) -> str:
    """Return the sentence on a value of the wrong type; empty if there is no such setting."""
    from omegaconf import OmegaConf

    key = full_key.partition("[")[0]
    schema = _chosen_only(overrides)
    parent, _, name = key.rpartition(".")
    try:
        node = OmegaConf.select(schema, parent) if parent else schema
        wanted = _wanted(node._get_node(name), unit_of(name))
    except (AttributeError, ConfigError):
        return ""
    given = [text for text in overrides if text.partition("=")[0].strip() == key]
    value = f", got {shown(given[-1].partition('=')[2].strip())}" if given else ""
    return f"{key} must be {wanted}{value}" if wanted else ""


def _wanted(node: Any, unit: str) -> str:  # noqa: ANN401 - a node of OmegaConf
    """Return which values a setting takes; empty for a setting of no single type."""
    from omegaconf import (
        BooleanNode,
        DictConfig,
        EnumNode,
        FloatNode,
        IntegerNode,
        ListConfig,
        StringNode,
    )

    kinds: dict[type, str] = {
        BooleanNode: "true or false",
        IntegerNode: f"an integer in {unit}" if unit else "an integer",
        FloatNode: f"a number in {unit}" if unit else "a number",
        StringNode: "text",
        ListConfig: "a list such as [a,b]",
        DictConfig: "a group of settings, which are set one by one",
    }
    if isinstance(node, EnumNode):
        wanted = f"one of {', '.join(each.name for each in node.enum_type)}"
    else:
        wanted = kinds.get(type(node), "")
    return f"{wanted}, or null" if wanted and node._is_optional() else wanted


def _explain_text(text: str, overrides: Sequence[str]) -> str:
    unset = re.match(r"You must specify '([^']+)'", text)
    if unset:
        group = unset.group(1)
        return f"{group} has no value; add {group}= and one of {', '.join(options(group))}"
    if text.startswith("Sweep parameters"):
        given = text.removeprefix("Sweep parameters ").removesuffix(" requires --multirun")
        return f"{given} has several values; use wattload run -m to run once with each"
    if text.startswith("Ambiguous value"):
        given = text.partition(" argument ")[2]
        wanted = (
            "quote a label with a comma, 'label=\"one, two\"'"
            if given.lstrip("'").startswith("label=")
            else "[first,second] for a list"
        )
        return f"{given} has several values; use wattload run -m to run once with each, or {wanted}"
    match = re.search(r"[Cc]ould not override '([^']+)'", text) or re.search(
        r"Could not append to config.*'([^']+)'", text
    )
    return _unknown_key(match.group(1).lstrip("+"), overrides) if match else text


def _full_key(error: BaseException) -> str:
    return str(getattr(error, "full_key", "") or "the configuration")


def _unknown_option(text: str, overrides: Sequence[str]) -> str | None:
    match = re.search(r"Could not find '([^']+)'", text)
    if not match:
        return None
    chosen = match.group(1)
    if chosen.startswith("hydra/"):
        return hydra_refusal(chosen.rpartition("/")[0])
    keys = [text.partition("=")[0].strip() for text in overrides]
    given = [key for key in keys if chosen.startswith(f"{key}/")]
    group = max(given, key=len, default=chosen.rpartition("/")[0])
    option = chosen.removeprefix(f"{group}/")
    try:
        known = options(group, config_folders(overrides))
    except OSError:
        return f"unknown config group {group!r}; the groups are {', '.join(groups())}"
    if not option:
        return f"{group} has no value; add {group}= and one of {', '.join(known)}"
    if group == "target":
        kinds = ", ".join(options(group))
        return f"unknown option target={option}; use {kinds}, or did you mean target.path={option}?"
    near = difflib.get_close_matches(option, known, n=1, cutoff=0.5)
    meant = f" did you mean {near[0]}?" if near else ""
    return f"unknown option {group}={option};{meant} {group} can be {', '.join(known)}"


def _unknown_key(key: str, overrides: Sequence[str]) -> str:
    """Return the sentence on an unknown setting.

    It names a selected setting of that name, else the options of the group that have the setting,
    else the nearest one, else those of the group.
    """
    known = sorted(key for key in _known_keys(overrides) if not key.endswith("._target_"))
    near = nearest_setting(key, known)
    has_same_name = near.rpartition(".")[2] == key.rpartition(".")[2]
    elsewhere = "" if has_same_name else _setting_of_others(key, overrides)
    if elsewhere:
        return elsewhere
    if near:
        return f"unknown setting {key}; did you mean {near}?"
    group = key.partition(".")[0]
    if group in groups() and not any(name.startswith(f"{group}.") for name in known):
        return f"unknown setting {key}; the selected {group} has no settings"
    parents = {name.rpartition(".")[0] for name in known}
    parent = key.rpartition(".")[0]
    while parent not in parents:
        parent = parent.rpartition(".")[0]
    names = [name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == parent]
    return f"unknown setting {key}; {parent or 'the top level'} has {', '.join(names)}"


def _setting_of_others(key: str, overrides: Sequence[str]) -> str:
    """Return the sentence on a setting of other options of its group; empty if none has it."""
    group, dot, _ = key.partition(".")
    if not dot or group not in CODED_GROUPS:
        return ""
    having = [option for option in options(group) if has_setting(group, option, key)]
    if not having:
        return ""
    chosen = [text for text in _selected(overrides) if text.startswith(f"{group}=")]
    instead = chosen[-1] if chosen else f"the default {group}"
    return f"{key} is a setting of {group}={','.join(having)}, not of {instead}"


def nearest_setting(key: str, known: Iterable[str]) -> str:
    """Return the setting that was probably meant by an unknown key; empty if there is none.

    What is compared is the name after the last dot, whole or by its words, so that ``path`` finds
    ``target.path`` and ``files`` finds ``workload.file_count``. Words of a name count only if the
    prefix is the same or not given. Of equally near names, one with the same prefix is taken, then
    a short one.
    """
    parent, _, name = key.lower().rpartition(".")

    def likeness(setting: str) -> tuple[float, bool, int]:
        prefix, _, last = setting.rpartition(".")
        words = last.split("_")
        whole = difflib.SequenceMatcher(None, name, last).ratio()
        same = prefix == parent
        part = max(difflib.SequenceMatcher(None, name, word).ratio() for word in words)
        likeness = max(whole + 0.1 * same, WORD_WEIGHT * part * (same or not parent))
        return likeness, same, -len(setting)

    best = max(known, key=likeness, default="")
    return best if best and likeness(best)[0] >= LEAST_LIKENESS else ""


def _known_keys(overrides: Sequence[str]) -> Iterator[str]:
    from omegaconf import OmegaConf

    container = OmegaConf.to_container(_chosen_only(overrides), resolve=False)
    yield from _flatten(container, "")


def _selected(overrides: Sequence[str], folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return the overrides that select an option of a group."""
    known = {f"{group}={option}" for group in groups() for option in options(group, folders)}
    return tuple(text for text in overrides if text in known)


def _chosen_only(overrides: Sequence[str]) -> DictConfig:
    """Return the configuration with the selected options, of wattload alone if others fail."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    folders = config_folders(overrides)
    search = [text for text in overrides if _key(text) == SEARCH_PATH]
    try:
        return _compose((*search, *_selected(overrides, folders))).config
    except (ConfigError, HydraException, OmegaConfBaseException):
        return _compose(
            tuple(text for text in _selected(overrides) if _key(text) != EXPERIMENT)
        ).config


def _flatten(node: object, prefix: str) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            name = f"{prefix}.{key}" if prefix else str(key)
            yield name
            yield from _flatten(value, name)


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def without_session_keys(overrides: Sequence[str]) -> tuple[str, ...]:
    """Return the overrides without those that apply to a session of several runs.

    With an experiment, whose file may make a session, they are of a single run.
    """
    session = ("interleave", "interleave_by", "start_wait_max_s", "repeat")
    single = ("repeat=1", "interleave=none", "sweep=none")
    is_experiment = any(_key(text) == EXPERIMENT for text in overrides)
    own = tuple(text for text in overrides if _key(text) not in session)
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
    known = dict(_option_schemas("workload"))
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
