"""The choice of the best source of a device, for each phase."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from wattload.core.power import EVIDENCE_RANK, MEASURING, Evidence, Scope
from wattload.core.record.energy import EnergyRecord, SensorRecord


def mark_chosen(
    records: Sequence[EnergyRecord],
    sensors: Mapping[tuple[str, str], SensorRecord | None],
    *,
    takes_declared: bool,
) -> tuple[EnergyRecord, ...]:
    """Return the records, with the best of each window, device and scope marked.

    ``sensors`` are those found, by name and device of the source. Energies of a sensor as declared
    come first, then those of one found other than declared, then of readings that no sensor
    explains; bounds and data sheets are last. Within each of these, an energy with a total
    uncertainty is preferred, the smallest first; then an energy without one, by its evidence and
    the known parts of its uncertainty; then an interval; then an upper bound. A record without a
    figure is never chosen, a data sheet only on request (``takes_declared``).
    """
    groups: defaultdict[tuple[str, int, str, Scope], list[EnergyRecord]] = defaultdict(list)
    for record in records:
        if record.energy_j is None and record.upper_j is None:
            continue
        if takes_declared or record.evidence is not Evidence.DECLARED:
            groups[record.phase, record.start_ns, record.device, record.scope].append(record)
    chosen = {
        id(min(group, key=lambda each: _order(each, sensors.get((each.source, each.device)))))
        for group in groups.values()
    }
    return tuple(
        record.model_copy(update={"chosen": True}) if id(record) in chosen else record
        for record in records
    )


def _order(record: EnergyRecord, sensor: SensorRecord | None) -> tuple[int, int, int, float]:
    """Return the rank of a record: first by its sensor, then by its kind of figure."""
    doubt, strength = _doubt(record, sensor), EVIDENCE_RANK[record.evidence]
    if record.uncertainty_j is not None:
        return doubt, 0, 0, record.uncertainty_j
    if record.energy_j is not None:
        return doubt, 1, strength, math.hypot(*record.uncertainty_parts_j.values())
    if record.lower_j is not None and record.upper_j is not None:
        return doubt, 2, strength, record.upper_j - record.lower_j
    return doubt, 3, strength, record.upper_j or 0.0


def _doubt(record: EnergyRecord, sensor: SensorRecord | None) -> int:
    """Return how little a figure's sensor is trusted, from 0; 3 for what is not measured."""
    if record.energy_j is None or record.evidence not in MEASURING:
        return 3
    if sensor is None or sensor.is_explained:
        return int(sensor is not None and not sensor.is_as_declared)
    return 2
