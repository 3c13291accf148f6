"""The figures of random writes: how long they took, and what the drive sustains."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from wattload.core.units import Unit
from wattload.results.facts import divided
from wattload.results.figures import Figure
from wattload.results.random_write.facts import (
    PHASE,
    STEADY,
    Condition,
    Draw,
    Run,
    Until,
    WriteFacts,
    written_bytes,
)

FILL_TIME, STEADY_RATE = "fill_seconds", "steady_write_bytes_per_s"
"""The figures that answer which drive is faster."""

figure = partial(Figure[WriteFacts], phase=PHASE)
rate = partial(figure, unit=Unit.BYTES_PER_SECOND, better="higher")


def is_fill(run: Run) -> bool:
    """Return whether the run answers how long it takes to write the range."""
    return run.facts.settings.until is Until.fill and run.facts.draw is Draw.each_once


def pass_rates(run: Run) -> list[float | None]:
    """Return the rate of each pass, in bytes per second; ``None`` for one that took no time."""
    ends = [(0.0, 0), *((each.end_s, each.written_bytes) for each in run.facts.passes)]
    return [
        divided(written - before, end_s - start_s)
        for (start_s, before), (end_s, written) in pairwise(ends)
    ]


def write_rate(run: Run) -> float | None:
    return divided(run.facts.total.written_bytes, run.seconds(PHASE))


def steady_rate(run: Run) -> float | None:
    return divided(written_bytes(run, STEADY), run.seconds(STEADY))


def fresh_over_steady(run: Run) -> float | None:
    if run.facts.condition is not Condition.sequential:
        return None
    return divided(run.facts.first_round_bytes_per_s, steady_rate(run))


def _not_steady(run: Run) -> str:
    steady = run.facts.steady
    return f"not steady: {steady.headline.reason}" if steady else "there is no rule for this draw"


def _not_fresh(run: Run) -> str:
    return "the range was not prepared by this run" if run.windows(STEADY) else _not_steady(run)


def _fill(run: Run) -> Sequence[Figure[WriteFacts]]:
    if not is_fill(run):
        return []
    passes = len(run.facts.passes)
    return [
        figure(
            name=FILL_TIME,
            of=lambda run: run.seconds(PHASE),
            unit=Unit.SECONDS,
            better="lower",
            meaning=f"time to write the range {passes} times, with the last flush",
            headline=True,
        )
    ]


def _steady(run: Run) -> Sequence[Figure[WriteFacts]]:
    """Return what the drive sustains, if that was asked for or found."""
    is_steady, is_headline = bool(run.windows(STEADY)), run.facts.settings.until is Until.steady
    if not (is_steady or is_headline):
        return []
    limited = "" if run.facts.settings.rate_bytes_per_s is None else (
        ", limited by workload.rate_bytes_per_s"
    )  # fmt: skip
    of_steady = partial(Figure[WriteFacts], phase=STEADY if is_steady else PHASE)
    return [
        of_steady(
            name=STEADY_RATE,
            of=steady_rate,
            unit=Unit.BYTES_PER_SECOND,
            better="higher",
            meaning="bytes written / time in the steady state" + limited,
            headline=is_headline,
            reason=_not_steady,
        ),
        of_steady(
            name="steady_write_iops",
            of=lambda run: divided(steady_rate(run), run.facts.settings.block_bytes),
            unit=Unit.SAMPLES_PER_SECOND,
            better="higher",
            meaning="writes / time in the steady state",
            reason=_not_steady,
        ),
        figure(
            name="fresh_over_steady",
            of=fresh_over_steady,
            unit=Unit.FRACTION,
            better="neither",
            meaning="rate of the first minute / steady rate",
            reason=_not_fresh,
        ),
    ]


def _rate(run: Run) -> Sequence[Figure[WriteFacts]]:
    return [
        rate(
            name="write_bytes_per_s",
            of=write_rate,
            meaning="bytes written / time, with the last flush",
            headline=run.facts.settings.until is not Until.steady,
        )
    ]


def _passes(run: Run) -> Sequence[Figure[WriteFacts]]:
    if run.facts.settings.until is Until.steady:
        return []

    def of_pass(index: int) -> Figure[WriteFacts]:
        return rate(
            name=f"pass_{index + 1}_write_bytes_per_s",
            of=lambda run: pass_rates(run)[index],
            meaning=f"bytes / time of pass {index + 1}",
        )

    return [of_pass(index) for index in range(len(run.facts.passes))]


FIGURES = (
    _fill,
    _steady,
    _rate,
    figure(
        name="written_bytes",
        of=lambda run: run.facts.total.written_bytes,
        unit=Unit.BYTES,
        better="neither",
        meaning="random bytes written",
    ),
    figure(
        name="write_iops",
        of=lambda run: divided(run.facts.total.operations, run.seconds(PHASE)),
        unit=Unit.SAMPLES_PER_SECOND,
        better="higher",
        meaning="writes / time, with the last flush",
        label="IOPS",
    ),
    rate(
        name="slowest_second_bytes_per_s",
        of=lambda run: run.facts.slowest_second_bytes_per_s,
        meaning="the lowest rate of a second",
        reason="it took less than a second",
    ),
    _passes,
)
