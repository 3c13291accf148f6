"""What may be said of B against A: words and reasons, by rules that no value has a say in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wattload.core.checks.interleaved import LONGEST_GAP_S
from wattload.reports.figures import Figure, Quantity
from wattload.reports.holm import CONFIDENCE
from wattload.reports.pairing import MINIMUM_PAIRS, Pairing
from wattload.reports.quantity import counted, listed, number, percent
from wattload.reports.statistics import MARGIN, MINIMUM_RUNS, Effect
from wattload.reports.subject import Group

Call = Literal["a", "b", "none", "barred"]

SAME = f"same within {number(MARGIN * 100, 1)} %"
FEW = "too few runs"
FEW_PAIRS = "too few pairs"
NOT_CALLED = "not called"
NO_DIFFERENCE = "no difference shown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The arm that is better, ``none`` or ``barred``; in words; and why."""

    call: Call
    words: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is known of a quantity at a point before anything is called.

    ``figures`` are every run's, by arm. ``unlike`` says in what the arms are not alike and
    ``unstated`` what no record states of how exact the figures are; both bar a call. ``pairing`` is
    of the figures of valid runs.
    """

    quantity: Quantity
    group: Group
    figures: Mapping[str, Sequence[Figure]]
    effect: Effect | None
    pairing: Pairing
    unlike: Sequence[str] = ()
    unstated: str = ""

    @property
    def valid(self) -> dict[str, list[Figure]]:
        """The figures that are compared, by arm."""
        return {arm: [f for f in of_arm if f.valid] for arm, of_arm in self.figures.items()}


def barred(case: Case) -> Verdict | None:
    """Return the weightiest reason why nothing may be called; ``None`` where there is none."""
    return next(_bars(case), None)


def _bars(case: Case) -> Iterator[Verdict]:
    if len(case.group.arms) < 2:  # noqa: PLR2004 - one arm has nothing beside it
        yield _not_called("one arm only")
    elif not case.group.is_pair:
        yield _not_called("more than two arms")
    yield from (_not_called(reason) for reason in case.unlike)
    for figure in (figure for of_arm in case.valid.values() for figure in of_arm):
        if not figure.ranks:
            yield _not_called(f"ranks nothing: {figure.note or 'its evidence is too weak'}")
    yield from _unequal_evidence(case)
    yield from _too_few(case)
    if case.unstated:
        yield _not_called(case.unstated)
    if case.effect is None:
        yield _not_called("no ratio: a figure is not positive")
    elif case.effect.between.is_unknown:
        yield _not_called(case.effect.between.words)
    if case.quantity.better == "neither":
        yield _not_called("neither direction is better")
    if not case.quantity.headline:
        yield _not_called("not called: only headline figures are")


def _not_called(reason: str) -> Verdict:
    return Verdict("barred", NOT_CALLED, reason)


def _unequal_evidence(case: Case) -> Iterator[Verdict]:
    """Yield that figures are known in different ways: their difference may be one of sensors."""
    valid = case.valid.values()
    of_arms = [list(dict.fromkeys(f.evidence for f in of_arm if f.evidence)) for of_arm in valid]
    if len({words for of_arm in of_arms for words in of_arm}) < 2:  # noqa: PLR2004 - all alike
        return
    shown = [
        f"{letter} {listed(words)}"
        for letter, words in zip(case.group.letters, of_arms, strict=True)
        if words
    ]
    yield _not_called(f"not known in the same way: {'; '.join(shown)}")


def _too_few(case: Case) -> Iterator[Verdict]:
    valid = [[f for f in of_arm if f.value is not None] for of_arm in case.valid.values()]
    counts = [len(of_arm) for of_arm in valid]
    if case.pairing.few:
        told = counted(case.pairing.count, "pair")
        reason = f"too few pairs to call: {told} of runs that took turns; {MINIMUM_PAIRS} are the"
        yield Verdict("barred", FEW_PAIRS, f"{reason} floor")
    if min(counts) < MINIMUM_RUNS:
        shown = listed([str(count) for count in counts])
        reason = f"too few runs to call: n = {shown}; {MINIMUM_RUNS} per arm are the floor"
        yield Verdict("barred", FEW, reason)


def judge(quantity: Quantity, found: Effect) -> Verdict:
    """Return what is said of an effect that nothing bars."""
    floor = f"{number(found.floor * 100, 2)} %"
    floor += f" ({found.floor_of})" if found.floor_of else ""
    notes = list(_notes(found))
    if found.differs:
        b_wins = (found.ratio > 1) == (quantity.better == "higher")
        reason = f"{_demanded(found)} excludes 1, the effect exceeds {floor}"
        if all(each.within(MARGIN) for each in found.demanded):
            reason += f"; all of it lies within {number(MARGIN * 100, 1)} % of 1"
        winner: Call = "b" if b_wins else "a"
        return Verdict(winner, f"{winner.upper()} is better", "; ".join([reason, *notes]))
    reasons = [] if found.excludes_one else [_holds_one(found)]
    if not found.beats_floor:
        reasons.append(f"the effect is under {floor}")
    if found.is_near:
        reasons.append(f"the whole interval lies within {number(MARGIN * 100, 1)} % of 1")
        if found.floor > MARGIN:
            notes.insert(0, "a noise floor above that shows no arms to be the same")
        elif not found.same and found.hidden:
            hidden = f"{number(found.hidden * 100, 2)} %"
            notes.insert(0, f"with the {hidden} that may part equal arms it does not")
    words = SAME if found.same else NO_DIFFERENCE
    return Verdict("none", words, "; ".join([listed(reasons), *notes]))


def _notes(found: Effect) -> Iterator[str]:
    """Yield what else a reader has to know of an effect, whatever is called."""
    known = found.parted - found.undated
    if known:
        apart = f"more than {number(LONGEST_GAP_S, 3)} s apart"
        yield f"the runs of {counted(known, 'pair')} were {apart} and stand for themselves"
    if found.undated:
        pairs = counted(found.undated, "pair")
        yield f"when the runs of {pairs} were made can't be read, so they stand for themselves"
    if found.between.words:
        yield found.between.words
    if found.least_p_value is not None:
        yield f"no spread among the runs: p can't be under {number(found.least_p_value, 2)}"


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
    if not found.decides:
        return f"so few runs without spread can't reach {percent(found.confidence, 4)}"
    if all(each.excludes_one() for each in found.demanded):
        return (
            f"the median of the {'pairs' if found.pairs else 'runs'} does not confirm the interval"
        )
    if found.bootstrap is not None and not found.bootstrap.excludes_one():
        return "the bootstrap's interval holds 1, t's does not"
    return f"{_demanded(found)} holds 1"
