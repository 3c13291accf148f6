"""Two arms, figure by figure and point by point: their ratio, and what may be said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from wattload.core.units import Unit
from wattload.reports.admission import counted_group
from wattload.reports.figures import Figure, Quantity, quantities
from wattload.reports.holm import Demand, demands
from wattload.reports.memo import once_each
from wattload.reports.noise import Noise, Session, sessions
from wattload.reports.points import Point, points
from wattload.reports.quantity import number
from wattload.reports.rows import Place, Row
from wattload.reports.subject import Group, Subject
from wattload.reports.verdicts import judge

__all__ = [
    "Figure",
    "Quantity",
    "Row",
    "compare",
    "noise_floors",
    "sentence",
    "unused_sessions",
]


def compare(subject: Subject, group: Group) -> tuple[Row, ...]:
    """Return a row for each quantity and point of a group of one arm or two, headlines first.

    ``group`` is one of the subject's, or one narrowed to a point of its sweep. Either way the calls
    allow for all others of the workload, over its quantities and points, by Holm.
    """
    asked = {run.id for run in group.runs}
    found = [
        row
        for point, rows in _compared(subject).rows
        if point.group.workload == group.workload and _ids(point) <= asked
        for row in rows
    ]
    return tuple(sorted(found, key=lambda row: not row.quantity.headline))


def noise_floors(subject: Subject) -> tuple[Noise, ...]:
    """Return how far one setting was from itself, for every figure of every such session."""
    return tuple(noise for session in _compared(subject).sessions for noise in session.noises)


def unused_sessions(subject: Subject) -> tuple[tuple[Session, str], ...]:
    """Return the sessions of one setting against itself that set no floor here, and why."""
    return _compared(subject).unused


def _ids(point: Point) -> set[str]:
    return {run.id for run in point.group.runs}


class _Compared(NamedTuple):
    """All that is compared on a page."""

    rows: tuple[tuple[Point, tuple[Row, ...]], ...]
    sessions: tuple[Session, ...]
    unused: tuple[tuple[Session, str], ...]


@once_each
def _compared(subject: Subject) -> _Compared:
    """Return the rows of every point of a subject; several sections ask for the same ones."""
    figures = {run.id: quantities(run.record) for run in subject.runs}
    known = sessions(subject, figures)
    rows: list[tuple[Point, tuple[Row, ...]]] = []
    heard: set[tuple[str, str]] = set()
    for group in subject.groups:
        own = [each for each in known if each.workload == group.workload]
        places = [Place(subject, point, figures, own) for point in points(group)]
        rows += _called(places)
        heard |= {each.key for place in places for each in place.heard if each.noises}
    unused = [(each, _why(subject, each)) for each in known if each.key not in heard]
    return _Compared(tuple(rows), known, tuple(unused))


def _why(subject: Subject, session: Session) -> str:
    groups = [group for group in subject.groups if group.workload == session.workload]
    runs = [run for group in groups for run in counted_group(subject, group).runs]
    return session.why_unused([run.record for run in runs])


def _called(places: Sequence[Place]) -> list[tuple[Point, tuple[Row, ...]]]:
    """Return the rows of a workload's points, judged: those that nothing bars are one family."""
    rows = [(place.point, row) for place in places for row in place.rows()]
    p_values = [_p_value(row) for _, row in rows if row.is_open]
    asked = iter(demands(p_values))
    judged = [(point, _judged(row, next(asked)) if row.is_open else row) for point, row in rows]
    return [
        (place.point, tuple(row for point, row in judged if point is place.point))
        for place in places
    ]


def _p_value(row: Row) -> float:
    found = row.effect.p_value if row.effect else None
    return 1.0 if found is None else found


def _judged(row: Row, demand: Demand) -> Row:
    if row.effect is None:
        return row
    found = replace(row.effect, demand=demand)
    return replace(row, effect=found, verdict=judge(row.quantity, found), is_open=False)


def sentence(row: Row, a: str, b: str) -> str:
    """Return the ratio in words, always as A's share of B's: never "slower by"."""
    if row.effect is None:
        return ""
    share = number(100 / row.effect.ratio, 3)
    ratio = number(row.effect.ratio, 3)
    verb, thing = _WORDS.get(row.quantity.unit, ("shows", row.quantity.label))
    what = f"{thing} in {row.quantity.phase}" if row.quantity.phase else thing
    return f"{a} {verb} {share} % of {b}'s {what} (B/A = {ratio})"


_WORDS: Mapping[Unit, tuple[str, str]] = {
    Unit.SECONDS: ("takes", "time"),
    Unit.JOULES: ("uses", "energy"),
    Unit.WATTS: ("draws", "power"),
    Unit.BYTES_PER_SECOND: ("reaches", "rate"),
    Unit.BYTES_PER_JOULE: ("reaches", "rate per watt"),
    Unit.JOULES_PER_BYTE: ("uses", "energy per byte"),
}
