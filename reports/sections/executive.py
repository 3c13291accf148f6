"""The sentences of a comparison in the summary: speed, energy, and what is called.

Each links to where its figures stand; a word for a call is never stronger than the rows' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from wattload.core.units import Unit
from wattload.reports.blocks import Link, Words
from wattload.reports.compare import Row, compare, sentence
from wattload.reports.figures import Figure
from wattload.reports.points import points
from wattload.reports.quantity import (
    UNIT_SPACE,
    Scale,
    counted,
    listed,
    number,
    scale_for,
    scaled,
    with_unit,
)
from wattload.reports.sections.singles import no_energy
from wattload.reports.sections.spread import spread_words
from wattload.reports.sections.wording import anchor, unique
from wattload.reports.subject import LETTERS, Group, Subject

_TOLD = 3
"""So many workloads, and so many reasons, are told in one sentence."""

_ORDER = ("a", "b", "none", "barred")


@dataclass(frozen=True, slots=True)
class _Told:
    """The rows of one workload: one for each quantity and point of a sweep, of so many places."""

    group: Group
    axis: str
    rows: tuple[Row, ...]
    places: int

    @property
    def anchor(self) -> str:
        """Where the comparison of the workload begins."""
        return anchor("compare", self.group.workload)

    @property
    def charts(self) -> str:
        """Where the bars of its arms stand; of a sweep, where the comparison begins."""
        return self.anchor if self.axis else f"{self.anchor}-arms"


def compared_sentences(subject: Subject) -> Iterator[Words]:
    """Yield three sentences on two arms: speed, energy, and how many figures are called."""
    told = [_told(subject, group) for group in subject.groups]
    yield _sentence("Speed", told, _speed)
    yield _sentence("Energy", told, _energy)
    yield _calls(told)


def _told(subject: Subject, group: Group) -> _Told:
    parts = points(group)
    rows = [
        row
        for point in parts
        if len(point.group.arms) == 2  # noqa: PLR2004 - A and B
        for row in compare(subject, point.group)
        if row.quantity.headline and row.quantity.better != "neither" and _has_figure(row)
    ]
    return _Told(group, parts[0].axis, tuple(rows), len(parts))


def _has_figure(row: Row) -> bool:
    figures = [each for of_arm in row.figures.values() for each in of_arm]
    return any(each.value is not None or each.upper is not None for each in figures)


def _sentence(name: str, told: Sequence[_Told], clause: Callable[[_Told], Words]) -> Words:
    """Return one sentence over all workloads, a clause for each of the first."""
    words: list[str | Link] = [f"{name}: "]
    for index, each in enumerate(told[:_TOLD]):
        words += [("; " if index else "") + f"in {each.group.workload} ", *clause(each)]
    if len(told) > _TOLD:
        words += ["; ", Link(f"{counted(len(told) - _TOLD, 'workload')} more", "comparison")]
    return (*words, ".")


def _speed(told: _Told) -> Words:
    if len(told.group.arms) < 2:  # noqa: PLR2004 - A and B
        return (f"only {next(iter(told.group.arms))} ran it",)
    rows = [row for row in told.rows if not row.quantity.is_energy and row.effect]
    if not rows:
        return (Link("no ratio can be formed", told.anchor),)
    first = [row for row in rows if row.quantity.key == rows[0].quantity.key]
    return _ratio(told, first)


def _energy(told: _Told) -> Words:
    if len(told.group.arms) < 2:  # noqa: PLR2004 - A and B
        return (f"only {next(iter(told.group.arms))} ran it",)
    rows = [row for row in told.rows if row.quantity.unit is Unit.JOULES]
    if not rows:
        return (Link("there is none", "gaps"), f" ({no_energy(told.group)})")
    last = [row for row in rows if row.quantity.key == rows[-1].quantity.key]
    if not any(row.effect for row in last):
        return _bounds(told, last[0])
    known = unique(
        each.evidence for row in last for of_arm in row.figures.values() for each in of_arm
    )
    return (*_ratio(told, last), f" ({'; '.join(known)})")


def _ratio(told: _Told, rows: Sequence[Row]) -> Words:
    """Return a quantity's ratio with its interval and call; over a sweep the median of its points.

    Never the largest alone: beside the median stand the ends, and at how many points who is better.
    """
    known = [(row, row.effect) for row in rows if row.effect is not None]
    row, effect = known[0]
    ratios = sorted(each.ratio for _, each in known)
    text = sentence(replace(row, effect=replace(effect, ratio=median(ratios))), "A", "B")
    if len(known) > 1:
        text += f" at the median of {_of(len(known), told.places)} of {told.axis}"
        ends = f", from {number(ratios[0], 3)} to {number(ratios[-1], 3)}"
        said = _tally([each for each, _ in known])
        called = [f"{words} at {counted(count, 'point')}" for words, count in said.items()]
        return (Link(text, told.anchor), f"{ends}: {listed(called)}")
    if told.axis:
        text += (
            f" at {told.axis} = {row.at}, the one of {counted(told.places, 'point')} with a ratio"
        )
    if effect.lower is not None and effect.upper is not None:
        text += f", 95{UNIT_SPACE}% interval {_from_to(effect.lower, effect.upper)}"
    return (Link(text, told.charts), f": {_words(row)}")


def _of(part: int, whole: int) -> str:
    """Return how many points there are, or how many of them are meant."""
    return counted(whole, "point") if part == whole else f"{part} of {counted(whole, 'point')}"


def _from_to(lower: float, upper: float) -> str:
    """Return an interval with the digits that tables give it, or as many as tell its ends apart."""
    for digits in (4, 5, 6):
        ends = number(lower, digits), number(upper, digits)
        if ends[0] != ends[1]:
            break
    return " to ".join(ends)


def _bounds(told: _Told, row: Row) -> Words:
    """Return what is known of a quantity that has no ratio: each arm's figure, bounds, or none."""
    ends = [
        end
        for of_arm in row.figures.values()
        for each in of_arm
        for end in (each.value, each.upper)
    ]
    scale = scale_for(row.quantity.unit, *ends)
    parts = [
        _of_arm(letter, figures, scale)
        for letter, figures in zip(LETTERS, row.figures.values(), strict=False)
    ]
    where = told.charts if any(end is not None for end in ends) else told.anchor
    return (Link(listed(parts), where), f": {row.reason}")


def _of_arm(letter: str, figures: Sequence[Figure], scale: Scale) -> str:
    """Return an arm's median with its evidence; without a figure, the ends of its bounds."""
    known = [each for each in figures if each.value is not None]
    if known:
        middle = median(each.value for each in known if each.value is not None)
        evidence = listed(unique(each.evidence for each in known if each.evidence))
        text = f"{letter} uses {with_unit(scaled(middle, scale, 3), scale)}"
        return f"{text} ({evidence})" if evidence else text
    uppers = [each.upper for each in figures if each.upper is not None]
    lowers = [each.lower for each in figures if each.lower is not None]
    if not uppers:
        return f"{letter} has none"
    low = f"{scaled(min(lowers), scale, 3)} to " if lowers else "≤ "
    return f"{letter} uses {low}{with_unit(scaled(max(uppers), scale, 3), scale)}"


def _calls(told: Sequence[_Told]) -> Words:
    """Return how many figures are called for whom, why others are not, and which runs scatter."""
    rows = [row for each in told for row in each.rows]
    figures = Link(counted(len(rows), "headline figure"), "comparison")
    reasons = unique(row.reason for row in rows if row.call == "barred")
    why = "; ".join(reasons[:_TOLD])
    spread = spread_words([(each.group, each.rows) for each in told])
    if all(row.call == "barred" for row in rows):
        said = f" is called: {why or 'no figure has a ratio'}"
        return ("None of ", figures, said, *spread, ".")
    called = [f"{words} in {count}" for words, count in _tally(rows).items()]
    return ("Of ", figures, f" {listed(called)}{f' ({why})' if why else ''}", *spread, ".")


def _words(row: Row) -> str:
    """Return what is said of a row; what a user forced past what bars it says so."""
    return f"{row.words} (forced past what bars it)" if row.forced else row.words


def _tally(rows: Sequence[Row]) -> dict[str, int]:
    """Return how often each word is said, calls before the rest."""
    said = [_words(row) for row in sorted(rows, key=lambda row: _ORDER.index(row.call))]
    return {words: said.count(words) for words in dict.fromkeys(said)}
