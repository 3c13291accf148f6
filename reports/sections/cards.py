"""Cards of the opening: one per workload, with its headline figures or its ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from wattload.reports.blocks import Card, Cell, Tile, Tone
from wattload.reports.compare import Row, compare
from wattload.reports.quantity import counted, number, scale_for, scaled, with_unit
from wattload.reports.sections.headline import headline_tiles
from wattload.reports.sections.sayings import by_quantity
from wattload.reports.sections.wording import anchor, run_badges, unique
from wattload.reports.subject import Group, Subject

_TILES = 4


def workload_card(subject: Subject, group: Group) -> Card:
    """Return the card of one workload: its first run's figures, or B/A where two arms ran it."""
    if group.is_pair:
        return _comparison_card(subject, group)
    run = group.runs[0]
    several = len(group.runs) > 1
    return Card(
        title=group.workload,
        anchor=anchor("compare", group.workload) if several else anchor("run", run.id),
        remark=f"first of {counted(len(group.runs), 'run')}" if several else f"run {run.id}",
        tiles=[_short(tile) for tile in headline_tiles(run.record, 3)],
        badges=run_badges(run, subject.faults(run)),
    )


def _short(tile: Tile) -> Tile:
    """Return a tile without its meaning; that a figure is missing must stay."""
    return replace(tile, note="not measured" if tile.tone == "open" else "")


def directed_rows(subject: Subject, group: Group) -> list[Row]:
    """Return the headline rows that have a better direction."""
    return [
        row
        for row in compare(subject, group)
        if row.quantity.headline and row.quantity.better != "neither"
    ]


def _comparison_card(subject: Subject, group: Group) -> Card:
    rows = directed_rows(subject, group)
    counts = [counted(len(runs), "run") for runs in group.arms.values()]
    told = by_quantity([row for row in rows if row.effect])
    return Card(
        title=group.workload,
        anchor=anchor("compare", group.workload),
        remark=f"A {counts[0]}, B {counts[1]}",
        tiles=[_ratio_tile(of_quantity) for of_quantity in told][:_TILES],
        badges=_call_badges(rows),
    )


def _ratio_tile(rows: Sequence[Row]) -> Tile:
    """Return a ratio with both medians under it, coloured by the arm that is better.

    Over a sweep it is the median of the points' ratios, with the ends of their range under it, and
    has an arm's colour where that arm is better at every point.
    """
    ratios = [row.effect.ratio for row in rows if row.effect]
    calls = {row.call for row in rows}
    tone: Tone = "quiet"
    if calls in ({"a"}, {"b"}):
        tone = "a" if calls == {"a"} else "b"
    note = _both_medians(rows[0])
    if len(rows) > 1:
        ends = f"{number(min(ratios), 3)} to {number(max(ratios), 3)}"
        note = f"median of {counted(len(ratios), 'point')} of {rows[0].axis}, {ends}"
    evidence = unique(each.evidence for of_arm in rows[0].figures.values() for each in of_arm)
    note += "".join(f"; {words}" for words in evidence if words)
    if any(row.forced for row in rows):
        note += "; forced"
    return Tile(f"{rows[0].quantity.label}, B/A", number(median(ratios), 3), "", note, tone)


def _both_medians(row: Row) -> str:
    medians = [spread.median for spread in row.spreads.values() if spread is not None]
    scale = scale_for(row.quantity.unit, *medians)
    both = " against ".join(scaled(value, scale, 3) for value in medians)
    at = f"{row.axis} = {row.at}: " if row.axis else ""
    return at + with_unit(both, scale)


def _call_badges(rows: Sequence[Row]) -> tuple[Cell, ...]:
    """Return how often each word was said, the calls first; one that was forced says so."""
    tones: dict[str, Tone] = {"a": "a", "b": "b"}
    found: dict[str, tuple[Tone, int]] = {}
    for row in sorted(rows, key=lambda row: _ORDER.index(row.call)):
        _, count = found.get(row.words, ("quiet", 0))
        found[row.words] = (tones.get(row.call, "quiet"), count + 1)
    badges = [Cell(f"{words.replace('is ', '')}: {n}", tone) for words, (tone, n) in found.items()]
    forced = [Cell("forced", "bad")] if any(row.forced for row in rows) else []
    return (*badges, *forced)


_ORDER = ("a", "b", "none", "barred")
