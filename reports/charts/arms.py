"""Arms side by side: a bar for each arm's median, a mark for each run, a line for bounds."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wattload.reports.blocks import Cell, Figure, Table, columns, row
from wattload.reports.charts.bars import Bar, Dot, Panel
from wattload.reports.charts.captions import (
    NOT_RECORDED,
    evidence,
    forced_caption,
    forced_clause,
    forced_title,
    interval_evidence,
    intervals_caption,
    missing_reason,
    question,
)
from wattload.reports.charts.svg import join_panels, make_figure
from wattload.reports.charts.themes import arm_marker, arm_role
from wattload.reports.quantity import (
    MISSING,
    Scale,
    counted,
    interval_text,
    listed,
    scale_for,
    scaled,
)
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import Row
from wattload.reports.stats.figures import RunFigure
from wattload.reports.stats.subject import LETTERS, lettered

PANEL_WIDTH = 424
_COLUMNS = 2
_NAME_LIMIT = 16
_LETTER = 6.9
_LINE = 64


def arms_figure(
    name: str,
    subject: str,
    rows: Sequence[Row],
    runs: Mapping[str, Sequence[Run]],
    letters: Sequence[str] = LETTERS,
) -> Figure | None:
    """Return one panel per quantity, each on its own axis; ``None`` where no run has a figure.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        rows: one for each quantity.
        runs: those of each arm; they give the reason where an arm has no figure and others do.
        letters: those of the arms, in their order.
    """
    drawn = [entry for entry in rows if largest(entry) is not None]
    if not drawn:
        return None
    panels = [_panel(f"p{index}", entry, runs, letters) for index, entry in enumerate(drawn)]
    chart = join_panels(
        "concat",
        [panel.chart() for panel in panels],
        columns=_COLUMNS,
        spacing={"row": 30, "column": 30},
    )
    forced = forced_clause(drawn)
    return make_figure(
        chart,
        {key: found for panel in panels for key, found in panel.data().items()},
        name=name,
        title=forced_title(f"{subject}: {listed(list(runs))}", forced),
        caption=forced_caption(_caption(rows, drawn), forced),
        sentences=_sentences(drawn, runs, letters),
        table=_table(rows, runs),
        legend=arms_legend(list(runs), letters),
    )


def arms_legend(arms: Sequence[str], letters: Sequence[str] = LETTERS) -> list[tuple[str, str]]:
    """Return the role and the name of each arm, with its letter where there are several."""
    names = [lettered(*pair) for pair in zip(letters, arms, strict=False)]
    roles = [arm_role(letter) for letter in letters]
    return list(zip(roles, names if len(arms) > 1 else arms, strict=False))


def short_names(arms: Sequence[str], letters: Sequence[str] = LETTERS) -> list[str]:
    """Return the labels of bars: the letters, with the arms' own names where all are short."""
    pairs = list(zip(letters, arms, strict=False))
    if len(arms) == 1:
        return ["" if len(arms[0]) > _NAME_LIMIT else arms[0]]
    names = [letter if letter == arm else f"{letter} {arm}" for letter, arm in pairs]
    if any(len(name) > _NAME_LIMIT for name in names):
        return [letter for letter, _ in pairs]
    return names


def largest(entry: Row) -> float | None:
    """Return the largest value or upper bound of a row; ``None`` where no run has one."""
    ends = [
        end
        for figures in entry.figures.values()
        for figure in figures
        for end in (figure.value, figure.upper)
        if end is not None
    ]
    return max(ends, default=None)


def arm_bar(entry: Row | None, label: str, letter: str, arm: str, runs: Sequence[Run]) -> Bar:
    """Return an arm's bar: its median and its runs, or its widest interval where it has bounds.

    Args:
        entry: the quantity's row; ``None`` where no run has the quantity.
        label: the text next to the bar.
        letter: the arm's, which sets its colour and marker.
        arm: the arm's name.
        runs: the arm's; they give the reason where the bar has no figure.
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
        return NOT_RECORDED
    return missing_reason(entry.quantity, [run.record for run in runs])


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
        *textwrap.wrap(forced_clause([entry]), _LINE),
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


def _caption(rows: Sequence[Row], drawn: Sequence[Row]) -> str:
    text = (
        "Bars are medians of the valid runs of each arm; filled marks are single runs. A hollow "
        "mark is a run that failed or that a check excludes; it is in no median. "
    )
    if any(entry.forced for entry in drawn):
        text += "Where --force overrides an exclusion, all marks are hollow and all count. "
    if known := interval_evidence(drawn):
        text += f"{intervals_caption(known)} "
    text += "Each panel has its own axis, which begins at zero."
    missing = [entry.quantity.label for entry in rows if entry not in drawn]
    return text + (f" No run has a figure for {listed(missing)}." if missing else "")


def _sentences(
    drawn: Sequence[Row], runs: Mapping[str, Sequence[Run]], letters: Sequence[str]
) -> list[str]:
    """Return each panel as a sentence, for readers who cannot see the chart."""
    sentences = []
    for entry in drawn:
        scale = scale_for(entry.quantity.unit, largest(entry))
        arms = zip(letters, runs.items(), strict=False)
        bars = [arm_bar(entry, arm, letter, arm, of_arm) for letter, (arm, of_arm) in arms]
        texts = "; ".join(f"{bar.label} {bar.text(scale)}" for bar in bars)
        sentences.append(f"{question(entry.quantity)} In {scale.unit or 'its own unit'}: {texts}.")
    return sentences


def _table(rows: Sequence[Row], runs: Mapping[str, Sequence[Run]]) -> Table:
    """Return every run's figure, those that are not drawn one by one too."""
    titles = columns("quantity", "unit", "arm", "#runs", "figures, in order of start", "evidence")
    lines = [_line(entry, arm, of_arm) for entry in rows for arm, of_arm in runs.items()]
    return Table(columns=titles, rows=lines, caption="Every run's figure")


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
        text = interval_text(figure.lower, figure.upper, scale)
    elif figure.value is None and figure.note:
        text += f" ({figure.note})"
    return text if figure.valid else f"{text} (not compared)"
