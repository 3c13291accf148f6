"""Runs that were made in pairs, one after the other, and arms that were not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from wattload.core.checks.interleaved import LONGEST_GAP_S
from wattload.core.record.run import RunRecord
from wattload.reports.admission import counts
from wattload.reports.load import Run
from wattload.reports.pairing import Pairing
from wattload.reports.statistics import MINIMUM_RUNS
from wattload.reports.subject import Group, Subject

Valued = Sequence[tuple[Run, float]]
"""Valid runs in order of start, each with its figure."""


class Turn(NamedTuple):
    """What the two runs of a pair have in common."""

    session_id: str
    block: int


def turn_of(run: Run) -> Turn | None:
    """Return the turn that a run was; ``None`` for a run that took none."""
    comparison = run.record.comparison
    if comparison.interleave == "none" or comparison.warm_up:
        return None
    return Turn(comparison.session_id, comparison.block)


def value_pairs(a: Valued, b: Valued) -> Pairing:
    """Return the figures of runs of A and B that took turns, in order of their blocks.

    Of two runs of an arm in one block the last counts. Runs of a pair that were made more than
    ``LONGEST_GAP_S`` apart are no pair: what drifts between them does not cancel.
    """
    of_a = {turn: each for each in a if (turn := turn_of(each[0])) is not None}
    of_b = {turn: each for each in b if (turn := turn_of(each[0])) is not None}
    shared = [(of_a[turn], of_b[turn]) for turn in of_a if turn in of_b]
    together = [
        (value_a, value_b)
        for (run_a, value_a), (run_b, value_b) in shared
        if _are_together(run_a.record, run_b.record)
    ]
    return Pairing(
        pairs=tuple(together),
        parted=len(shared) - len(together),
        in_turns=_took_turns(a, b),
    )


def _took_turns(a: Valued, b: Valued) -> bool:
    """Return whether A and B took turns with each other: but for fewer than a call needs, all did.

    Runs that took none stand for themselves, if there are enough of them in both arms.
    """
    turns = [[turn_of(run) for run, _ in of_arm] for of_arm in (a, b)]
    first, second = ({turn.session_id for turn in of_arm if turn} for of_arm in turns)
    alone = min(of_arm.count(None) for of_arm in turns)
    return bool(first & second) and alone < MINIMUM_RUNS


def _are_together(one: RunRecord, other: RunRecord) -> bool:
    gap_s = _gap_s(one, other)
    return gap_s is not None and gap_s <= LONGEST_GAP_S


def _gap_s(one: RunRecord, other: RunRecord) -> float | None:
    """Return the seconds between two runs, less what the second waited for its drives to cool.

    The second run tells it; where none does it is what the clocks of both say. ``None`` where
    these are no times.
    """
    told = [
        record.comparison.pair_gap_s - _waited_s(record)
        for record in (one, other)
        if record.comparison.pair_gap_s is not None
    ]
    if told:
        return max(told)
    try:
        (_, first), (began, second) = sorted(
            ((datetime.fromisoformat(each.started_utc), each) for each in (one, other)),
            key=lambda started: started[0],
        )
        gap = began - datetime.fromisoformat(first.finished_utc or first.started_utc)
    except (TypeError, ValueError):
        return None
    return gap.total_seconds() - _waited_s(second)


def _waited_s(record: RunRecord) -> float:
    start = record.comparison.start
    return start.waited_s if start is not None else 0.0


def one_after_the_other(subject: Subject, group: Group) -> str:
    """Return which arm's compared runs all began before the other's; empty where they mixed.

    What drifts over hours then counts as a difference of the arms, and no statistics can tell.
    """
    begun = [
        [run.record.started_utc for run in runs if counts(subject, run)]
        for runs in group.arms.values()
    ]
    if len(begun) != 2 or not all(len(starts) > 1 for starts in begun):  # noqa: PLR2004 - A and B
        return ""
    a, b = begun
    if max(a) < min(b):
        return "all runs of A began before those of B"
    return "all runs of B began before those of A" if max(b) < min(a) else ""
