"""Compared figures of a run: metrics and energies, with the accuracy of the energies.

More runs narrow the interval of a mean, but not the gain error of a sensor, which is the same in
every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from wattload.core.record.energy import EnergyRecord
from wattload.core.record.results import Better
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.runs import energy as energies
from wattload.reports.runs.energy import ALL_PHASES
from wattload.reports.runs.phases import leading, timed_parts
from wattload.reports.stats.intervals import LARGEST_LOG
from wattload.results.identity_cache import cache_by_identity
from wattload.results.labels import label
from wattload.results.quantity import (
    TIMES,
    out_of_range,
    percent,
    percentages,
    ratio_ends,
    ratio_text,
)
from wattload.results.reading import view_of
from wattload.results.view import Joule

_GAIN, _NOISE = "gain", "noise"
"""Parts of an uncertainty: a share of the reading, and what every measured energy has."""
_WHOLE = "whole"
"""An uncertainty whose parts are unknown."""

_POWER_UNITS = frozenset(
    {Unit.JOULES, Unit.WATTS, Unit.BYTES_PER_JOULE, Unit.JOULES_PER_BYTE, Unit.PER_JOULE}
)
_PER_ENERGY = (Unit.BYTES_PER_JOULE, Unit.PER_JOULE, Unit.JOULES_PER_BYTE)
"""What a joule pays for."""

IN_WINDOW, FOR_WORK = "energy in the window", "energy for the work"
PER_BYTE = "energy per byte for the work"
"""The names of both measurands, and of the second one per byte."""


def per_joule(joule: Joule[Any], *, is_for_work: bool) -> str:
    """Return the name of a figure of what a joule pays for, by its measurand."""
    return f"{joule.many} per joule{' for the work' if is_for_work else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigure:
    """One figure of one run. ``ranks`` is whether its evidence is good enough for a verdict.

    ``evidence`` describes the evidence of an energy figure; it is empty for all others. A figure
    known only as an interval has ``value`` ``None`` and its ends in ``lower`` and ``upper``.
    ``uncertainty`` is that of an energy figure at k = 2, ``None`` if its meter states none.
    ``illustrates`` is whether it ranks, or would if its drive were not simulated. The rows of a
    comparison set ``run``, the id of its run, and ``in_mean``, whether its arm's mean includes it.
    """

    value: float | None
    ranks: bool = True
    valid: bool = True
    note: str = ""
    evidence: str = ""
    lower: float | None = None
    upper: float | None = None
    uncertainty: float | None = None
    illustrates: bool = True
    run: str = ""
    in_mean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A compared quantity: a metric or an energy figure, the same in every run.

    ``asked_by`` is the label of the quantity that answers the same question, from the same bytes
    and seconds, or the same joules; only that one gets a verdict. It is empty for that one.
    ``is_for_work`` marks an energy that includes the tail of the work.
    """

    key: str
    label: str
    unit: Unit
    better: Better
    headline: bool
    is_energy: bool = False
    is_for_work: bool = False
    phase: str = ""
    asked_by: str = ""

    @property
    def is_share(self) -> bool:
        """Whether arms are compared by the difference of their figures, not by their ratio."""
        return self.unit is Unit.FRACTION

    def scaled(self, value: float) -> float:
        """Return a figure on the scale of ratios: for a share e to its power.

        The ratio of two of these is e to the power of the difference of the shares, so ratios,
        intervals and floors are those of differences.
        """
        return math.exp(min(value, LARGEST_LOG)) if self.is_share else value

    def unscaled(self, value: float) -> float:
        return math.log(value) if self.is_share else value

    def effect_text(
        self, ratio: float, digits: int = 3, within: Sequence[float] = (), end_digits: int = 3
    ) -> str:
        """Return an effect as printed: ``2.40`` times, or for a share ``4.8 points``.

        It is not printed outside of the interval that it is ``within``.
        """
        if self.is_share:
            return _points(math.log(ratio), within=[math.log(end) for end in within])
        return f"{ratio_text(ratio, digits, within, end_digits)}{TIMES}"

    def ends_text(self, lower: float, upper: float, digits: int = 3) -> str:
        """Return the interval of an effect as printed: ``2.35 to 2.44``."""
        if self.is_share:
            return _points(math.log(lower), math.log(upper))
        return ratio_ends(lower, upper, digits)

    def floor(self, share: float) -> float:
        """Return a floor or margin on the scale of the effect; for a share, a difference."""
        return math.log1p(share) if self.is_share else share

    def floor_text(self, share: float, digits: int = 2) -> str:
        """Return a floor or margin as printed: ``1.0 %``, or for a share ``1.0 points``."""
        text = percent(round(self.floor(share), 9), digits)
        return text.replace("%", "points") if self.is_share else text

    @property
    def no_effect(self) -> str:
        """The effect of equal arms as printed."""
        return "0" if self.is_share else "1"

    @property
    def cost(self) -> tuple[Unit, str]:
        """The unit and phase of an energy, which are those of the other measurand, too.

        Energy per byte has its inverse in the window, the rate per watt.
        """
        is_per_byte = self.unit is Unit.JOULES_PER_BYTE
        return Unit.BYTES_PER_JOULE if is_per_byte else self.unit, self.phase

    @property
    def name(self) -> str:
        """The key without the phase, so that the phases of a quantity have one name."""
        return self.key.removesuffix(f", {self.phase}") if self.phase else self.key


def _points(*shares: float, within: Sequence[float] = ()) -> str:
    rounded = [round(share, 9) for share in shares]  # what is left of equal shares is no difference
    return percentages(*rounded, within=within).replace("%", "points")


@cache_by_identity
def quantities(record: RunRecord) -> dict[str, tuple[Quantity, RunFigure]]:
    """Return a run's figures by key: its metrics, then energy per phase and over all of them."""
    found: dict[str, tuple[Quantity, RunFigure]] = {}
    evidence = {energy.phase: energy for energy in energies.phase_energies(record)}
    for metric in record.metrics:
        of_power = metric.unit in _POWER_UNITS
        energy = evidence.get(metric.phase)
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
                ranks=not of_power or (energy is not None and energy.ranks),
                note=note,
                evidence=energy.words if of_power and energy is not None else "",
                illustrates=not of_power or (energy is not None and energy.illustrates),
            ),
        )
    whole = energies.whole_energy(record)
    parts = {phase.name for phase in timed_parts(record)}
    view = view_of(record)
    if view.is_fixed_time:
        parts |= {energies.ALL_PHASES, *(phase.name for phase in leading(record))}
    for energy in (*evidence.values(), *([whole] if whole else [])):
        made = _energy(energy, view.joule, is_part=energy.phase in parts)
        found.update({quantity.key: (quantity, figure) for quantity, figure in made})
    asked = asked_by([quantity for quantity, _ in found.values()])
    return {
        key: (replace(quantity, asked_by=asked.get(key, "")), _in_range(figure))
        for key, (quantity, figure) in found.items()
    }


def asked_by(every: Sequence[Quantity], *, is_for_work: bool = True) -> dict[str, str]:
    """Return the quantities that ask a question again, with the label of the first to ask it.

    Energy for the work asks, and that in the window follows it; or else that in the window asks.

    A rate asks how fast a phase is: its time, its samples per second and the accelerators' share
    of the time follow from it. The energy of all phases asks what the job costs: its rate per watt
    follows from it, and so do energies of its parts. Without it the energies of phases with a rate
    ask what these cost. That of a part, such as a steady state, depends on when it ended: its rate
    per watt asks instead.
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
    costs: dict[str, Quantity] = {}
    asks_first = sorted(heads, key=lambda each: each.is_for_work is not is_for_work)
    for each in asks_first:
        if each.unit is Unit.JOULES:
            costs.setdefault(each.phase, each)
    if not costs:
        for each in asks_first:
            if each.unit in _PER_ENERGY and costs.setdefault(each.phase, each) is not each:
                found[each.key] = costs[each.phase].label
        return found
    last = next(each.phase for each in reversed(heads) if each.unit is Unit.JOULES)
    for each in asks_first:
        if each.unit in _PER_ENERGY:
            costs.setdefault(each.phase, each)
    asking = list(dict.fromkeys(phase if phase in costs else last for phase in rates)) or [last]
    if ALL_PHASES in costs:
        asking = [ALL_PHASES]
    for each in heads:
        if each.is_energy and (each is not costs.get(each.phase) or each.phase not in asking):
            phase = each.phase if each.phase in asking else asking[0]
            found[each.key] = costs[phase].label
    return found


def _in_range(figure: RunFigure) -> RunFigure:
    """Return a figure, or a missing one with its reason if it is out of range."""
    reasons = map(out_of_range, (figure.value, figure.lower, figure.upper))
    reason = next((reason for reason in reasons if reason), "")
    return replace(figure, value=None, lower=None, upper=None, note=reason) if reason else figure


def _energy(
    energy: energies.Energy, joule: Joule[Any] | None, *, is_part: bool
) -> Iterator[tuple[Quantity, RunFigure]]:
    """Yield both energies, mean power and rate per watt, those that are known at least as bounds.

    Mean power and rate per watt are in the window; energy per byte is for the work. The bytes of a
    part, or of a given time, are those of no given work, so less energy is not better there. What
    is counted, not weighed, is so many per joule, such as rows.
    """
    better: Better = "neither" if is_part else "lower"
    ends = (energy.energy_j, energy.lower_j, energy.upper_j)
    yield from _figure(energy, IN_WINDOW, Unit.JOULES, better, ends)
    yield from _figure(
        energy, FOR_WORK, Unit.JOULES, better, (energy.work_j, None, None), is_for_work=True
    )
    watts = (energy.mean_w, energy.lower_w, energy.upper_w)
    yield from _figure(energy, "mean power", Unit.WATTS, "neither", watts)
    if joule is not None:
        for value, is_for_work in ((energy.amount_per_j, False), (energy.work_amount_per_j, True)):
            yield from _figure(
                energy,
                per_joule(joule, is_for_work=is_for_work),
                Unit.PER_JOULE,
                "higher",
                (value, None, None),
                is_for_work=is_for_work,
            )
        return
    per_w = (energy.bytes_per_j, None, None)
    yield from _figure(energy, "rate per watt", Unit.BYTES_PER_JOULE, "higher", per_w)
    per_byte = (energy.work_j_per_byte, None, None)
    yield from _figure(energy, PER_BYTE, Unit.JOULES_PER_BYTE, "lower", per_byte, is_for_work=True)


def _figure(
    energy: energies.Energy,
    name: str,
    unit: Unit,
    better: Better,
    ends: tuple[float | None, float | None, float | None],
    *,
    is_for_work: bool = False,
) -> Iterator[tuple[Quantity, RunFigure]]:
    value, lower, upper = ends
    if value is None and upper is None:
        return
    key = f"{name}, {energy.phase}"
    note = "" if energy.ranks else energy.words
    if value is None and energy.evidence in energies.RANKS:
        note = f"known as bounds only, {note}"
    if is_for_work and energy.is_at_least:
        note = "; ".join(
            filter(None, (note, "at least: power was still above idle after the rest"))
        )
    uncertainty = _uncertainty(energy, value, unit, is_for_work=is_for_work)
    yield (
        Quantity(
            key=key,
            label=f"{name}, {label(energy.phase)}",
            unit=unit,
            better=better,
            headline=True,
            is_energy=True,
            is_for_work=is_for_work,
            phase=energy.phase,
        ),
        RunFigure(
            value=value,
            ranks=energy.ranks,
            note=note,
            evidence=energy.words,
            lower=lower,
            upper=upper,
            uncertainty=uncertainty,
            illustrates=energy.illustrates,
        ),
    )


def _uncertainty(
    energy: energies.Energy, value: float | None, unit: Unit, *, is_for_work: bool
) -> float | None:
    """Return the uncertainty of a figure of an energy at k = 2, in the figure's unit.

    Bytes and seconds are exact, so it is the same share of each figure of an energy.
    """
    joules = energy.work_j if is_for_work else energy.energy_j
    stated_j = energy.work_uncertainty_j if is_for_work else energy.uncertainty_j
    if value is None or stated_j is None or not joules:
        return None
    return stated_j if unit is Unit.JOULES else abs(value * stated_j / joules)


def uncertainty_of(mean: float, figures: Sequence[RunFigure]) -> float | None:
    """Return the uncertainty of a mean of energies at k = 2: their largest share, of the mean.

    ``None`` if one of them has none.
    """
    known = [each for each in figures if each.value]
    shares = [
        abs(each.uncertainty / each.value) for each in known if each.uncertainty and each.value
    ]
    return max(shares) * abs(mean) if shares and len(shares) == len(known) else None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The share by which the energies of equal arms may differ in their instruments.

    It is the uncertainty, at k = 2, that the records state of both, without what both share. If
    something is not stated, ``reason`` says what, ``share`` is 0, and there is no verdict.
    """

    share: float = 0.0
    reason: str = ""


Meter = tuple[str, str, str]
"""A host, a source, and the meter if it is outside the device, else the device."""


@dataclass(frozen=True, slots=True)
class _Stated:
    """What a run states about one energy: its meters, and uncertainties as shares of it.

    ``parts`` are by meter and name of the part. They are ``None`` if a part other than the gain is
    unknown, and ``whole`` is ``None`` if any is.
    """

    meters: frozenset[Meter]
    whole: float | None
    parts: Mapping[tuple[Meter, str], float] | None


def accuracy(
    arms: Sequence[Sequence[RunRecord]], phase: str, *, is_for_work: bool = False
) -> Accuracy:
    """Return the uncertainty of the ratio of two arms' energies of a phase, as a share of it.

    Relative uncertainties of independent energies add in quadrature (JCGM 100:2008, 5.1.6). If both
    arms were read by the same meters, their ``gain`` is not independent: a meter whose
    readings are off by a share of them is off by the same share in both arms, and the ratio is
    right. The rest is that of a meter whose part of the energy differs between the arms.

    All other parts differ from arm to arm and add in quadrature. So does an ``offset``: the same
    watts are another share of another power. So do ``edges``, even of one response: their error
    depends on the sign of each step of power at the edges of a phase.

    Of these, and of meters that differ, each arm counts with the mean of its runs: that of a mean
    whose errors are all of one sign, the worst case. So do several meters of one arm, which add. A
    part of unknown composition never cancels.
    """
    key = phase, is_for_work
    stated = [[each[key] for each in map(_stated, runs) if key in each] for runs in arms]
    if not all(stated):
        return Accuracy()
    every = [each for of_arm in stated for each in of_arm]
    if len({each.meters for each in every}) > 1:
        wholes = [[each.whole for each in of_arm if each.whole is not None] for of_arm in stated]
        if sum(map(len, wholes)) < len(every):
            return Accuracy(reason="sensor accuracy not stated")
        return Accuracy(share=math.hypot(*map(fmean, wholes)))
    parts = [[each.parts for each in of_arm if each.parts is not None] for of_arm in stated]
    if sum(map(len, parts)) < len(every):
        return Accuracy(reason="sensor resolution not stated")
    meters = every[0].meters
    left: list[float] = []
    for name in {name for of_arm in parts for run in of_arm for _, name in run}:
        if name == _GAIN:
            means = [
                [fmean(run.get((meter, name), 0.0) for run in of_arm) for of_arm in parts]
                for meter in meters
            ]
            left.append(math.fsum(max(of_meter) - min(of_meter) for of_meter in means))
        else:
            left += [
                fmean(math.fsum(run.get((meter, name), 0.0) for meter in meters) for run in of_arm)
                for of_arm in parts
            ]
    return Accuracy(share=math.hypot(*left))


@cache_by_identity
def _stated(record: RunRecord) -> Mapping[tuple[str, bool], _Stated]:
    """Return what a run states of the energies of each leading phase and part, and of all phases.

    They are in the window, and for the work (``True``).
    """
    stated = {
        phase.name: record.drive_energies(phase.name)
        for phase in (*leading(record), *timed_parts(record))
    }
    stated[ALL_PHASES] = [part for phase in leading(record) for part in stated[phase.name]]
    return {
        (phase, is_for_work): _of(record, of_phase, is_for_work=is_for_work)
        for phase, of_phase in stated.items()
        for is_for_work in (False, True)
        if of_phase
    }


def _of(record: RunRecord, stated: Sequence[EnergyRecord], *, is_for_work: bool) -> _Stated:
    """Return the total of several energies; their uncertainties add linearly (worst case).

    For the work, those of phases without a tail are in the window: what they left behind is in the
    window of the phase that followed.
    """
    sources = energies.sources_of(record)
    meters: set[Meter] = set()
    parts_j: dict[tuple[Meter, str], float] | None = {}
    joules: list[float | None] = []
    wholes_j: list[float | None] = []
    for each in stated:
        facts = sources.get((each.host, each.source, each.device))
        meter = (each.host, each.source, (facts.meter if facts else "") or each.device)
        meters.add(meter)
        has_tail = is_for_work and each.work_j is not None
        joules.append(each.work_j if has_tail else each.energy_j)
        whole_j = each.work_uncertainty_j if has_tail else each.uncertainty_j
        wholes_j.append(whole_j)
        own_j = each.work_uncertainty_parts_j if has_tail else each.uncertainty_parts_j
        known_j = _known_parts_j(own_j, whole_j)
        if known_j is None or parts_j is None:
            parts_j = None
            continue
        for name, value_j in known_j.items():
            parts_j[meter, name] = parts_j.get((meter, name), 0.0) + value_j
    energy_j, whole_j = _sum(joules), _sum(wholes_j)
    if energy_j is None or energy_j <= 0:
        return _Stated(meters=frozenset(meters), whole=None, parts=None)
    return _Stated(
        meters=frozenset(meters),
        whole=None if whole_j is None else whole_j / energy_j,
        parts=parts_j and {key: value_j / energy_j for key, value_j in parts_j.items()},
    )


def _known_parts_j(
    parts_j: Mapping[str, float], whole_j: float | None
) -> Mapping[str, float] | None:
    """Return the parts of an uncertainty, ``None`` if more than the gain is unknown.

    An uncertainty without parts is a part of its own. If there is no total, what the meter states
    is unknown; without ``noise``, so is the rest.
    """
    if not parts_j and whole_j is not None:
        return {_WHOLE: whole_j}
    return None if whole_j is None and _NOISE not in parts_j else parts_j


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None
