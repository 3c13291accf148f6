"""Effects of B over A.

Spread of an arm, ratio of two arms with or without pairs, and drift within and between arms. The
unit of analysis is the run, effects are ratios, and intervals are computed on the log scale.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from wattload.reports.stats.intervals import (
    CONFIDENCE,
    LARGEST_LOG,
    Demand,
    Estimate,
    Interval,
    bootstrap_interval,
    hull,
    is_without_spread,
    least_p_value,
    paired,
    sign_flip_p_value,
    t_interval,
    t_p_value,
    unpaired,
)

MINIMUM_RUNS = 5
"""Runs per arm for a verdict: of 3, the true median is within [min, max] in only 75 % of cases."""

MINIMUM_PAIRS = 6
"""Pairs for a verdict: by sign flips, 5 that all agree have p = 0.0625, 6 have p = 0.031."""

FLOOR = 0.01
"""An effect below 1 % gets no winner, however narrow its interval."""

MARGIN = 0.03
"""Arms are the same if the whole interval is within 3 % of 1."""

REACH = 4.0
"""A drift is extrapolated over at most this many times the longer arm's first to last start."""

_IN_SEQUENCE = 0.75
Gate = Literal["steady", "noted", "noisy", "unstable"]
_GATES: tuple[tuple[float, Gate], ...] = ((0.02, "steady"), (0.05, "noted"), (0.10, "noisy"))

_IN_TURN = "the arms ran one after the other: drift between them is unknown"
_BEYOND = f"{_IN_TURN} beyond {REACH:g} times the duration of an arm"
_CARRIED = "the arms ran one after the other: drift may explain part of the difference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One figure over the runs of an arm. ``cv`` is the sample standard deviation over the mean."""

    count: int
    median: float
    minimum: float
    maximum: float
    cv: float | None

    @property
    def gate(self) -> Gate | None:
        """The rating of the CV: steady to 2 %, noted to 5 %, noisy to 10 %, unstable above."""
        if self.cv is None:
            return None
        cv = self.cv
        return next((gate for most, gate in _GATES if cv <= most), "unstable")


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


@dataclass(frozen=True, slots=True)
class Pairing:
    """The figures of alternating runs of A and B, in order of their blocks.

    ``pairs`` leaves out pairs whose runs were too far apart in time, which ``parted`` counts.
    ``in_turns`` is whether the runs belong to an alternating session. ``runs`` are the ids of the
    runs of ``pairs``.
    """

    pairs: tuple[tuple[float, float], ...] = ()
    parted: int = 0
    in_turns: bool = False
    runs: frozenset[str] = frozenset()

    @property
    def count(self) -> int:
        """The number of pairs, including those too far apart."""
        return len(self.pairs) + self.parted

    @property
    def enough(self) -> bool:
        return len(self.pairs) >= MINIMUM_PAIRS

    @property
    def few(self) -> bool:
        """Whether alternating runs are too few for a verdict; counting them singly adds nothing."""
        return self.in_turns and self.count < MINIMUM_PAIRS


_ALONE = Pairing()
Began = tuple[Sequence[float], Sequence[float]]
"""When the runs of A and of B began, in seconds since one moment."""


@dataclass(frozen=True, slots=True)
class ArmDrift:
    """Drift between two arms.

    ``share`` is the difference that drift may explain, 0.02 for 2 % either way; it is 0 for arms
    that alternated. ``words`` states it, and what is unknown; it is empty for arms that alternated.
    If the drift ``is_unknown``, there is no verdict.
    """

    share: float = 0.0
    words: str = ""
    is_unknown: bool = False


_MIXED = ArmDrift()
_UNKNOWN = ArmDrift(words=_IN_TURN, is_unknown=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """B against A. ``ratio`` is of geometric means, and so are the intervals.

    ``pairs`` is 0 if runs are not compared in pairs; otherwise the geometric mean is of the ratios
    of the pairs. ``parted`` counts pairs whose runs count singly because of the time between them.
    ``medians`` is the ratio of the medians of
    the arms. ``median_ratio`` is that ratio, or the median of the ratios of the pairs; no verdict
    contradicts it. ``demand`` is set if the effect is one of several comparisons.

    An effect gets a winner only above the largest of ``FLOOR``, ``drift`` (an arm against itself in
    these runs), ``between`` (drift between arms that ran one after the other), ``noise`` (a setting
    against itself in separate sessions, ``None`` if there were none) and ``accuracy`` (the
    uncertainty of the ratio of what the instruments of both arms measured). ``accuracy`` widens
    every interval too.
    """

    ratio: float
    medians: float
    median_ratio: float
    count_a: int
    count_b: int
    pairs: int
    parted: int
    drift: float
    between: ArmDrift
    noise: float | None
    accuracy: float
    estimate: Estimate | None
    demand: Demand | None = None

    @property
    def floor(self) -> float:
        """The smallest effect that can have a winner, as a share."""
        return max(FLOOR, self.drift, self.between.share, self.noise or 0.0, self.accuracy)

    @property
    def floor_of(self) -> str:
        """What sets the floor, in words; empty if it is ``FLOOR``."""
        of = {
            "stated uncertainty of both energies": self.accuracy,
            "A/A runs of one setting": self.noise or 0.0,
            "drift within the arms, extrapolated to the other arm": self.between.share,
            "drift from earlier to later runs": self.drift,
        }
        return next((words for words, share in of.items() if share == self.floor > FLOOR), "")

    @property
    def enough(self) -> bool:
        """Whether there are enough runs, or pairs, for a verdict."""
        return self.estimate is not None

    @property
    def t(self) -> Interval | None:
        """The 95 % interval by Student's t."""
        return self._interval(t_interval, CONFIDENCE)

    @property
    def bootstrap(self) -> Interval | None:
        """The 95 % interval by BCa bootstrap, for 10 or more runs per arm or pairs."""
        return self._interval(bootstrap_interval, CONFIDENCE)

    def _interval(
        self, by: Callable[[Estimate, float], Interval | None], confidence: float
    ) -> Interval | None:
        found = by(self.estimate, confidence) if self.estimate else None
        return found.widened(self.accuracy) if found else None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval that is shown: the hull of the t and the bootstrap interval."""
        found = [each for each in (self.t, self.bootstrap) if each is not None]
        return hull(found) if found else None

    @property
    def lower(self) -> float | None:
        return self.interval.lower if self.interval else None

    @property
    def upper(self) -> float | None:
        return self.interval.upper if self.interval else None

    @property
    def p_value(self) -> float | None:
        """The two-sided p value by t of a difference above ``accuracy``, before Holm."""
        return t_p_value(self.estimate, self.accuracy) if self.estimate else None

    @property
    def p_value_sign_flips(self) -> float | None:
        return sign_flip_p_value(self.estimate) if self.estimate else None

    @property
    def least_p_value(self) -> float | None:
        """The smallest p value that runs without spread can have; ``None`` if they have spread."""
        if self.estimate is None or not is_without_spread(self.estimate):
            return None
        return least_p_value(self.estimate)

    @property
    def disagrees(self) -> bool:
        """Whether t and bootstrap conclude differently, or an end differs by 10 % of t's width."""
        if self.bootstrap is None or self.t is None:
            return False
        pair = (self.t, self.bootstrap)
        if len({(each.excludes_one(), each.within(MARGIN)) for each in pair}) > 1:
            return True
        width = math.log(self.t.upper / self.t.lower)
        ends = zip(*pair, strict=True)
        return any(abs(math.log(one / other)) > width / 10 for one, other in ends)

    @property
    def demanded(self) -> tuple[Interval, ...]:
        """The deciding intervals, t and bootstrap, at the confidence that Holm requires."""
        found = (self._interval(by, self.confidence) for by in (t_interval, bootstrap_interval))
        return tuple(each for each in found if each is not None)

    @property
    def confidence(self) -> float:
        """The confidence required, as a share: by Holm, or 0.95 for a single comparison."""
        return self.demand.confidence if self.demand else CONFIDENCE

    @property
    def decides(self) -> bool:
        """Whether there are intervals, and enough runs to decide if the runs have no spread."""
        least = self.least_p_value
        return self.enough and (least is None or least < 1 - self.confidence)

    @property
    def excludes_one(self) -> bool:
        """Whether all deciding intervals exclude 1, on the same side as ``median_ratio``."""
        sure = self.decides and all(each.excludes_one() for each in self.demanded)
        return sure and self.median_ratio != 1 and (self.ratio < 1) == (self.median_ratio < 1)

    @property
    def beats_floor(self) -> bool:
        return abs(math.log(self.ratio)) > math.log1p(self.floor)

    @property
    def differs(self) -> bool:
        """Whether the arms differ: intervals that exclude 1, and an effect above the floor."""
        return self.excludes_one and self.beats_floor

    @property
    def same(self) -> bool:
        """Whether the arms are shown to be within ``MARGIN`` of each other, and do not differ.

        All deciding intervals must be within the margin after widening by ``hidden``. Noisier runs
        than the margin can't show it.
        """
        wide = [each.widened(self.hidden) for each in self.demanded]
        is_shown = self.decides and all(each.within(MARGIN) for each in wide)
        return is_shown and self.floor <= MARGIN and not self.differs

    @property
    def is_near(self) -> bool:
        """Whether all deciding intervals are within ``MARGIN`` of 1."""
        return self.enough and all(each.within(MARGIN) for each in self.demanded)

    @property
    def hidden(self) -> float:
        """The error that all runs may share: it can separate equal arms, or hide a difference."""
        return max(self.between.share, self.noise or 0.0)


def effect(
    a: Sequence[float],
    b: Sequence[float],
    *,
    pairing: Pairing = _ALONE,
    noise: float | None = None,
    accuracy: float = 0.0,
    began: Began | None = None,
) -> Effect | None:
    """Return the figures of B over those of A; values are in the order of the runs.

    Args:
        a: the valid runs of A.
        b: the valid runs of B.
        pairing: alternating runs of A and B, used from ``MINIMUM_PAIRS`` pairs on. Alternating runs
            with fewer pairs have no interval.
        noise: the share by which a setting differed from itself; ``None`` if unknown. Drift from
            the earlier to the later runs of an arm, or pairs, raises the floor as well.
        accuracy: the share by which equal figures of A and B may differ in the instruments.
        began: when the runs of A and of B began, in seconds; ``None`` if irrelevant.

    ``None`` if an arm is empty or has a figure that is not positive and finite: ratios need both.
    """
    if not a or not b or not all(0 < value < math.inf for value in (*a, *b)):
        return None
    ratios = [y / x for x, y in pairing.pairs] if pairing.enough else []
    estimate = _estimate(a, b, pairing)
    medians = statistics.median(b) / statistics.median(a)
    centre = estimate.centre if estimate else mean_log(b) - mean_log(a)
    return Effect(
        ratio=math.exp(centre),
        medians=medians,
        median_ratio=statistics.median(ratios) if ratios else medians,
        count_a=len(a),
        count_b=len(b),
        pairs=len(ratios),
        parted=0 if ratios else pairing.parted,
        drift=drift(ratios) if ratios else max(drift(a), drift(b)),
        between=between(a, b, *began) if began and estimate and not ratios else _MIXED,
        noise=noise,
        accuracy=accuracy,
        estimate=estimate,
    )


def _estimate(a: Sequence[float], b: Sequence[float], pairing: Pairing) -> Estimate | None:
    """Return the effect of pairs if there are enough, otherwise of single runs."""
    if pairing.enough:
        return paired(pairing.pairs)
    if pairing.few or min(len(a), len(b)) < MINIMUM_RUNS:
        return None
    return unpaired(a, b)


def mean_log(values: Sequence[float]) -> float:
    """Return the mean of the logs of positive values: the log of their geometric mean."""
    return statistics.fmean(math.log(value) for value in values)


def first_arm(began_a_s: Sequence[float], began_b_s: Sequence[float]) -> Literal["A", "B", ""]:
    """Return which arm ran before the other; empty if their runs alternated.

    An arm ran first if it began first in more than three quarters of all pairs of one run of A and
    one of B. A late run or two of a long arm do not count as alternation.

    Args:
        began_a_s: start times of the runs of A, one or more, in seconds since any moment.
        began_b_s: start times of the runs of B, since the same moment.
    """
    later = sorted(began_b_s)
    # Twice the pairs in which A began first; a tie counts half. There may be a million pairs.
    doubled = sum(
        2 * len(later) - bisect_left(later, began_s) - bisect_right(later, began_s)
        for began_s in began_a_s
    )
    share = doubled / (2 * len(began_a_s) * len(later))
    if share > _IN_SEQUENCE:
        return "A"
    return "B" if share < 1 - _IN_SEQUENCE else ""


def between(
    a: Sequence[float],
    b: Sequence[float],
    began_a_s: Sequence[float],
    began_b_s: Sequence[float],
) -> ArmDrift:
    """Return the difference that drift may explain between arms that did not alternate.

    The slope within the arms, one for both, is fitted to the logs over time by least squares. The
    far end of its 95 % interval (Student's t) is extrapolated over the time between the centres of
    the arms. The far end is used because a few level runs do not prove that nothing drifts.

    Args:
        a: figures of A, positive and finite.
        b: figures of B.
        began_a_s: start times of the runs of A, in seconds since any moment.
        began_b_s: start times of the runs of B, since the same moment.
    """
    if len({*began_a_s, *began_b_s}) == 1:
        return _UNKNOWN
    if not first_arm(began_a_s, began_b_s):
        return ArmDrift()
    slope_per_s = _steepest(((began_a_s, a), (began_b_s, b)))
    if slope_per_s is None:
        return _UNKNOWN
    apart_s = abs(statistics.fmean(began_a_s) - statistics.fmean(began_b_s))
    reach_s = REACH * max(max(began) - min(began) for began in (began_a_s, began_b_s))
    share = math.expm1(min(LARGEST_LOG, slope_per_s * min(apart_s, reach_s)))
    return ArmDrift(share, _BEYOND if apart_s > reach_s else _CARRIED)


def _steepest(arms: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float | None:
    """Return the far end of the slope within arms, in logs per second; ``None`` if unknown."""
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
    return abs(slope) + float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error


def drift(values: Sequence[float]) -> float:
    """Return how much an arm changed: the later half of its runs against the earlier half.

    A smaller effect than this is not significant. It is 0 for fewer than 2 runs.
    """
    half = len(values) // 2
    if half == 0:
        return 0.0
    ratio = statistics.median(values[-half:]) / statistics.median(values[:half])
    return math.exp(abs(math.log(ratio))) - 1
