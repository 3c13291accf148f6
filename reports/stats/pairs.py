"""Runs made in pairs, one after the other, and arms that did not alternate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from wattload.core.checks.conditions import LONGEST_GAP_S
from wattload.core.record.run import RunRecord
from wattload.reports.runs.load import Run
from wattload.reports.stats.conditions import is_compared
from wattload.reports.stats.effects import MINIMUM_RUNS, Began, Pairing, first_arm
from wattload.reports.stats.subject import Group, Subject

Valued = Sequence[tuple[Run, float]]
"""Valid runs in order of start, each with its figure."""


class Turn(NamedTuple):
    """What the two runs of a pair have in common."""

    session_id: str
    block: int


def turn_of(run: Run) -> Turn | None:
    """Return the turn of a run; ``None`` for a run that did not alternate."""
    comparison = run.record.comparison
    if comparison.interleave == "none" or comparison.warm_up:
        return None
    return Turn(comparison.session_id, comparison.block)


def value_pairs(a: Valued, b: Valued) -> Pairing:
    """Return the figures of alternating runs of A and B, in order of their blocks.

    Of two runs of an arm in one block the last counts. Runs more than ``LONGEST_GAP_S`` apart are
    not a pair, because drift between them does not cancel.
    """
    of_a = {turn: each for each in a if (turn := turn_of(each[0])) is not None}
    of_b = {turn: each for each in b if (turn := turn_of(each[0])) is not None}
    shared = [(of_a[turn], of_b[turn]) for turn in of_a if turn in of_b]
    gaps_s = [_gap_s(run_a.record, run_b.record) for (run_a, _), (run_b, _) in shared]
    together = [pair for pair, gap_s in zip(shared, gaps_s, strict=True) if gap_s <= LONGEST_GAP_S]
    return Pairing(
        pairs=tuple((value_a, value_b) for (_, value_a), (_, value_b) in together),
        parted=len(shared) - len(together),
        in_turns=_took_turns(a, b),
        runs=frozenset(run.id for pair in together for run, _ in pair),
    )


def _took_turns(a: Valued, b: Valued) -> bool:
    """Return whether A and B alternated, except for fewer runs than a verdict needs.

    Runs that did not alternate count singly if there are enough of them in both arms.
    """
    turns = [[turn_of(run) for run, _ in of_arm] for of_arm in (a, b)]
    first, second = ({turn.session_id for turn in of_arm if turn} for of_arm in turns)
    alone = min(of_arm.count(None) for of_arm in turns)
    return bool(first & second) and alone < MINIMUM_RUNS


def _gap_s(one: RunRecord, other: RunRecord) -> float:
    """Return the seconds between two runs, without the time spent waiting for drives to cool.

    The second run records the gap; otherwise it is computed from the start and end times.
    """
    recorded_s = [
        record.comparison.pair_gap_s - _waited_s(record)
        for record in (one, other)
        if record.comparison.pair_gap_s is not None
    ]
    if recorded_s:
        return max(recorded_s)
    first, second = sorted((one, other), key=_began)
    ended = datetime.fromisoformat(first.finished_utc or first.started_utc)
    return (_began(second) - ended).total_seconds() - _waited_s(second)


def _began(record: RunRecord) -> datetime:
    return datetime.fromisoformat(record.started_utc)


def _waited_s(record: RunRecord) -> float:
    start = record.comparison.start
    return start.waited_s if start is not None else 0.0


def began_s(a: Sequence[RunRecord], b: Sequence[RunRecord]) -> Began:
    """Return when the runs began, in seconds since one moment."""
    of_a, of_b = ([_began(each).timestamp() for each in arm] for arm in (a, b))
    return of_a, of_b


def one_after_the_other(subject: Subject, group: Group) -> str:
    """Return which arm's compared runs began first, as a clause; empty if they alternated.

    Drift over hours then counts as a difference of the arms, and no interval allows for it.
    """
    counted = [
        [run.record for run in runs if is_compared(subject, run)] for runs in group.arms.values()
    ]
    if len(counted) != 2 or not all(len(records) > 1 for records in counted):  # noqa: PLR2004 - A, B
        return ""
    a, b = began_s(*counted)
    first = first_arm(a, b)
    if not first:
        return ""
    (early, late), other = ((a, b), "B") if first == "A" else ((b, a), "A")
    share = "all" if max(early) < min(late) else "most"
    return f"{share} runs of {first} began before those of {other}"
