"""Arms side by side per workload: figures, ratios, what may be called, and unequal conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.reports.blocks import (
    Block,
    Cell,
    Fold,
    Notice,
    Paragraph,
    Section,
    Table,
    Tone,
    columns,
    row,
)
from wattload.reports.charts.arms import arms_figure
from wattload.reports.charts.effects import effects_figure
from wattload.reports.charts.parts import parts_figures
from wattload.reports.compare import Row, compare, sentence
from wattload.reports.conditions import differences
from wattload.reports.load import Run
from wattload.reports.quantity import (
    MISSING,
    Scale,
    counted,
    number,
    percent,
    scale_for,
    scaled,
)
from wattload.reports.sections.heat import temperature_table
from wattload.reports.sections.wording import anchor, sentence_of, unique
from wattload.reports.statistics import MINIMUM_RUNS, Spread
from wattload.reports.subject import LETTERS, Group, Subject, lettered

_CALLS: dict[str, tuple[str, Tone]] = {
    "a": ("A is better", "a"),
    "b": ("B is better", "b"),
    "none": ("no difference shown", "quiet"),
    "barred": ("not called", "quiet"),
}
_ENDINGS = {
    "a": ": A is better.",
    "b": ": B is better.",
    "none": ": no difference shown.",
    "barred": ".",
}
_NOISY, _UNSTABLE = 0.05, 0.10


def comparison_section(subject: Subject) -> Section | None:
    """Return the arms side by side, or the spread of one arm's runs; ``None`` for single runs."""
    groups = [group for group in subject.groups if len(group.runs) > 1]
    if not groups or len(subject.arms) > len(LETTERS):
        return None
    compares, several = subject.compares, len(subject.arms) > 1
    return Section(
        anchor="comparison",
        title="Comparison" if compares else "Side by side" if several else "Repeats",
        blocks=[Paragraph(_rules())] if compares else [],
        parts=[_part(subject, group) for group in groups],
    )


def _rules() -> str:
    return (
        "The unit is the run. An arm's figure is the median of its valid runs; B/A is the ratio of "
        "the two medians. The interval is a 95 % t interval (Welch) on the logarithms. An arm is "
        f"called better only with {MINIMUM_RUNS} valid runs per arm or more, an interval that "
        "excludes 1, and an effect above 1 % and above what either arm shows against itself (its "
        "later runs against its earlier ones). Each interval stands for itself: of twenty equal "
        "pairs about one would seem to differ."
    )


def _part(subject: Subject, group: Group) -> Section:
    arms = list(group.arms)
    rows = compare(subject, group)
    heads = [entry for entry in rows if entry.quantity.headline]
    name = anchor("compare", group.workload)
    blocks: list[Block] = [*_sentences(heads, arms), *_bars(subject, group)]
    directed = [entry for entry in heads if entry.quantity.better != "neither"]
    figures = [arms_figure(f"{name}-arms", group.workload, directed, arms)]
    if len(arms) == 2:  # noqa: PLR2004 - A and B
        figures.append(effects_figure(f"{name}-effects", group.workload, heads, *LETTERS[:2]))
    blocks.extend(figure for figure in figures if figure is not None)
    if len(arms) > 1:
        valid = _valid_runs(subject, group)
        records = {arm: [run.record for run in runs] for arm, runs in valid.items()}
        blocks.extend(parts_figures(name, group.workload, records))
    blocks.append(_table(heads, arms, "Headline figures and energy"))
    if heat := temperature_table(_valid_runs(subject, group)):
        blocks.append(heat)
    others = [entry for entry in rows if not entry.quantity.headline]
    if others:
        blocks.append(Fold("All other figures", [_table(others, arms, "Other figures")]))
    if len(arms) > 1:
        blocks.append(_conditions(subject, group))
    return Section(anchor=name, title=group.workload, blocks=blocks, remark=_counts(group))


def _valid_runs(subject: Subject, group: Group) -> dict[str, list[Run]]:
    return {
        arm: [run for run in runs if not subject.faults(run)] for arm, runs in group.arms.items()
    }


def _counts(group: Group) -> str:
    if len(group.arms) == 1:
        return counted(len(group.runs), "run")
    counts = [counted(len(runs), "run") for runs in group.arms.values()]
    named = [lettered(*pair) for pair in zip(LETTERS, group.arms, strict=False)]
    return ", ".join(f"{arm}: {count}" for arm, count in zip(named, counts, strict=True))


def _sentences(rows: Sequence[Row], arms: Sequence[str]) -> Iterator[Block]:
    """Yield what may be said, a sentence per quantity that has a ratio and a better direction."""
    if len(arms) < 2:  # noqa: PLR2004 - one arm has nothing beside it
        yield Paragraph("One arm only: its runs are shown with their spread, nothing is compared.")
        return
    if len(arms) > 2:  # noqa: PLR2004 - A and B
        yield Paragraph(
            "Medians of the valid runs of each arm, with their share of A's. Nothing is called "
            "better among more than two arms: name the runs of two for intervals and a call."
        )
        return
    told = [entry for entry in rows if entry.effect and entry.quantity.better != "neither"]
    said = [sentence(entry, "A", "B") + _ENDINGS[entry.call] for entry in told]
    reasons = unique(entry.reason for entry in told if entry.call == "barred")
    if said:
        yield Notice("What the ratios say", [*said, *map(sentence_of, reasons)], "")


def _bars(subject: Subject, group: Group) -> Iterator[Notice]:
    """Yield the runs that are shown and not compared, wholly or in energy, with the reasons."""
    barred = [f"{run.id}: {reason}" for run in group.runs for reason in subject.faults(run)]
    if barred:
        yield Notice("Runs that are shown and not compared", barred, "bad")
    reasons = [reason for run in group.runs for reason in subject.energy_faults(run)]
    if reasons:
        yield Notice("Energy is not compared", unique(reasons), "open")


def _table(rows: Sequence[Row], arms: Sequence[str], caption: str) -> Table:
    letters = LETTERS[: len(arms)] if len(arms) > 1 else ("figure",)
    titles = [f"#{letter}" for letter in letters]
    if len(arms) == 2:  # noqa: PLR2004 - A and B
        titles += ["#B/A", "#95 % interval", "call"]
    return Table(
        columns=columns("quantity", "better", *titles),
        rows=[_cells(entry, arms) for entry in rows],
        caption=caption,
        note="CV is the sample standard deviation over the mean of an arm's valid runs.",
    )


def _cells(entry: Row, arms: Sequence[str]) -> tuple[Cell, ...]:
    found = [spread.median for spread in entry.spreads.values() if spread is not None]
    scale = scale_for(entry.quantity.unit, *found, *_uppers(entry))
    cells = [_arm_cell(entry, arm, scale, _of_first(entry, arm, arms)) for arm in arms]
    start = (Cell(entry.quantity.label, remark=scale.unit), Cell(entry.quantity.better))
    if len(arms) != 2:  # noqa: PLR2004 - A and B
        return row(*start, *cells)
    effect = entry.effect
    interval = MISSING
    if effect is not None and effect.lower is not None:
        interval = f"{number(effect.lower, 3)} to {number(effect.upper, 3)}"
    words, tone = _CALLS[entry.call]
    ratio = number(effect.ratio, 3) if effect else MISSING
    return row(*start, *cells, ratio, interval, Cell("", tone, words, entry.reason))


def _uppers(entry: Row) -> list[float]:
    return [f.upper for figures in entry.figures.values() for f in figures if f.upper is not None]


def _of_first(entry: Row, arm: str, arms: Sequence[str]) -> str:
    """Return an arm's median as a multiple of A's, where more than two stand side by side."""
    first, own = entry.spreads.get(arms[0]), entry.spreads.get(arm)
    if len(arms) <= 2 or arm == arms[0] or first is None or own is None:  # noqa: PLR2004
        return ""
    return f"{number(own.median / first.median, 3)} x A; " if first.median > 0 else ""


def _arm_cell(entry: Row, arm: str, scale: Scale, share: str) -> Cell:
    """Return an arm's median with its spread; without a valid run, what its runs do say."""
    spread = entry.spreads.get(arm)
    if spread is not None:
        return Cell(scaled(spread.median, scale), remark=share + _spread_text(spread, scale))
    figures = entry.figures.get(arm, ())
    values = [figure.value for figure in figures if figure.value is not None]
    if values:
        shown = ", ".join(scaled(value, scale) for value in values)
        return Cell(shown, "quiet", remark="not compared")
    uppers = [figure.upper for figure in figures if figure.upper is not None]
    if uppers:
        lowers = [figure.lower for figure in figures if figure.lower is not None]
        text = f"≤ {scaled(max(uppers), scale)}"
        if lowers:
            text = f"{scaled(min(lowers), scale)} to {scaled(max(uppers), scale)}"
        return Cell(text, "quiet", remark="bounds")
    note = next((figure.note for figure in figures if figure.note), "")
    return Cell(MISSING, "open", remark=note)


def _spread_text(spread: Spread, scale: Scale) -> str:
    if spread.count == 1:
        return "n = 1"
    ends = f"{scaled(spread.minimum, scale)} to {scaled(spread.maximum, scale)}"
    text = f"n = {spread.count}, {ends}"
    if spread.cv is None:
        return text
    text += f", CV {percent(spread.cv, 2)}"
    if spread.cv > _UNSTABLE:
        return text + ": unstable"
    return text + (": noisy, run more" if spread.cv > _NOISY else "")


def _conditions(subject: Subject, group: Group) -> Block:
    found = differences(group)
    if not found:
        return Paragraph("The recorded conditions of all arms are the same.")
    rows = [
        row(
            Cell(item.name, remark="sets the work: nothing is called" if item.is_work else ""),
            *[item.values[arm] for arm in group.arms],
        )
        for item in found
    ]
    return Table(
        columns=columns("condition", *LETTERS[: len(group.arms)]),
        rows=rows,
        caption="Conditions that differ",
        note="All other recorded conditions are the same in all arms.",
    )
