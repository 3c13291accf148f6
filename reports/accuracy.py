"""How far the energies of two arms may be off against each other, by what their records state.

More runs make a mean sharper and a sensor no better: an error of gain is the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wattload.core.power import Scope
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.run import RunRecord
from wattload.reports.energy import ALL_PHASES
from wattload.reports.memo import once_each
from wattload.reports.phases import leading

_GAIN, _STEP = "gain", "quantisation"
"""Parts of a stated uncertainty: a share of the reading, and the step of readings."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """What two arms' energies may be apart by, as a share, though nothing differs.

    It is the sum of what the arms' records state at k = 2. Where ``reason`` says what is not
    stated, ``share`` is 0 and nothing may be called.
    """

    share: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Stated:
    """What a run states of one energy: from which instruments, how exact, as shares of it.

    An instrument is a host, a device and a source. ``but_gain`` leaves out the gain.
    """

    instruments: frozenset[tuple[str, str, str]]
    whole: float | None
    but_gain: float | None


def accuracy(arms: Sequence[Sequence[RunRecord]], phase: str) -> Accuracy:
    """Return how far the energies of a phase are known against each other, over all runs of arms.

    One device read by one source in every run of both arms has one gain, which leaves their ratio
    as it is: then the other parts count alone. Each arm counts with the run that states most.
    """
    stated = [[each[phase] for each in map(_stated, runs) if phase in each] for runs in arms]
    if not all(stated):
        return Accuracy()
    instruments = {each.instruments for of_arm in stated for each in of_arm}
    is_one = len(instruments) == 1
    shares = [[each.but_gain if is_one else each.whole for each in of_arm] for of_arm in stated]
    known = [[share for share in of_arm if share is not None] for of_arm in shares]
    if known != shares:
        part = "resolution" if is_one else "accuracy"
        return Accuracy(reason=f"sensor {part} not stated, so nothing says what is a difference")
    return Accuracy(share=sum(max(of_arm) for of_arm in known))


@once_each
def _stated(record: RunRecord) -> Mapping[str, _Stated]:
    """Return what a run states of the energy of each leading phase, and of all of them."""
    parts = {phase.name: list(_chosen(record, phase.name)) for phase in leading(record)}
    every = [part for of_phase in parts.values() for part in of_phase]
    found = {phase: _of(of_phase) for phase, of_phase in parts.items() if of_phase}
    return {**found, ALL_PHASES: _of(every)} if every else found


def _chosen(record: RunRecord, phase: str) -> Iterator[EnergyRecord]:
    for part in record.power.energy:
        if part.phase == phase and part.chosen and part.scope is Scope.DRIVE:
            yield part


def _of(parts: Sequence[EnergyRecord]) -> _Stated:
    """Return what several energies state together: their uncertainties add at their worst."""
    energy_j = _sum([part.energy_j for part in parts])
    return _Stated(
        instruments=frozenset((part.host, part.device, part.source) for part in parts),
        whole=_share(_sum([part.uncertainty_j for part in parts]), energy_j),
        but_gain=_share(_sum([_but_gain_j(part) for part in parts]), energy_j),
    )


def _but_gain_j(part: EnergyRecord) -> float | None:
    """Return an energy's uncertainty without its gain; all of it where no parts are told.

    Parts add in quadrature. Without a total some part is not known: the gain, or the step too.
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
