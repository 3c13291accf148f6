"""Statistics of arms: the unit is the run, effects are ratios, intervals stand on the log scale."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wattload.reports.holm import CONFIDENCE, Demand
from wattload.reports.intervals import (
    Estimate,
    Interval,
    bootstrap_interval,
    hull,
    is_without_spread,
    least_p_value,
    paired,
    t_interval,
    t_p_value,
    unpaired,
)
from wattload.reports.pairing import Pairing
from wattload.reports.sequence import UNDATED, Began, Between, between, drift

MINIMUM_RUNS = 5
"""Fewer runs per arm decide nothing: with 3 the median lies in [min, max] in 75 % of cases only."""

FLOOR = 0.01
"""An effect under 1 % is never called, however narrow its interval."""

MARGIN = 0.03
"""Arms whose whole interval lies within 3 % of 1, up or down, are the same."""

Gate = Literal["steady", "noted", "noisy", "unstable"]
_GATES: tuple[tuple[float, Gate], ...] = ((0.02, "steady"), (0.05, "noted"), (0.10, "noisy"))


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
        """What the CV says: to 2 % steady, to 5 % noted, to 10 % noisy, above it unstable."""
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


_ALONE = Pairing()
_MIXED = Between()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """B against A. ``ratio`` is of geometric means, and so are the intervals; ``None`` under n.

    ``pairs`` is 0 where runs are not compared in pairs; where they are, the geometric mean is of
    the pairs' ratios. ``parted`` counts pairs that are judged as single runs for the time between
    them, ``undated`` those of them whose times can't be read. ``medians`` is the ratio of the
    medians of the arms. No call goes against ``middle``, which is that ratio, or the median of the
    pairs' ratios. ``demand`` is set where the effect is one of several that are called.

    What may be called is above the largest of ``FLOOR``, ``drift`` (an arm against itself in these
    runs), ``between`` (what drift may have parted arms by that ran one after the other), ``noise``
    (a setting against itself in sessions of its own, ``None`` where there was none) and
    ``accuracy`` (what the instruments of both arms may be off by against each other), which widens
    every interval too.
    """

    ratio: float
    medians: float
    middle: float
    count_a: int
    count_b: int
    pairs: int
    parted: int
    undated: int
    drift: float
    between: Between
    noise: float | None
    accuracy: float
    estimate: Estimate | None
    demand: Demand | None = None

    @property
    def floor(self) -> float:
        """The least effect that may be called, as a share."""
        return max(FLOOR, self.drift, self.between.share, self.noise or 0.0, self.accuracy)

    @property
    def floor_of(self) -> str:
        """What sets the floor, in words; empty where nothing raises it."""
        of = {
            "stated uncertainty of both arms' energy": self.accuracy,
            "one setting against itself": self.noise or 0.0,
            "drift within the arms, carried on to the other's time": self.between.share,
            "later runs against earlier ones": self.drift,
        }
        return next((words for words, share in of.items() if share == self.floor > FLOOR), "")

    @property
    def enough(self) -> bool:
        """Whether there are the runs, or the pairs, that a call needs."""
        return self.estimate is not None

    @property
    def t(self) -> Interval | None:
        """The 95 % interval by Student's t."""
        return self._by_t(CONFIDENCE)

    @property
    def bootstrap(self) -> Interval | None:
        """The 95 % interval by BCa bootstrap, from 10 runs per arm or pairs on."""
        return self._by_bootstrap(CONFIDENCE)

    def _by_t(self, confidence: float) -> Interval | None:
        found = t_interval(self.estimate, confidence) if self.estimate else None
        return found.widened(self.accuracy) if found else None

    def _by_bootstrap(self, confidence: float) -> Interval | None:
        found = bootstrap_interval(self.estimate, confidence) if self.estimate else None
        return found.widened(self.accuracy) if found else None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval that is shown: all that t's and the bootstrap's hold together."""
        found = [each for each in (self.t, self.bootstrap) if each is not None]
        return hull(found) if found else None

    @property
    def lower(self) -> float | None:
        """The lower end of the interval that is shown."""
        return self.interval.lower if self.interval else None

    @property
    def upper(self) -> float | None:
        """The upper end of the interval that is shown."""
        return self.interval.upper if self.interval else None

    @property
    def p_value(self) -> float | None:
        """The two-sided p value by t, of no more than ``accuracy`` apart, before Holm."""
        return t_p_value(self.estimate, self.accuracy) if self.estimate else None

    @property
    def least_p_value(self) -> float | None:
        """The least p value that runs without any spread can have; ``None`` where they have one."""
        if self.estimate is None or not is_without_spread(self.estimate):
            return None
        return least_p_value(self.estimate)

    @property
    def disagrees(self) -> bool:
        """Whether t and bootstrap differ in what they say, or by a tenth of t's width at an end."""
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
        """The intervals that decide, t's and the bootstrap's, at the confidence that Holm asks."""
        found = (self._by_t(self.confidence), self._by_bootstrap(self.confidence))
        return tuple(each for each in found if each is not None)

    @property
    def confidence(self) -> float:
        """The confidence that a call has to reach, as a share: Holm's, or that of one call."""
        return self.demand.confidence if self.demand else CONFIDENCE

    @property
    def decides(self) -> bool:
        """Whether there are intervals, and enough runs for them where no run strays."""
        least = self.least_p_value
        return self.enough and (least is None or least < 1 - self.confidence)

    @property
    def excludes_one(self) -> bool:
        """Whether all intervals that decide exclude 1, on the side of the middle run or pair."""
        sure = self.decides and all(each.excludes_one() for each in self.demanded)
        return sure and self.middle != 1 and (self.ratio < 1) == (self.middle < 1)

    @property
    def beats_floor(self) -> bool:
        """Whether the effect is larger than what may be called."""
        return abs(math.log(self.ratio)) > math.log1p(self.floor)

    @property
    def differs(self) -> bool:
        """Whether the arms differ: intervals that exclude 1, and an effect above the floor."""
        return self.excludes_one and self.beats_floor

    @property
    def same(self) -> bool:
        """Whether arms are shown to be no more than ``MARGIN`` apart, and nothing differs.

        All intervals that decide lie within it even if what parts equal arms (``hidden``) is added
        at both ends. Runs whose noise alone may be more than that can't show it.
        """
        wide = [each.widened(self.hidden) for each in self.demanded]
        is_shown = self.decides and all(each.within(MARGIN) for each in wide)
        return is_shown and self.floor <= MARGIN and not self.differs

    @property
    def is_near(self) -> bool:
        """Whether all intervals that decide lie within ``MARGIN`` of 1."""
        return self.enough and all(each.within(MARGIN) for each in self.demanded)

    @property
    def hidden(self) -> float:
        """What may part equal arms, or bring unlike ones together, the same way in every run."""
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
    """Return B's figures over A's; values are in the order in which the runs were made.

    Args:
        a: the valid runs of A.
        b: the valid runs of B.
        pairing: runs of A and B that were made one after the other; used from ``MINIMUM_PAIRS`` on.
            Runs that took turns and have fewer pairs have no interval.
        noise: the share by which a setting was seen to differ from itself; ``None`` if nobody
            looked. What either arm's later runs show against its earlier ones (of pairs: theirs)
            raises the floor beside it.
        accuracy: the share by which the figures of A and B may be apart though nothing differs.
        began: when the runs of A and of B began, in seconds; both empty where that can't be read,
            ``None`` where it does not matter.

    ``None`` when an arm is empty or has a figure that is not positive and finite: ratios need both.
    """
    if not a or not b or not all(0 < value < math.inf for value in (*a, *b)):
        return None
    ratios = [y / x for x, y in pairing.pairs] if pairing.enough else []
    estimate = _estimate(a, b, pairing)
    medians = statistics.median(b) / statistics.median(a)
    centre = estimate.centre if estimate else _mean_log(b) - _mean_log(a)
    return Effect(
        ratio=math.exp(centre),
        medians=medians,
        middle=statistics.median(ratios) if ratios else medians,
        count_a=len(a),
        count_b=len(b),
        pairs=len(ratios),
        parted=0 if ratios else pairing.parted,
        undated=0 if ratios else pairing.undated,
        drift=drift(ratios) if ratios else max(drift(a), drift(b)),
        between=_MIXED if ratios or estimate is None else _between(a, b, began),
        noise=noise,
        accuracy=accuracy,
        estimate=estimate,
    )


def _between(a: Sequence[float], b: Sequence[float], began: Began | None) -> Between:
    if began is None:
        return _MIXED
    return between(a, b, *began) if all(began) else UNDATED


def _estimate(a: Sequence[float], b: Sequence[float], pairing: Pairing) -> Estimate | None:
    """Return the effect of pairs where there are enough, else of runs that took no turns."""
    if pairing.enough:
        return paired(pairing.pairs)
    if pairing.few or min(len(a), len(b)) < MINIMUM_RUNS:
        return None
    return unpaired(a, b)


def _mean_log(values: Sequence[float]) -> float:
    return statistics.fmean(math.log(value) for value in values)
