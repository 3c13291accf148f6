"""Verdicts on B against A, in words and with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from wattload.core.checks.conditions import LONGEST_GAP_S
from wattload.reports.stats.effects import MARGIN, MINIMUM_PAIRS, MINIMUM_RUNS, Effect, Pairing
from wattload.reports.stats.figures import Quantity, RunFigure
from wattload.reports.stats.intervals import CONFIDENCE
from wattload.reports.stats.subject import Group
from wattload.results.quantity import UNIT_SPACE, counted, listed, number, percent

Call = Literal["a", "b", "none", "barred", "derived"]

ILLUSTRATION = "none"
"""The verdict on simulated drives."""

SAME = "same within"
"""How the verdict begins that arms are the same; the margin follows."""

INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The better arm, ``none``, ``barred`` or ``derived``, its text and the reason.

    ``leader`` is the arm that is better, or would be if the drives were not simulated.
    """

    call: Call
    words: str
    reason: str
    leader: Literal["a", "b", ""] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is known of a quantity at one point before its verdict.

    ``figures`` has every run's figures, by arm. ``gaps`` is why arms have no figure that is
    compared, by arm. ``exclusions`` lists how the arms differ in their
    work, and ``accuracy_gap`` which accuracy the records do not state; both make the case
    inconclusive. ``pairing`` is of the figures of valid runs. ``illustrates`` is whether the arms
    are simulated drives, whose figures may then be compared.
    """

    quantity: Quantity
    group: Group
    figures: Mapping[str, Sequence[RunFigure]]
    effect: Effect | None
    pairing: Pairing
    gaps: Mapping[str, str] = field(default_factory=dict)
    exclusions: Sequence[str] = ()
    accuracy_gap: str = ""
    illustrates: bool = False

    @property
    def valid(self) -> dict[str, list[RunFigure]]:
        """The figures that are compared, by arm."""
        return {arm: [f for f in of_arm if f.valid] for arm, of_arm in self.figures.items()}


def exclusion(case: Case) -> Verdict | None:
    """Return the most important reason against a verdict; ``None`` if there is none.

    A quantity without a question of its own has no verdict, and its reason may be empty.
    """
    found = next(_exclusions(case), None)
    if case.quantity.asked_by:
        return Verdict("derived", f"see {case.quantity.asked_by}", found.reason if found else "")
    return found


def _exclusions(case: Case) -> Iterator[Verdict]:
    if len(case.group.arms) < 2:  # noqa: PLR2004 - nothing to compare
        yield _inconclusive("one arm only")
    elif not case.group.is_pair:
        yield _inconclusive("more than two arms")
    yield from (_inconclusive(reason) for reason in case.exclusions)
    for figure in (figure for of_arm in case.valid.values() for figure in of_arm):
        if not (figure.illustrates if case.illustrates else figure.ranks):
            yield _inconclusive(f"not comparable: {figure.note or 'the evidence is too weak'}")
    yield from _unequal_evidence(case)
    if few := shortage(case):
        yield _inconclusive(few)
    if case.accuracy_gap:
        yield _inconclusive(case.accuracy_gap)
    if case.effect is None:
        yield _inconclusive("no ratio: not every figure is positive")
    elif case.effect.between.is_unknown:
        yield _inconclusive(case.effect.between.words)
    if case.quantity.better == "neither":
        yield _inconclusive("neither direction is better")
    if not case.quantity.headline:
        yield _inconclusive("only headline figures get a verdict")


def _inconclusive(reason: str) -> Verdict:
    return Verdict("barred", INCONCLUSIVE, reason)


def _unequal_evidence(case: Case) -> Iterator[Verdict]:
    """Yield a verdict if figures have different evidence: sensors may explain the difference."""
    valid = case.valid.values()
    of_arms = [list(dict.fromkeys(f.evidence for f in of_arm if f.evidence)) for of_arm in valid]
    if len({words for of_arm in of_arms for words in of_arm}) < 2:  # noqa: PLR2004 - all alike
        return
    shown = [
        f"{letter} {listed(words)}"
        for letter, words in zip(case.group.letters, of_arms, strict=True)
        if words
    ]
    yield _inconclusive(f"different kinds of evidence: {'; '.join(shown)}")


def shortage(case: Case) -> str:
    """Return how many runs or pairs a verdict lacks, or why it has none; empty if there are enough.

    Runs that were made but do not count are not told as missing.
    """
    if case.gaps:
        return _gap(case)
    made = [
        sum(not run.record.comparison.warm_up for run in runs) for runs in case.group.arms.values()
    ]
    valid = "valid energy" if case.quantity.is_energy else "valid figure"
    if case.pairing.few:
        of = f" with a {valid} of both" if case.pairing.count < min(made) else ""
        return f"{counted(case.pairing.count, 'pair')}{of}; {MINIMUM_PAIRS} needed"
    counts = [sum(f.value is not None for f in of_arm) for of_arm in case.valid.values()]
    if min(counts, default=0) >= MINIMUM_RUNS:
        return ""
    of = f" with a {valid}" if counts != made else ""
    if len(set(counts)) == 1:
        each = " each" if len(counts) > 1 else ""
        return f"{counted(counts[0], 'run')}{each}{of}; {MINIMUM_RUNS} needed"
    return f"{listed(list(map(str, counts)))} runs{of}; {MINIMUM_RUNS} each needed"


def _gap(case: Case) -> str:
    """Return why there is no figure of some arms; of all of them, the reason alone."""
    reasons = dict.fromkeys(case.gaps.values())
    if len(case.gaps) == len(case.group.arms) and len(reasons) == 1:
        return next(iter(reasons))
    letters = dict(zip(case.group.arms, case.group.letters, strict=False))
    arms = {
        why: [letters.get(arm, arm) for arm, own in case.gaps.items() if own == why]
        for why in reasons
    }
    return "; ".join(f"no figure of {listed(own)} ({why})" for why, own in arms.items())


def judge(quantity: Quantity, found: Effect) -> Verdict:
    """Return the verdict on an effect; of a share it is on a difference in percentage points."""
    equal, margin = quantity.no_effect, _floor(quantity, MARGIN, 1)
    near = f"the whole interval is within {margin} of {equal}"
    floor = _floor(quantity, found.floor) + (f" ({found.floor_of})" if found.floor_of else "")
    notes = list(_notes(found))
    if found.differs:
        b_wins = (found.ratio > 1) == (quantity.better == "higher")
        reason = f"{_deciding_interval(found)} excludes {equal}, the effect exceeds {floor}"
        if all(each.within(MARGIN) for each in found.demanded):
            reason += f"; {near}"
        winner: Literal["a", "b"] = "b" if b_wins else "a"
        words = f"{winner.upper()} is better"
        return Verdict(winner, words, "; ".join([reason, *notes]), leader=winner)
    reasons = [] if found.excludes_one else [_why_not_significant(found, equal)]
    if not found.beats_floor:
        reasons.append(f"the effect is below {floor}")
    if found.is_near:
        reasons.append(near)
        if found.floor > MARGIN:
            notes.insert(0, "the noise floor is too high to show that arms are the same")
        elif not found.same and found.hidden:
            hidden = _floor(quantity, found.hidden)
            notes.insert(0, f"but not after widening by {hidden} of drift or noise")
    words = f"{SAME} {margin}" if found.same else INCONCLUSIVE
    return Verdict("none", words, "; ".join([listed(reasons), *notes]))


def _floor(quantity: Quantity, share: float, digits: int = 2) -> str:
    """Return a floor or margin within a sentence, which may break before the unit."""
    return quantity.floor_text(share, digits).replace(UNIT_SPACE, " ")


def illustration(found: Verdict) -> Verdict:
    """Return a verdict on simulated drives: it has a leader, but no winner."""
    if not found.leader:
        return found
    return Verdict("barred", ILLUSTRATION, "simulated drives", leader=found.leader)


def _notes(found: Effect) -> Iterator[str]:
    """Yield what a reader has to know of an effect, whatever the verdict."""
    if found.parted:
        apart = f"more than {number(LONGEST_GAP_S, 3)} s apart"
        yield f"the runs of {counted(found.parted, 'pair')} were {apart} and count as single runs"
    if found.between.words:
        yield found.between.words
    if found.least_p_value is not None:
        yield f"no spread among the runs: p is at least {number(found.least_p_value, 2)}"


def _deciding_interval(found: Effect) -> str:
    """Return which interval decides: the one shown, or the wider one that Holm requires."""
    demand = found.demand
    if demand is None or demand.confidence <= CONFIDENCE:
        return "the interval"
    return f"the {percent(demand.confidence, 4)} interval (Holm, {demand.family} comparisons)"


def _why_not_significant(found: Effect, equal: str) -> str:
    """Return why the intervals do not exclude no difference, as precisely as possible."""
    if found.t is None or found.t.lower <= 1 <= found.t.upper:
        return f"the interval includes {equal}"
    if not found.decides:
        return f"too few runs without spread to reach {percent(found.confidence, 4)}"
    if all(each.excludes_one() for each in found.demanded):
        return (
            f"the median of the {'pairs' if found.pairs else 'runs'} does not confirm the interval"
        )
    if found.bootstrap is not None and not found.bootstrap.excludes_one():
        return f"the bootstrap interval includes {equal}, the t interval does not"
    return f"{_deciding_interval(found)} includes {equal}"
