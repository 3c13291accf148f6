"""What may be said of B against A: words and reasons, by rules that no value has a say in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wattload.reports.figures import Figure, Quantity
from wattload.reports.holm import CONFIDENCE
from wattload.reports.quantity import listed, number, percent
from wattload.reports.statistics import MARGIN, MINIMUM_RUNS, Effect

Call = Literal["a", "b", "none", "barred"]

SAME = f"same within {number(MARGIN * 100, 1)} %"
FEW = "too few runs"
NOT_CALLED = "not called"
NO_DIFFERENCE = "no difference shown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The arm that is better, ``none`` or ``barred``; in words; and why."""

    call: Call
    words: str
    reason: str


def barred(
    quantity: Quantity,
    figures: Mapping[str, Sequence[Figure]],
    found: Effect | None,
    unlike: Sequence[str],
) -> Verdict | None:
    """Return the weightiest reason why nothing may be called; ``None`` where there is none."""
    return next(_bars(quantity, figures, found, unlike), None)


def _bars(
    quantity: Quantity,
    figures: Mapping[str, Sequence[Figure]],
    found: Effect | None,
    unlike: Sequence[str],
) -> Iterator[Verdict]:
    if len(figures) < 2:  # noqa: PLR2004 - one arm has nothing beside it
        yield _not_called("one arm only")
    if len(figures) > 2:  # noqa: PLR2004 - A and B
        yield _not_called("more than two arms")
    yield from (_not_called(reason) for reason in unlike)
    for figure in (figure for of_arm in figures.values() for figure in of_arm):
        if not figure.ranks:
            yield _not_called(f"ranks nothing: {figure.note or 'its evidence is too weak'}")
    valid = [[f for f in of_arm if f.valid and f.value is not None] for of_arm in figures.values()]
    counts = [len(of_arm) for of_arm in valid]
    if min(counts) < MINIMUM_RUNS:
        shown = listed([str(count) for count in counts])
        reason = f"too few runs to call: n = {shown}; {MINIMUM_RUNS} per arm are the floor"
        yield Verdict("barred", FEW, reason)
    if found is None:
        yield _not_called("no ratio: a figure is not positive")
    if quantity.better == "neither":
        yield _not_called("neither direction is better")
    if not quantity.headline:
        yield _not_called("not called: only headline figures are")


def _not_called(reason: str) -> Verdict:
    return Verdict("barred", NOT_CALLED, reason)


def judge(quantity: Quantity, found: Effect) -> Verdict:
    """Return what is said of an effect that nothing bars."""
    floor = f"{number(found.floor * 100, 2)} %"
    if found.differs:
        b_wins = (found.ratio > 1) == (quantity.better == "higher")
        reason = f"{_demanded(found)} excludes 1, the effect exceeds {floor}"
        if all(each.within(MARGIN) for each in found.demanded):
            reason += f"; all of it lies within {number(MARGIN * 100, 1)} % of 1"
        winner: Call = "b" if b_wins else "a"
        return Verdict(winner, f"{winner.upper()} is better", reason)
    reasons = [] if found.excludes_one else [_holds_one(found)]
    if not found.beats_floor:
        reasons.append(f"the effect is under {floor}")
    if found.same:
        margin = number(MARGIN * 100, 1)
        reasons.append(f"the whole interval lies within {margin} % of 1")
        return Verdict("none", SAME, listed(reasons))
    return Verdict("none", NO_DIFFERENCE, listed(reasons))


def _demanded(found: Effect) -> str:
    """Return the interval that decides: the one shown, or that which Holm asks for."""
    demand = found.demand
    if demand is None or demand.confidence <= CONFIDENCE:
        return "the interval"
    return f"the {percent(demand.confidence, 4)} interval (Holm, one of {demand.family} calls)"


def _holds_one(found: Effect) -> str:
    """Return why an effect's intervals do not exclude 1, as exactly as can be said."""
    if found.t is None or found.t.lower <= 1 <= found.t.upper:
        return "the interval holds 1"
    if all(each.excludes_one() for each in found.demanded):
        return (
            f"the median of the {'pairs' if found.pairs else 'runs'} does not confirm the interval"
        )
    if found.bootstrap is not None and not found.bootstrap.excludes_one():
        return "the bootstrap's interval holds 1, t's does not"
    return f"{_demanded(found)} holds 1"
