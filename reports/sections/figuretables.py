"""Tables of a comparison: a quantity or a point per row, an arm per column, ratio and call."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from wattload.reports.blocks import Cell, Table, Tone, columns, row
from wattload.reports.charts.arms import evidence
from wattload.reports.compare import Row
from wattload.reports.intervals import Interval
from wattload.reports.quantity import (
    DIRECTIONS,
    MISSING,
    Scale,
    number,
    percent,
    scale_for,
    scaled,
)
from wattload.reports.sections.wording import unique
from wattload.reports.statistics import Effect, Spread
from wattload.reports.subject import Group

_TONES: dict[str, Tone] = {"a": "a", "b": "b", "none": "quiet", "barred": "quiet"}
_CV = "CV is the sample standard deviation over the mean of an arm's valid runs."
_RATIO = (
    "Arms are medians of valid runs; B/A and its interval are of geometric means, that of energy "
    "widened by its stated uncertainty. "
)


def quantities_table(rows: Sequence[Row], group: Group, caption: str) -> Table:
    """Return a row per quantity."""
    return Table(
        columns=columns("quantity", "better", *_titles(group)),
        rows=[
            row(
                Cell(entry.quantity.label, remark=_of_what([entry])),
                Cell(entry.quantity.better),
                *_cells(entry, group, _scale([entry])),
            )
            for entry in rows
        ],
        caption=caption,
        note=_note(group),
    )


def points_table(rows: Sequence[Row], group: Group) -> Table:
    """Return a row per point of one quantity, and first the median of the points' ratios."""
    first, scale = rows[0], _scale(rows)
    known = [entry.effect.ratio for entry in rows if entry.effect]
    cells = [row(entry.at, *_cells(entry, group, scale)) for entry in rows]
    if len(known) > 1:
        ends = f"{number(min(known), 3)} to {number(max(known), 3)}"
        middle = Cell(number(median(known), 3), remark=f"points: {ends}")
        blanks = [Cell("")] * len(group.arms)
        cells.insert(0, row(f"median of {len(known)} points", *blanks, middle, "", ""))
    what = f"{first.quantity.label} by {first.axis}"
    parts = [_of_what(rows), DIRECTIONS[first.quantity.better]]
    return Table(
        columns=columns(first.axis, *_titles(group)),
        rows=cells,
        caption=f"{what} ({', '.join(part for part in parts if part)})",
        note=_note(group),
    )


def _note(group: Group) -> str:
    return _RATIO + _CV if group.is_pair else _CV


def _titles(group: Group) -> list[str]:
    letters = group.letters if len(group.arms) > 1 else ("figure",)
    titles = [f"#{letter}" for letter in letters]
    return [*titles, "#B/A", "#95 % interval", "call"] if group.is_pair else titles


def _of_what(rows: Sequence[Row]) -> str:
    """Return the unit of a quantity, and of energy how its figures are known."""
    known = unique(text for entry in rows if (text := evidence(entry)))
    return ", ".join(part for part in [_scale(rows).unit, *known] if part)


def _scale(rows: Sequence[Row]) -> Scale:
    medians = [spread.median for entry in rows for spread in entry.spreads.values() if spread]
    uppers = [upper for entry in rows for upper in _uppers(entry)]
    return scale_for(rows[0].quantity.unit, *medians, *uppers)


def _cells(entry: Row, group: Group, scale: Scale) -> list[Cell]:
    """Return the arms' cells, and with two arms the ratio, its interval and the call."""
    cells = [_arm_cell(entry, arm, scale, _of_first(entry, arm, group)) for arm in group.arms]
    if not group.is_pair:
        return cells
    effect = entry.effect
    remark = entry.reason + (f"; forced: {entry.forced}" if entry.forced else "")
    return [
        *cells,
        _ratio_cell(effect) if effect else Cell(MISSING),
        _interval_cell(effect) if effect else Cell(MISSING),
        Cell("", _TONES[entry.call], entry.words, remark),
    ]


def _ratio_cell(effect: Effect) -> Cell:
    ratio, medians = number(effect.ratio, 3), number(effect.medians, 3)
    return Cell(ratio, remark=f"medians: {medians}" if medians != ratio else "")


def _interval_cell(effect: Effect) -> Cell:
    """Return the interval; where t and bootstrap disagree, both under it."""
    if effect.interval is None:
        return Cell(MISSING)
    parts = []
    if effect.pairs:
        parts.append(f"{effect.pairs} pairs")
    if effect.disagrees and effect.t is not None and effect.bootstrap is not None:
        parts.append(f"by t: {_ends(effect.t)}")
        parts.append(f"by bootstrap: {_ends(effect.bootstrap)}")
    if effect.least_p_value is not None:
        parts.append("no spread among the runs")
    return Cell(_ends(effect.interval), remark="; ".join(parts))


def _ends(interval: Interval) -> str:
    # A digit more than the ratio has: it must show on which side of 1 an end lies.
    return f"{number(interval.lower, 4)} to {number(interval.upper, 4)}"


def _uppers(entry: Row) -> list[float]:
    return [f.upper for figures in entry.figures.values() for f in figures if f.upper is not None]


def _of_first(entry: Row, arm: str, group: Group) -> str:
    """Return an arm's median as a multiple of the first's, where arms are not compared."""
    lead = next(iter(group.arms))
    first, own = entry.spreads.get(lead), entry.spreads.get(arm)
    if group.is_pair or arm == lead or first is None or own is None or first.median <= 0:
        return ""
    return f"{number(own.median / first.median, 3)} x {group.letters[0]}; "


def _arm_cell(entry: Row, arm: str, scale: Scale, share: str) -> Cell:
    """Return an arm's median with its spread; without a valid run, what its runs do say."""
    spread = entry.spreads.get(arm)
    if spread is not None:
        return Cell(scaled(spread.median, scale), remark=share + _spread_text(spread, scale))
    figures = entry.figures.get(arm, ())
    values = [figure.value for figure in figures if figure.value is not None]
    if values:
        shown = ", ".join(scaled(value, scale) for value in values)
        return Cell(shown, "quiet", remark="no valid run: not compared")
    uppers = [figure.upper for figure in figures if figure.upper is not None]
    if uppers:
        lowers = [figure.lower for figure in figures if figure.lower is not None]
        text = f"≤ {scaled(max(uppers), scale)}"
        if lowers:
            text = f"{scaled(min(lowers), scale)} to {scaled(max(uppers), scale)}"
        return Cell(text, "quiet", remark="bounds")
    note = next((figure.note for figure in figures if figure.note), "")
    if not note and not any(figure.valid for figure in figures):
        note = "no valid run"
    return Cell(MISSING, "open", remark=note)


def _spread_text(spread: Spread, scale: Scale) -> str:
    if spread.count == 1:
        return "n = 1"
    ends = f"{scaled(spread.minimum, scale)} to {scaled(spread.maximum, scale)}"
    text = f"n = {spread.count}, {ends}"
    if spread.cv is None:
        return text
    return f"{text}, CV {percent(spread.cv, 2)}{_GATES.get(spread.gate or '', '')}"


_GATES = {"noisy": ": noisy, run more", "unstable": ": unstable"}
