"""Statistics of arms: the unit is the run, effects are ratios, intervals stand on the log scale."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MINIMUM_RUNS = 5
"""Fewer runs per arm decide nothing: with 3 the median lies in [min, max] in 75 % of cases only."""

FLOOR = 0.01
"""An effect under 1 % is never called, however narrow its interval."""

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One figure over the runs of an arm. ``cv`` is the sample standard deviation over the mean."""

    count: int
    median: float
    minimum: float
    maximum: float
    cv: float | None


def spread(values: Sequence[float]) -> Spread | None:
    """Return the spread of one value or more; ``None`` for none."""
    if not values:
        return None
    mean = statistics.fmean(values)
    has_cv = len(values) > 1 and mean != 0
    return Spread(
        count=len(values),
        median=statistics.median(values),
        minimum=min(values),
        maximum=max(values),
        cv=statistics.stdev(values) / abs(mean) if has_cv else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """B against A as ratios. ``lower`` and ``upper`` are the 95 % interval, where there is one.

    ``ratio`` is of medians; the interval is Welch's t interval on the logarithms, so of the ratio
    of geometric means. ``floor`` is the least effect that may be called.
    """

    ratio: float
    count_a: int
    count_b: int
    lower: float | None
    upper: float | None
    floor: float

    @property
    def enough(self) -> bool:
        """Whether both arms have the runs that a call needs."""
        return min(self.count_a, self.count_b) >= MINIMUM_RUNS

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 1, on the medians' side, and the effect beats the floor."""
        if self.lower is None or self.upper is None:
            return False
        excludes = self.upper < 1 if self.ratio < 1 else self.lower > 1
        return excludes and abs(math.log(self.ratio)) > math.log1p(self.floor)


def effect(a: Sequence[float], b: Sequence[float]) -> Effect | None:
    """Return B's figures over A's; values are in the order in which the runs were made.

    ``None`` when an arm is empty or has a figure that is not positive: ratios need both.
    """
    if not a or not b or min(*a, *b, math.inf) <= 0:
        return None
    lower, upper = _interval(a, b)
    return Effect(
        ratio=statistics.median(b) / statistics.median(a),
        count_a=len(a),
        count_b=len(b),
        lower=lower,
        upper=upper,
        floor=max(FLOOR, drift(a), drift(b)),
    )


def _interval(a: Sequence[float], b: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % interval of B over A, by Welch (1947) on log values.

    Degrees of freedom by Welch and Satterthwaite. ``None`` under ``MINIMUM_RUNS`` per arm.
    """
    if min(len(a), len(b)) < MINIMUM_RUNS:
        return None, None
    from scipy.special import stdtrit

    log_a, log_b = [math.log(value) for value in a], [math.log(value) for value in b]
    centre = statistics.fmean(log_b) - statistics.fmean(log_a)
    part_a = statistics.variance(log_a) / len(a)
    part_b = statistics.variance(log_b) / len(b)
    error = math.sqrt(part_a + part_b)
    if error == 0:
        return math.exp(centre), math.exp(centre)
    freedom = (part_a + part_b) ** 2 / (part_a**2 / (len(a) - 1) + part_b**2 / (len(b) - 1))
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return math.exp(centre - half), math.exp(centre + half)


def drift(values: Sequence[float]) -> float:
    """Return how far an arm is from itself: its later half of runs against its earlier half.

    An effect smaller than what an arm shows against itself is no effect. 0 under 2 runs.
    """
    half = len(values) // 2
    if half == 0:
        return 0.0
    ratio = statistics.median(values[-half:]) / statistics.median(values[:half])
    return math.exp(abs(math.log(ratio))) - 1
