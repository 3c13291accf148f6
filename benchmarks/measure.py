"""Interleaved measuring, and what may be said of it: medians, 95 % intervals, a noise floor.

A machine's disk and memory speed drift while a benchmark runs, so two ways are compared only within
a round, and the order of the ways turns from round to round. The same command against itself tells
how well a ratio can be known here at all.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar

Figure = TypeVar("Figure")

PAIRS = 9
"""Rounds by default: the fewest whose 95 % interval leaves out the lowest and the highest value."""
LEAST_PAIRS = 7
CONFIDENCE = 0.95
TOLERANCE = 0.03
"""How far the interval may reach past a goal: as it stands for ratios, else as a share of it."""
NOISE_LIMIT = 0.02


class NotMeasuredError(Exception):
    """A benchmark can't be made here; the message says why and what would mend it."""


class Verdict(StrEnum):
    """What may be said of a figure and its goal."""

    MET = "met"
    MISSED = "missed"
    WIDE = "missed: the median reaches it, its interval does not"
    NOISY = "not resolvable here"
    MISSING = "not measured"
    FEW = "too few pairs to say"
    NONE = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """A range that holds a median with a probability of at least ``coverage``."""

    low: float
    high: float
    coverage: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds(Generic[Figure]):
    """Figures of several ways, round by round, and the order in which they were taken."""

    figures: Mapping[str, Sequence[Figure]]
    order: Sequence[Sequence[str]]

    def ratios(self, of: Callable[[Figure], float], upper: str, lower: str) -> list[float]:
        """Return ``of`` one way ÷ ``of`` another, within each round.

        Raises ``NotMeasuredError`` where the other one is 0: it was too little to be counted.
        """
        if not all(of(figure) for figure in self.figures[lower]):
            raise NotMeasuredError(f"a figure of {lower} is 0, too little to be counted")
        pairs = zip(self.figures[upper], self.figures[lower], strict=True)
        return [of(high) / of(low) for high, low in pairs]

    def values(self, of: Callable[[Figure], float]) -> dict[str, list[float]]:
        """Return ``of`` every figure, by way."""
        return {way: [of(figure) for figure in taken] for way, taken in self.figures.items()}

    def as_json(self, plain: Callable[[Figure], Any]) -> dict[str, Any]:
        """Return all figures as plain data, each as ``plain`` has it, and their order."""
        figures = {way: [plain(figure) for figure in taken] for way, taken in self.figures.items()}
        return {"figures": figures, "order": self.order}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came out of one benchmark.

    ``values`` are judged by their median: ratios of two ways within a round, or the measured
    quantity itself. Without a ``goal`` they inform. ``noise`` holds the ratios of the yardstick to
    itself in the same rounds. ``figures`` are the measured quantities by way, in ``unit``,
    ``order`` is that in which they were taken, ``raw`` all that each run said, trials for the best
    settings included. With ``missing`` there are no values.
    """

    name: str
    unit: str
    goal: float | None = None
    sense: Literal["at_least", "at_most"] = "at_least"
    values: Sequence[float] = ()
    value_unit: str = "x"
    noise: Sequence[float] = ()
    figures: Mapping[str, Sequence[float]] = field(default_factory=dict)
    order: Sequence[Sequence[str]] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    missing: str | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the median."""
        return interval(self.values)

    @property
    def noise_floor(self) -> float | None:
        """Half the interval of the yardstick against itself; ``None`` where that was not run."""
        return interval(self.noise).half_width if self.noise else None

    @property
    def reaches(self) -> Verdict:
        """What median and interval say, whatever the noise floor is."""
        if self.goal is None:
            return Verdict.NONE
        slack = TOLERANCE if self.value_unit == "x" else TOLERANCE * self.goal
        sign = 1 if self.sense == "at_least" else -1
        bound = self.interval.low if self.sense == "at_least" else self.interval.high
        if sign * (self.median - self.goal) < 0:
            return Verdict.MISSED
        return Verdict.MET if sign * (bound - self.goal) >= -slack else Verdict.WIDE

    @property
    def verdict(self) -> Verdict:
        """What may be said: a noise floor over the limit bars both met and missed."""
        if self.missing is not None:
            return Verdict.MISSING
        if self.goal is None:
            return Verdict.NONE
        if len(self.values) < LEAST_PAIRS:
            return Verdict.FEW
        floor = self.noise_floor
        return self.reaches if floor is None or floor <= NOISE_LIMIT else Verdict.NOISY

    def as_json(self) -> dict[str, Any]:
        judged: dict[str, Any] = {"verdict": self.verdict.value, "noise_floor": self.noise_floor}
        if self.values:
            bounds = asdict(self.interval)
            judged |= {"median": self.median, "interval": bounds, "reaches": self.reaches.value}
        return asdict(self) | judged


def interval(values: Sequence[float]) -> Interval:
    """Return the interval of the median by order statistics; exact for any distribution.

    The median lies between the k-th lowest and the k-th highest of n values with probability
    1 - 2 P(Binomial(n, 1/2) < k) (David and Nagaraja, Order Statistics, section 7.1). k is the
    largest for which that is at least 95 %; with 5 values or fewer there is none, and the interval
    from lowest to highest says how sure it is by its ``coverage``.
    """
    ordered = sorted(values)
    count = len(ordered)
    ranks = range(1, count // 2 + 1)
    rank = max((k for k in ranks if _coverage(count, k) >= CONFIDENCE), default=1)
    return Interval(ordered[rank - 1], ordered[count - rank], _coverage(count, rank))


def _coverage(count: int, rank: int) -> float:
    outside = sum(math.comb(count, number) for number in range(rank))
    return max(0.0, 1 - outside / float(2 ** (count - 1)))


def rounds(
    ways: Mapping[str, Callable[[], Figure]], round_count: int, *, warm: bool = False
) -> Rounds[Figure]:
    """Take a figure of each way ``round_count`` times, in rounds whose order turns.

    With ``warm`` each way is first taken once for nothing: fresh memory is slow on a host that
    gives it out page by page.
    """
    if warm:
        for way in ways.values():
            way()
    figures: dict[str, list[Figure]] = {name: [] for name in ways}
    order = [turned(list(ways), number) for number in range(round_count)]
    for names in order:
        for name in names:
            figures[name].append(ways[name]())
    return Rounds(figures=figures, order=order)


def turned(names: Sequence[str], by: int) -> list[str]:
    """Return the names, starting with number ``by`` and going round, backwards every second time.

    With two or three names every order occurs equally often in ``2 x len(names)`` rounds, so that
    none always follows the same other one.
    """
    start = by % len(names)
    order = [*names[start:], *names[:start]]
    return order[::-1] if by // len(names) % 2 else order
