"""Cards of the opening: one per workload, with its headline figures or its ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wattload.reports.blocks import Card, Cell, Tile, Tone
from wattload.reports.compare import Row, compare
from wattload.reports.quantity import MISSING, counted, number, scale_for, scaled, with_unit
from wattload.reports.sections.headline import headline_tiles
from wattload.reports.sections.wording import anchor, run_badges
from wattload.reports.subject import Group, Subject

_TILES = 4


def workload_card(subject: Subject, group: Group) -> Card:
    """Return the card of one workload: its first run's figures, or B/A where two arms ran it."""
    if subject.compares and len(group.arms) == 2:  # noqa: PLR2004 - A and B
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
    return Card(
        title=group.workload,
        anchor=anchor("compare", group.workload),
        remark=f"A {counts[0]}, B {counts[1]}",
        tiles=[_ratio_tile(row) for row in rows if row.effect][:_TILES],
        badges=_call_badges(rows),
    )


def _ratio_tile(row: Row) -> Tile:
    """Return a ratio with both medians under it, coloured by the arm that is better."""
    medians = [spread.median for spread in row.spreads.values() if spread is not None]
    scale = scale_for(row.quantity.unit, *medians)
    both = " against ".join(scaled(value, scale, 3) for value in medians)
    note = with_unit(both, scale)
    tone: Tone = row.call if row.call in ("a", "b") else "quiet"
    ratio = number(row.effect.ratio, 3) if row.effect else MISSING
    return Tile(f"{row.quantity.label}, B/A", ratio, "", note, tone)


def _call_badges(rows: Sequence[Row]) -> tuple[Cell, ...]:
    words: tuple[tuple[str, str, Tone], ...] = (
        ("a", "A better", "a"),
        ("b", "B better", "b"),
        ("none", "no difference shown", "quiet"),
        ("barred", "not called", "quiet"),
    )
    counts = [(text, tone, sum(row.call == call for row in rows)) for call, text, tone in words]
    return tuple(Cell(f"{text}: {count}", tone) for text, tone, count in counts if count)
