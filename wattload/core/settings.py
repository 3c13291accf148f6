"""A setting: its meaning, unit and range, stated once, for its check and its documentation.

The configurations are dataclasses. A field made by ``setting`` carries what the command line, the
documentation and the check need to know about it.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from wattload.core.errors import ConfigError

_KEY = "setting"

MISSING: Any = "???"
"""The default of a setting without one, as OmegaConf writes it."""

_UNITS = {"_per_s": "", "_bytes": "bytes", "_s": "s", "_w": "W", "watts": "W", "_percent": "%"}
"""Units by the last part of a setting's name."""

LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The meaning and the range of one setting.

    ``least`` and ``most`` are inclusive, ``above`` and ``below`` exclusive. ``multiple`` is what an
    integer must be a multiple of. ``choices`` are the allowed words. ``unset`` is what ``null``
    means, where it is allowed.
    """

    meaning: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    multiple: int | None = None
    choices: Sequence[str] = ()
    unset: str = ""

    def range_text(self, kind: type | None) -> str:
        """Return the allowed values in words; empty if anything of the type is allowed."""
        choices = choices_of(self, kind)
        if choices:
            return f"one of {', '.join(choices)}"
        start = f"a multiple of {self.multiple}, " if self.multiple else ""
        least, most = _number(self.least), _number(self.most)
        if self.above is not None:
            end = self.below if self.below is not None else self.most
            less = "less than" if self.below is not None else "at most"
            return f"{start}more than {_number(self.above)}" + (
                f" and {less} {_number(end)}" if end is not None else ""
            )
        if self.least is not None and self.most is not None:
            return f"{start}{least} to {most}"
        if self.least is not None:
            return f"{start}{least} or more"
        return start.removesuffix(", ")

    def accepts(self, value: float) -> bool:
        return (
            abs(value) <= sys.float_info.max  # math.isfinite raises for an integer that is larger
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and (self.multiple is None or value % self.multiple == 0)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSetting:
    """A setting of a configuration, with its name on the command line and its default value."""

    name: str
    setting: Setting
    kind: type | None
    default: Any

    @property
    def unit(self) -> str:
        """The unit that the end of the name states; empty for a number without one."""
        return unit_of(self.name)

    @property
    def range_text(self) -> str:
        if self.kind is bool:
            return "true or false"
        return self.setting.range_text(self.kind)


def unit_of(name: str) -> str:
    """Return the unit that the end of a setting's name states; empty for one without a unit."""
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")


def setting(
    default: Any = MISSING,  # noqa: ANN401 - of the field's type
    meaning: str = "",
    **limits: Any,
) -> Any:  # noqa: ANN401 - a field, typed by its annotation
    """Return a dataclass field that documents and limits a setting; see ``Setting``.

    A default that can be called, such as ``list``, is its factory.
    """
    metadata = {_KEY: Setting(meaning=meaning, **limits)}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def check_settings(config: object, prefix: str) -> None:
    """Check every setting of a configuration against its own range.

    ``prefix`` is the configuration's name on the command line, such as ``workload``.

    Raises:
        ConfigError: a value is out of range.
    """
    for named in settings_of(type(config), prefix):
        value = getattr(config, named.name.rpartition(".")[2])
        if value is None or value == MISSING:
            continue
        check_value(named, value)


def check_value(named: NamedSetting, value: object) -> None:
    """Raise ``ConfigError`` if a value of a setting is out of its range."""
    if isinstance(value, str):
        wrong = bool(named.setting.choices) and value not in named.setting.choices
    elif isinstance(value, bool):
        wrong = False
    else:
        wrong = isinstance(value, int | float) and not named.setting.accepts(value)
    if wrong:
        unit = f" {named.unit}" if named.unit not in ("", "bytes") else ""
        got = shown(value) if isinstance(value, str) else value
        raise ConfigError(f"{named.name} must be {named.range_text}{unit}, got {got}")


def shown(value: str) -> str:
    """Return a value for an error message: quoted, and only its beginning if it is long."""
    if len(value) <= LONGEST_SHOWN:
        return repr(value)
    return f"{value[:LONGEST_SHOWN]!r}... ({len(value)} characters)"


def settings_of(config: type, prefix: str) -> Iterator[NamedSetting]:
    """Yield the settings of a configuration in the order of its fields, its own before a base's."""
    kinds = typing.get_type_hints(config)
    depths: dict[str, int] = {}
    for depth, each in enumerate(config.__mro__):
        for name in inspect.get_annotations(each):
            depths.setdefault(name, depth)
    for field in sorted(dataclasses.fields(config), key=lambda each: depths[each.name]):
        if _KEY not in field.metadata:
            continue
        factory = field.default_factory
        yield NamedSetting(
            name=f"{prefix}.{field.name}" if prefix else field.name,
            setting=field.metadata[_KEY],
            kind=_plain_type(kinds[field.name]),
            default=field.default if factory is dataclasses.MISSING else factory(),
        )


def choices_of(setting: Setting, kind: type | None) -> tuple[str, ...]:
    """Return the allowed words of a setting: its choices, or the members of its enumeration."""
    if kind is not None and issubclass(kind, Enum):
        return tuple(kind.__members__)
    return tuple(setting.choices)


def _plain_type(annotation: object) -> type | None:
    """Return the class of an annotation such as ``int | None``; ``None`` if it has several."""
    if isinstance(annotation, types.UnionType):
        (*kinds,) = (each for each in typing.get_args(annotation) if each is not type(None))
        annotation = kinds[0] if len(kinds) == 1 else None
    origin = typing.get_origin(annotation) or annotation
    return origin if isinstance(origin, type) else None


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() else f"{value:g}"
