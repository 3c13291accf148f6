"""One setting against itself: how far its halves were apart, and for which runs that speaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wattload.core.record.run import RunRecord
from wattload.reports.admission import counts, counts_energy
from wattload.reports.conditions import conditions
from wattload.reports.figures import Figure, Quantity
from wattload.reports.load import Run
from wattload.reports.memo import once_each
from wattload.reports.pairing import MINIMUM_PAIRS
from wattload.reports.pairs import value_pairs
from wattload.reports.points import facts_of
from wattload.reports.quantity import listed
from wattload.reports.statistics import Effect, effect
from wattload.reports.subject import Subject

Of = Mapping[str, tuple[Quantity, Figure]]
"""A run's figures by key."""

Setting = frozenset[tuple[str, str]]
"""All that noise depends on: condition and value."""

_MACHINE = ("host", "drive", "serial", "power state", "accelerator", "data set")
"""Conditions beside the settings that noise depends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """One figure of one setting against itself: the later-named half over the first, in pairs."""

    workload: str
    session_id: str
    quantity: Quantity
    effect: Effect

    @property
    def share(self) -> float:
        """How far the halves may be apart, from 0 up: 0.02 for 2 % either way.

        It is the far end of the interval: that few pairs happened to agree is no proof of calm.
        """
        intervals = self.effect.demanded
        return max(max(each.upper, 1 / each.lower) for each in intervals) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session in which one setting took turns with itself, and what its figures showed.

    ``settings`` are those of its runs: with more than one it speaks for none.
    """

    workload: str
    session_id: str
    settings: frozenset[Setting]
    noises: tuple[Noise, ...]

    @property
    def key(self) -> tuple[str, str]:
        """What it is known by: its runs' session, one for each workload."""
        return self.workload, self.session_id

    def speaks_for(self, records: Iterable[RunRecord]) -> bool:
        """Return whether any of the runs is of its setting, on its drive and host."""
        if len(self.settings) > 1:
            return False
        return any(setting_of(record) in self.settings for record in records)

    def why_unused(self, records: Sequence[RunRecord]) -> str:
        """Return why it sets no floor for any of these compared runs, as a clause."""
        if len(self.settings) > 1:
            return f"its own runs differ in {_apart(*sorted(self.settings, key=sorted)[:2])}"
        if not self.noises:
            return f"it has fewer than {MINIMUM_PAIRS} pairs"
        others = {setting_of(record) for record in records}
        (own,) = self.settings
        nearest = min(others, key=lambda other: (len(own ^ other), sorted(other)), default=own)
        return f"it differs from the compared runs in {_apart(own, nearest)}"


def _apart(one: Setting, other: Setting) -> str:
    return listed(sorted({name for name, _ in one ^ other})) or "nothing that is recorded"


@once_each
def setting_of(record: RunRecord) -> Setting:
    """Return all that a run's noise depends on: settings, drive, power state, host, data."""
    found = conditions(record)
    machine = {name: found[name] for name in _MACHINE if name in found}
    return frozenset({**facts_of(record), **machine}.items())


def sessions(subject: Subject, figures: Mapping[str, Of]) -> tuple[Session, ...]:
    """Return the sessions of one setting against itself; each speaks from ``MINIMUM_PAIRS`` on.

    Args:
        subject: what the page is about.
        figures: of each run, by its id.
    """
    found: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(subject.runs, key=lambda each: each.record.started_utc):
        comparison = run.record.comparison
        if comparison.interleave == "aa" and counts(subject, run):
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


def _noises(subject: Subject, runs: Sequence[Run], figures: Mapping[str, Of]) -> list[Noise]:
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
    subject: Subject, runs: Sequence[Run], quantity: Quantity, figures: Mapping[str, Of]
) -> Effect | None:
    halves: dict[str, list[tuple[Run, float]]] = {}
    for run in runs:
        _, figure = figures[run.id].get(quantity.key, (None, None))
        value = figure.value if figure is not None and figure.ranks else None
        stands = not quantity.is_energy or counts_energy(subject, run)
        if value is not None and stands:
            halves.setdefault(run.record.comparison.arm, []).append((run, value))
    if len(halves) != 2:  # noqa: PLR2004 - one setting, twice
        return None
    first, second = (halves[arm] for arm in sorted(halves))
    pairing = value_pairs(first, second)
    if not pairing.enough:
        return None
    a, b = zip(*pairing.pairs, strict=True)
    return effect(a, b, pairing=pairing)
