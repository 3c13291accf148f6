"""What is compared of a run: its metrics and its energy figures, each with what it may decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports import energy as energies
from wattload.reports.memo import once_each
from wattload.reports.quantity import label, out_of_range

Better = Literal["higher", "lower", "neither"]


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


@once_each
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
    return {key: (quantity, _in_range(figure)) for key, (quantity, figure) in found.items()}


def _in_range(figure: Figure) -> Figure:
    """Return a figure, or none with its reason where it is none that a run can have."""
    reasons = map(out_of_range, (figure.value, figure.lower, figure.upper))
    reason = next((reason for reason in reasons if reason), "")
    return replace(figure, value=None, lower=None, upper=None, note=reason) if reason else figure


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
