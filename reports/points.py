"""The points of a sweep: runs of a group told apart by the settings that vary within an arm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wattload.core.record.run import RunRecord
from wattload.reports.conditions import settings
from wattload.reports.load import Run
from wattload.reports.memo import once_each
from wattload.reports.subject import Group

_NOT_SET = "not set"

_NO_AXIS = (
    "sweep",
    "interleave",
    "interleave_by",
    "start_wait_max_s",
    "target.max_write_bytes",
    "power.allow_system_drive",
)
"""Settings that order runs or lift a guard: runs that differ in them did the same at one point."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a sweep: the value of what was swept, and the runs made there.

    ``axis`` is the last part of the swept key, or several joined by a comma, and empty where a
    group was not swept; ``number`` is ``value`` as a finite number, where it is one.
    """

    axis: str
    value: str
    number: float | None
    group: Group


@once_each
def points(group: Group) -> tuple[Point, ...]:
    """Return a group's runs by the settings that vary within an arm, in order of their values.

    A setting that only tells the arms apart is none of them. Of settings that vary together, such
    as a scale's, the one that a command names stands for all.
    """
    keys = axes(group)
    if not keys:
        return (Point("", "", None, group),)
    members: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    for arm, runs in group.arms.items():
        for run in runs:
            members.setdefault(place(run.record, keys), {}).setdefault(arm, []).append(run)
    return tuple(
        Point(
            axis=", ".join(axis_names(keys)),
            value=", ".join(at),
            number=_number(at[0]) if len(at) == 1 else None,
            group=Group(
                workload=group.workload,
                arms={arm: tuple(of_arm[arm]) for arm in group.arms if arm in of_arm},
                page=group.page or tuple(group.arms),
            ),
        )
        for at, of_arm in _in_order(members)
    )


def facts_of(record: RunRecord) -> dict[str, str]:
    """Return what a run can be told by: its settings, its loader, how many processes it had."""
    workload = record.workload
    found = {
        key: value
        for key, value in settings(record.config).items()
        if not any(key == name or key.startswith(f"{name}.") for name in _NO_AXIS)
    }
    return found | {
        "loader": workload.loader,
        "scale": workload.scale,
        "processes": str(workload.rank_count),
    }


def place(record: RunRecord, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the values of a run's settings, by their keys."""
    if not keys:
        return ()
    facts = facts_of(record)
    return tuple(facts.get(key, _NOT_SET) for key in keys)


@once_each
def axes(group: Group) -> tuple[str, ...]:
    """Return the keys that part the arms' runs, none that adds nothing to those before it."""
    facts = {run.id: facts_of(run.record) for run in group.runs}
    parts: dict[str, tuple[str, ...]] = {
        run.id: (arm,) for arm, runs in group.arms.items() for run in runs
    }
    found = []
    for key in _varying(group, facts):
        finer = {name: (*part, facts[name].get(key, _NOT_SET)) for name, part in parts.items()}
        if len(set(finer.values())) > len(set(parts.values())):
            parts = finer
            found.append(key)
    return tuple(found)


def _varying(group: Group, facts: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the keys with two values or more within an arm, those that commands name first.

    A run that does not have a key at all, as an older record, does not make it vary.
    """
    found: dict[str, None] = {}
    for runs in group.arms.values():
        values: dict[str, set[str]] = {}
        for run in runs:
            for key, value in facts[run.id].items():
                values.setdefault(key, set()).add(value)
        found.update(dict.fromkeys(key for key, seen in values.items() if len(seen) > 1))
    named = {key for run in group.runs for key in _overridden(run.record.command)}
    return sorted(found, key=lambda key: not (key in named or key.removesuffix(".name") in named))


def _overridden(command: Sequence[str]) -> Iterator[str]:
    for word in command:
        key, equals, _ = word.partition("=")
        if equals:
            yield key.lstrip("+")


def axis_names(keys: Sequence[str]) -> list[str]:
    """Return each key's last part, or the whole key where two would read alike.

    A choice from a group of the configuration, such as ``scale.name``, is called by the group.
    """
    short = [key.removesuffix(".name").rpartition(".")[2] for key in keys]
    return [name if short.count(name) == 1 else key for name, key in zip(short, keys, strict=True)]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _in_order(
    members: Mapping[tuple[str, ...], dict[str, list[Run]]],
) -> list[tuple[tuple[str, ...], dict[str, list[Run]]]]:
    """Return the points by value: numbers by size, before texts, which keep their order."""
    seen = list(members)

    def rank(entry: tuple[tuple[str, ...], object]) -> list[tuple[bool, float]]:
        places = []
        for index, text in enumerate(entry[0]):
            value = _number(text)
            texts = list(dict.fromkeys(at[index] for at in seen))
            places.append((value is None, float(texts.index(text)) if value is None else value))
        return places

    return sorted(members.items(), key=rank)
