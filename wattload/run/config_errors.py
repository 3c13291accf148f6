"""Explains what is wrong with settings: errors of Hydra and OmegaConf as a sentence each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattload.core.errors import ConfigError
from wattload.core.settings import shown, unit_of
from wattload.run.config_folders import SEARCH_PATH, config_folders, hydra_refusal, key_of
from wattload.run.config_groups import (
    CODED_GROUPS,
    EXPERIMENT,
    PACKAGES,
    all_keys,
    compose_config,
    defaults_list,
    group_choices,
    groups,
    options,
    options_with,
)

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from omegaconf.errors import OmegaConfBaseException

LEAST_LIKENESS = 0.65
"""How alike an unknown setting and a suggested one are at least, from 0 to 1."""
WORD_WEIGHT = 0.9
"""How much the likeness of one word of a name counts, compared with that of all of it."""

OF_FIO: Mapping[str, tuple[str, ...]] = {
    "bs": ("loader.block_bytes", "workload.block_bytes"),
    "direct": ("loader=direct",),
    "directory": ("target.path",),
    "filename": ("target.path",),
    "iodepth": ("loader.queue_depth", "workload.queue_depth"),
    "numjobs": ("loader.workers", "loader.threads", "workload.threads"),
    "runtime": ("workload.duration_s", "workload.epochs", "workload.rounds"),
    "rw": ("workload",),
    "size": ("workload.file_bytes", "workload.file_count", "workload.range_bytes"),
}
"""Options of fio, and the settings that take their place; a workload or loader has some of them."""

_UNPACKAGED = "must begin with the line # @package _global_"


@contextmanager
def explaining(overrides: Sequence[str]) -> Iterator[None]:
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
    text = (str(error) or str(cause)).splitlines()[0]
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
        quoted = ", and quote the name 'null' in a file" if key in PACKAGES else ""
        return f"{key} has no value; {hint}{quoted}"
    if isinstance(cause, InterpolationResolutionError):
        return _missing_entry(cause) or (
            f"{_full_key(cause)} has an invalid reference: {str(cause).splitlines()[0]}; "
            "${KEY} must name another setting"
        )
    if isinstance(cause, OmegaConfBaseException):
        wrong_type = _explain_type(_full_key(cause), overrides)
        if wrong_type:
            return wrong_type
    return _explain_text(text, overrides)


def _missing_entry(error: OmegaConfBaseException) -> str:
    """Return the sentence on a reference to an entry that a table lacks; empty for any other."""
    from omegaconf import OmegaConf

    found = re.search(r"key '(.+)\.([^.]+)' not found", str(error))
    if found is None or error.parent_node is None:
        return ""
    table = OmegaConf.select(error.parent_node, found[1])
    if not table:
        return ""
    return f"{_full_key(error)} has no value for {found[2]!r}; there is one for {', '.join(table)}"


def _fault_in_file(error: Exception, overrides: Sequence[str]) -> str:
    """Return the sentence on a setting in a file; empty if the error is none of that kind."""
    found = re.match(
        r"In '([^']+)': (\w+) raised while composing config:\n(.*)\n +full_key: (\S*)", str(error)
    )
    if found is None:
        packaged = re.match(rf"In '([^']+)': Could not override '[^']+@{EXPERIMENT}\.", str(error))
        return f"{packaged.group(1)}.yaml {_UNPACKAGED}" if packaged else ""
    file, kind, fault, key = found.groups()
    if key == EXPERIMENT:
        return f"{file}.yaml {_UNPACKAGED}"
    if not key and (explained := _groups_as_values(file, overrides)):
        return f"{file}.yaml: {explained}"
    if key.startswith("hydra."):
        reason = hydra_refusal(key)
    elif kind == "ConfigKeyError":
        reason = unknown_setting(key, overrides)
    else:
        others = [text for text in overrides if key_of(text) != key]
        reason = f"{_explain_type(key, others) or key}: {fault}"
    return f"{file}.yaml: {reason}"


def _groups_as_values(file: str, overrides: Sequence[str]) -> str:
    """Return the sentence on a file that sets groups to a value, or is a list; else empty."""
    import yaml

    folders = config_folders(overrides)
    path = next(filter(Path.is_file, (folder / f"{file}.yaml" for folder in folders)), None)
    values = yaml.safe_load(path.read_text()) if path else {}
    if not isinstance(values, dict):
        return "settings must be KEY: VALUE, not a list"
    return "; ".join(
        f"{group} is a group, so it can't be set to a value: write `- override /{group}: "
        f"{values[group] if values[group] in options(group, folders) else 'NAME'}` under defaults:"
        for group in groups()
        if not isinstance(values.get(group, {}), dict)
    )


def _explain_null(overrides: Sequence[str]) -> str:
    """Return the sentence on a setting of an option that is not selected, such as a data sheet."""
    from omegaconf import OmegaConf

    selected = _chosen_only(overrides)
    for text in overrides:
        key = text.partition("=")[0].strip()
        parent = key.rpartition(".")[0]
        if parent and OmegaConf.select(selected, parent, default="") is None:
            group = parent.replace(".", "/")
            choice = f"add {group}= and one of {', '.join(options(group))}"
            return f"{key} can't be set while {parent} is null; {choice}"
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
    own = given[-1].partition("=")[2].strip() if given else ""
    if own and own[0] not in "[{":
        wanted = wanted.replace("[a,b]", f"[{own}]")
    value = f", got {shown(own)}" if given else ""
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

    in_unit = f" in {unit}" if unit else ""
    kinds: dict[type, str] = {
        BooleanNode: "true or false",
        IntegerNode: f"an integer{in_unit}{' (e.g. 16384)' if unit == 'bytes' else ''}",
        FloatNode: f"a number{in_unit}",
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
    return unknown_setting(match.group(1).lstrip("+"), overrides) if match else text


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
    meant = f"did you mean {near[0]}? " if near else ""
    hint = _misplaced(group, option, overrides) or f"{meant}{group} can be {', '.join(known)}"
    return f"unknown option {group}={option}; {hint}"


def _misplaced(group: str, option: str, overrides: Sequence[str]) -> str:
    """Return how to name a file that was given as a path, or lies outside its group's folder."""
    path = Path(option)
    if path.suffix == ".yaml" and path.parent.name == group and path.is_file():
        return f"name it as --config-dir {path.parent.parent} {group}={path.stem}"
    for folder in config_folders(overrides):
        if (folder / f"{option}.yaml").is_file():
            place = folder / group
            return f"there is no {place / option}.yaml; move {option}.yaml to {place}"
    return ""


def unknown_setting(key: str, overrides: Sequence[str]) -> str:
    """Return the sentence on an unknown setting.

    It names a selected setting of that name, else the options of the group that have the setting,
    else the nearest one, else those of the group.
    """
    known = sorted(key for key in known_keys(overrides) if not key.endswith("._target_"))
    if here := [each for each in OF_FIO.get(key, ()) if each.partition("=")[0] in known]:
        named = [each if "=" in each or "." in each else f"{each}=" for each in here]
        return f"unknown setting {key}; instead of fio's {key}, use {' or '.join(named)}"
    if key in OF_FIO:
        return f"unknown setting {key}; {_setting_of_others(OF_FIO[key][0], overrides)}"
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
    having = options_with(group, key)
    if not having:
        return ""
    chosen = [text for text in group_choices(overrides) if text.startswith(f"{group}=")]
    instead = chosen[-1] if chosen else f"the default {group}"
    return f"{key} is a setting of {group}={','.join(having)}, not of {instead}"


def nearest_setting(key: str, known: Iterable[str]) -> str:
    """Return the setting that was probably meant by an unknown key; empty if there is none.

    What is compared is the name after the last dot, whole or by its words, so that ``path`` finds
    ``target.path`` and ``files`` finds ``workload.file_count``. Words of a name count only if the
    prefix is the same or not given. Of equally near names, one with the nearest prefix is taken,
    then a short one.
    """
    parent, _, name = key.lower().rpartition(".")

    def likeness(setting: str) -> tuple[float, float, int]:
        prefix, _, last = setting.rpartition(".")
        words = last.split("_")
        whole = difflib.SequenceMatcher(None, name, last).ratio()
        same = prefix == parent
        part = max(difflib.SequenceMatcher(None, name, word).ratio() for word in words)
        likeness = max(whole + 0.1 * same, WORD_WEIGHT * part * (same or not parent))
        return likeness, difflib.SequenceMatcher(None, parent, prefix).ratio(), -len(setting)

    best = max(known, key=likeness, default="")
    return best if best and likeness(best)[0] >= LEAST_LIKENESS else ""


def known_keys(overrides: Sequence[str]) -> Iterator[str]:
    """Yield the keys of all settings of the selected options, and those of groups of settings."""
    from omegaconf import OmegaConf

    container = OmegaConf.to_container(_chosen_only(overrides), resolve=False)
    yield from all_keys(container, "")


def _chosen_only(overrides: Sequence[str]) -> DictConfig:
    """Return the configuration with the selected options, of wattload alone if others fail."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    folders = config_folders(overrides)
    search = [text for text in overrides if key_of(text) == SEARCH_PATH]
    try:
        return compose_config((*search, *group_choices(overrides, folders))).config
    except (ConfigError, HydraException, OmegaConfBaseException):
        return compose_config(_own_choices(overrides)).config


def _own_choices(overrides: Sequence[str]) -> tuple[str, ...]:
    """Return the choice of an option of wattload for each group, also by or under a lab's file."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    folders = config_folders(overrides)
    search = [text for text in overrides if key_of(text) == SEARCH_PATH]
    try:
        files = defaults_list((*search, *group_choices(overrides, folders))).defaults
    except (HydraException, OmegaConfBaseException):
        own = group_choices(overrides)
    else:
        own = tuple((each.config_path or "").replace("/", "=") for each in files)
    chosen = group_choices(own)
    return tuple(text for text in chosen if key_of(text) != EXPERIMENT)


def blanks_hint(words: Sequence[str]) -> str:
    """Return how to quote the command of a meter that blanks have split; else empty."""
    for text, after in pairwise(words):
        key, _, value = text.partition("=")
        if key == "power.command.run" and "=" not in after:
            return f"; quote a value that has blanks: {key}='{value} {after} ...'"
    return ""


def meant(word: str) -> str:
    """Return how to write an override of which only the value, or only the key, is given."""
    group = next((group for group in groups() if word in options(group)), None)
    if group is not None:
        return f"did you mean {group}={word}?"
    if word in groups():
        return f"add = and one of {', '.join(options(word))}"
    if "/" in word or word in (".", "~"):
        return f"did you mean target.path={word}?"
    return "write it as KEY=VALUE, e.g. scale=demo"
