"""Compared figures of a run: metrics and energies, with the accuracy of the energies.

More runs narrow the interval of a mean, but not the gain error of a sensor, which is the same in
every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wattload.core.power import Scope
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.results import Better
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.quantity import label, out_of_range
from wattload.reports.runs import energy as energies
from wattload.reports.runs.energy import ALL_PHASES
from wattload.reports.runs.load import cache_by_identity
from wattload.reports.runs.phases import leading

_GAIN, _STEP = "gain", "quantisation"
"""Parts of a stated uncertainty: a share of the reading, and the step between readings."""

_POWER_UNITS = frozenset({Unit.JOULES, Unit.WATTS, Unit.BYTES_PER_JOULE, Unit.JOULES_PER_BYTE})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigure:
    """One figure of one run. ``ranks`` is whether its evidence is good enough for a verdict.

    ``evidence`` describes the evidence of an energy figure; it is empty for all others. A figure
    known only as an interval has ``value`` ``None`` and its ends in ``lower`` and ``upper``.
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
    """A compared quantity: a metric or an energy figure, the same in every run.

    ``asked_by`` is the label of the quantity that answers the same question, from the same bytes
    and seconds, or the same joules; only that one gets a verdict. It is empty for that one.
    """

    key: str
    label: str
    unit: Unit
    better: Better
    headline: bool
    is_energy: bool = False
    phase: str = ""
    asked_by: str = ""

    @property
    def name(self) -> str:
        """The key without the phase, so that the phases of a quantity have one name."""
        return self.key.removesuffix(f", {self.phase}") if self.phase else self.key


@cache_by_identity
def quantities(record: RunRecord) -> dict[str, tuple[Quantity, RunFigure]]:
    """Return a run's figures by key: its metrics, then energy per phase and over all of them."""
    found: dict[str, tuple[Quantity, RunFigure]] = {}
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
            RunFigure(
                value=metric.value,
                ranks=ranks,
                valid=True,
                note=note,
                evidence=energy.words if of_power and energy is not None else "",
            ),
        )
    whole = energies.whole_energy(record)
    for energy in (*evidence.values(), *([whole] if whole else [])):
        found.update({quantity.key: (quantity, figure) for quantity, figure in _energy(energy)})
    asked = _asked_by([quantity for quantity, _ in found.values()])
    return {
        key: (replace(quantity, asked_by=asked.get(key, "")), _in_range(figure))
        for key, (quantity, figure) in found.items()
    }


def _asked_by(every: Sequence[Quantity]) -> dict[str, str]:
    """Return the quantities that ask a question again, with the label of the first to ask it.

    A rate asks how fast a phase is: its time, its samples per second and the accelerators' share
    of the time follow from it. An energy asks what that phase costs: its rate per watt follows from
    it, and so do energies of phases that are parts, or sums, of the phases with a rate.
    """
    heads = [each for each in every if each.headline and each.better != "neither"]
    speeds = [each for each in heads if not each.is_energy]
    rates: dict[str, Quantity] = {}
    for each in speeds:
        if each.unit is Unit.BYTES_PER_SECOND:
            rates.setdefault(each.phase, each)
    found = {
        each.key: rates[each.phase].label
        for each in speeds
        if each.phase in rates and each is not rates[each.phase]
    }
    joules = {each.phase: each for each in heads if each.unit is Unit.JOULES}
    if not joules:
        return found
    whole = list(joules)[-1]
    asking = list(dict.fromkeys(phase if phase in joules else whole for phase in rates)) or [whole]
    for each in heads:
        if each.is_energy and (each.unit is not Unit.JOULES or each.phase not in asking):
            phase = each.phase if each.phase in asking else asking[0]
            found[each.key] = joules[phase].label
    return found


def _in_range(figure: RunFigure) -> RunFigure:
    """Return a figure, or a missing one with its reason if it is out of range."""
    reasons = map(out_of_range, (figure.value, figure.lower, figure.upper))
    reason = next((reason for reason in reasons if reason), "")
    return replace(figure, value=None, lower=None, upper=None, note=reason) if reason else figure


def _energy(energy: energies.Energy) -> Iterator[tuple[Quantity, RunFigure]]:
    """Yield energy, mean power and rate per watt, those that are known at least as bounds."""
    lower_j, upper_j, seconds = energy.lower_j, energy.upper_j, energy.seconds
    yield from _figure(energy, "energy", Unit.JOULES, "lower", (energy.energy_j, lower_j, upper_j))
    watts = (energy.mean_w, _divided(lower_j, seconds), _divided(upper_j, seconds))
    yield from _figure(energy, "mean power", Unit.WATTS, "neither", watts)
    per_w = (energy.bytes_per_j, None, None)
    yield from _figure(energy, "rate per watt", Unit.BYTES_PER_JOULE, "higher", per_w)


def _figure(
    energy: energies.Energy,
    name: str,
    unit: Unit,
    better: Better,
    ends: tuple[float | None, float | None, float | None],
) -> Iterator[tuple[Quantity, RunFigure]]:
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
        RunFigure(
            value=value,
            ranks=energy.ranks,
            valid=True,
            note=note,
            evidence=energy.words,
            lower=lower,
            upper=upper,
        ),
    )


def _divided(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None and whole > 0 else None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The share by which the energies of equal arms may differ in their instruments.

    It is the sum of the uncertainties that the records of both arms state, at k = 2. If something
    is not stated, ``reason`` says what, ``share`` is 0, and there is no verdict.
    """

    share: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Stated:
    """What a run states about one energy: its instruments, and its uncertainties as shares of it.

    An instrument is a host, a device and a source. ``without_gain`` leaves out the gain.
    """

    instruments: frozenset[tuple[str, str, str]]
    whole: float | None
    without_gain: float | None


def accuracy(arms: Sequence[Sequence[RunRecord]], phase: str) -> Accuracy:
    """Return the combined accuracy of the energies of a phase, over all runs of the arms.

    If one device was read by one source in every run of both arms, its gain cancels in their ratio
    and only the other parts count. Each arm counts with its largest uncertainty.
    """
    stated = [[each[phase] for each in map(_stated, runs) if phase in each] for runs in arms]
    if not all(stated):
        return Accuracy()
    instruments = {each.instruments for of_arm in stated for each in of_arm}
    is_one = len(instruments) == 1
    shares = [[each.without_gain if is_one else each.whole for each in of_arm] for of_arm in stated]
    known = [[share for share in of_arm if share is not None] for of_arm in shares]
    if known != shares:
        part = "resolution" if is_one else "accuracy"
        return Accuracy(reason=f"sensor {part} not stated")
    return Accuracy(share=sum(max(of_arm) for of_arm in known))


@cache_by_identity
def _stated(record: RunRecord) -> Mapping[str, _Stated]:
    """Return what a run states of the energy of each leading phase, and of all of them."""
    parts = {
        phase.name: [
            part
            for part in record.power.energy
            if part.phase == phase.name and part.chosen and part.scope is Scope.DRIVE
        ]
        for phase in leading(record)
    }
    every = [part for of_phase in parts.values() for part in of_phase]
    found = {phase: _of(of_phase) for phase, of_phase in parts.items() if of_phase}
    return {**found, ALL_PHASES: _of(every)} if every else found


def _of(parts: Sequence[EnergyRecord]) -> _Stated:
    """Return the total of several energies; their uncertainties add linearly (worst case)."""
    energy_j = _sum([part.energy_j for part in parts])
    return _Stated(
        instruments=frozenset((part.host, part.device, part.source) for part in parts),
        whole=_share(_sum([part.uncertainty_j for part in parts]), energy_j),
        without_gain=_share(_sum([_without_gain_j(part) for part in parts]), energy_j),
    )


def _without_gain_j(part: EnergyRecord) -> float | None:
    """Return the uncertainty of an energy without its gain; the whole if its parts are unknown.

    Parts add in quadrature. If the total is missing, some part is unknown: the gain, or the step
    too.
    """
    parts_j = part.uncertainty_parts_j
    if not parts_j:
        return part.uncertainty_j
    if part.uncertainty_j is None and _STEP not in parts_j:
        return None
    return math.hypot(*(value for name, value in parts_j.items() if name != _GAIN))


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def _share(part_j: float | None, energy_j: float | None) -> float | None:
    if part_j is None or energy_j is None or energy_j <= 0:
        return None
    return part_j / energy_j
