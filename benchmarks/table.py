"""The Markdown table of a bench session: each row with its interval, noise floor and verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.measure import NOISE_LIMIT, Result, Row, Verdict

_HEAD = (
    "| benchmark | median | 95 % interval | noise floor | goal | verdict | measured, medians |",
    "|---|---|---|---|---|---|---|",
)


def table(results: Sequence[Result]) -> str:
    """Return a table of all results, then their notes, each once."""
    notes = dict.fromkeys(f"- {note}" for result in results for note in result.notes)
    return "\n".join([*_HEAD, *map(_line, results), "", *notes])


def _line(result: Result) -> str:
    row, unit = result.row, "x" if result.is_ratio else result.row.unit
    if result.missing is not None:
        return f"| {row.name} | | | | {_goal(row)} | {result.verdict} | {result.missing} |"
    measured = ", ".join(
        f"{way} {statistics.median(values):.3g} {row.unit}"
        for way, values in (result.measured or {}).items()
    )
    floor, bounds = result.noise_floor, result.interval
    cells = (
        row.name,
        f"{result.median:.3g} {unit}",
        f"{bounds.low:.3g} to {bounds.high:.3g}",
        "" if floor is None else f"± {floor:.1%}",
        _goal(row),
        _verdict(result),
        measured,
    )
    return f"| {' | '.join(cells)} |"


def _goal(row: Row) -> str:
    if row.goal is None:
        return "none"
    return f"{'≥' if row.sense == 'at_least' else '≤'} {row.goal:.3g}"


def _verdict(result: Result) -> str:
    """Return the verdict; if noise forbids one, also the side of the goal of the interval."""
    if result.verdict is not Verdict.NOISY:
        return str(result.verdict)
    bounds, goal = result.interval, result.row.goal or 0.0
    sides = [bounds.low >= goal, bounds.high <= goal]
    if result.row.sense == "at_most":
        sides.reverse()
    side = "good side" if sides[0] else "bad side" if sides[1] else "both sides of the goal"
    return f"{result.verdict} (noise over {NOISE_LIMIT:.0%}), {side}"
