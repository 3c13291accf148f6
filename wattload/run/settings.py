"""The options of each configuration group, and the settings of each option with their defaults."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any

from wattload.core.settings import MISSING, NamedSetting, settings_of
from wattload.core.workload import Accelerator
from wattload.power.config import PowerConfig
from wattload.run.compose import CONFIG_MODULE, options, schema_of, values_by_scale
from wattload.run.config import RunConfig, SweepConfig, TargetConfig

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
    """Yield the settings of one workload, loader or power source."""
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
    return " ".join(lines)
