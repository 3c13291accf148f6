"""From what log 25h says at the ends of a measurement to the energy of the window between them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wattload.core.power import Evidence, PowerBin, WindowEnergy
from wattload.core.units import NS_PER_S
from wattload.power.nvme.measurement import SUBSYSTEM_TOTAL, PowerMeasurementLog

INTERVAL_S = 1.0
"""Length of an interval measurement: that of the SMART log's, taken to be the same here."""

COUNT_TOLERANCE = 1.0
"""How far the count of intervals may be from the seconds that passed."""
CLOCK_TOLERANCE = 2e-4
"""And how far two clocks may drift apart, as a share: it counts only in runs of over an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Log 25h after Start, just before Stop (both without their histogram), and after Stop."""

    begun: PowerMeasurementLog
    running: PowerMeasurementLog
    ended: PowerMeasurementLog

    @property
    def all(self) -> tuple[PowerMeasurementLog, ...]:
        """The three in their order."""
        return self.begun, self.running, self.ended

    @property
    def evidence(self) -> Evidence:
        """Estimated if the drive has said so at any time: evidence never grows."""
        is_estimated = any(log.estimated for log in self.all)
        return Evidence.ESTIMATED if is_estimated else Evidence.SELF_REPORTED

    @property
    def error_percent(self) -> int | None:
        """The largest error that was stated; ``None`` if the end of the measurement states none."""
        if self.ended.error_percent is None:
            return None
        return max(log.error_percent or 0 for log in self.all)


def integrated(
    answers: Answers, *, source: str, device: str, start_ns: int, end_ns: int
) -> WindowEnergy:
    """Return AIPWR times the seconds from Start to Stop, or why that is not the window's energy."""
    log = answers.ended
    seconds = (end_ns - start_ns) / NS_PER_S
    mean_w = log.average.watts
    trouble = _trouble(answers, seconds)
    return WindowEnergy(
        source=source,
        device=device,
        start_ns=start_ns,
        end_ns=end_ns,
        energy_j=None if trouble or mean_w is None else mean_w * seconds,
        evidence=Evidence.NONE if trouble else answers.evidence,
        accuracy_percent=answers.error_percent,
        resolution_w=log.average.step_w,
        uncovered_s=max(0.0, seconds - log.count * INTERVAL_S),
        max_w=log.maximum.watts,
        reason=trouble and f"{source}: {trouble}",
        histogram=() if trouble else _bins(log),
    )


def _trouble(answers: Answers, seconds: float) -> str:
    """Return why the log is not of the window; empty where it is."""
    begun, running, ended = answers.begun, answers.running, answers.ended
    # Both are whole numbers: an interval that is not over has not been counted.
    drift_s = abs(ended.count - math.floor(seconds / INTERVAL_S)) * INTERVAL_S
    troubles = {
        "somebody else has started the drive's measurement anew during the run": (
            {running.generation, ended.generation} != {begun.generation}
        ),
        "the drive's measurement ended before the run did": not running.active,
        f"the drive measured type {ended.measurement_type}, not the whole drive": (
            ended.measurement_type != SUBSYSTEM_TOTAL
        ),
        "the drive's measurement has holes (NCPDF)": not (running.contiguous and ended.contiguous),
        "the drive tells no mean power": ended.average.watts is None,
        f"the drive counted {ended.count} intervals of {INTERVAL_S:g} s in {seconds:.3f} s, so its "
        "mean is of another time": drift_s > max(COUNT_TOLERANCE, CLOCK_TOLERANCE * seconds),
    }
    return next((trouble for trouble, is_so in troubles.items() if is_so), "")


def _bins(log: PowerMeasurementLog) -> tuple[PowerBin, ...]:
    """Return the bins that name their threshold, ascending."""
    found = [
        PowerBin(lower_w=each.lower_w, count=each.count)
        for each in log.histogram or ()
        if each.lower_w is not None
    ]
    return tuple(sorted(found, key=lambda each: each.lower_w))
