"""The noise floor.

One setting run against itself (A/A), how far its halves differed, and to which runs that applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wattload.core.record.run import RunRecord
from wattload.reports.runs.load import Run
from wattload.reports.stats.conditions import conditions, is_compared, is_energy_compared
from wattload.reports.stats.effects import MINIMUM_PAIRS, Effect, effect
from wattload.reports.stats.figures import Quantity, RunFigure
from wattload.reports.stats.pairs import value_pairs
from wattload.reports.stats.settings import facts_of
from wattload.reports.stats.subject import Subject
from wattload.results.identity_cache import cache_by_identity
from wattload.results.quantity import listed

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
