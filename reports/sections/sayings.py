"""What the ratios of a comparison say, a sentence each; over a sweep, the median and its ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from wattload.reports.blocks import Block, Notice, Paragraph
from wattload.reports.compare import Row, sentence
from wattload.reports.quantity import counted, listed, number
from wattload.reports.sections.wording import sentence_of, unique
from wattload.reports.subject import Group


def sayings(rows: Sequence[Row], group: Group) -> Iterator[Block]:
    """Yield what may be said, a sentence per quantity that has a ratio and a better direction."""
    if len(group.arms) < 2:  # noqa: PLR2004 - one arm has nothing beside it
        yield Paragraph("One arm only: its runs are shown with their spread, nothing is compared.")
        return
    if not group.is_pair:
        yield Paragraph(
            "Medians of the valid runs of each arm, with their share of "
            f"{group.letters[0]}'s. Nothing is called better among more than two arms: name the "
            "runs of two for intervals and a call."
        )
        return
    told = [entry for entry in rows if entry.effect and entry.quantity.better != "neither"]
    said = [_said(of_quantity) for of_quantity in by_quantity(told)]
    reasons = unique(entry.reason for entry in told if entry.call == "barred")
    if said:
        yield Notice("What the ratios say", [*said, *map(sentence_of, reasons)], "")


def by_quantity(rows: Sequence[Row]) -> list[list[Row]]:
    """Return rows by quantity, each with its points in their order."""
    found: dict[str, list[Row]] = {}
    for entry in rows:
        found.setdefault(entry.quantity.key, []).append(entry)
    return list(found.values())


def _said(rows: Sequence[Row]) -> str:
    return _over_points(rows) if len(rows) > 1 else _of_one(rows[0])


def _of_one(entry: Row) -> str:
    at = f"At {entry.axis} = {entry.at}, " if entry.axis else ""
    ending = "" if entry.call == "barred" else f": {entry.words}"
    return f"{at}{sentence(entry, 'A', 'B')}{ending}{_forced([entry])}."


def _over_points(rows: Sequence[Row]) -> str:
    """Return the median of the points' ratios, both ends beside it, and what is called where."""
    ratios = {entry.at: entry.effect.ratio for entry in rows if entry.effect}
    effect = next(entry.effect for entry in rows if entry.effect)
    middle = replace(rows[0], effect=replace(effect, ratio=median(ratios.values())))
    least, most = min(ratios, key=lambda at: ratios[at]), max(ratios, key=lambda at: ratios[at])
    text = sentence(middle, "A", "B").removesuffix(")")
    axis, words = rows[0].axis, [entry.words for entry in rows]
    calls = [f"{each} at {counted(words.count(each), 'point')}" for each in dict.fromkeys(words)]
    ends = (
        f"{number(ratios[least], 3)} at {axis} = {least} to {number(ratios[most], 3)} at "
        f"{axis} = {most}"
    )
    return (
        f"{text}, the median of {counted(len(ratios), 'point')} of {axis}; {ends}): "
        f"{listed(calls)}{_forced(rows)}."
    )


def _forced(rows: Sequence[Row]) -> str:
    said = unique(entry.forced for entry in rows if entry.forced)
    return f" (forced past: {'; '.join(said)})" if said else ""
