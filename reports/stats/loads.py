"""Two arms under two loads: their ratio under each, and whether it changes with the load.

The ratio of ratios is A ÷ B on the busy host over A ÷ B on the idle one. It is tested on the ratios
of pairs, which are two independent samples, and judged like every other comparison: interval, floor
and Holm's correction over all points of the workload. Where pairs are too few for that, it is the
quotient of the two ratios as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wattload.core.units import Unit
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.conditions import is_compared
from wattload.reports.stats.effects import MINIMUM_PAIRS, Effect, effect
from wattload.reports.stats.figures import Quantity, quantities
from wattload.reports.stats.intervals import demands
from wattload.reports.stats.pairs import value_pairs
from wattload.reports.stats.subject import LOAD, NO_LOAD, Group, Subject
from wattload.reports.stats.sweeps import Point, points, settings_text
from wattload.reports.stats.verdicts import INCONCLUSIVE, SAME, judge
from wattload.results.identity_cache import cache_by_identity
from wattload.results.quantity import MISSING, TIMES, counted, ratio_ends, ratio_text

_RATE = Quantity(
    key="ratio of ratios",
    label="ratio of ratios",
    unit=Unit.COUNT,
    better="higher",
    headline=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPoint:
    """One point of a sweep of which two arms were compared idle and under a load.

    ``idle`` and ``busy`` are the rows of the rate, ``load`` is the name of the load and ``name``
    the other settings in words. ``change`` is A ÷ B busy over A ÷ B idle; ``words`` and ``reason``
    are the verdict on it, ``call`` ``more`` if A ÷ B grows with the load, ``less`` if it falls,
    otherwise empty.
    """

    name: str
    load: str
    idle: Row
    busy: Row
    idle_point: Point
    busy_point: Point
    change: Effect | None
    call: str
    words: str
    reason: str

    @property
    def change_text(self) -> str:
        """The ratio of ratios, such as ``1.62`` times; a dash without pairs."""
        return f"{ratio_text(self.change.ratio)}{TIMES}" if self.change else MISSING

    @property
    def interval_text(self) -> str:
        """The 95 % interval of the ratio of ratios; empty with too few pairs."""
        if self.change is None or self.change.lower is None or self.change.upper is None:
            return ""
        return ratio_ends(self.change.lower, self.change.upper)


def ratio_of_a(row: Row) -> tuple[float, float | None, float | None] | None:
    """Return A ÷ B of a row with its interval; ``None`` without a ratio."""
    if row.effect is None:
        return None
    lower, upper = row.effect.lower, row.effect.upper
    return 1 / row.effect.ratio, 1 / upper if upper else None, 1 / lower if lower else None


@cache_by_identity
def _loaded(subject: Subject) -> Mapping[str, tuple[LoadedPoint, ...]]:
    return {group.workload: tuple(_of_group(subject, group)) for group in subject.groups}


def loaded_points(subject: Subject, group: Group) -> tuple[LoadedPoint, ...]:
    """Return the points of two arms that ran both idle and under a load; empty without any."""
    return _loaded(subject).get(group.workload, ())


def _of_group(subject: Subject, group: Group) -> list[LoadedPoint]:
    if not group.is_pair:
        return []
    idle: dict[tuple[tuple[str, str], ...], Point] = {}
    busy: list[tuple[str, tuple[tuple[str, str], ...], Point]] = []
    for point in points(group):
        own = dict(point.settings)
        load = own.pop(LOAD, "")
        if load == NO_LOAD:
            idle[tuple(own.items())] = point
        elif load:
            busy.append((load, tuple(own.items()), point))
    found = [
        made
        for load, rest, point in busy
        if rest in idle and (made := _at(subject, idle[rest], point, rest, load)) is not None
    ]
    changes = [each.change for each in found if each.change is not None and not each.words]
    required = iter(demands([change.p_value or 1.0 for change in changes]))
    return [
        each
        if each.change is None or each.words
        else _judged(replace(each.change, demand=next(required)), each)
        for each in found
    ]


def _at(
    subject: Subject,
    idle: Point,
    busy: Point,
    rest: Sequence[tuple[str, str]],
    load: str,
) -> LoadedPoint | None:
    found = [
        (row, _pair_ratios(subject, point, row.quantity.key))
        for point in (idle, busy)
        for row in _rate_rows(compare(subject, point.group))[:1]
    ]
    if len(found) < 2:  # noqa: PLR2004 - idle and busy
        return None
    rows, ratios = zip(*found, strict=True)
    reasons = [row.reason for row in rows if row.call == "barred" and row.reason != row.shortage]
    barred = next(iter(reasons), "")
    few = min(map(len, ratios))
    change = effect(*ratios) if few and not barred else None
    words, reason = "", ""
    if barred:
        words, reason = INCONCLUSIVE, barred
    elif few < MINIMUM_PAIRS:
        change = _untested(change, rows[0], rows[1]) if change else None
        words, reason = INCONCLUSIVE, f"{counted(few, 'pair')}; {MINIMUM_PAIRS} needed"
    elif change is None:
        words, reason = INCONCLUSIVE, "no ratio: not every figure is positive"
    return LoadedPoint(
        name=settings_text(idle.group.workload, rest),
        load=load,
        idle=rows[0],
        busy=rows[1],
        idle_point=idle,
        busy_point=busy,
        change=change,
        call="",
        words=words,
        reason=reason,
    )


def _untested(change: Effect, idle: Row, busy: Row) -> Effect:
    """Return the quotient of the ratios of two rows, which may count runs outside of pairs."""
    ratios = [found[0] for row in (busy, idle) if (found := ratio_of_a(row)) is not None]
    ratio = ratios[0] / ratios[1] if len(ratios) == 2 else change.ratio  # noqa: PLR2004 - both
    return replace(change, ratio=ratio, estimate=None)


def _rate_rows(rows: Sequence[Row]) -> list[Row]:
    return [
        row for row in rows if row.quantity.headline and row.quantity.unit is Unit.BYTES_PER_SECOND
    ]


def _pair_ratios(subject: Subject, point: Point, key: str) -> list[float]:
    """Return A ÷ B of each pair of a point, in order of its blocks."""
    valued = [
        [
            (run, value)
            for run in runs
            if is_compared(subject, run) and (value := _value(run, key)) is not None
        ]
        for runs in point.group.arms.values()
    ]
    if len(valued) != 2:  # noqa: PLR2004 - an arm did not run here
        return []
    found = value_pairs(*valued)
    return [a / b if b > 0 else math.inf for a, b in found.pairs]


def _value(run: Run, key: str) -> float | None:
    found = quantities(run.record).get(key)
    return found[1].value if found is not None else None


def _judged(change: Effect, point: LoadedPoint) -> LoadedPoint:
    verdict = judge(_RATE, change)
    if verdict.call in ("a", "b"):
        call = "more" if verdict.call == "b" else "less"
        words = f"A ÷ B {'grows' if call == 'more' else 'falls'} with the load"
        return replace(point, change=change, call=call, words=words, reason=verdict.reason)
    words = verdict.words if verdict.words.startswith(SAME) else INCONCLUSIVE
    return replace(point, change=change, words=words, reason=verdict.reason)
