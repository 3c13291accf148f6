"""A paper's claims beside what the runs of a page show: ratio, interval, and a word for the two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from wattload.reports.admission import unlike
from wattload.reports.claims.facts import apart, plays_in_order
from wattload.reports.claims.library import papers
from wattload.reports.claims.model import At, Claim, Pair, Paper
from wattload.reports.compare import Row, compare
from wattload.reports.energy import is_simulated
from wattload.reports.keys import flat
from wattload.reports.pairing import MINIMUM_PAIRS
from wattload.reports.points import Point, points
from wattload.reports.quantity import label, listed
from wattload.reports.statistics import MINIMUM_RUNS, Effect
from wattload.reports.subject import Group, Subject
from wattload.reports.verdicts import NOT_CALLED

Verdict = Literal["agrees", "differs", "wide", "few", "unmeasured", "unlike", "virtual"]
WIDEST = 1.25
"""An interval agrees only up to this factor between its ends: wider ones agree with too much."""

_FLOOR = (
    f"{MINIMUM_RUNS} runs per arm are the floor for an interval, of arms that took turns "
    f"{MINIMUM_PAIRS} pairs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A claim's formula over this page's arms: a ratio of geometric means and its 95 % interval.

    ``medians`` is the same ratio of the arms' medians. ``at`` is the point of a sweep, and empty
    where nothing was swept.
    """

    verdict: Verdict
    reason: str
    at: str = ""
    ratio: float | None = None
    lower: float | None = None
    upper: float | None = None
    medians: float | None = None
    counts: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The claims of one paper and pair on one workload, each with what was measured of it.

    ``straight`` is whether the page's first arm stands where the paper's ``a`` stood.
    """

    paper: Paper
    pair: Pair
    group: Group
    straight: bool
    claims: tuple[tuple[Claim, tuple[Measured, ...]], ...]


def beside(subject: Subject) -> tuple[Beside, ...]:
    """Return the claims that the workloads of a page answer; none unless it compares two arms."""
    groups = [group for group in subject.groups if group.is_pair]
    return tuple(
        _of_pair(subject, group, paper, name)
        for group in groups
        for paper in papers()
        for name in paper.pairs
        if _claims(paper, name, group.workload)
    )


def unanswered(shown_parts: Sequence[Beside]) -> tuple[tuple[Paper, tuple[Claim, ...]], ...]:
    """Return the claims of each paper that no workload of the page answers."""
    shown = {(part.paper.id, claim.id) for part in shown_parts for claim, _ in part.claims}
    rest = [
        (paper, tuple(claim for claim in paper.claims if (paper.id, claim.id) not in shown))
        for paper in papers()
    ]
    return tuple((paper, claims) for paper, claims in rest if claims)


def _claims(paper: Paper, pair: str, workload: str) -> list[Claim]:
    return [each for each in paper.claims if each.pair == pair and each.workload == workload]


def _of_pair(subject: Subject, group: Group, paper: Paper, name: str) -> Beside:
    pair = paper.pairs[name]
    straight = plays_in_order(pair, *group.arms.values())
    places = [_Place(subject, pair, point, straight) for point in points(group)]
    found = [(claim, _measured(claim, places)) for claim in _claims(paper, name, group.workload)]
    return Beside(paper=paper, pair=pair, group=group, straight=straight, claims=tuple(found))


def _measured(claim: Claim, places: Sequence[_Place]) -> tuple[Measured, ...]:
    """Return what each point says that the claim is about, or why none does."""
    wanted = claim.point
    if wanted is None:
        return tuple(place.measured(claim) for place in places)
    meant = [place for place in places if place.is_at(wanted)]
    if meant:
        return tuple(place.measured(claim) for place in meant)
    known = listed([place.point.value for place in places if place.point.axis])
    reason = f"the paper has {wanted}, this page " + (f"has {known}" if known else "has not")
    return (Measured(verdict="unmeasured", reason=reason),)


class _Place:
    """One point of a group's sweep, compared once for all claims on it."""

    def __init__(self, subject: Subject, pair: Pair, point: Point, straight: bool) -> None:
        self.point = point
        self._pair = pair
        self._straight = straight
        self._rows = {row.quantity.key: row for row in compare(subject, point.group)}
        self._unlike = unlike(subject, point.group)

    def is_at(self, wanted: At) -> bool:
        """Return whether the runs were made at a value, swept or set."""
        swept = dict(zip(self.point.axis.split(", "), self.point.value.split(", "), strict=False))
        if wanted.axis in swept:
            return _is_number(swept[wanted.axis], wanted.value)
        key = f"workload.{wanted.axis}"
        settings = [dict(flat(run.record.config)) for run in self.point.group.runs]
        return all(_is_number(str(values.get(key)), wanted.value) for values in settings)

    def measured(self, claim: Claim) -> Measured:
        """Return the claim's formula over the runs of this point, and what may be said of it."""
        row = self._rows.get(claim.figure or "")
        at = f"{self.point.axis} = {self.point.value}" if self.point.axis else ""
        found = row.effect if row is not None else None
        if found is None:
            verdict, reason = self._judge(claim, row, None)
            return Measured(verdict=verdict, reason=reason, at=at)
        ends = _turned(claim, found, self._straight)
        verdict, reason = self._judge(claim, row, ends)
        return Measured(
            verdict=verdict,
            reason=reason,
            at=at,
            ratio=ends.ratio,
            lower=ends.lower,
            upper=ends.upper,
            medians=ends.medians,
            counts=(found.count_a, found.count_b),
        )

    def _judge(self, claim: Claim, row: Row | None, ends: _Ends | None) -> tuple[Verdict, str]:
        barred = next(self._bars(claim, row), None)
        if barred is not None:
            return barred
        if ends is None:
            return "unmeasured", "no valid run of both arms has this figure"
        if ends.lower is None or ends.upper is None:
            return "few", _FLOOR
        return _held_against(claim.printed.read, ends.ratio, ends.lower, ends.upper)

    def _bars(self, claim: Claim, row: Row | None) -> Iterator[tuple[Verdict, str]]:
        """Yield each reason why the ratio answers nothing, the weightiest first."""
        group = self.point.group
        if any(is_simulated(run.record) for run in group.runs):
            yield "virtual", "its rates and watts are invented"
        if not group.is_pair:
            yield "unmeasured", "only one arm was run here"
        elif not apart(self._pair.between, list(group.arms.values())):
            yield "unmeasured", f"the arms of this page do not differ in {self._pair.differ_in}"
        if row is None:
            yield "unmeasured", f"no run here has the figure {label(claim.figure or '')}"
            return
        if reason := row.forced or listed([*self._unlike.bars(row.quantity)]):
            yield "unlike", reason
        for figure in (figure for figures in row.figures.values() for figure in figures):
            if not figure.ranks:
                yield "unmeasured", f"ranks nothing: {figure.note or 'its evidence is too weak'}"
        if row.quantity.is_energy and row.words == NOT_CALLED:
            yield "unmeasured", row.reason


def _held_against(
    published: float, ratio: float, lower: float, upper: float
) -> tuple[Verdict, str]:
    """Return what an interval says of a published ratio.

    It agrees only where it also tells the ratio from 1: one that holds both shows no difference,
    and may lie on the other side of 1 for the most part. And its ends may be no more than a factor
    of ``WIDEST`` apart, or noise alone would make runs agree.
    """
    if not lower <= published <= upper:
        return "differs", "the published value is outside of the interval"
    if (ratio < 1) != (published < 1):
        return "wide", "the published value is in the interval, but the ratio is on 1's other side"
    if lower <= 1 <= upper:
        return "wide", "the interval holds the published value and 1, which is no difference"
    if upper / lower > WIDEST:
        reason = f"the interval holds the published value and spans a factor of more than {WIDEST}"
        return "wide", reason
    return "agrees", "the interval holds the published value"


@dataclass(frozen=True, slots=True)
class _Ends:
    """A ratio the way round that a formula has it, of geometric means with their interval.

    ``medians`` is the same ratio of the medians of the arms, which may lie outside of it.
    """

    ratio: float
    lower: float | None
    upper: float | None
    medians: float


def _turned(claim: Claim, effect: Effect, straight: bool) -> _Ends:
    """Return B/A of the page as the formula's ratio: turned over where its arms stand crosswise."""
    lower, upper = effect.lower, effect.upper
    if (claim.parsed.over == "b") == straight:
        return _Ends(effect.ratio, lower, upper, effect.medians)
    lower, upper = (1 / end if end else None for end in (upper, lower))
    return _Ends(1 / effect.ratio, lower, upper, 1 / effect.medians)


def _is_number(text: str, value: float) -> bool:
    try:
        return float(text) == value
    except ValueError:
        return False
