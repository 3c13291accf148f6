"""Charts of bars: arms side by side, over a swept setting, by power state, and parts of a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from wattload.core.record.energy import PowerStateShare
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.bars import Bar, Dot, bars_svg, checked_range, part_bars_figure
from wattload.reports.charts.captions import (
    NOT_RECORDED,
    forced_caption,
    forced_clause,
    interval_evidence,
    intervals_caption,
    missing_reason,
)
from wattload.reports.charts.themes import arm_role
from wattload.reports.runs.energy import phase_energies
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import leading, overlap
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.figures import Quantity, RunFigure
from wattload.reports.stats.subject import LETTERS, Group, Subject, lettered
from wattload.reports.stats.sweeps import points
from wattload.results.labels import label, workload_title
from wattload.results.quantity import (
    MISSING,
    Scale,
    counted,
    interval_text,
    listed,
    out_of_range,
    percent,
    quantity,
    scale_for,
    scaled,
)
from wattload.results.shapes import Part, PartBar, PartBars
from wattload.results.view import median_of_known

Parts = Mapping[str, Sequence[Mapping[str, float | None]]]
"""The parts of each run of an arm, in SI base units."""

_RATES = (Unit.BYTES_PER_SECOND, Unit.SAMPLES_PER_SECOND)
_STATE_WORDS = {"transition": "between states", "unknown": "state unknown"}
"""What a record has in place of the number of a power state."""

_LEAST_USEFUL = 0.001
"""A smaller share of a part is that of an overhead, and is not printed on its bar."""


def arms_legend(arms: Sequence[str], letters: Sequence[str] = LETTERS) -> list[tuple[str, str]]:
    """Return the role of each arm and its name with the letter; nothing for a single arm."""
    if len(arms) < 2:  # noqa: PLR2004 - nothing to tell apart
        return []
    return [
        (arm_role(letter), lettered(letter, arm))
        for letter, arm in zip(letters, arms, strict=False)
    ]


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


def arm_bar(entry: Row | None, letter: str, arm: str, runs: Sequence[Run]) -> Bar:
    """Return an arm's bar: what its ratio divides and its runs, or its widest interval.

    Args:
        entry: the quantity's row; ``None`` where no run has the quantity.
        letter: the arm's, which sets its colour.
        arm: the arm's name.
        runs: the arm's; they give the reason where the bar has no figure.
    """
    figures = entry.figures.get(arm, ()) if entry else ()
    bounds = [figure for figure in figures if figure.value is None and figure.upper is not None]
    forced = entry is not None and bool(entry.forced)
    dots = [Dot(f.value, f.in_mean, forced) for f in figures if f.value is not None]
    bar = Bar(
        label=letter,
        role=arm_role(letter),
        dots=dots if len(dots) > 1 else [dot for dot in dots if not dot.in_mean or forced],
        reason=_reason(entry, figures, runs),
    )
    spread = entry.spreads.get(arm) if entry else None
    if entry is not None and spread is not None:
        return replace(bar, value=entry.centres.get(arm) or spread.median)
    if dots or not bounds:
        return replace(bar, note="not compared")
    lowers = [figure.lower for figure in bounds if figure.lower is not None]
    uppers = [figure.upper for figure in bounds if figure.upper is not None]
    return replace(bar, lower=min(lowers, default=None), upper=max(uppers))


def _reason(entry: Row | None, figures: Sequence[RunFigure], runs: Sequence[Run]) -> str:
    if any(figure.value is not None or figure.upper is not None for figure in figures):
        return ""
    if entry is None:
        return NOT_RECORDED
    return missing_reason(entry.quantity, [run.record for run in runs])


def _panel_title(quantity: Quantity, scale: Scale) -> str:
    arrow = {"higher": "↑", "lower": "↓"}.get(quantity.better, "")
    return f"{quantity.label}, {scale.unit}".removesuffix(", ") + f" {arrow}".rstrip()


@dataclass(frozen=True, slots=True)
class PointRows:
    """The quantities at one point of a sweep, and the runs of each arm there.

    ``value`` is that of the swept setting, empty without a sweep. The runs give the reason where an
    arm has no figure and others do.
    """

    value: str
    rows: Sequence[Row]
    runs: Mapping[str, Sequence[Run]]


def arms_figure(
    name: str,
    subject: str,
    points: Sequence[PointRows],
    letters: Sequence[str] = LETTERS,
    axis: str = "",
    *,
    energies: str = "a whole run",
) -> Figure | None:
    """Return a panel per quantity, each from zero on its own axis; ``None`` without any figure.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        points: one, or those of a sweep, each of which has a group of bars.
        letters: those of the arms, in their order.
        axis: the swept setting, in words.
        energies: what these are of.
    """
    rows: dict[str, dict[str, Row]] = {}
    for point in points:
        for entry in point.rows:
            rows.setdefault(entry.quantity.key, {})[point.value] = entry
    drawn = [
        own for own in rows.values() if any(largest(each) is not None for each in own.values())
    ]
    if not drawn:
        return None
    arms = list(points[0].runs)
    panels = []
    for own in drawn:
        scale = _scale(own)
        bars: list[Bar] = []
        for point in points:
            pairs = zip(letters, point.runs.items(), strict=False)
            found = [arm_bar(own.get(point.value), letter, *of_arm) for letter, of_arm in pairs]
            if len(arms) == 1:
                found = [replace(bar, label="") for bar in found]
            found[0] = replace(found[0], heading=f"{axis} {point.value}".strip())
            bars += map(checked_range, found)
        quantity = next(iter(own.values())).quantity
        panels.append(bars_svg(_panel_title(quantity, scale), bars, scale))
    every = [entry for own in drawn for entry in own.values()]
    runs = [own for point in points for own in point.runs.values()]
    caption = _caption(every, runs, energies)
    title = f"{subject}: {'arm by arm' if len(arms) > 1 else 'every run'}"
    if axis:
        caption = f"A group of bars for each value of {axis}. {caption}"
        title = f"{subject} by {axis}"
    return Figure(
        name=name,
        title=title,
        svg="".join(panels),
        caption=forced_caption(caption, forced_clause(every)),
        table=_table(list(rows.values()), arms, axis, energies),
        legend=arms_legend(arms, letters),
    )


def _scale(own: Mapping[str, Row]) -> Scale:
    """Return the scale of a quantity's rows, by swept value."""
    ends = [end for entry in own.values() if (end := largest(entry)) is not None]
    return scale_for(next(iter(own.values())).quantity.unit, max(ends, default=None))


def _caption(drawn: Sequence[Row], runs: Sequence[Sequence[Run]], energies: str) -> str:
    parts = ["↑ higher is better, ↓ lower is better."]
    if any(entry.quantity.unit is Unit.JOULES for entry in drawn):
        parts.append(f"Energies are of {energies}.")
    if any(len(own) > 1 for own in runs):
        parts.append("Bars are geometric means of valid runs, as in the ratios. A dot is one run.")
    known = [f for entry in drawn for own in entry.figures.values() for f in own if f.value]
    if any(f.valid and not f.in_mean for f in known):
        parts.append("A hollow dot is not in the mean: it is excluded, or its partner is.")
    elif any(not f.valid for f in known):
        parts.append("A hollow dot is an excluded run.")
    parts.append(intervals_caption(interval_evidence(drawn)))
    return " ".join(part for part in parts if part)


def runs_table(rows: Sequence[Row], arms: Sequence[str], energies: str) -> Table:
    """Return the figures of every run, of quantities without a chart here."""
    return _table([{"": entry} for entry in rows], arms, "", energies)


def _table(
    rows: Sequence[Mapping[str, Row]], arms: Sequence[str], axis: str, energies: str
) -> Table:
    lines = []
    for own in rows:
        scale = _scale(own)
        for value, entry in own.items():
            for arm in arms:
                for figure in entry.figures.get(arm, ()):
                    shown = scaled(figure.value, scale)
                    if figure.value is None and figure.upper is not None:
                        shown = interval_text(figure.lower, figure.upper, scale)
                    names = [entry.quantity.label, scale.unit, *([value] if axis else []), arm]
                    lines.append(row(*names, shown, "yes" if figure.valid else "no", figure.note))
    titles = ["quantity", "unit", *([f"#{axis}"] if axis else []), "arm"]
    return Table(
        columns=columns(*titles, "#figure", "valid", "remark"),
        rows=lines,
        caption="Every run's figure",
        note=f"Energies are of {energies}." if any(map(_has_joules, rows)) else "",
    )


def _has_joules(own: Mapping[str, Row]) -> bool:
    return any(entry.quantity.unit is Unit.JOULES for entry in own.values())


def sweep_figure(name: str, subject: Subject, group: Group) -> Figure | None:
    """Return a panel per headline quantity, with the bars of each point of a sweep.

    ``None`` for a group that was not swept, or has no figure. Rates over a number are curves
    instead, and energies are those of the whole job where it has one.
    """
    found = points(group)
    if len(found) < 2:  # noqa: PLR2004 - no sweep
        return None
    has_curves = all(point.number is not None for point in found)
    rows = [
        PointRows(
            point.value,
            [
                entry
                for entry in compare(subject, point.group)
                if entry.quantity.headline
                and entry.quantity.better != "neither"
                and entry.call != "derived"
                and not (has_curves and entry.quantity.unit in _RATES)
            ],
            {arm: point.group.arms.get(arm, ()) for arm in group.arms},
        )
        for point in found
    ]
    title, axis = workload_title(group.workload), label(found[0].axis)
    return arms_figure(name, title, rows, group.letters, axis)


def stages_figure(
    name: str, subject: str, arms: Mapping[str, Sequence[RunRecord]]
) -> Figure | None:
    """Return the timed phases of each bar as its parts.

    ``None`` where there is one phase only, or where phases overlap: a stack would count the
    shared time twice.
    """
    records = [record for runs in arms.values() for record in runs]
    names = dict.fromkeys(phase.name for record in records for phase in leading(record))
    if len(names) < 2 or any(overlap(leading(record)) for record in records):  # noqa: PLR2004 - one is no stack
        return None
    title = f"{subject}: where does the time go?"
    found: Parts = {
        arm: [{label(phase.name): phase.active_s for phase in leading(record)} for record in runs]
        for arm, runs in arms.items()
    }
    return _stack_figure(name, title, ("the time in timed phases", Unit.SECONDS), found, {})


def parts_figures(
    name: str,
    subject: str,
    arms: Mapping[str, Sequence[RunRecord]],
    useful: tuple[str, str] = ("", ""),
) -> tuple[Figure, ...]:
    """Return a chart for each whole that a run's metrics are parts of.

    The share of the ``useful`` metric is printed on its bar, with a word for it.
    """
    every = [
        (arm, index, metric)
        for arm, records in arms.items()
        for index, record in enumerate(records)
        for metric in record.metrics
        if metric.part_of
    ]
    figures: list[Figure | None] = []
    useful_part = (label(useful[0], Unit.SECONDS), useful[1])
    for whole in dict.fromkeys((metric.part_of, metric.unit) for *_, metric in every):
        found: dict[str, list[dict[str, float | None]]] = {
            arm: [{} for _ in records] for arm, records in arms.items()
        }
        reasons = {}
        for arm, index, metric in every:
            if (metric.part_of, metric.unit) != whole:
                continue
            part = label(metric.name, metric.unit)
            reason = metric.missing.get("value", "") or out_of_range(metric.value)
            found[arm][index][part] = None if reason else metric.value
            if reason:
                reasons[part, arm] = reason
        place = f"{name}-parts{len(figures)}"
        title = f"{subject}: {whole[0]}"
        figures.append(_stack_figure(place, title, whole, found, reasons, useful=useful_part))
    return tuple(figure for figure in figures if figure is not None)


def _stack_figure(
    name: str,
    title: str,
    whole: tuple[str, Unit],
    runs: Parts,
    reasons: Mapping[tuple[str, str], str],
    *,
    useful: tuple[str, str] = ("", ""),
) -> Figure | None:
    """Return a bar of parts for each arm; ``None`` where every part is zero or missing.

    Args:
        name: unique on the page.
        title: of the chart.
        whole: what the parts add up to, and their unit.
        runs: the parts of each run of an arm.
        reasons: why an arm lacks a part, by part and arm.
        useful: the part whose share is printed on its bar, and a word for it.
    """
    names = list(dict.fromkeys(part for own in runs.values() for run in own for part in run))
    medians = {
        arm: {part: median_of_known(run.get(part) for run in own) for part in names}
        for arm, own in runs.items()
    }
    if not any(value for own in medians.values() for value in own.values()):
        return None
    bars = []
    for arm, own in medians.items():
        parts = [Part(part, value) for part, value in own.items() if value is not None]
        total = sum(part.value for part in parts)
        share = (own.get(useful[0]) or 0.0) / total if total else 0.0
        note = f"{percent(share, 2)} {useful[1]}" if share >= _LEAST_USEFUL else ""
        bars.append(PartBar(label=arm, parts=parts, note=note))
    gaps = {
        f"No {part}: {reasons.get((part, arm), NOT_RECORDED)}."
        for arm, own in medians.items()
        for part, value in own.items()
        if value is None
    }
    return part_bars_figure(
        PartBars(
            name=name,
            title=title,
            caption=" ".join(["Parts are medians of the valid runs.", *sorted(gaps)]),
            what=whole[0],
            unit=whole[1],
            kind="part",
            names=names,
            bars=bars,
            whole=whole[0],
        )
    )


@dataclass(frozen=True, slots=True)
class _State:
    """One arm in one state: what each of its runs spent there.

    ``whole_s`` is the median of the runs' seconds in all states.
    """

    letter: str
    arm: str
    state: str
    spent: Sequence[PowerStateShare]
    whole_s: float

    @property
    def seconds(self) -> float:
        """The median of the seconds that its runs were in the state."""
        return median(each.seconds for each in self.spent)

    @property
    def share(self) -> str:
        """The share of the time in the state, as a percentage."""
        return percent(self.seconds / self.whole_s if self.whole_s else None)

    @property
    def state_name(self) -> str:
        return _state_name(self.state)

    def known(self, name: str) -> list[float]:
        return [value for each in self.spent if (value := getattr(each, name)) is not None]


def states_figure(
    name: str,
    subject: str,
    arms: Mapping[str, Sequence[RunRecord]],
    letters: Sequence[str] = LETTERS,
) -> Figure | None:
    """Return energy by arm and observed power state, over the timed phases.

    ``None`` where no arm has more than one state: a single bar repeats the energy of the whole.

    Args:
        name: unique on the page.
        subject: what the title begins with.
        arms: the valid runs of each arm.
        letters: those of the arms, in their order.
    """
    states = [each for pair in zip(letters, arms.items(), strict=False) for each in _states(*pair)]
    ends = [end for each in states for end in (*each.known("energy_j"), *each.known("upper_j"))]
    if len(states) == len({each.letter for each in states}) or not ends:
        return None
    scale = scale_for(Unit.JOULES, *ends)
    bars = [checked_range(_state_bar(each, len(arms) > 1)) for each in states]
    titles = columns(
        "arm", "power state", "#runs", "#seconds", "#share", f"#energy, {scale.unit}", "#moved"
    )
    rows = [
        row(
            each.arm,
            each.state_name,
            counted(len(each.spent), "run"),
            quantity(each.seconds, Unit.SECONDS),
            each.share,
            "; ".join(_spent_text(spent, scale) for spent in each.spent),
            quantity(median(moved) if (moved := each.known("moved_bytes")) else None, Unit.BYTES),
        )
        for each in states
    ]
    known = [
        energy.words for own in arms.values() for each in own for energy in phase_energies(each)
    ]
    return Figure(
        name=name,
        title=f"{subject}: energy by power state",
        svg=bars_svg(f"energy in timed phases, {scale.unit}", bars, scale),
        caption="The observed state of the drive, its seconds and their share, as medians of the "
        f"valid runs. Energy: {listed(list(dict.fromkeys(known)))}.",
        table=Table(columns=titles, rows=rows, caption="By observed power state, in timed phases"),
    )


def _states(letter: str, pair: tuple[str, Sequence[RunRecord]]) -> list[_State]:
    arm, records = pair
    runs = [_spent_by_state(record) for record in records]
    states = sorted({state for run in runs for state in run}, key=_order)
    whole_s = [sum(spent.seconds for spent in run.values()) for run in runs if run]
    return [
        _State(letter, arm, state, [run[state] for run in runs if state in run], median(whole_s))
        for state in states
    ]


def _state_name(state: str) -> str:
    return f"PS{state}" if state.isdigit() else _STATE_WORDS.get(state, state)


def observed_states(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the power states that drives were in during timed phases, in order."""
    states = {state for record in records for state in _spent_by_state(record)}
    return [_state_name(state) for state in sorted(states, key=_order)]


def _order(state: str) -> tuple[bool, int, str]:
    return not state.isdigit(), int(state) if state.isdigit() else 0, state


def _spent_by_state(record: RunRecord) -> dict[str, PowerStateShare]:
    """Return what a run spent in each state, summed over its leading phases and its drives."""
    shares: dict[str, list[PowerStateShare]] = {}
    for phase in leading(record):
        for energy in record.drive_energies(phase.name):
            for share in energy.states:
                shares.setdefault(share.state, []).append(share)
    return {state: _sum(of_state) for state, of_state in shares.items()}


def _sum(shares: Sequence[PowerStateShare]) -> PowerStateShare:
    """Return the sum of shares; the sum lacks each figure that one of them lacks."""
    fields: dict[str, Any] = {"seconds": sum(share.seconds for share in shares)}
    for name in ("moved_bytes", "energy_j", "lower_j", "upper_j"):
        values = [getattr(share, name) for share in shares]
        fields[name] = None if None in values else sum(values)
    return shares[0].model_copy(update=fields)


def _state_bar(each: _State, several: bool) -> Bar:
    energies, lowers, uppers = (each.known(name) for name in ("energy_j", "lower_j", "upper_j"))
    known = bool(energies)
    return Bar(
        label=f"{each.letter}, {each.state_name}" if several else each.state_name,
        role=arm_role(each.letter),
        value=median(energies) if known else None,
        lower=min(lowers, default=None) if not known else None,
        upper=max(uppers, default=None) if not known else None,
        dots=[Dot(value) for value in energies] if len(energies) > 1 else [],
        note=f"in {quantity(each.seconds, Unit.SECONDS, 3)} ({each.share})",
        reason="energy unknown",
    )


def _spent_text(spent: PowerStateShare, scale: Scale) -> str:
    if spent.energy_j is not None:
        return scaled(spent.energy_j, scale)
    if spent.upper_j is None:
        return MISSING
    return interval_text(spent.lower_j, spent.upper_j, scale)
