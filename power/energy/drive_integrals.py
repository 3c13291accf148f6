"""Energies that drives integrate themselves: one mean from start to stop (NVMe feature 25h)."""

from __future__ import annotations

import math
from typing import Any

from wattload.core.base_models import fields_of
from wattload.core.power import Scope, WindowEnergy
from wattload.core.record.energy import WHOLE_RUN, EnergyRecord
from wattload.power.energy.integration import COVERAGE_FACTOR, seconds_of
from wattload.power.energy.trace import refused_energy
from wattload.power.energy.uncertainty import Uncertainty, total

_OF_SAMPLES = (
    *("lower_j", "upper_j", "idle_w", "net_j", "tail_j", "tail_uncertainty_j"),
    *("work_uncertainty_j", "change_count", "statistics"),
)


def own_record(energy: WindowEnergy, scope: Scope, *, host: str) -> EnergyRecord:
    """Return the record of an energy that a device integrated itself over a whole run."""
    seconds = seconds_of([(energy.start_ns, energy.end_ns)])
    why, energy_j, uncovered_s = energy.reason, energy.energy_j, energy.uncovered_s
    if seconds <= 0:
        why = "the window is empty"
    elif energy_j is None:
        why = why or "the device reported no energy"
    else:
        why = refused_energy(energy_j, seconds)
    known_j = None if why else energy_j
    stated = total({}, why) if known_j is None else _uncertainty(energy, known_j, seconds)
    figures: dict[str, tuple[Any, str]] = {
        **dict.fromkeys(_OF_SAMPLES, (None, "the device reports one mean only")),
        "energy_j": (known_j, why),
        "mean_w": (None if known_j is None else known_j / seconds, why),
        "uncertainty_j": (stated.total_j, stated.reason or ""),
        "coverage": (
            None if why or uncovered_s is None else max(0.0, 1 - uncovered_s / seconds),
            why or "the device does not report how much of the time its mean covers",
        ),
        "max_interval_w": (None if why else energy.max_w, why or "the device does not report it"),
    }
    return EnergyRecord(
        host=host,
        device=energy.device,
        source=energy.source,
        scope=scope,
        evidence=energy.evidence,
        phase=WHOLE_RUN,
        start_ns=energy.start_ns,
        end_ns=energy.end_ns,
        seconds=seconds,
        uncertainty_parts_j=stated.parts_j,
        sample_count=1,
        histogram=energy.histogram,
        **fields_of(figures),
    )


def _uncertainty(energy: WindowEnergy, energy_j: float, seconds: float) -> Uncertainty:
    """Return gain, quantisation and gap at k = 2.

    The gap is the possible energy of the seconds that the mean leaves out: their power was between
    0 and the maximum that the device measured.
    """
    parts_j: dict[str, float] = {}
    if energy.accuracy_percent is not None:
        parts_j["gain"] = abs(energy_j) * energy.accuracy_percent / 100
    if energy.resolution_w is not None:
        parts_j["quantisation"] = COVERAGE_FACTOR * energy.resolution_w / math.sqrt(12) * seconds
    mean_w = energy_j / seconds
    if energy.uncovered_s == 0:
        parts_j["gap"] = 0.0
    elif energy.uncovered_s is not None and energy.max_w is not None:
        parts_j["gap"] = max(mean_w, energy.max_w - mean_w) * energy.uncovered_s
    unknown = [name for name in ("gain", "quantisation", "gap") if name not in parts_j]
    reason = f"the {' and '.join(unknown)} uncertainty of {energy.source} is unknown"
    return total(parts_j, reason if unknown else "")
