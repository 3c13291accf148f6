"""Why an arm has no figure where others have one."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.compare import Quantity
from wattload.reports.energy import Energy, phase_energies, whole
from wattload.reports.quantity import out_of_range

NOT_THERE = "no run has it"


def why_missing(quantity: Quantity, records: Sequence[RunRecord]) -> str:
    """Return why runs have no figure of a quantity, as their records tell it."""
    if not records:
        return "no run"
    reasons = [_reason(quantity, record) for record in records]
    return next((reason for reason in reasons if reason), NOT_THERE)


def _reason(quantity: Quantity, record: RunRecord) -> str:
    if quantity.is_energy:
        total = whole(record)
        energies = [*phase_energies(record), *([total] if total else [])]
        return next((_of(each, quantity) for each in energies if each.phase == quantity.phase), "")
    found = (each for each in record.metrics if each.name == quantity.key)
    return next((each.missing.get("value", "") or out_of_range(each.value) for each in found), "")


def _of(energy: Energy, quantity: Quantity) -> str:
    if quantity.unit is Unit.BYTES_PER_JOULE and energy.upper_j is not None:
        return "its energy is known by bounds only"
    ends = (energy.energy_j, energy.upper_j)
    return energy.reason or next(filter(None, map(out_of_range, ends)), "")
