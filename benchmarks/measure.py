"""Interleaved measuring, and what is said of it: medians with their spread, against a goal.

A machine's disk and memory speed drift while a benchmark runs, so two ways are compared only within
a round, and the order of the ways turns from round to round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

ROUND_COUNT = 5

Measure = Callable[[], float]


class NotMeasuredError(Exception):
    """A benchmark can't be made here; the message says why and what would mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came out of one benchmark.

    ``values`` are judged by their median: ratios of two ways within a round (a goal of ``at_least``
    or ``at_most``), or the measured quantity itself. ``figures`` are the measured quantities by
    way, in ``unit``. With ``missing`` there are no values.
    """

    name: str
    unit: str
    goal: float
    sense: Literal["at_least", "at_most"]
    values: Sequence[float] = ()
    value_unit: str = "x"
    figures: Mapping[str, Sequence[float]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    missing: str | None = None

    @property
    def median(self) -> float:
        """The median of the values."""
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool | None:
        """Whether the median reaches the goal; ``None`` where nothing was measured."""
        if self.missing is not None:
            return None
        return self.median >= self.goal if self.sense == "at_least" else self.median <= self.goal

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        judged = {"median": self.median if self.values else None, "is_met": self.is_met}
        return asdict(self) | judged


def rounds(
    ways: Mapping[str, Measure], *, round_count: int = ROUND_COUNT
) -> dict[str, list[float]]:
    """Return ``round_count`` figures for each way, taken in rounds whose order turns."""
    figures: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(round_count):
        for name in turned(list(ways), number):
            figures[name].append(ways[name]())
    return figures


def turned(names: Sequence[str], by: int) -> Iterator[str]:
    """Yield the names, starting with number ``by`` and going round."""
    for place in range(len(names)):
        yield names[(place + by) % len(names)]


def best(figures: Mapping[str, Sequence[float]], names: Sequence[str]) -> list[float]:
    """Return the highest figure of several ways in each round."""
    return [max(values) for values in zip(*(figures[name] for name in names), strict=True)]


def ratios(upper: Sequence[float], lower: Sequence[float]) -> list[float]:
    """Return upper ÷ lower, round by round."""
    return [high / low for high, low in zip(upper, lower, strict=True)]


def table(results: Sequence[Result]) -> str:
    """Return a Markdown table of all results, then their notes."""
    lines = [
        "| benchmark | median | spread | goal | met | measured, medians |",
        "|---|---|---|---|---|---|",
        *(_row(result) for result in results),
    ]
    notes = [f"- {result.name}: {note}" for result in results for note in result.notes]
    return "\n".join([*lines, "", *notes])


def _row(result: Result) -> str:
    sign = "≥" if result.sense == "at_least" else "≤"
    goal = f"{sign} {result.goal:g} {result.value_unit}"
    if result.missing is not None:
        return f"| {result.name} | not measured | | {goal} | | {result.missing} |"
    measured = ", ".join(
        f"{name} {statistics.median(values):.3g} {result.unit}"
        for name, values in result.figures.items()
    )
    spread = f"{min(result.values):.3g} to {max(result.values):.3g}"
    met = "yes" if result.is_met else "no"
    median = f"{result.median:.3g} {result.value_unit}"
    return f"| {result.name} | {median} | {spread} | {goal} | {met} | {measured} |"
