"""Which of several sources stands for a device in a window."""

from __future__ import annotations

import math
from collections.abc import Iterable

from wattload.core.power import Evidence
from wattload.core.record.energy import EnergyRecord

_LADDER = tuple(Evidence)


def choose(candidates: Iterable[EnergyRecord], *, takes_declared: bool) -> EnergyRecord | None:
    """Return the best of one device's records of one window, ``None`` where none says anything.

    First what has a figure with a stated uncertainty, the smallest first; then a figure without,
    by its evidence and the uncertainty's known parts; then an interval; then an upper bound alone.
    A data sheet is taken only if it was asked for (``takes_declared``).
    """
    allowed = [
        record
        for record in candidates
        if (record.energy_j is not None or record.upper_j is not None)
        and (takes_declared or record.evidence is not Evidence.DECLARED)
    ]
    return min(allowed, key=_order, default=None)


def _order(record: EnergyRecord) -> tuple[int, int, float]:
    strength = _LADDER.index(record.evidence)
    if record.uncertainty_j is not None:
        return 0, 0, record.uncertainty_j
    if record.energy_j is not None:
        return 1, strength, math.hypot(*record.uncertainty_parts_j.values())
    if record.lower_j is not None and record.upper_j is not None:
        return 2, strength, record.upper_j - record.lower_j
    return 3, strength, record.upper_j or 0.0
