"""Steady state by SNIA's Solid State Storage Performance Test Specification (PTS) 2.0.2.

Section 2.1.24: over a measurement window of five rounds of one minute each, the tracked variable
ranges over at most 20 % of its average, and its least-squares line rises or falls by at most 10 %
of that average from the first round to the last.

A workload that runs until steady state stops by this rule. The check ``steady_<phase>`` of a record
(:func:`wattload.core.checks.conditions.halves_agree`) is another one: it compares two halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROUND_S = 60
"""Seconds of a round (PTS section 7: each test point runs for one minute)."""

WINDOW_ROUNDS = 5
RANGE_LIMIT = 0.20
SLOPE_LIMIT = 0.10
MINIMUM_S = ROUND_S * WINDOW_ROUNDS
"""Seconds of work that the first measurement window needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementWindow:
    """Five consecutive rounds, starting at round ``first`` (from 0), and how far they spread.

    ``range_fraction`` is (maximum - minimum) / average. ``excursion_fraction`` is
    abs(slope per round) x 4 / average: what the fitted line covers from the first round to the
    fifth. Both are infinite if the average is not positive.
    """

    first: int
    average: float
    slope_per_round: float
    range_fraction: float
    excursion_fraction: float

    @property
    def is_steady(self) -> bool:
        """Whether both conditions hold; the limits themselves are allowed."""
        return self.range_fraction <= RANGE_LIMIT and self.excursion_fraction <= SLOPE_LIMIT

    def fitted(self, place: int) -> float:
        """Return the fitted line at a round of the window, ``place`` from 0 to 4."""
        return self.average + self.slope_per_round * (place - (WINDOW_ROUNDS - 1) / 2)


def measurement_window(rounds: Sequence[float] | NDArray[np.float64]) -> MeasurementWindow | None:
    """Return the first steady window of ``rounds``, or the last window if none is steady.

    ``rounds`` has one value of the tracked variable per round, in order, shape (n,). With fewer
    than five rounds there is no window and the result is ``None``.
    """
    window = None
    for first in range(len(rounds) - WINDOW_ROUNDS + 1):
        values = np.asarray(rounds[first : first + WINDOW_ROUNDS], dtype=np.float64)
        average = float(values.mean())
        slope = float(np.polynomial.polynomial.polyfit(np.arange(WINDOW_ROUNDS), values, 1)[1])
        window = MeasurementWindow(
            first=first,
            average=average,
            slope_per_round=slope,
            range_fraction=float(np.ptp(values)) / average if average > 0 else np.inf,
            excursion_fraction=(
                abs(slope) * (WINDOW_ROUNDS - 1) / average if average > 0 else np.inf
            ),
        )
        if window.is_steady:
            break
    return window
