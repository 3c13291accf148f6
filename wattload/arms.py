"""What the arms of a sweep over drives, loaders or power are called, where the user names none.

A report compares runs by their label. Runs of one sweep that all carry the same one would be one
arm, and a sweep over drives asks for as many as there are drives. Keys of the workload make no arm:
its runs are points of one curve.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from wattload.axes import Axis

GROUPS = ("target", "power", "loader")
"""The groups of settings whose values are compared with each other."""

LONGEST_LABEL = 40
"""As long as a label may be; see ``RunConfig``."""

_FOREIGN = re.compile(r"[^A-Za-z0-9._-]+")
_AS_FOUND = "null"


def makes_arms(axis: Axis) -> bool:
    """Return whether the values of an axis are compared: a drive, a loader or a power state."""
    return axis.is_swept and axis.key.partition(".")[0] in GROUPS


def labelled(axes: Sequence[Axis]) -> Iterator[tuple[str, ...]]:
    """Yield the overrides of every run of a sweep, with the label of its arm if it needs one.

    ``power.state=1`` of a sweep over states is the arm ``PS1``, ``target.path=/mnt/a`` of one over
    drives the arm ``a``; where both are swept, ``a-PS1``.
    """
    own = [axis for axis in axes if makes_arms(axis)]
    is_named = any(axis.key == "label" for axis in axes)
    names = dict(zip([axis.key for axis in own], axis_names(own), strict=True))
    for chosen in itertools.product(*(range(len(axis.texts)) for axis in axes)):
        picked = list(zip(axes, chosen, strict=True))
        overrides = tuple(axis.texts[index] for axis, index in picked)
        if is_named or not own:
            yield overrides
        else:
            label = "-".join(names[axis.key][index] for axis, index in picked if axis in own)
            yield (*overrides, f"label={label}")


def axis_names(axes: Sequence[Axis]) -> list[tuple[str, ...]]:
    """Return a name for each value of each axis: joined by dashes they make distinct labels."""
    if not axes:
        return []
    longest = (LONGEST_LABEL - len(axes) + 1) // len(axes)
    return [_distinct(_names(axis), longest) for axis in axes]


def _names(axis: Axis) -> list[str]:
    if axis.key == "target.path":
        return _path_names(axis.values)
    return [_clean(_name(axis.key, value)) for value in axis.values]


def _name(key: str, value: str) -> str:
    """Return what one swept value is called in the words of the field."""
    last = key.rpartition(".")[2]
    if value == _AS_FOUND and key.startswith("power."):
        return f"{last}-as-found"
    if key == "power.state":
        return f"PS{value}"
    if key == "power.dssd_watts":
        return f"OCP{value}W"
    if key == "power.limit_w":
        return f"limit{value}W"
    return f"{last}-{value}" if "." in key else value


def _path_names(values: Sequence[str]) -> list[str]:
    """Return what tells directories apart: ``a`` and ``b`` of ``/mnt/a/data,/mnt/b/data``."""
    paths = [_parts(value) for value in values]
    front, back = _shared(paths), _shared([path[::-1] for path in paths])
    inner = ["_".join(path[front : len(path) - back]) for path in paths]
    return [
        _clean(name or (path[-1] if path else value))
        for name, path, value in zip(inner, paths, values, strict=True)
    ]


def _parts(value: str) -> tuple[str, ...]:
    """Return the parts of a path; a list of paths, which has no one place, is a single part."""
    bare = value.strip("'\"")
    return (bare,) if bare.startswith("[") else PurePosixPath(bare).parts


def _shared(paths: Sequence[Sequence[str]]) -> int:
    """Return how many leading parts all paths have in common."""
    same = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return sum(1 for _ in same)


def _clean(text: str) -> str:
    """Return a text of what a label may hold."""
    return _FOREIGN.sub("_", text).strip("_") or "_"


def _distinct(names: Sequence[str], longest: int) -> tuple[str, ...]:
    """Return the names cut to their length; all are numbered where two are then alike."""
    cut = [name[:longest] for name in names]
    if len(set(cut)) == len(cut):
        return tuple(cut)
    return tuple(f"{name[: longest - 3]}-{index}" for index, name in enumerate(cut, start=1))
