"""Interleaved comparisons, and what can be said of them: medians, 95 % intervals, a noise floor.

A machine's disk and memory speed drift while a benchmark runs, so two ways are compared only within
a round, and the order of the ways turns from round to round. The yardstick measured against itself
shows how precise a ratio can be here.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Literal

from scipy.stats import binom

from wattload.core.errors import WattloadError

PAIRS = 9
"""Rounds by default: the fewest whose 95 % interval leaves out the lowest and the highest value."""
CONFIDENCE = 0.95
LEAST_PAIRS = 6
"""The fewest rounds whose median has an interval of 95 % (see ``interval``)."""
TOLERANCE = 0.03
"""How far the interval may reach past a goal: absolute for ratios, else as a share of the goal."""
NOISE_LIMIT = 0.02
TRIALS = 5
"""Rounds in which settings are tried; nothing of them is judged."""

Figures = Mapping[str, float]
"""What one run measured, in SI units, by name."""
Way = Callable[[], Figures]


class NotMeasuredError(Exception):
    """A benchmark cannot run here; the message says why and how to fix it."""


UNAVAILABLE = (NotMeasuredError, WattloadError, OSError)
"""Errors that keep rows out of the table, not the rest of a session."""


class Verdict(StrEnum):
    """How a figure compares with its goal."""

    MET = "met"
    MISSED = "missed"
    WIDE = "missed: the median reaches it, its interval does not"
    NOISY = "not resolvable here"
    MISSING = "not measured"
    NONE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table: a figure of the first way, divided by that of the second if there is one.

    ``per`` names a figure of the same run by which ``figure`` is divided. ``unit`` is that of
    ``figure`` times ``scale``. Without a ``goal`` the row informs.
    """

    name: str
    figure: str
    unit: str
    scale: float = 1.0
    per: str | None = None
    goal: float | None = None
    sense: Literal["at_least", "at_most"] = "at_least"

    def value(self, figures: Figures) -> float:
        """Return what the row shows of one run.

        Raises:
            NotMeasuredError: the run has no such figure.
        """
        for name in filter(None, (self.figure, self.per)):
            if name not in figures:
                raise NotMeasuredError(f"the run did not measure {name}")
        value = figures[self.figure] * self.scale
        return value / figures[self.per] if self.per else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One or two ways to do the same work, and the rows that come of it.

    The first way is wattload's, the second the yardstick; with ``noise`` the yardstick is also
    measured against itself. With ``warm`` each way first runs once unmeasured: fresh memory is slow
    on a host that allocates it page by page. With ``rounds`` there are so many, however many pairs
    are requested. ``notes`` may grow while the ways run.
    """

    rows: Sequence[Row]
    ways: Mapping[str, Way]
    warm: bool = False
    noise: bool = True
    rounds: int | None = None
    notes: Sequence[str] = ()

    def measure(self, pairs: int) -> list[Result]:
        """Run all ways in turns and return the result of each row."""
        again = dict(zip(_again(self.ways), list(self.ways.values())[1:], strict=False))
        try:
            ways = {**self.ways, **(again if self.noise else {})}
            runs = rounds(ways, self.rounds or pairs, warm=self.warm)
        except UNAVAILABLE as error:
            return [Result(row=row, missing=str(error)) for row in self.rows]
        return [self._result(row, runs) for row in self.rows]

    def _result(self, row: Row, runs: Mapping[str, Sequence[Figures]]) -> Result:
        upper, *lower = self.ways
        try:
            values = {way: [row.value(figures) for figures in runs[way]] for way in runs}
        except NotMeasuredError as error:
            return Result(row=row, missing=str(error))
        if lower and not all(values[lower[0]]):
            return Result(row=row, missing=f"{row.figure} of {lower[0]} is 0")

        def ratios(way: str) -> Sequence[float]:
            pairs = zip(values[way], values[lower[0]], strict=True)
            return [high / low for high, low in pairs]

        return Result(
            row=row,
            values=ratios(upper) if lower else values[upper],
            is_ratio=bool(lower),
            noise=[value for way in _again(self.ways) if way in runs for value in ratios(way)],
            measured={way: values[way] for way in self.ways},
            runs=runs,
            notes=tuple(self.notes),
        )


def absent(name: str, reason: str) -> Comparison:
    """Return a comparison that cannot be made, for the table."""

    def run() -> Figures:
        raise NotMeasuredError(reason)

    return Comparison(rows=(Row(name=name, figure="", unit=""),), ways={name: run})


def _again(ways: Mapping[str, Way]) -> list[str]:
    return [f"{way} again" for way in list(ways)[1:]]


@dataclass(frozen=True, slots=True)
class Interval:
    """A range that contains the median with a probability of at least ``coverage``."""

    low: float
    high: float
    coverage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a row came to.

    ``values`` are judged by their median: ratios within a round, or the measured quantity.
    ``noise`` has the ratios of the yardstick to itself, ``measured`` the row's figure by way, and
    ``runs`` all figures of every run. With ``missing`` there are none.
    """

    row: Row
    values: Sequence[float] = ()
    is_ratio: bool = False
    noise: Sequence[float] = ()
    measured: Mapping[str, Sequence[float]] | None = None
    runs: Mapping[str, Sequence[Figures]] | None = None
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
        """Half the interval of the yardstick against itself; ``None`` if that was not measured."""
        if not self.noise:
            return None
        bounds = interval(self.noise)
        return (bounds.high - bounds.low) / 2

    @property
    def verdict(self) -> Verdict:
        """The verdict; with a noise floor over the limit it is neither met nor missed."""
        goal = self.row.goal
        if self.missing is not None:
            return Verdict.MISSING
        if goal is None:
            return Verdict.NONE
        if (self.noise_floor or 0.0) > NOISE_LIMIT:
            return Verdict.NOISY
        slack = TOLERANCE if self.is_ratio else TOLERANCE * goal
        is_more = self.row.sense == "at_least"
        sign, bound = (1, self.interval.low) if is_more else (-1, self.interval.high)
        if sign * (self.median - goal) < 0:
            return Verdict.MISSED
        return Verdict.MET if sign * (bound - goal) >= -slack else Verdict.WIDE

    def as_json(self) -> dict[str, Any]:
        judged: dict[str, Any] = {"verdict": self.verdict.value, "noise_floor": self.noise_floor}
        if self.values:
            judged |= {"median": self.median, "interval": asdict(self.interval)}
        return asdict(self) | judged


def interval(values: Sequence[float]) -> Interval:
    """Return the interval of the median by order statistics; exact for any distribution.

    The median lies between the k-th lowest and the k-th highest of n values with probability
    1 - 2 P(Binomial(n, 1/2) < k) (David and Nagaraja, Order Statistics, section 7.1). k is the
    largest for which that is at least 95 %; with 5 values or fewer there is none, and ``coverage``
    states how sure the interval from lowest to highest is.
    """
    ordered = sorted(values)
    count = len(ordered)
    ranks = range(1, count // 2 + 1)
    rank = max((k for k in ranks if _coverage(count, k) >= CONFIDENCE), default=1)
    return Interval(ordered[rank - 1], ordered[count - rank], _coverage(count, rank))


def _coverage(count: int, rank: int) -> float:
    return max(0.0, 1 - 2 * float(binom.cdf(rank - 1, count, 0.5)))


def rounds(
    ways: Mapping[str, Way], round_count: int, *, warm: bool = False
) -> dict[str, list[Figures]]:
    """Run each way ``round_count`` times, in rounds whose order turns."""
    if warm:
        for way in ways.values():
            way()
    runs: dict[str, list[Figures]] = {name: [] for name in ways}
    for number in range(round_count):
        for name in turned(list(ways), number):
            runs[name].append(ways[name]())
    return runs


def turned(names: Sequence[str], by: int) -> list[str]:
    """Return the names, starting with number ``by`` and wrapping, backwards every second time.

    With two or three names every order occurs equally often in ``2 x len(names)`` rounds, so that
    none always follows the same other one.
    """
    start = by % len(names)
    order = [*names[start:], *names[:start]]
    return order[::-1] if by // len(names) % 2 else order


def fastest(candidates: Mapping[str, Way], figure: str, notes: list[str]) -> Way:
    """Return a way that is the fastest of some settings; see ``choice``."""
    chosen = choice(candidates, figure, notes)

    def run() -> Figures:
        return candidates[chosen()]()

    return run


def choice(candidates: Mapping[str, Way], figure: str, notes: list[str]) -> Callable[[], str]:
    """Return a function that names the fastest of some settings by the median of a few rounds.

    They are tried at its first call; the name of the chosen one becomes a note.
    """

    @cache
    def chosen() -> str:
        name = _fastest(candidates, figure)
        notes.append(name)
        return name

    return chosen


def _fastest(candidates: Mapping[str, Way], figure: str) -> str:
    if len(candidates) == 1:
        return next(iter(candidates))
    tried = rounds(candidates, TRIALS)
    return max(tried, key=lambda name: statistics.median(run[figure] for run in tried[name]))
