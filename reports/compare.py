"""Two arms, figure by figure: medians, their ratio, and what may be said of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports import energy as energies
from wattload.reports.conditions import unlike_bytes, unlike_work
from wattload.reports.load import Run
from wattload.reports.quantity import label, listed, number
from wattload.reports.statistics import MINIMUM_RUNS, Effect, Spread, effect, spread
from wattload.reports.subject import Group, Subject

Better = Literal["higher", "lower", "neither"]
Call = Literal["a", "b", "none", "barred"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of one run. ``ranks`` is whether its evidence may decide anything.

    ``evidence`` says how a figure of energy is known, in words; it is empty for all others.

    A figure known only as an interval has ``value`` ``None`` and its ends in ``lower`` and
    ``upper``.
    """

    value: float | None
    ranks: bool
    valid: bool
    note: str = ""
    evidence: str = ""
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What is compared: a metric or an energy figure, the same in every run."""

    key: str
    label: str
    unit: Unit
    better: Better
    headline: bool
    is_energy: bool = False
    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One quantity over the runs of each arm, and what may be said of B against A.

    ``figures`` holds every run's, ``spreads`` only what the valid runs gave. ``call`` is the arm
    that is better, ``none`` where no difference is shown, ``barred`` where none may be called.
    """

    quantity: Quantity
    figures: Mapping[str, tuple[Figure, ...]]
    spreads: Mapping[str, Spread | None]
    effect: Effect | None
    call: Call
    reason: str


def quantities(record: RunRecord) -> dict[str, tuple[Quantity, Figure]]:
    """Return a run's figures by key: its metrics, then energy per phase and over all of them."""
    found: dict[str, tuple[Quantity, Figure]] = {}
    evidence = {energy.phase: energy for energy in energies.phase_energies(record)}
    for metric in record.metrics:
        of_power = metric.unit in _POWER_UNITS
        energy = evidence.get(metric.phase)
        ranks = not of_power or (energy is not None and energy.ranks)
        quantity = Quantity(
            key=metric.name,
            label=label(metric.name, metric.unit),
            unit=metric.unit,
            better=metric.better,
            headline=metric.headline,
            is_energy=of_power,
            phase=metric.phase,
        )
        note = metric.missing.get("value", "") if metric.value is None else ""
        found[metric.name] = (
            quantity,
            Figure(
                value=metric.value,
                ranks=ranks,
                valid=True,
                note=note,
                evidence=energy.words if of_power and energy is not None else "",
            ),
        )
    whole = energies.whole(record)
    for energy in (*evidence.values(), *([whole] if whole else [])):
        found.update({quantity.key: (quantity, figure) for quantity, figure in _energy(energy)})
    return found


_POWER_UNITS = frozenset({Unit.JOULES, Unit.WATTS, Unit.BYTES_PER_JOULE, Unit.JOULES_PER_BYTE})


def _energy(energy: energies.Energy) -> Iterator[tuple[Quantity, Figure]]:
    """Yield energy, mean power and rate per watt, those that are known at least as bounds."""
    lower_j, upper_j, seconds = energy.lower_j, energy.upper_j, energy.seconds
    yield from _figure(energy, "energy", Unit.JOULES, "lower", (energy.energy_j, lower_j, upper_j))
    watts = (energy.mean_w, _divided(lower_j, seconds), _divided(upper_j, seconds))
    yield from _figure(energy, "mean power", Unit.WATTS, "neither", watts)
    per_w = (energy.bytes_per_j, None, None)
    yield from _figure(energy, "rate per watt", Unit.BYTES_PER_JOULE, "higher", per_w)


def _divided(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None and whole > 0 else None


def _figure(
    energy: energies.Energy,
    name: str,
    unit: Unit,
    better: Better,
    ends: tuple[float | None, float | None, float | None],
) -> Iterator[tuple[Quantity, Figure]]:
    value, lower, upper = ends
    if value is None and upper is None:
        return
    key = f"{name}, {energy.phase}"
    note = "" if energy.ranks else energy.words
    yield (
        Quantity(
            key=key,
            label=key,
            unit=unit,
            better=better,
            headline=True,
            is_energy=True,
            phase=energy.phase,
        ),
        Figure(
            value=value,
            ranks=energy.ranks,
            valid=True,
            note=note,
            evidence=energy.words,
            lower=lower,
            upper=upper,
        ),
    )


def compare(subject: Subject, group: Group) -> tuple[Row, ...]:
    """Return a row for each quantity of a group of one arm or two, headlines first."""
    barred = unlike_work(group)
    unlike = unlike_bytes(group)
    by_arm = {arm: [_figures(subject, run) for run in runs] for arm, runs in group.arms.items()}
    names: dict[str, Quantity] = {}
    for runs in by_arm.values():
        for figures in runs:
            names.update({key: q for key, (q, _) in figures.items() if key not in names})
    rows = [
        _row(quantity, by_arm, barred or _unlike(quantity, unlike)) for quantity in names.values()
    ]
    return tuple(sorted(rows, key=lambda row: not row.quantity.headline))


def _unlike(quantity: Quantity, unlike: Mapping[str, str]) -> str:
    """Return why a time or an energy can't be compared: it was not spent on the same bytes."""
    if quantity.unit not in (Unit.SECONDS, Unit.JOULES) or not unlike:
        return ""
    if quantity.phase == energies.ALL_PHASES:
        return next(iter(unlike.values()))
    return unlike.get(quantity.phase, "")


def _figures(subject: Subject, run: Run) -> dict[str, tuple[Quantity, Figure]]:
    """Return a run's figures, those marked invalid that its checks bar from comparison."""
    bad, bad_energy = bool(subject.faults(run)), bool(subject.energy_faults(run))
    return {
        key: (quantity, replace(figure, valid=not (bad or (bad_energy and quantity.is_energy))))
        for key, (quantity, figure) in quantities(run.record).items()
    }


def _row(
    quantity: Quantity,
    by_arm: Mapping[str, Sequence[Mapping[str, tuple[Quantity, Figure]]]],
    barred: str,
) -> Row:
    figures = {
        arm: tuple(run[quantity.key][1] for run in runs if quantity.key in run)
        for arm, runs in by_arm.items()
    }
    values = {arm: _valid(of_arm) for arm, of_arm in figures.items()}
    arms = list(by_arm)
    found = effect(values[arms[0]], values[arms[1]]) if len(arms) == 2 else None  # noqa: PLR2004
    call, reason = _judge(quantity, figures, found, barred)
    return Row(
        quantity=quantity,
        figures=figures,
        spreads={arm: spread(of_arm) for arm, of_arm in values.items()},
        effect=found,
        call=call,
        reason=reason,
    )


def _valid(figures: Sequence[Figure]) -> list[float]:
    return [figure.value for figure in figures if figure.valid and figure.value is not None]


def _judge(
    quantity: Quantity,
    figures: Mapping[str, tuple[Figure, ...]],
    found: Effect | None,
    barred: str,
) -> tuple[Call, str]:
    """Return the call and why, by rules that were fixed before any value was seen."""
    reason = next(_bars(quantity, figures, found, barred), None)
    if reason is not None or found is None:
        return "barred", reason or "no ratio: a figure is not positive"
    if not found.differs:
        floor = number(found.floor * 100, 2)
        return "none", f"the interval holds 1, or the effect is under {floor} %"
    return _better(quantity, found)


def _bars(
    quantity: Quantity,
    figures: Mapping[str, tuple[Figure, ...]],
    found: Effect | None,
    barred: str,
) -> Iterator[str]:
    """Yield each reason why nothing may be called, the weightiest first."""
    if len(figures) < 2:  # noqa: PLR2004 - one arm has nothing beside it
        yield "one arm only"
    if len(figures) > 2:  # noqa: PLR2004 - A and B
        yield "more than two arms"
    if barred:
        yield barred
    for figure in (figure for of_arm in figures.values() for figure in of_arm):
        if not figure.ranks:
            yield f"ranks nothing: {figure.note or 'its evidence is too weak'}"
    counts = [len(_valid(of_arm)) for of_arm in figures.values()]
    if min(counts) < MINIMUM_RUNS:
        shown = listed([str(count) for count in counts])
        yield f"too few runs to call: n = {shown}; {MINIMUM_RUNS} per arm are the floor"
    if found is None:
        yield "no ratio: a figure is not positive"
    if quantity.better == "neither":
        yield "neither direction is better"
    if not quantity.headline:
        yield "not called: only headline figures are"


def _better(quantity: Quantity, found: Effect) -> tuple[Call, str]:
    b_wins = (found.ratio > 1) == (quantity.better == "higher")
    floor = number(found.floor * 100, 2)
    return ("b" if b_wins else "a"), f"the interval excludes 1, the effect exceeds {floor} %"


def sentence(row: Row, a: str, b: str) -> str:
    """Return the ratio in words, always as A's share of B's: never "slower by"."""
    if row.effect is None:
        return ""
    share = number(100 / row.effect.ratio, 3)
    ratio = number(row.effect.ratio, 3)
    verb, thing = _WORDS.get(row.quantity.unit, ("shows", row.quantity.label))
    what = f"{thing} in {row.quantity.phase}" if row.quantity.phase else thing
    return f"{a} {verb} {share} % of {b}'s {what} (B/A = {ratio})"


_WORDS: Mapping[Unit, tuple[str, str]] = {
    Unit.SECONDS: ("takes", "time"),
    Unit.JOULES: ("uses", "energy"),
    Unit.WATTS: ("draws", "power"),
    Unit.BYTES_PER_SECOND: ("reaches", "rate"),
    Unit.BYTES_PER_JOULE: ("reaches", "rate per watt"),
    Unit.JOULES_PER_BYTE: ("uses", "energy per byte"),
}
