"""Holm's step-down for several comparisons: what confidence each of them has to reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Demand:
    """What one of ``family`` comparisons has to reach, and its p value after Holm."""

    confidence: float
    p_value: float
    family: int


def demands(p_values: Sequence[float]) -> tuple[Demand, ...]:
    """Return each comparison's demand, in the order given, by Holm (1979).

    The k-th smallest of m p values is held against 0.05 / (m - k + 1), which is whether an interval
    of the confidence 1 - 0.05 / (m - k + 1) excludes 1. From the first that fails on, all have the
    confidence that it had. So the chance of one false call or more in the family is 5 % at most,
    however its comparisons hang together.
    """
    alpha, count = 1 - CONFIDENCE, len(p_values)
    found: dict[int, Demand] = {}
    adjusted, share, failed = 0.0, alpha, False
    for place, index in enumerate(sorted(range(count), key=lambda each: p_values[each])):
        left = count - place
        adjusted = max(adjusted, min(1.0, left * p_values[index]))
        if not failed:
            share = alpha / left
            failed = p_values[index] >= share
        found[index] = Demand(confidence=1 - share, p_value=adjusted, family=count)
    return tuple(found[index] for index in range(count))
