"""Runs made in pairs, arms that did not alternate, and the noise floor.

The noise floor is of one setting run against itself (A/A): how far its halves differed, and to
which runs that applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from wattload.core.checks.conditions import LONGEST_GAP_S
from wattload.core.record.run import RunRecord
from wattload.reports.runs.load import Run
from wattload.reports.stats.conditions import conditions, is_compared, is_energy_compared
from wattload.reports.stats.effects import (
    MINIMUM_PAIRS,
    MINIMUM_RUNS,
    Began,
    Effect,
    Pairing,
    effect,
    first_arm,
)
from wattload.reports.stats.figures import Quantity, RunFigure
from wattload.reports.stats.subject import Group, Subject, facts_of
from wattload.results.identity_cache import cache_by_identity
from wattload.results.quantity import listed

Valued = Sequence[tuple[Run, float]]
"""Valid runs in order of start, each with its figure."""


class Turn(NamedTuple):
    """What the runs of a block have in common."""

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
    """Return the seconds between two runs of a block, without cooling and runs of other arms.

    The later runs record them; otherwise they are computed from the start and end times.
    """
    places = one.comparison, other.comparison
    if any(place.pair_gap_s is not None for place in places):
        return abs(places[0].idle_s - places[1].idle_s)
    first, second = sorted((one, other), key=_began)
    ended = datetime.fromisoformat(first.finished_utc or first.started_utc)
    start = second.comparison.start
    return (_began(second) - ended).total_seconds() - (start.waited_s if start else 0.0)


def _began(record: RunRecord) -> datetime:
    return datetime.fromisoformat(record.started_utc)


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


FiguresByKey = Mapping[str, tuple[Quantity, RunFigure]]
"""A run's figures by key."""

Setting = frozenset[tuple[str, str]]
"""Everything that noise depends on: condition and value."""

_MACHINE = ("host", "drive", "serial", "power state", "accelerator", "data set")
"""Conditions that noise depends on in addition to the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """One figure of one setting against itself: the second half over the first, in pairs."""

    workload: str
    session_id: str
    quantity: Quantity
    effect: Effect

    @property
    def share(self) -> float:
        """How far the halves may differ, from 0 up: 0.02 for 2 % either way.

        It is the far end of the interval, because a few pairs that happen to agree do not prove low
        noise.
        """
        intervals = self.effect.demanded
        return max(max(each.upper, 1 / each.lower) for each in intervals) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An A/A session: one setting alternated with itself, and the noise of its figures.

    ``settings`` are those of its runs; with more than one the session applies to no runs.
    """

    workload: str
    session_id: str
    settings: frozenset[Setting]
    noises: tuple[Noise, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Its identity: the session of its runs, one for each workload."""
        return self.workload, self.session_id

    def applies_to(self, records: Iterable[RunRecord]) -> bool:
        """Return whether any of the runs has its setting, drive and host."""
        if len(self.settings) > 1:
            return False
        return any(setting_of(record) in self.settings for record in records)

    def why_unused(self, records: Sequence[RunRecord]) -> str:
        """Return why it sets no floor for any of these compared runs, as a clause."""
        if len(self.settings) > 1:
            return f"its own runs differ in {_difference(*sorted(self.settings, key=sorted)[:2])}"
        if not self.noises:
            return f"it has fewer than {MINIMUM_PAIRS} pairs"
        others = {setting_of(record) for record in records}
        (own,) = self.settings
        nearest = min(others, key=lambda other: (len(own ^ other), sorted(other)), default=own)
        return f"it differs from the compared runs in {_difference(own, nearest)}"


def _difference(one: Setting, other: Setting) -> str:
    return listed(sorted({name for name, _ in one ^ other})) or "nothing recorded"


@cache_by_identity
def setting_of(record: RunRecord) -> Setting:
    """Return everything that a run's noise depends on: settings, drive, power state, host, data."""
    found = conditions(record)
    machine = {name: found[name] for name in _MACHINE if name in found}
    return frozenset({**facts_of(record), **machine}.items())


def sessions(subject: Subject, figures: Mapping[str, FiguresByKey]) -> tuple[Session, ...]:
    """Return the A/A sessions; noise is known from ``MINIMUM_PAIRS`` pairs on.

    Args:
        subject: the subject of the page.
        figures: of each run, by its id.
    """
    found: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(subject.runs, key=lambda each: each.record.started_utc):
        comparison = run.record.comparison
        if comparison.interleave == "aa" and is_compared(subject, run):
            key = (run.record.workload.name, comparison.session_id)
            found.setdefault(key, []).append(run)
    return tuple(
        Session(
            workload=workload,
            session_id=session_id,
            settings=frozenset(setting_of(run.record) for run in runs),
            noises=tuple(_noises(subject, runs, figures)),
        )
        for (workload, session_id), runs in found.items()
    )


def _noises(
    subject: Subject, runs: Sequence[Run], figures: Mapping[str, FiguresByKey]
) -> list[Noise]:
    quantities = {key: of[0] for run in runs for key, of in figures[run.id].items()}
    effects = {key: _halves(subject, runs, each, figures) for key, each in quantities.items()}
    return [
        Noise(
            workload=runs[0].record.workload.name,
            session_id=runs[0].record.comparison.session_id,
            quantity=quantities[key],
            effect=found,
        )
        for key, found in effects.items()
        if found is not None
    ]


def _halves(
    subject: Subject, runs: Sequence[Run], quantity: Quantity, figures: Mapping[str, FiguresByKey]
) -> Effect | None:
    halves: dict[str, list[tuple[Run, float]]] = {}
    for run in runs:
        _, figure = figures[run.id].get(quantity.key, (None, None))
        value = figure.value if figure is not None and figure.ranks else None
        is_valid = not quantity.is_energy or is_energy_compared(subject, run)
        if value is not None and is_valid:
            halves.setdefault(run.record.comparison.arm, []).append((run, quantity.scaled(value)))
    if len(halves) != 2:  # noqa: PLR2004 - one setting, twice
        return None
    first, second = (halves[arm] for arm in sorted(halves))
    pairing = value_pairs(first, second)
    if not pairing.enough:
        return None
    a, b = zip(*pairing.pairs, strict=True)
    return effect(a, b, pairing=pairing)
