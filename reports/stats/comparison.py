"""The comparison of two arms.

A row for each quantity and point, with its ratio and its verdict, and the conditions that exclude
a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from wattload.core.units import Unit
from wattload.reports.runs.load import Run
from wattload.reports.stats.conditions import (
    NO_VALID_RUN,
    compared_group,
    differences,
    exclusions,
    is_compared,
    is_energy_compared,
    no_energy,
)
from wattload.reports.stats.effects import Effect, Pairing, Spread, effect, mean_log, spread
from wattload.reports.stats.figures import (
    Accuracy,
    Quantity,
    RunFigure,
    accuracy,
    asked_by,
    quantities,
)
from wattload.reports.stats.intervals import Demand, demands
from wattload.reports.stats.pairs import (
    FiguresByKey,
    Noise,
    Session,
    Valued,
    began_s,
    sessions,
    value_pairs,
)
from wattload.reports.stats.subject import Group, Subject
from wattload.reports.stats.sweeps import Point, points
from wattload.reports.stats.verdicts import (
    INCONCLUSIVE,
    Call,
    Case,
    Verdict,
    exclusion,
    illustration,
    judge,
    shortage,
)
from wattload.results.identity_cache import cache_by_identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One quantity at one point over the runs of each arm, and the verdict on B against A.

    ``figures`` holds the figures of all runs, ``spreads`` only those of valid runs. ``centres``
    are the geometric means that ``effect`` divides, of pairs if there are enough, otherwise of
    valid runs; ``None`` if not every figure is positive. ``shortage`` is how many runs or pairs a
    verdict lacks, ``gaps`` why arms have no figure that is compared, by arm. ``at`` is the value of
    ``axis``; both are empty without a sweep. ``forced`` is what would have excluded the comparison
    if the user had not forced it. ``illustrates`` is whether the drives are simulated, so that
    nobody wins. ``is_open`` is whether a verdict is possible but not yet made.
    """

    quantity: Quantity
    figures: Mapping[str, tuple[RunFigure, ...]]
    spreads: Mapping[str, Spread | None]
    centres: Mapping[str, float | None]
    effect: Effect | None
    verdict: Verdict
    shortage: str = ""
    gaps: Mapping[str, str] = field(default_factory=dict)
    axis: str = ""
    at: str = ""
    forced: str = ""
    illustrates: bool = False
    is_open: bool = False

    @property
    def call(self) -> Call:
        """The better arm, ``none`` for no difference shown, ``barred`` for no verdict.

        It is ``derived`` if another quantity answers the same question.
        """
        return self.verdict.call

    @property
    def words(self) -> str:
        return self.verdict.words

    @property
    def reason(self) -> str:
        return self.verdict.reason

    @property
    def leader(self) -> Literal["A", "B", ""]:
        """The arm with the better mean, or the larger one where neither is better."""
        if self.effect is None:
            return ""
        return "B" if (self.effect.ratio > 1) == (self.quantity.better != "lower") else "A"

    def in_favour(self, ratio: float) -> float:
        """Return a ratio of B over A as one of the row's ratio is printed, which is at least 1."""
        is_inverse = self.effect is not None and self.effect.ratio < 1
        return 1 / ratio if is_inverse else ratio


_OPEN = Verdict("none", "", "")


class _Compared(NamedTuple):
    """All comparisons of a page."""

    rows: tuple[tuple[Point, tuple[Row, ...]], ...]
    sessions: tuple[Session, ...]
    unused: tuple[tuple[Session, str], ...]


def compare(subject: Subject, group: Group) -> tuple[Row, ...]:
    """Return a row for each quantity and point of a group of arms, headlines first.

    ``group`` is one of the subject's, or one narrowed to a point of its sweep. In both cases Holm's
    correction counts all comparisons of the workload, over its questions and points: of quantities
    that answer the same question only one is compared.
    """
    ids = {run.id for run in group.runs}
    found = [
        row
        for point, rows in _compared(subject).rows
        if point.group.workload == group.workload and {run.id for run in point.group.runs} <= ids
        for row in rows
    ]
    return tuple(sorted(found, key=lambda row: not row.quantity.headline))


def noise_floors(subject: Subject) -> tuple[Noise, ...]:
    """Return how far one setting was from itself, for every figure of every A/A session."""
    return tuple(noise for session in _compared(subject).sessions for noise in session.noises)


def unused_sessions(subject: Subject) -> tuple[tuple[Session, str], ...]:
    """Return the A/A sessions that set no floor here, and why."""
    return _compared(subject).unused


def excluding_conditions(subject: Subject, group: Group) -> frozenset[str]:
    """Return the names of the conditions by which the arms of a group do different work.

    A swept setting is not among them if both arms ran it, nor is the setting that defines the arms.
    """
    return frozenset(
        item.name
        for point in points(group)
        for item in differences(compared_group(subject, point.group), subject.by)
        if item.is_work and len(point.group.arms) > 1
    )


def compares_work(rows: Sequence[Row]) -> bool:
    """Return whether energies for the work are compared at a point, or those in the window."""
    in_window = {row.quantity.label for row in rows if not row.quantity.is_for_work}
    return any(row.quantity.is_for_work and row.quantity.asked_by not in in_window for row in rows)


def one_measurand(rows: Sequence[Row]) -> list[Row]:
    """Return rows with one energy in joules of each phase: that for the work if it is compared."""
    is_for_work = compares_work(rows)
    costs = {
        row.quantity.cost
        for row in rows
        if row.quantity.is_energy and row.quantity.is_for_work is is_for_work
    }
    return [
        row
        for row in rows
        if row.quantity.unit is not Unit.JOULES
        or row.quantity.is_for_work is is_for_work
        or row.quantity.cost not in costs
    ]


@cache_by_identity
def _compared(subject: Subject) -> _Compared:
    """Return the rows of every point of a subject; several sections use the same ones."""
    figures = {run.id: quantities(run.record) for run in subject.runs}
    known = sessions(subject, figures)
    rows: list[tuple[Point, tuple[Row, ...]]] = []
    used_sessions: set[tuple[str, str]] = set()
    for group in subject.groups:
        own = [each for each in known if each.workload == group.workload]
        places = [PointComparison(subject, point, figures, own) for point in points(group)]
        rows += _with_verdicts(places)
        used_sessions |= {
            each.key for place in places for each in place.used_sessions if each.noises
        }
    unused = [(each, _why(subject, each)) for each in known if each.key not in used_sessions]
    return _Compared(tuple(rows), known, tuple(unused))


def _why(subject: Subject, session: Session) -> str:
    groups = [group for group in subject.groups if group.workload == session.workload]
    runs = [run for group in groups for run in compared_group(subject, group).runs]
    return session.why_unused([run.record for run in runs])


def _with_verdicts(places: Sequence[PointComparison]) -> list[tuple[Point, tuple[Row, ...]]]:
    """Return the rows of a workload's points with verdicts: the open ones are one family."""
    rows = [(place.point, row) for place in places for row in place.rows()]
    p_values = [_p_value(row) for _, row in rows if row.is_open]
    ids = iter(demands(p_values))
    judged = [(point, _judged(row, next(ids)) if row.is_open else row) for point, row in rows]
    return [
        (place.point, _agreeing([row for point, row in judged if point is place.point]))
        for place in places
    ]


def _agreeing(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows of a point; energies whose verdict depends on the measurand have none."""
    in_window = {
        row.quantity.cost: row
        for row in rows
        if row.quantity.is_energy and not row.quantity.is_for_work
    }
    return tuple(
        _agreed(row, in_window.get(row.quantity.cost)) if row.quantity.is_for_work else row
        for row in rows
    )


def _agreed(row: Row, other: Row | None) -> Row:
    """Return a row for the work without its verdict if energy in the window has another one."""
    if row.effect is None or row.effect.demand is None or other is None or other.effect is None:
        return row
    if row.verdict.call == "derived":
        return row
    of_other = judge(other.quantity, replace(other.effect, demand=row.effect.demand))
    of_row = judge(row.quantity, row.effect)
    if (of_row.leader, of_row.words) == (of_other.leader, of_other.words):
        return row
    reason = (
        f"the verdict depends on the measurand: {of_row.words} for the work, {of_other.words} in "
        "the window"
    )
    return replace(row, verdict=Verdict("barred", INCONCLUSIVE, reason))


def _p_value(row: Row) -> float:
    """Return the p value that Holm ranks; runs without spread have one of at least some size."""
    effect = row.effect
    if effect is None or effect.p_value is None:
        return 1.0
    return max(effect.p_value, effect.least_p_value or 0.0)


def _judged(row: Row, demand: Demand) -> Row:
    if row.effect is None:
        return row
    found = replace(row.effect, demand=demand)
    verdict = judge(row.quantity, found)
    if row.illustrates:
        verdict = illustration(verdict)
    return replace(row, effect=found, verdict=verdict, is_open=False)


def _centres(
    quantity: Quantity, values: Mapping[str, Valued], pairing: Pairing
) -> dict[str, float | None]:
    """Return what the effect divides: geometric means, or of shares the means."""
    sides = [[value for _, value in of_arm] for of_arm in values.values()]
    if pairing.enough:
        sides = [list(side) for side in zip(*pairing.pairs, strict=True)]
    return {
        arm: quantity.unscaled(math.exp(mean_log(side))) if side and min(side) > 0 else None
        for arm, side in zip(values, sides, strict=True)
    }


class PointComparison:
    """One point of a group, and the figures of its runs.

    ``used_sessions`` are the A/A sessions whose noise applies to its runs.
    """

    def __init__(
        self,
        subject: Subject,
        point: Point,
        figures: Mapping[str, FiguresByKey],
        sessions: Sequence[Session],
    ) -> None:
        self.point = point
        self._subject = subject
        self._exclusions = exclusions(subject, point.group)
        compared = [run.record for run in compared_group(subject, point.group).runs]
        self.used_sessions = [each for each in sessions if each.applies_to(compared)]
        self._by_arm = {
            arm: [(run, self._judged(run, figures[run.id])) for run in runs]
            for arm, runs in point.group.arms.items()
        }

    def _judged(self, run: Run, figures: FiguresByKey) -> FiguresByKey:
        """Return the figures of a run, marked invalid if its checks exclude them."""
        valid, valid_energy = (
            is_compared(self._subject, run),
            is_energy_compared(self._subject, run),
        )
        if valid and valid_energy:
            return figures
        return {
            key: (quantity, replace(found, valid=valid_energy if quantity.is_energy else valid))
            for key, (quantity, found) in figures.items()
        }

    def rows(self) -> tuple[Row, ...]:
        """Return a row per quantity, without verdict unless something excludes one."""
        names: dict[str, Quantity] = {}
        for runs in self._by_arm.values():
            for _, figures in runs:
                names.update({key: q for key, (q, _) in figures.items() if key not in names})
        asked = asked_by([*names.values()], is_for_work=self._has_works(names))
        return tuple(
            self._row(replace(quantity, asked_by=asked.get(key, "")))
            for key, quantity in names.items()
        )

    def _has_works(self, names: Mapping[str, Quantity]) -> bool:
        """Return whether energies for the work can be compared: every run has them, alike."""
        if self._exclusions.watches and not self._subject.forced:
            return False
        keys = {each.cost: key for key, each in names.items() if each.is_for_work}
        return all(
            keys[quantity.cost] in figures
            for runs in self._by_arm.values()
            for _, figures in runs
            for quantity, figure in figures.values()
            if quantity.is_energy and quantity.cost in keys and figure.valid
        )

    def _row(self, quantity: Quantity) -> Row:
        values = {arm: self._values(arm, quantity.key) for arm in self._by_arm}
        spreads = {arm: spread([value for _, value in of_arm]) for arm, of_arm in values.items()}
        values = {
            arm: [(run, quantity.scaled(value)) for run, value in of_arm]
            for arm, of_arm in values.items()
        }
        pairing = value_pairs(*values.values()) if self.point.group.is_pair else Pairing()
        figures = self._figures(quantity.key, pairing)
        known = self._accuracy(quantity, values)
        found = self._effect(quantity, values, pairing, known.share)
        case = Case(
            quantity=quantity,
            group=self.point.group,
            figures=figures,
            effect=found,
            pairing=pairing,
            gaps=self._gaps(quantity),
            exclusions=() if self._subject.forced else self._exclusions.reasons(quantity),
            accuracy_gap=known.reason,
            illustrates=self._exclusions.illustrates,
        )
        verdict = exclusion(case)
        return Row(
            quantity=quantity,
            figures=figures,
            spreads=spreads,
            centres=_centres(quantity, values, pairing),
            effect=found,
            verdict=verdict or _OPEN,
            shortage=shortage(case),
            gaps=case.gaps,
            axis=self.point.axis,
            at=self.point.value,
            forced=self._exclusions.forced(quantity) if self._subject.forced else "",
            illustrates=self._exclusions.illustrates,
            is_open=verdict is None,
        )

    def _gaps(self, quantity: Quantity) -> dict[str, str]:
        """Return why arms have no figure of a quantity that is compared, by arm."""
        found = {}
        for arm, runs in self._by_arm.items():
            figures = [of[quantity.key][1] for _, of in runs if quantity.key in of]
            records = [run.record for run, _ in runs if is_compared(self._subject, run)]
            if any(each.valid and each.value is not None for each in figures):
                continue
            if not records:
                found[arm] = NO_VALID_RUN
            elif any(each.valid and each.upper is not None for each in figures):
                found[arm] = "known as bounds only"
            elif quantity.is_energy:
                is_excluded = any(not each.valid for each in figures)
                found[arm] = no_energy(records, quantity.phase, is_excluded=is_excluded)
            else:
                notes = (each.note.rstrip(".") for each in figures if each.note)
                found[arm] = next(notes, "not recorded")
        return found

    def _figures(self, key: str, pairing: Pairing) -> dict[str, tuple[RunFigure, ...]]:
        """Return the figures of all runs; of enough pairs only their runs are in the means."""
        return {
            arm: tuple(
                replace(
                    found,
                    run=run.id,
                    in_mean=found.valid
                    and found.value is not None
                    and (not pairing.enough or run.id in pairing.runs),
                )
                for run, of in runs
                if key in of
                for found in [of[key][1]]
            )
            for arm, runs in self._by_arm.items()
        }

    def _values(self, arm: str, key: str) -> list[tuple[Run, float]]:
        found = [(run, of[key][1]) for run, of in self._by_arm[arm] if key in of]
        return [
            (run, figure.value)
            for run, figure in found
            if figure.valid and figure.value is not None
        ]

    def _accuracy(self, quantity: Quantity, values: Mapping[str, Valued]) -> Accuracy:
        """Return the accuracy of an energy against the other arm; the rest is exact."""
        if not quantity.is_energy or not self.point.group.is_pair:
            return Accuracy()
        arms = [[run.record for run, _ in of_arm] for of_arm in values.values()]
        return accuracy(arms, quantity.phase, is_for_work=quantity.is_for_work)

    def _effect(
        self,
        quantity: Quantity,
        values: Mapping[str, Valued],
        pairing: Pairing,
        known: float,
    ) -> Effect | None:
        if not self.point.group.is_pair:
            return None
        a, b = ([value for _, value in of_arm] for of_arm in values.values())
        seen = [
            noise.share
            for session in self.used_sessions
            for noise in session.noises
            if noise.quantity.key == quantity.key
        ]
        return effect(
            a,
            b,
            pairing=pairing,
            noise=max(seen, default=None),
            accuracy=known,
            began=began_s(*([run.record for run, _ in of_arm] for of_arm in values.values())),
        )
