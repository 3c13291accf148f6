"""Answers on speed and on energy of two arms: who leads, by how much, or why nobody does.

An answer claims no more than the row of the comparison that it is made from. A ratio is at least 1
in favour of the arm that leads, and its interval is that of the same number.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from wattload.core.units import Unit
from wattload.reports.stats.bars import ShownPoint, activity, phase_names
from wattload.reports.stats.comparison import Row, one_measurand
from wattload.reports.stats.conditions import NO_VALID_RUN, NOT_MEASURED
from wattload.reports.stats.verdicts import INCONCLUSIVE, SAME
from wattload.results.quantity import UNIT_SPACE, counted, percentages

_AS_FAST, _BETTER = "as fast", "better"
"""How an effect in favour of the better arm is worded, for rates and for shares."""

Outcome = Literal["won", "same", "inconclusive", "missing"]
Question = Literal["speed", "energy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The verdict on speed or on energy of two arms.

    ``leader`` is the arm in whose favour ``ratio`` is, at least 1; ``winner`` is the same arm if it
    won, otherwise ``None``. ``outcome`` is ``None`` if it has no winner only because the drives are
    simulated. ``part`` is what it is of, ``writing only`` or all of ``write + read``; it is empty
    for a job that is not split. ``lower`` and ``upper`` are the 95 % interval of ``ratio``, so
    ``lower`` is below 1 if the interval does not exclude 1. ``reason`` is why nobody won, ``note``
    what else a reader has to know. ``row`` is what it is based on. ``parts`` has the ratios of
    other parts of the job, shown without their verdicts.
    """

    question: Question
    outcome: Outcome | None
    part: str = ""
    winner: str | None = None
    leader: str | None = None
    letter: str = ""
    ratio: float | None = None
    lower: float | None = None
    upper: float | None = None
    verdict: str = ""
    reason: str = ""
    note: str = ""
    row: Row | None = None
    parts: tuple[Answer, ...] = ()

    @property
    def shown(self) -> str | None:
        """The arm that is shown as ahead: the winner, or the leader of an illustration."""
        return self.leader if self.outcome is None else self.winner

    @property
    def ratio_text(self) -> str:
        """The ratio in the leader's favour: 2.40 times as fast, or 66 % less energy.

        A share is compared as a difference: 4.8 points better.
        """
        if self.ratio is None:
            return ""
        ends = () if self.lower is None or self.upper is None else (self.lower, self.upper)
        if self.question == "energy" or self.row is None:
            within = [1 - 1 / end for end in ends] if min(ends, default=0.0) >= 1 else ()
            return f"{percentages(1 - 1 / self.ratio, within=within)} less energy"
        quantity = self.row.quantity
        text = quantity.effect_text(self.ratio, within=ends)
        return f"{text} {_BETTER if quantity.is_share else _AS_FAST}"

    @property
    def interval_text(self) -> str:
        """The interval of the same number: ``95 % CI 2.35 to 2.44``."""
        if self.lower is None or self.upper is None:
            return ""
        return f"95{UNIT_SPACE}% CI {self._ends(self.lower, self.upper)}"

    def _ends(self, lower: float, upper: float) -> str:
        """Return an interval of the ratio as the ratio is printed."""
        if self.question == "speed" and self.row is not None:
            return self.row.quantity.ends_text(lower, upper)
        if lower >= 1:
            return percentages(1 - 1 / lower, 1 - 1 / upper)
        return f"{percentages(1 / lower - 1)} more to {percentages(1 - 1 / upper)} less"

    @property
    def part_texts(self) -> list[str]:
        """The ratios of other parts of the job: ``writing: A 15 % less (12 to 18 %)``.

        An interval that includes 1 shows no difference.
        """
        return [f"{each.part}: {each.part_ratio}" for each in self.parts]

    @property
    def part_ratio(self) -> str:
        """The ratio of a part of the job with its interval, if that excludes 1."""
        if self.lower is None or self.upper is None or self.lower <= 1:
            return INCONCLUSIVE
        ratio = self.ratio_text
        for ending in ("energy", _AS_FAST, _BETTER):
            ratio = ratio.removesuffix(f" {ending}")
        return f"{self.letter} {ratio} ({self._ends(self.lower, self.upper)})"

    @property
    def words(self) -> str:
        """The answer in a few words, which are never stronger than the verdict."""
        if self.outcome == "won":
            return self.ratio_text
        if self.outcome == "same":
            return self.verdict
        return f"{self.verdict} ({self.reason})" if self.reason else self.verdict


def shown_answer(question: Question, point: ShownPoint, row: Row | None, missing: str) -> Answer:
    """Return the answer at a place; over a sweep no point may contradict a winner."""
    if row is None or missing:
        verdict, colon, reason = missing.partition(": ")
        if not colon and missing != NO_VALID_RUN:
            verdict, reason = NOT_MEASURED, missing
        return Answer(question=question, outcome="missing", verdict=verdict, reason=reason)
    arms = tuple(point.group.arms)
    shown = point.per_byte if question == "energy" and point.work is None else row
    phase = point.energy_phase if question == "energy" else point.phase
    found = replace(
        answer(question, row, arms, shown),
        part=point.part(phase),
        parts=tuple(
            replace(answer(question, each, arms), part=activity(each.quantity.phase))
            for each in _other_parts(question, point, phase)
        ),
    )
    key = row.quantity.key
    leaders = [rows[key].verdict.leader for rows in point.every if key in rows]
    if "a" not in leaders or "b" not in leaders:
        return found
    numbers = f"A at {leaders.count('a')}, B at {leaders.count('b')}"
    counts = f"{numbers} of {counted(len(leaders), 'point')}"
    return replace(found, outcome="inconclusive", winner=None, verdict=INCONCLUSIVE, reason=counts)


def _other_parts(question: Question, point: ShownPoint, phase: str) -> Iterator[Row]:
    """Yield the rows that answer the question of other phases than ``phase``."""
    unit = Unit.JOULES if question == "energy" else Unit.BYTES_PER_SECOND
    is_split = point.is_split and not point.is_timed_part
    rows = one_measurand([*point.rows.values()])
    for name in phase_names(point.records) if is_split else ():
        found = (
            row
            for row in rows
            if row.quantity.headline
            and row.quantity.better != "neither"
            and (row.quantity.unit, row.quantity.phase) == (unit, name)
        )
        if name != phase:
            yield from itertools.islice(found, 1)


def _is_unknown(row: Row) -> bool:
    """Return whether the uncertainty of a figure that counts is larger than the figure."""
    return any(
        each.value is not None
        and each.uncertainty is not None
        and each.uncertainty > abs(each.value)
        for figures in row.figures.values()
        for each in figures
        if each.valid
    )


def answer(question: Question, row: Row, arms: Sequence[str], shown: Row | None = None) -> Answer:
    """Return the verdict of a row of two arms, with the ratio in the leader's favour.

    Args:
        question: what the row is about.
        row: the row that gets the verdict.
        arms: the names of A and B.
        shown: the row whose ratio is shown; by default the same.
    """
    if question == "energy" and _is_unknown(row):
        return Answer(
            question=question,
            outcome="inconclusive",
            verdict=INCONCLUSIVE,
            reason="the uncertainty of an energy is larger than the energy",
            row=row,
        )
    outcome: Outcome | None = "inconclusive"
    if row.verdict.leader:
        outcome = "won" if row.call == row.verdict.leader else None
    elif row.words.startswith(SAME):
        outcome = "same"
    found = Answer(
        question=question,
        outcome=outcome,
        verdict=INCONCLUSIVE if outcome == "inconclusive" else row.words,
        reason="" if outcome == "won" else row.reason,
        row=row,
    )
    shown = shown or row
    effect = shown.effect
    # What may not be compared has no ratio; that of few runs is shown, and so is one per byte.
    is_barred = outcome == "inconclusive" and row.call == "barred" and row.reason != row.shortage
    if effect is None or (is_barred and shown is row):
        return found
    letter = shown.leader
    leader, other = (arms[1], "A") if letter == "B" else (arms[0], "B")
    ends = [shown.in_favour(end) for end in (effect.lower, effect.upper) if end]
    is_apart = (effect.medians - 1) * (effect.ratio - 1) < 0
    compared = "difference of means" if shown.quantity.is_share else "ratio of geometric means"
    return replace(
        found,
        winner=leader if outcome == "won" else None,
        leader=leader,
        letter=letter,
        ratio=shown.in_favour(effect.ratio),
        lower=min(ends, default=None),
        upper=max(ends, default=None),
        note=f"{compared}; the medians favour {other}" if is_apart else "",
    )
