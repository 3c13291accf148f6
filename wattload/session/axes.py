"""The overrides of a command line as axes: which keys are swept, and over which values.

A report compares runs by their label, so each arm of a sweep over drives, loaders or power gets a
label of its own. Swept keys of the workload make no arms: their runs are points of one curve.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from wattload.core.errors import ConfigError
from wattload.run.compose import experiment_of
from wattload.run.config import override_of, plain_text, quote_text
from wattload.run.config_folders import SEARCH_PATH, config_folders
from wattload.run.config_groups import EXPERIMENT, groups, has_setting, options

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

GROUPS = ("target", "power", "loader", "experiment")
"""The groups of settings whose swept values are compared with each other."""

MOST_VALUES = 10_000
"""Runs of one sweep: at a minute each, a week."""

LONGEST_NAME = 40
"""Characters of a label that is made from swept values."""

_FOREIGN = re.compile(r"[^\w.-]+")

_AS_FOUND = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One override of a command line; ``texts`` has the override of a single run for each value."""

    key: str
    texts: tuple[str, ...]
    is_swept: bool

    @property
    def values(self) -> tuple[str, ...]:
        """The values as the user wrote them, in order."""
        return tuple(text.partition("=")[2] for text in self.texts)


def read_axes(overrides: Sequence[str], *, multirun: bool) -> tuple[Axis, ...]:
    """Return the axes in the order of the overrides; without ``multirun`` none of them is swept.

    An experiment may sweep keys, and may be a sweep without ``multirun``; its axes are the last.

    Raises:
        ConfigError: an override is malformed, or sweeps a key that can't be swept.
    """
    overrides, multirun = _with_experiment(overrides, multirun=multirun)
    if not multirun:
        return tuple(_fixed(text.partition("=")[0].strip(), text) for text in overrides)
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    folders = config_folders(overrides)
    try:
        parsed = OverridesParser.create().parse_overrides([quote_text(o) for o in overrides])
        axes = tuple(
            Axis(key=override.get_key_element(), texts=_texts(override, folders), is_swept=True)
            if override.is_sweep_override()
            else _fixed(override.get_key_element(), override.input_line or "")
            for override in parsed
        )
    except HydraException as error:
        raise ConfigError(str(error).splitlines()[0]) from error
    _refuse_sweeps_of_sweeps(axes)
    if math.prod(len(axis.texts) for axis in axes) > MOST_VALUES:
        swept = ", ".join(axis.key for axis in axes if axis.is_swept)
        raise ConfigError(
            f"a sweep can have at most {MOST_VALUES} runs; the values of {swept} make more"
        )
    return axes


def _with_experiment(overrides: Sequence[str], *, multirun: bool) -> tuple[tuple[str, ...], bool]:
    """Return the overrides with the keys that an experiment sweeps, and whether there is a sweep.

    A key on the command line replaces the experiment's values.
    """
    chosen = next((text for text in overrides if text.startswith(f"{EXPERIMENT}=")), "")
    found = None if _is_swept(chosen) else experiment_of(overrides)
    if found is None:
        return tuple(overrides), multirun
    given = {text.partition("=")[0].strip() for text in overrides}
    swept = [f"{key}={values}" for key, values in found.swept.items() if key not in given]
    if swept and not (multirun or found.is_sweep):
        raise ConfigError(
            f"{chosen} sweeps {', '.join(found.swept)}; add -m, or hydra.mode: MULTIRUN in its file"
        )
    return (*overrides, *swept), multirun or found.is_sweep


def _is_swept(text: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(quote_text(text)).is_sweep_override()
    except HydraException:
        return False


def _refuse_sweeps_of_sweeps(axes: Sequence[Axis]) -> None:
    """Refuse several experiments of which one is a sweep itself."""
    search = [axis.texts[0] for axis in axes if axis.key == SEARCH_PATH]
    for axis in axes:
        for text in axis.texts if axis.key == EXPERIMENT and axis.is_swept else ():
            found = experiment_of((*search, text))
            if found is not None and (found.swept or found.is_sweep):
                raise ConfigError(
                    f"{EXPERIMENT} can't be swept over {text.partition('=')[2]}, which is a sweep "
                    "itself; give it one value"
                )


def _texts(override: Override, folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the override of a single run for each value of a sweep."""
    from hydra.core.override_parser.types import Glob

    key, sweep = override.get_key_element(), override.value()
    if override.is_interval_sweep():
        raise ConfigError(
            f"{override.input_line} has no single values; use {key}=range(START,STOP,STEP) or "
            f"{key}=a,b"
        )
    if getattr(sweep, "shuffle", False):
        raise ConfigError(
            f"the values of {key} can't be shuffled, because a session resumes in the same order; "
            "leave out shuffle()"
        )
    if isinstance(sweep, Glob):
        try:
            names = sweep.filter(options(key, folders))
        except FileNotFoundError:
            raise ConfigError(
                f"glob() selects options of a group such as loader, and {key} is not a group; list "
                "its values"
            ) from None
        if not names:
            raise ConfigError(
                f"{override.input_line} selects no option; {key} can be "
                f"{', '.join(options(key, folders))}"
            )
        return tuple(override_of(key, name) for name in names)
    values = itertools.islice(override.sweep_string_iterator(), MOST_VALUES + 1)
    return tuple(f"{key}={value}" for value in values)


def _fixed(key: str, text: str) -> Axis:
    return Axis(key=key, texts=(text,), is_swept=False)


def product(axes: Sequence[Axis]) -> Iterator[tuple[str, ...]]:
    """Yield the overrides of every combination of values, the last axis fastest."""
    yield from itertools.product(*(axis.texts for axis in axes))


def fitting(overrides: Sequence[str], axes: Sequence[Axis]) -> tuple[str, ...]:
    """Return the overrides of one run without settings that only other swept options have.

    With ``load=none,busy load.cpu_share=0.7`` the share is left out where ``load=none``. A key that
    no swept option has stays, and is refused as unknown.

    Raises:
        ConfigError: such a setting is swept itself: runs without it would repeat each other.
    """
    kept, folders = list(overrides), config_folders(overrides)
    for group in axes:
        if not group.is_swept or group.key not in groups():
            continue
        option = next(text for text in overrides if text in group.texts).partition("=")[2]
        for axis in axes:
            if axis.key.startswith(f"{group.key}.") and _is_of_others(
                axis.key, option, group, folders
            ):
                if axis.is_swept:
                    raise ConfigError(
                        f"{axis.key} is swept, but {group.key}={plain_text(option)} does not have "
                        f"it, and its runs would repeat each other; sweep {axis.key} without "
                        f"{group.key}={plain_text(option)}, or give it one value"
                    )
                kept = [text for text in kept if text not in axis.texts]
    return tuple(kept)


def _is_of_others(key: str, option: str, group: Axis, folders: Sequence[Path]) -> bool:
    """Return whether another swept option of the group has the setting, and this one has not."""
    return not has_setting(group.key, plain_text(option), key, folders) and any(
        has_setting(group.key, plain_text(other), key, folders) for other in group.values
    )


def makes_arms(axis: Axis) -> bool:
    """Return whether the values of an axis are compared: drives, loaders or power states."""
    return axis.is_swept and axis.key.partition(".")[0] in GROUPS


def labelled(axes: Sequence[Axis]) -> Iterator[tuple[str, ...]]:
    """Yield the overrides of every run of a sweep, with a label for its arm if it needs one.

    In a sweep over power states, ``power.state=1`` is the arm ``PS1``; in one over drives,
    ``target.path=/mnt/a`` is the arm ``a``. If both are swept, the arm is ``a-PS1``. Swept labels
    name the values of the one key that makes arms, in order.

    Raises:
        ConfigError: the number of labels is not that of the arms, or several keys make arms.
    """
    every, own = axes, [axis for axis in axes if makes_arms(axis)]
    given = [axis for axis in axes if axis.key == "label"]
    names = dict(zip([axis.key for axis in own], axis_names(own), strict=True))
    if own and given and given[0].is_swept:
        names = {own[0].key: _label_values(given[0], own)}
        axes, given = [axis for axis in axes if axis not in given], []
    is_named = bool(given)
    for indices in itertools.product(*(range(len(axis.texts)) for axis in axes)):
        picked = list(zip(axes, indices, strict=True))
        overrides = tuple(axis.texts[index] for axis, index in picked)
        if is_named or not own:
            yield fitting(overrides, every)
        else:
            label = "-".join(names[axis.key][index] for axis, index in picked if axis in own)
            yield (*fitting(overrides, every), override_of("label", label))


def _label_values(label: Axis, own: Sequence[Axis]) -> tuple[str, ...]:
    """Return the swept labels, one for each value of the only key that makes arms."""
    keys = " and ".join(axis.key for axis in own)
    if len(own) > 1:
        raise ConfigError(
            f"{len(label.values)} labels can't name the combinations of {keys}; leave label out"
        )
    if len(label.values) != len(own[0].values):
        raise ConfigError(
            f"label has {len(label.values)} values but {keys} has {len(own[0].values)}; "
            "give one label for each value, or leave label out"
        )
    return tuple(plain_text(value) for value in label.values)


def axis_names(axes: Sequence[Axis]) -> list[tuple[str, ...]]:
    """Return a name for each value of each axis; joined by dashes, they make distinct labels."""
    if not axes:
        return []
    longest = (LONGEST_NAME - len(axes) + 1) // len(axes)
    return [_distinct(_names(axis), longest) for axis in axes]


def _names(axis: Axis) -> list[str]:
    if axis.key == "target.path":
        return _path_names(axis.values)
    return [_clean(_name(axis.key, value)) for value in axis.values]


def _name(key: str, value: str) -> str:
    last = key.rpartition(".")[2]
    if value == _AS_FOUND and key.startswith("power."):
        return f"{last}-as-found"
    if key == "power.state":
        return f"PS{value}"
    if key == "power.dssd_watts":
        return f"OCP{value}W"
    if key == "power.limit_w":
        return f"limit{value}W"
    plain = plain_text(value)
    return f"{last}-{plain}" if "." in key else plain


def _path_names(values: Sequence[str]) -> list[str]:
    """Return the parts in which paths differ: ``a`` and ``b`` for ``/mnt/a/data,/mnt/b/data``."""
    paths = [_parts(value) for value in values]
    front, back = _shared(paths), _shared([path[::-1] for path in paths])
    inner = ["_".join(path[front : len(path) - back]) for path in paths]
    return [
        _clean(name or (path[-1] if path else value))
        for name, path, value in zip(inner, paths, values, strict=True)
    ]


def _parts(value: str) -> tuple[str, ...]:
    """Return the parts of a path; a list of paths counts as a single part."""
    bare = plain_text(value)
    return (bare,) if bare.startswith("[") else PurePosixPath(bare).parts


def _shared(paths: Sequence[Sequence[str]]) -> int:
    same = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return sum(1 for _ in same)


def _clean(text: str) -> str:
    return _FOREIGN.sub("_", text).strip("_") or "_"


def _distinct(names: Sequence[str], longest: int) -> tuple[str, ...]:
    """Cut the names to ``longest`` characters; number all of them if two are then equal."""
    cut = [name[:longest] for name in names]
    if len(set(cut)) == len(cut):
        return tuple(cut)
    return tuple(f"{name[: longest - 3]}-{index}" for index, name in enumerate(cut, start=1))
