"""The sensor of a power source in one line for people, such as ``1.02 s mean, 0.87 s late``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime

from wattload.core.power import Scope
from wattload.core.record.energy import CalibrationRecord, PowerSection, SensorRecord

_LEAST_MEAN_S = 0.15
"""Shorter means are those between two reads."""
_LEAST_DELAY_S = 0.01
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def sensor_text(sensor: SensorRecord, age_s: float | None = None) -> str:
    """Return what a sensor shows and how late, and how that is known.

    ``age_s`` is how long before its use the sensor was calibrated, ``None`` if at that time.
    """
    window_s = _window_s(sensor.kappa_s, sensor.update_s)
    parts = [f"{window_s:.2f} s mean" if window_s > _LEAST_MEAN_S else "instant"]
    if sensor.update_s:
        parts.append(f"updated every {sensor.update_s:.2g} s")
    if abs(sensor.tau_s) >= _LEAST_DELAY_S:
        parts.append(f"{delay_text(sensor)} late")
    if sensor.fall_later_s:
        parts.append(f"falls {sensor.fall_later_s:.2f} s later than it rises")
    if sensor.basis == "calibrated":
        parts.append("calibrated" if age_s is None else f"calibrated {_age_text(age_s)} before")
    else:
        reason = sensor.reason.removeprefix("not calibrated: ")
        parts.append(f"as declared, not calibrated: {reason}" if reason else "as declared")
    return ", ".join(parts)


def delay_text(sensor: SensorRecord) -> str:
    """Return the mean time by which readings are late: as calibrated, with U, else as declared."""
    if sensor.basis != "calibrated":
        return f"{sensor.tau_s:.2f} s"
    decimals = 2 if sensor.tau_uncertainty_s >= _LEAST_DELAY_S else 3
    return f"{sensor.tau_s:.{decimals}f} ± {sensor.tau_uncertainty_s:.{decimals}f} s"


def meter_lines(section: PowerSection, started_utc: str) -> Iterator[str]:
    """Yield a line for each meter of a drive that a run used, which began at ``started_utc``."""
    for source in section.sources:
        facts, sensor = source.facts, source.sensor
        if not source.used or facts is None or sensor is None or facts.scope is not Scope.DRIVE:
            continue
        found = section.calibration_of(source)
        before_s = age_s(found, started_utc) if found is not None else None
        yield f"{facts.name}: {sensor_text(sensor, before_s)}"


def age_s(record: CalibrationRecord, utc: str) -> float | None:
    """Return how many seconds before a time a calibration was made; ``None`` if not before."""
    seconds = (datetime.fromisoformat(utc) - datetime.fromisoformat(record.utc)).total_seconds()
    return seconds if seconds > 0 else None


def _window_s(kappa_s: float, update_s: float) -> float:
    """Return the window of a mean with this ``kappa_s`` that is updated every ``update_s``.

    A mean over w held for u has kappa = w / 8 + u^2 / (24 w), if w is the longer.
    """
    square = (8 * kappa_s) ** 2 - 4 / 3 * update_s**2
    return (8 * kappa_s + math.sqrt(square)) / 2 if square > 0 else 0.0


def _age_text(seconds: float) -> str:
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    if seconds < 2 * _DAY_S:
        return f"{seconds / _HOUR_S:.0f} h"
    return f"{seconds / _DAY_S:.0f} days"
