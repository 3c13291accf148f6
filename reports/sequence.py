"""What drifts: within an arm, and between arms that ran one after the other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Began = tuple[Sequence[float], Sequence[float]]
"""When the runs of A and of B began, in seconds since one moment."""

REACH = 4.0
"""A drift is carried on over so many times what the longer arm took from first to last start."""

_IN_SEQUENCE = 0.75
_CONFIDENCE = 0.95
_LARGEST = 700.0


@dataclass(frozen=True, slots=True)
class Between:
    """What lies between arms in time.

    ``share`` is what drift may have carried the arms apart by, 0.02 for 2 % either way: 0 where
    they mixed. ``words`` says so, and what is not known; it is empty where they mixed. Where
    nothing tells what it may be, it ``is_unknown``, and nothing is called.
    """

    share: float = 0.0
    words: str = ""
    is_unknown: bool = False


UNDATED = Between(
    words="when the arms ran can't be told: drift between them is not known", is_unknown=True
)
_IN_TURN = "arms ran one after the other: drift between them is not known"
_UNKNOWN = Between(words=_IN_TURN, is_unknown=True)
_BEYOND = f"{_IN_TURN} beyond {REACH:g} times as long as an arm took"
_CARRIED = "arms ran one after the other: what drifts within them may have parted them"


def first_arm(began_a_s: Sequence[float], began_b_s: Sequence[float]) -> Literal["A", "B", ""]:
    """Return which arm ran before the other; empty where their runs mixed.

    It did where of more than three quarters of all pairs of one run of A and one of B it began
    first: a run or two of a long arm that came late make no mixture.

    Args:
        began_a_s: when the runs of A began, one or more, in seconds since any moment.
        began_b_s: when those of B did, since the same moment.
    """
    signs = [(a < b) + 0.5 * (a == b) for a in began_a_s for b in began_b_s]
    share = statistics.fmean(signs)
    if share > _IN_SEQUENCE:
        return "A"
    return "B" if share < 1 - _IN_SEQUENCE else ""


def between(
    a: Sequence[float],
    b: Sequence[float],
    began_a_s: Sequence[float],
    began_b_s: Sequence[float],
) -> Between:
    """Return what drift may have carried arms apart by that did not take turns.

    It is the drift within the arms, one slope of the logs over time for both by least squares, at
    the far end of its 95 % interval (Student's t), carried on over the time between the arms'
    centres: that few runs happened to keep level is no proof of calm.

    Args:
        a: figures of A, positive and finite.
        b: figures of B.
        began_a_s: when the runs of A began, in seconds since any moment.
        began_b_s: when those of B did, since the same moment.
    """
    if len({*began_a_s, *began_b_s}) == 1:
        return UNDATED
    if not first_arm(began_a_s, began_b_s):
        return Between()
    slope_per_s = _steepest(((began_a_s, a), (began_b_s, b)))
    if slope_per_s is None:
        return _UNKNOWN
    apart_s = abs(statistics.fmean(began_a_s) - statistics.fmean(began_b_s))
    reach_s = REACH * max(max(began) - min(began) for began in (began_a_s, began_b_s))
    share = math.expm1(min(_LARGEST, slope_per_s * min(apart_s, reach_s)))
    return Between(share, _BEYOND if apart_s > reach_s else _CARRIED)


def _steepest(arms: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float | None:
    """Return the far end of the slope within arms, in logs per second; ``None`` if none is seen."""
    from scipy.special import stdtrit

    times: list[float] = []
    logs: list[float] = []
    for began_s, values in arms:
        of_arm = [math.log(value) for value in values]
        times += [each - statistics.fmean(began_s) for each in began_s]
        logs += [each - statistics.fmean(of_arm) for each in of_arm]
    freedom, squares = len(times) - len(arms) - 1, math.fsum(each**2 for each in times)
    if freedom < 1 or squares <= 0:
        return None
    slope = math.fsum(x * y for x, y in zip(times, logs, strict=True)) / squares
    rest = math.fsum((y - slope * x) ** 2 for x, y in zip(times, logs, strict=True))
    error = math.sqrt(rest / freedom / squares)
    return abs(slope) + float(stdtrit(freedom, (1 + _CONFIDENCE) / 2)) * error


def drift(values: Sequence[float]) -> float:
    """Return how far an arm is from itself: its later half of runs against its earlier half.

    An effect smaller than what an arm shows against itself is no effect. 0 under 2 runs.
    """
    half = len(values) // 2
    if half == 0:
        return 0.0
    ratio = statistics.median(values[-half:]) / statistics.median(values[:half])
    return math.exp(abs(math.log(ratio))) - 1
