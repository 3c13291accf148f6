"""The table of a bench session: every figure with its interval, its noise floor and its verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.measure import NOISE_LIMIT, Result, Verdict

_HEAD = (
    "| benchmark | median | 95 % interval | noise floor | goal | verdict | measured, medians |",
    "|---|---|---|---|---|---|---|",
)


def table(results: Sequence[Result]) -> str:
    """Return a Markdown table of all results, then their notes, each once."""
    notes = dict.fromkeys(f"- {note}" for result in results for note in result.notes)
    return "\n".join([*_HEAD, *(_row(result) for result in results), "", *notes])


def _row(result: Result) -> str:
    goal = _goal(result)
    if result.missing is not None:
        return f"| {result.name} | | | | {goal} | {result.verdict} | {result.missing} |"
    measured = ", ".join(
        f"{name} {statistics.median(values):.3g} {result.unit}"
        for name, values in result.figures.items()
    )
    bounds = result.interval
    floor = result.noise_floor
    cells = (
        result.name,
        f"{result.median:.3g} {result.value_unit}",
        f"{bounds.low:.3g} to {bounds.high:.3g}",
        "" if floor is None else f"± {floor:.1%}",
        goal,
        _verdict(result),
        measured,
    )
    return f"| {' | '.join(cells)} |"


def _goal(result: Result) -> str:
    if result.goal is None:
        return "none"
    sign = "≥" if result.sense == "at_least" else "≤"
    return f"{sign} {result.goal:.3g} {result.value_unit}"


def _verdict(result: Result) -> str:
    """Return the verdict; noise never lets met or missed stand alone."""
    if result.verdict is not Verdict.NOISY:
        return str(result.verdict)
    bounds, goal = result.interval, result.goal or 0.0
    is_better = bounds.low >= goal if result.sense == "at_least" else bounds.high <= goal
    is_worse = bounds.high < goal if result.sense == "at_least" else bounds.low > goal
    side = "all on the good side" if is_better else "all on the bad side" if is_worse else "astride"
    return f"{result.verdict} (noise over {NOISE_LIMIT:.0%}); the interval lies {side} of the goal"
