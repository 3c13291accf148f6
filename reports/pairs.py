"""Runs that were made in pairs, and how far one setting was from itself when it took turns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from wattload.reports.admission import counts, counts_energy
from wattload.reports.figures import Figure, Quantity
from wattload.reports.load import Run
from wattload.reports.statistics import MINIMUM_PAIRS, Effect, effect
from wattload.reports.subject import Group, Subject

Of = Mapping[str, tuple[Quantity, Figure]]
"""A run's figures by key."""


def pair_of(run: Run) -> Hashable | None:
    """Return what the two runs of a pair have in common; ``None`` for a run outside any."""
    comparison = run.record.comparison
    if comparison.interleave == "none" or comparison.warm_up:
        return None
    return comparison.session_id, comparison.block


def value_pairs(
    a: Sequence[tuple[Run, float]], b: Sequence[tuple[Run, float]]
) -> list[tuple[float, float]]:
    """Return the figures of runs of A and B that took turns, in order of their blocks.

    Both arms' runs are valid and in order of start: of two in one block the last counts.
    """
    of_a = {pair_of(run): value for run, value in a}
    of_b = {pair_of(run): value for run, value in b}
    shared = [pair for pair in of_a if pair is not None and pair in of_b]
    return [(of_a[pair], of_b[pair]) for pair in shared]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """One figure of one setting against itself: the later-named half over the first, in pairs."""

    workload: str
    session_id: str
    quantity: Quantity
    effect: Effect

    @property
    def share(self) -> float:
        """How far the halves are apart, from 0 up: 0.02 for 2 % either way."""
        return max(self.effect.ratio, 1 / self.effect.ratio) - 1


def noises(subject: Subject, figures: Mapping[str, Of]) -> tuple[Noise, ...]:
    """Return what each session of one setting against itself shows, from ``MINIMUM_PAIRS`` on.

    Args:
        subject: what the page is about.
        figures: of each run, by its id.
    """
    sessions: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(subject.runs, key=lambda each: each.record.started_utc):
        comparison = run.record.comparison
        if comparison.interleave == "aa" and counts(subject, run):
            key = (run.record.workload.name, comparison.session_id)
            sessions.setdefault(key, []).append(run)
    return tuple(
        Noise(workload=workload, session_id=session, quantity=quantity, effect=found)
        for (workload, session), runs in sessions.items()
        for quantity in _shared([figures[run.id] for run in runs])
        if (found := _halves(subject, runs, quantity, figures)) is not None
    )


def _shared(of_runs: Sequence[Of]) -> list[Quantity]:
    return list({key: quantity for of in of_runs for key, (quantity, _) in of.items()}.values())


def _halves(
    subject: Subject, runs: Sequence[Run], quantity: Quantity, figures: Mapping[str, Of]
) -> Effect | None:
    halves: dict[str, list[tuple[Run, float]]] = {}
    for run in runs:
        _, figure = figures[run.id].get(quantity.key, (None, None))
        stands = not quantity.is_energy or counts_energy(subject, run)
        if figure is not None and figure.value is not None and figure.ranks and stands:
            halves.setdefault(run.record.comparison.arm, []).append((run, figure.value))
    if len(halves) != 2:  # noqa: PLR2004 - one setting, twice
        return None
    first, second = (halves[arm] for arm in sorted(halves))
    pairs = value_pairs(first, second)
    if len(pairs) < MINIMUM_PAIRS:
        return None
    return effect([a for a, _ in pairs], [b for _, b in pairs], pairs=pairs, noise=0.0)
