"""The points of a sweep at which an arm has no run that counts: said, and never left blank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wattload.reports.admission import counted_group
from wattload.reports.blocks import Notice
from wattload.reports.load import Run
from wattload.reports.points import Point, points
from wattload.reports.quantity import counted, listed
from wattload.reports.subject import Group, Subject


def voids_notice(subject: Subject, group: Group) -> Notice | None:
    """Return where in a sweep an arm has no valid run; ``None`` where each has one everywhere."""
    said = [text for point in points(group) if (text := _void(subject, group, point))]
    return Notice("Points without a valid run of each arm", said, "warn") if said else None


def _void(subject: Subject, group: Group, point: Point) -> str:
    if not point.axis:
        return ""
    valid = counted_group(subject, point.group).arms
    lacking = list(_lacking(group, point, valid))
    if not lacking:
        return ""
    left = "nothing is compared there" if len(group.arms) > 1 else "it has no figure"
    return f"No valid run of {listed(lacking, 'or')} at {point.axis} = {point.value}: {left}."


def _lacking(group: Group, point: Point, valid: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    """Yield each arm that no run counts of, with how many were made."""
    for letter, arm in zip(group.letters, group.arms, strict=True):
        if not valid.get(arm):
            made = len(point.group.arms.get(arm, ()))
            why = f"none of {counted(made, 'run')} counts" if made else "none was made"
            yield f"{letter} ({why})"
