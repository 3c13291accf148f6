"""Arms side by side: a bar for each arm's median, a mark for each run, an interval for bounds."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Figure, Table, columns, row
from wattload.reports.charts.bars import Bar, Dot, Panel, interval_text
from wattload.reports.charts.bounds import intervals_caption
from wattload.reports.charts.forced import captioned, forced_past, titled
from wattload.reports.charts.missing import NOT_THERE, why_missing
from wattload.reports.compare import Figure as RunFigure
from wattload.reports.compare import Quantity, Row
from wattload.reports.energy import ALL_PHASES
from wattload.reports.load import Run
from wattload.reports.quantity import DIGITS, MISSING, Scale, counted, listed, scale_for, scaled
from wattload.reports.subject import LETTERS, lettered
from wattload.reports.svg import joined, render
from wattload.reports.themes import arm_marker, arm_role

PANEL_WIDTH = 424
_COLUMNS = 2
_NAME_LIMIT = 16
_LETTER = 6.9
_LINE = 64
_ASKED = {
    Unit.SECONDS: "How long does {} take?",
    Unit.BYTES_PER_SECOND: "How fast is {}?",
    Unit.SAMPLES_PER_SECOND: "How fast is {}?",
    Unit.JOULES: "How much energy does {} use?",
    Unit.WATTS: "How much power does {} draw?",
    Unit.BYTES_PER_JOULE: "How fast is {} for each watt?",
    Unit.JOULES_PER_BYTE: "How much energy does a byte of {} take?",
}
_DOING = {"read": "reading", "write": "writing", "train": "training"}


def question(quantity: Quantity) -> str:
    """Return what a chart of this quantity answers."""
    asked = _ASKED.get(quantity.unit)
    if asked is None:
        return f"How high is {quantity.label}?"
    return asked.format(_thing(quantity))


def _thing(quantity: Quantity) -> str:
    if quantity.phase == ALL_PHASES:
        return "the whole job"
    if quantity.phase:
        return _DOING.get(quantity.phase, f"the phase “{quantity.phase}”")
    return quantity.label.removesuffix(" time").removesuffix(" rate").removesuffix(" throughput")


def arms_figure(
    name: str,
    subject: str,
    rows: Sequence[Row],
    runs: Mapping[str, Sequence[Run]],
    letters: Sequence[str] = LETTERS,
) -> Figure | None:
    """Return one panel per quantity, each on its own axis; ``None`` where nothing has a figure.

    ``runs`` are those of each arm: they tell why an arm has no figure where others have one.
    ``letters`` are those of the arms, in their order.
    """
    arms = list(runs)
    drawn = [entry for entry in rows if largest(entry) is not None]
    if not drawn:
        return None
    panels = [_panel(f"p{index}", entry, runs, letters) for index, entry in enumerate(drawn)]
    chart = joined(
        "concat",
        [panel.chart() for panel in panels],
        columns=_COLUMNS,
        spacing={"row": 30, "column": 30},
    )
    past = forced_past(drawn)
    description = captioned(_description(rows, drawn), past)
    return Figure(
        svg=render(
            chart,
            {key: found for panel in panels for key, found in panel.data().items()},
            name=name,
            title=titled(f"{subject}: {listed(list(arms))}", past),
            description=" ".join([description, *_told(drawn, runs, letters)]),
        ),
        caption=description,
        table=_table(rows, runs),
        legend=arms_legend(arms, letters),
    )


def arms_legend(arms: Sequence[str], letters: Sequence[str] = LETTERS) -> list[tuple[str, str]]:
    """Return what each colour stands for; an arm alone needs no letter."""
    named = [lettered(*pair) for pair in zip(letters, arms, strict=False)]
    roles = [arm_role(letter) for letter in letters]
    return list(zip(roles, named if len(arms) > 1 else arms, strict=False))


def short_names(arms: Sequence[str], letters: Sequence[str] = LETTERS) -> list[str]:
    """Return what bars are called: the letter, with the arm's own name where all are short."""
    pairs = list(zip(letters, arms, strict=False))
    if len(arms) == 1:
        return ["" if len(arms[0]) > _NAME_LIMIT else arms[0]]
    names = [letter if letter == arm else f"{letter} {arm}" for letter, arm in pairs]
    if any(len(name) > _NAME_LIMIT for name in names):
        return [letter for letter, _ in pairs]
    return names


def largest(entry: Row) -> float | None:
    """Return the largest end of all figures of a row; ``None`` where no run has one."""
    ends = [
        end
        for figures in entry.figures.values()
        for figure in figures
        for end in (figure.value, figure.upper)
        if end is not None
    ]
    return max(ends, default=None)


def evidence(*entries: Row) -> str:
    """Return how the figures of energy of rows are known, by arm where that differs."""
    known: dict[str, dict[str, None]] = {}
    for entry in entries:
        for arm, figures in entry.figures.items():
            own = known.setdefault(arm, {})
            own.update(dict.fromkeys(figure.evidence for figure in figures if figure.evidence))
    found = {arm: listed(list(words)) for arm, words in known.items()}
    words = dict.fromkeys(word for word in found.values() if word)
    if len(words) < 2:  # noqa: PLR2004 - all arms alike
        return next(iter(words), "")
    return "; ".join(f"{arm}: {word}" for arm, word in found.items() if word)


def interval_evidence(entries: Sequence[Row]) -> list[str]:
    """Return how the figures are known that are drawn as intervals, each way once."""
    figures = [f for entry in entries for of_arm in entry.figures.values() for f in of_arm]
    return list(dict.fromkeys(f.evidence for f in figures if f.upper is not None))


def arm_bar(entry: Row | None, label: str, letter: str, arm: str, runs: Sequence[Run]) -> Bar:
    """Return an arm's bar: its median and runs; known by bounds only, its widest interval.

    ``runs`` are the arm's: without a figure the bar says why none of them has one.
    """
    figures = entry.figures.get(arm, ()) if entry else ()
    spread = entry.spreads.get(arm) if entry else None
    bounds = [figure for figure in figures if figure.value is None and figure.upper is not None]
    forced = entry is not None and bool(entry.forced)
    dots = [Dot(f.value, f.valid, forced) for f in figures if f.value is not None]
    bar = Bar(
        label=label,
        role=arm_role(letter),
        marker=arm_marker(letter),
        dots=dots,
        count=_count(spread.count if spread else 0, len(figures)),
        reason=_reason(entry, figures, runs),
    )
    if spread is not None:
        return replace(bar, value=spread.median)
    if dots or not bounds:
        return replace(bar, note="not compared")
    lowers = [figure.lower for figure in bounds if figure.lower is not None]
    uppers = [figure.upper for figure in bounds if figure.upper is not None]
    count = _count(len(bounds), len(figures))
    return replace(bar, lower=min(lowers, default=None), upper=max(uppers), count=count)


def _count(valid: int, total: int) -> str:
    if not total:
        return ""
    return f"n = {valid}" if valid == total else f"n = {valid} of {total}"


def _reason(entry: Row | None, figures: Sequence[RunFigure], runs: Sequence[Run]) -> str:
    if any(figure.value is not None or figure.upper is not None for figure in figures):
        return ""
    if entry is None:
        return NOT_THERE
    return why_missing(entry.quantity, [run.record for run in runs])


def _panel(
    key: str, entry: Row, runs: Mapping[str, Sequence[Run]], letters: Sequence[str]
) -> Panel:
    names = short_names(list(runs), letters)
    bars = [
        arm_bar(entry, label, letter, arm, of_arm)
        for label, letter, (arm, of_arm) in zip(names, letters, runs.items(), strict=False)
    ]
    scale = scale_for(entry.quantity.unit, largest(entry))
    remark = [
        f"{entry.quantity.label}, {scale.unit}".removesuffix(", "),
        *textwrap.wrap(evidence(entry), _LINE),
        *textwrap.wrap(forced_past([entry]), _LINE),
    ]
    return Panel(
        key=key,
        bars=bars,
        scale=scale,
        question=question(entry.quantity),
        remark=remark,
        better=entry.quantity.better,
        width=round(PANEL_WIDTH - max(map(len, names)) * _LETTER),
    )


def _description(rows: Sequence[Row], drawn: Sequence[Row]) -> str:
    text = (
        "Bars are medians of the valid runs of each arm, filled marks are single runs; a hollow "
        "mark is a run that failed or that a check bars, and it is in no median. "
    )
    if any(entry.forced for entry in drawn):
        text += "Where a figure was forced past what bars it, all marks are hollow and count. "
    if known := interval_evidence(drawn):
        text += f"{intervals_caption(known)} "
    text += "Each panel has its own axis, from zero."
    missing = [entry.quantity.label for entry in rows if entry not in drawn]
    return text + (f" No run has a figure of {listed(missing)}." if missing else "")


def _told(
    drawn: Sequence[Row], runs: Mapping[str, Sequence[Run]], letters: Sequence[str]
) -> list[str]:
    """Return each panel in a sentence, for who hears the chart instead of seeing it."""
    said = []
    for entry in drawn:
        scale = scale_for(entry.quantity.unit, largest(entry))
        arms = zip(letters, runs.items(), strict=False)
        bars = [arm_bar(entry, arm, letter, arm, of_arm) for letter, (arm, of_arm) in arms]
        shown = "; ".join(f"{bar.label} {bar.text(scale)}" for bar in bars)
        said.append(f"{question(entry.quantity)} In {scale.unit or 'its own unit'}: {shown}.")
    return said


def _table(rows: Sequence[Row], runs: Mapping[str, Sequence[Run]]) -> Table:
    """Return every run's figure: nothing is drawn that is not listed."""
    titles = columns("quantity", "unit", "arm", "#runs", "figures in order of start", "known by")
    found = [_line(entry, arm, of_arm) for entry in rows for arm, of_arm in runs.items()]
    return Table(columns=titles, rows=found, caption="Every run's figure")


def _line(entry: Row, arm: str, runs: Sequence[Run]) -> Sequence[Cell]:
    scale = scale_for(entry.quantity.unit, largest(entry))
    figures = entry.figures.get(arm, ())
    words = dict.fromkeys(figure.evidence for figure in figures if figure.evidence)
    return row(
        entry.quantity.label,
        scale.unit,
        arm,
        counted(len(figures), "run"),
        "; ".join(_text(figure, scale) for figure in figures)
        or Cell(MISSING, remark=_reason(entry, (), runs)),
        listed(list(words)),
    )


def _text(figure: RunFigure, scale: Scale) -> str:
    text = scaled(figure.value, scale)
    if figure.value is None and figure.upper is not None:
        text = interval_text(figure.lower, figure.upper, scale, DIGITS)
    elif figure.value is None and figure.note:
        text += f" ({figure.note})"
    return text if figure.valid else f"{text} (not compared)"
