"""Rows of a comparison: one quantity at one point over the runs of each arm, with its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wattload.reports.accuracy import Accuracy, accuracy
from wattload.reports.admission import counted_group, counts, counts_energy, unlike
from wattload.reports.figures import Figure, Quantity
from wattload.reports.load import Run
from wattload.reports.noise import Of, Session
from wattload.reports.pairing import Pairing
from wattload.reports.pairs import Valued, began_s, value_pairs
from wattload.reports.points import Point
from wattload.reports.statistics import Effect, Spread, effect, spread
from wattload.reports.subject import Subject
from wattload.reports.verdicts import Call, Case, Verdict, barred


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One quantity at one point over the runs of each arm, and what may be said of B against A.

    ``figures`` holds every run's, ``spreads`` only what the valid runs gave. ``at`` is the value of
    ``axis``, both empty where nothing was swept. ``forced`` is what had barred the comparison, had
    a user not forced it. ``is_open`` says that nothing bars a call and none was made yet.
    """

    quantity: Quantity
    figures: Mapping[str, tuple[Figure, ...]]
    spreads: Mapping[str, Spread | None]
    effect: Effect | None
    verdict: Verdict
    axis: str = ""
    at: str = ""
    forced: str = ""
    is_open: bool = False

    @property
    def call(self) -> Call:
        """The arm that is better, ``none`` for no difference shown, ``barred`` for no call."""
        return self.verdict.call

    @property
    def words(self) -> str:
        """The call in words."""
        return self.verdict.words

    @property
    def reason(self) -> str:
        """Why it is called so."""
        return self.verdict.reason


class Place:
    """One point of a group, and the figures of its runs.

    ``heard`` are the sessions of one setting against itself that speak for its runs.
    """

    def __init__(
        self,
        subject: Subject,
        point: Point,
        figures: Mapping[str, Of],
        sessions: Sequence[Session],
    ) -> None:
        self.point = point
        self._subject = subject
        self._unlike = unlike(subject, point.group)
        compared = [run.record for run in counted_group(subject, point.group).runs]
        self.heard = [each for each in sessions if each.speaks_for(compared)]
        self._by_arm = {
            arm: [(run, self._judged(run, figures[run.id])) for run in runs]
            for arm, runs in point.group.arms.items()
        }

    def _judged(self, run: Run, figures: Of) -> Of:
        """Return a run's figures, those marked invalid that its checks bar from comparison."""
        valid, valid_energy = counts(self._subject, run), counts_energy(self._subject, run)
        return {
            key: (quantity, replace(found, valid=valid_energy if quantity.is_energy else valid))
            for key, (quantity, found) in figures.items()
        }

    def rows(self) -> tuple[Row, ...]:
        """Return a row per quantity, not yet judged where nothing bars it."""
        names: dict[str, Quantity] = {}
        for runs in self._by_arm.values():
            for _, figures in runs:
                names.update({key: q for key, (q, _) in figures.items() if key not in names})
        return tuple(self._row(quantity) for quantity in names.values())

    def _row(self, quantity: Quantity) -> Row:
        figures = {
            arm: tuple(of[quantity.key][1] for _, of in runs if quantity.key in of)
            for arm, runs in self._by_arm.items()
        }
        values = {arm: self._values(arm, quantity.key) for arm in self._by_arm}
        pairing = value_pairs(*values.values()) if self.point.group.is_pair else Pairing()
        known = self._accuracy(quantity, values)
        found = self._effect(quantity, values, pairing, known.share)
        verdict = barred(
            Case(
                quantity=quantity,
                group=self.point.group,
                figures=figures,
                effect=found,
                pairing=pairing,
                unlike=() if self._subject.forced else self._unlike.bars(quantity),
                unstated=known.reason,
            )
        )
        return Row(
            quantity=quantity,
            figures=figures,
            spreads={arm: spread([v for _, v in of_arm]) for arm, of_arm in values.items()},
            effect=found,
            verdict=verdict or _OPEN,
            axis=self.point.axis,
            at=self.point.value,
            forced=self._unlike.forced(quantity) if self._subject.forced else "",
            is_open=verdict is None,
        )

    def _values(self, arm: str, key: str) -> list[tuple[Run, float]]:
        found = [(run, of[key][1]) for run, of in self._by_arm[arm] if key in of]
        return [
            (run, figure.value)
            for run, figure in found
            if figure.valid and figure.value is not None
        ]

    def _accuracy(self, quantity: Quantity, values: Mapping[str, Valued]) -> Accuracy:
        """Return how far an energy is known against the other arm's; all else is exact."""
        if not quantity.is_energy or not self.point.group.is_pair:
            return Accuracy()
        arms = [[run.record for run, _ in of_arm] for of_arm in values.values()]
        return accuracy(arms, quantity.phase)

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
            for session in self.heard
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


_OPEN = Verdict("none", "", "")
