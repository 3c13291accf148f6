"""``wattload settings``: every setting with its meaning, unit, range and default."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import re
import shutil
import sys
import textwrap
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any

from wattload.core.errors import ConfigError
from wattload.core.settings import MISSING, NamedSetting, settings_of
from wattload.core.workload import Accelerator
from wattload.power.config import PowerConfig
from wattload.run.compose import experiment_of
from wattload.run.config import RunConfig, SweepConfig, TargetConfig
from wattload.run.config_folders import CONFIG_MODULE, SEARCH_PATH
from wattload.run.config_groups import (
    CODED_GROUPS,
    EXPERIMENT,
    options,
    options_with,
    schema_of,
    values_by_scale,
)
from wattload.session.axes import read_axes

_GENERAL: Mapping[str, type] = {
    "": RunConfig,
    "target": TargetConfig,
    "power": PowerConfig,
    "accelerator": Accelerator,
    "sweep": SweepConfig,
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a group, such as ``unet3d``, and what it is, in a sentence or two."""

    name: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One setting as documentation shows it.

    ``default`` is the value on the command line; empty if the setting is required. A default that
    depends on the scale names the other scales' values. ``allowed`` is the range with the unit, and
    what ``null`` means where it is allowed.
    """

    name: str
    default: str
    meaning: str
    allowed: str


def options_of(group: str) -> list[Option]:
    """Return the options of a group by name; their summaries are the comments in their files."""
    return [Option(name, _head_comment(group, name)) for name in options(group)]


def general_settings() -> Iterator[SettingRow]:
    """Yield the settings that every run has, in the order of the configuration."""
    for prefix, config in _GENERAL.items():
        yield from _rows(config, prefix, overrides=("workload=null",))


def option_settings(group: str, name: str) -> Iterator[SettingRow]:
    """Yield the settings of one workload, loader or power source, or those an experiment makes."""
    if group == EXPERIMENT:
        yield from _experiment_rows(name)
        return
    if group == "power":
        own = f"power.{'profile' if name == 'declared' else name}."
        rows = list(_rows(PowerConfig, "power", overrides=("workload=null",)))
        yield from (row for row in rows if row.name.startswith(own))
        yield from (row for row in rows if row.name.count(".") == 1 and row.name != "power.source")
        return
    overrides = tuple(dict.fromkeys(("workload=null", f"{group}={name}")))[-1:]
    if group != "workload":
        overrides = ("workload=null", *overrides)
    yield from _rows(schema_of(group, name), group, overrides=overrides)


def _experiment_rows(name: str) -> Iterator[SettingRow]:
    """Yield what the file of an experiment sets: options, settings, and values to sweep."""
    import yaml

    file = files(CONFIG_MODULE).joinpath(EXPERIMENT, f"{name}.yaml")
    content = yaml.safe_load(file.read_text("utf-8"))
    chosen = content.pop("defaults", [])
    values = {key.removeprefix("override /"): each[key] for each in chosen for key in each}
    meanings = {group: _summary(group, option) for group, option in values.items()}
    meanings |= {named.name: named.setting.meaning for named in settings_of(RunConfig, "")}
    swept = content.pop("hydra", {}).get("sweeper", {}).get("params", {})
    for key, value in (values | content | swept).items():
        yield SettingRow(name=key, default=_text(value), meaning=meanings.get(key, ""), allowed="")


def _rows(config: type, prefix: str, overrides: tuple[str, ...]) -> Iterator[SettingRow]:
    for named in settings_of(config, prefix):
        yield SettingRow(
            name=named.name,
            default=_default(named, overrides),
            meaning=named.setting.meaning,
            allowed=_allowed(named),
        )
    kinds = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        for kind in (kinds[field.name], *typing.get_args(kinds[field.name])):
            if dataclasses.is_dataclass(kind) and isinstance(kind, type) and prefix:
                yield from _rows(kind, f"{prefix}.{field.name}", overrides)


def _default(named: NamedSetting, overrides: tuple[str, ...]) -> str:
    """Return the default as composed at the default scale, with other scales' if they differ."""
    by_scale = {scale: _found_in(values, named) for scale, values in _values(overrides).items()}
    quick = by_scale.pop("quick")
    others = ", ".join(f"{scale} {value}" for scale, value in by_scale.items() if value != quick)
    return f"{quick} ({others})" if others else quick


def _found_in(values: Mapping[str, Any], named: NamedSetting) -> str:
    node: Any = values
    for part in named.name.split("."):
        if not isinstance(node, dict) or part not in node:
            return _text(named.default)
        node = node[part]
    return _text(node)


@cache
def _values(overrides: tuple[str, ...]) -> Mapping[str, Mapping[str, Any]]:
    return values_by_scale(overrides)


def _text(value: object) -> str:
    if value == MISSING:
        return ""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_text(each) for each in value) + "]"
    return value.name if isinstance(value, Enum) else str(value)


def _allowed(named: NamedSetting) -> str:
    allowed = " ".join(part for part in (named.range_text, named.unit) if part)
    unset = f"null: {named.setting.unset}" if named.setting.unset else ""
    return "; ".join(part for part in (allowed, unset) if part)


def _head_comment(group: str, name: str) -> str:
    text = files(CONFIG_MODULE).joinpath(*group.split("/"), f"{name}.yaml").read_text("utf-8")
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(line for line in lines if not line.startswith("@package"))


NAMED_GROUPS = ("workload", "loader", "power", "load")
"""Groups whose options have settings of their own."""
ALIKE = 0.8
"""How alike a misspelt name and the one that is suggested must be: all names are listed anyway."""
LISTED_GROUPS = (
    "workload",
    "loader",
    "load",
    "power",
    "power/profile",
    "accelerator",
    "scale",
    "sweep",
    "experiment",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="a workload, loader, power source, load or experiment: show its settings; or a group "
        "or setting, such as power or power.idle_s; without a name, the options and the general "
        "settings",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the settings and return 0.

    Raises:
        ConfigError: a name is none of these.
    """
    tables = _tables(arguments.names)
    if arguments.json:
        rows = [asdict(row) for _, table in tables for row in table]
        sys.stdout.write(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        return 0
    if not arguments.names:
        for group in LISTED_GROUPS:
            print("\n".join((f"{group}=", *option_lines(group))), end="\n\n")
    print("\n\n".join("\n".join((title, *_lines(table))) for title, table in tables))
    if not arguments.names:
        print(
            "\nsettings of one workload, loader, power source or experiment: wattload settings "
            "NAME, e.g. wattload settings unet3d"
        )
    return 0


def option_lines(group: str) -> Iterator[str]:
    """Yield the options of a group for a terminal: each name with what it is.

    Of an option that ``wattload settings NAME`` describes, only the first sentence.
    """
    listed = options_of(group)
    width = max(len(option.name) for option in listed)
    for option in listed:
        summary = option.summary
        if group in NAMED_GROUPS:
            summary = re.split(r"(?<=\.) (?=[A-Z])", summary)[0]
        yield from _wrapped(f"{option.name:<{width}}  {summary}", "  ", width + 4)


def require_workload(overrides: Sequence[str], command: str) -> None:
    """Raise ``ConfigError``, with a list of the workloads, unless an override names one."""
    keys = [text.partition("=")[0].strip() for text in overrides]
    if "workload" in keys:
        return
    if EXPERIMENT in keys and _is_chosen_by_experiments(overrides):
        return
    for key in difflib.get_close_matches("workload", keys, n=1, cutoff=0.75):
        raise ConfigError(f"unknown setting {key}; did you mean workload?")
    name = next((option for option in options("workload") if option in overrides), None)
    if name is not None:
        raise ConfigError(f"no workload given; did you mean workload={name} instead of {name}?")
    error = ConfigError(
        f"no workload given; add workload=NAME, e.g. wattload {command} workload=unet3d "
        "target.path=/mnt/ssd scale=demo; the workloads are"
    )
    for line in option_lines("workload"):
        error.add_note(line)  # a sentence is printed in one line
    raise error


def _is_chosen_by_experiments(overrides: Sequence[str]) -> bool:
    """Return whether the experiment, or each of several, selects a workload."""
    search = [text for text in overrides if text.startswith(f"{SEARCH_PATH}=")]
    chosen = [text for text in overrides if text.startswith(f"{EXPERIMENT}=")]
    axes = read_axes([*search, *chosen], multirun=True)
    found = [
        experiment_of((*search, text))
        for axis in axes
        if axis.key == EXPERIMENT
        for text in axis.texts
    ]
    return all(each is not None and "workload" in each.chosen for each in found)


def _wrapped(text: str, indent: str, hanging: int) -> Iterator[str]:
    columns = max(shutil.get_terminal_size().columns, 40)
    yield from textwrap.wrap(
        text,
        columns,
        initial_indent=indent,
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _tables(names: Sequence[str]) -> list[tuple[str, list[SettingRow]]]:
    if not names:
        return [("settings of every run", list(general_settings()))]
    return [table for name in dict.fromkeys(names) for table in _tables_of(name)]


def _summary(group: str, name: str) -> str:
    return next(option.summary for option in options_of(group) if option.name == name)


def _tables_of(name: str) -> list[tuple[str, list[SettingRow]]]:
    """Return the settings of an option, of a group or below a key, or one, each under a title."""
    known = {group: options(group) for group in (*NAMED_GROUPS, EXPERIMENT)}
    for group, listed in known.items():
        if name in listed:
            title = "\n".join(_wrapped(f"{group}={name}: {_summary(group, name)}", "", 2))
            rows = list(option_settings(group, name))
            return [(title if rows else f"{title}\n  no settings", rows)]
    general = list(general_settings())
    rows = [row for row in general if row.name == name or row.name.startswith(f"{name}.")]
    if name in LISTED_GROUPS:
        return [("\n".join((f"{name}=", *option_lines(name))), rows)]
    if rows:
        return [("settings of every run", rows)]
    group = name.partition(".")[0]
    if group in CODED_GROUPS and "." in name:
        having = options_with(group, name)
        tables = [(f"{group}={each}", list(option_settings(group, each))) for each in having]
        found = [(title, [row for row in rows if row.name == name]) for title, rows in tables]
        if found:
            return found
    every = [*(each for listed in known.values() for each in listed), *(r.name for r in general)]
    meant = "".join(
        f"; did you mean {n}?" for n in difflib.get_close_matches(name, every, 1, ALIKE)
    )
    options_text = "; ".join(f"{group}={', '.join(names)}" for group, names in known.items())
    raise ConfigError(f"unknown name {name!r}{meant}; names are {options_text}; or settings")


def _lines(table: Sequence[SettingRow]) -> Iterator[str]:
    for row in table:
        yield f"  {row.name}={row.default}"
        for text in (row.meaning, row.allowed):
            yield from _wrapped(text, " " * 6, 6)
