"""What the runs mean: energy of a year and waiting of a day, at a pace and a fleet.

The reader may change both on the page; on paper and without a script they are as set. Every figure
follows from the joules, seconds and idle watts of a unit of work; what is not measured is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from wattload.core.units import J_PER_WH, TB
from wattload.reports.blocks import (
    Block,
    Cell,
    Paragraph,
    Projection,
    Section,
    Setting,
    Table,
    columns,
    row,
)
from wattload.reports.sections.wording import sentence_of, unique
from wattload.reports.stats.answers import Answer
from wattload.reports.stats.bars import ShownPoint, shown_point
from wattload.reports.stats.consequences import Cost, costs
from wattload.reports.stats.subject import LETTERS, Subject, lettered
from wattload.reports.stats.summary import VerdictRow, first_screen
from wattload.results.quantity import MISSING, Scale, duration_scale, listed, number

MINUTES, DRIVES = 60.0, 8.0
"""The settings at first: a unit of work an hour, on eight drives."""

_MINUTE_S, _DAY_MINUTES, _YEAR_DAYS = 60.0, 1440.0, 365.0
_KWH_J = 1000 * J_PER_WH
_DIGITS = 3
"""Significant digits, as on the first screen."""
_NO_DIFFERENCE, _NOT_COMPARED = "no difference shown", "not compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A figure with its interval, by the minutes between units of work and the number of drives.

    ``per_unit`` has the figure at one unit a minute, and then the ends of its interval or the
    figures of runs; the lowest and the highest of these are printed under it. To each the one of
    ``always`` is added, none by default, and the sum is multiplied by the drives if
    ``is_per_drive``. ``text`` has a place for the number. A unit of work takes ``unit_minutes``: at
    a shorter interval there is no figure.
    """

    per_unit: tuple[float, ...]
    unit_minutes: float
    always: tuple[float, ...] = ()
    is_per_drive: bool = False
    text: str = "{0}"

    def numbers(self, minutes: float, drives: float) -> list[float]:
        """Return the figure and the ends of its range; none if the units overlap."""
        if minutes < self.unit_minutes:
            return []
        fleet = drives if self.is_per_drive else 1.0
        always = self.always or (0.0,) * len(self.per_unit)
        value, *others = (
            fleet * (each / minutes + more)
            for each, more in zip(self.per_unit, always, strict=True)
        )
        return [value, min(others), max(others)] if others else [value]

    def cell(self) -> Cell:
        """Return the cell at the settings as they are at first."""
        shown = [number(each, _DIGITS) for each in self.numbers(MINUTES, DRIVES)]
        facts = {
            "perUnit": self.per_unit,
            "unitMinutes": self.unit_minutes,
            "always": self.always,
            "isPerDrive": self.is_per_drive,
            "text": self.text,
        }
        return Cell(
            self.text.format(*shown) if shown else MISSING,
            remark=" to ".join(shown[1:]),
            formula=json.dumps(facts),
        )


def consequences_section(subject: Subject) -> Section | None:
    """Return what the runs mean in a year and a day; ``None`` without a unit of work."""
    if len(subject.arms) > len(LETTERS):
        return None
    screen = first_screen(subject)
    points = [shown_point(subject, group) for group in subject.groups]
    found = [
        (shown, point, own)
        for shown, point in zip(screen.rows, points, strict=True)
        if (own := costs(point))
    ]
    every = [cost for _, _, own in found for cost in own]
    has_energy = any(cost.energy_j for cost in every)
    waits_s = [cost.io_s.value * _DAY_MINUTES / MINUTES for cost in every if cost.io_s]
    if not has_energy and not waits_s:
        return None
    wait = duration_scale(max(waits_s, default=0.0))
    rows = [cells for each in found for cells in _rows(*each, wait)]
    titles = {
        "workload": True,
        "arm": len(subject.arms) > 1,
        "#energy of the work, kWh a year": has_energy,
        "#with idle power between, kWh a year": any(cost.idling for cost in every),
        "#Wh per TB read + written": any(cost.j_per_byte for cost in every),
        f"#stall, {wait.unit} a day": bool(waits_s),
    }
    kept = [place for place, is_kept in enumerate(titles.values()) if is_kept]
    units = listed(unique(point.work.name for _, point, _ in found if point.work), "or")
    table = Table(
        columns=columns(*(title for title, is_kept in titles.items() if is_kept)),
        rows=[[cells[place] for place in kept] for cells in rows],
        caption="What follows",
        note=_note(every),
    )
    fleet = (
        ", on each of ",
        Setting(name="Number of drives", value=DRIVES, least=1),
        " drives",
    )
    sentence = (
        f"One {units} every ",
        Setting(name="Minutes between units of work", value=MINUTES, least=0.01),
        " minutes",
        *(fleet if has_energy else ()),
        ".",
    )
    blocks: list[Block] = [Projection(sentence, table)]
    if screen.banner:
        blocks.insert(0, Paragraph(sentence_of(screen.banner)))
    return Section(anchor="consequences", title="What it means", blocks=blocks, open=True)


def _note(every: Sequence[Cost]) -> str:
    parts = []
    if any(cost.energy_j for cost in every):
        parts.append(
            "A year has 365 days, 8760 hours. Energy is that of the drives alone, per unit of work "
            "as on the first screen."
        )
    if any(cost.idling for cost in every):
        parts.append("Idle power was measured around the runs; deeper sleep uses less.")
        if len({cost.arm for cost in every}) > 1:
            parts.append(
                "No verdict compares it: where drives idle for most of the year, it decides which "
                "arm uses less."
            )
    if any(cost.io_s for cost in every):
        parts.append("Stall: the time of the I/O, if the job waits for it.")
        if not all(cost.io_s for cost in every):
            parts.append("It is unknown where accelerators compute meanwhile.")
    if any(mean and mean.lower for cost in every for mean in (cost.io_s, cost.energy_j)):
        parts.append(
            "Small figures: 95 % intervals of the mean, with the uncertainty of meters; of a "
            "difference, that of its ratio."
        )
    if any(len(cost.idling) > 1 for cost in every):
        parts.append(
            "Under a figure with idle power: the range over the runs, without the uncertainty of "
            "meters."
        )
    return " ".join(parts)


def _rows(
    shown: VerdictRow, point: ShownPoint, found: Sequence[Cost], wait: Scale
) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each arm, and for two arms their difference; all columns."""
    remark = "; ".join(filter(None, (shown.detail, _parts(point), shown.at)))
    for cost in found:
        yield row(
            Cell(shown.name, remark=remark),
            lettered(cost.letter, cost.arm),
            _energy(cost, shown),
            _with_idle(cost),
            _per_tb(cost),
            _wait(cost, wait),
        )
        remark = ""
    if shown.speed is None or shown.energy is None or len(found) < 2:  # noqa: PLR2004 - a pair
        return
    joules = {
        cost.arm: cost.energy_j.value / cost.drive_count if cost.energy_j else None
        for cost in found
    }
    waits = {cost.arm: cost.io_s.value if cost.io_s else None for cost in found}
    longest = max(cost.unit_s for cost in found) / _MINUTE_S
    year = Formula(
        per_unit=(_YEAR_DAYS * _DAY_MINUTES / _KWH_J,), unit_minutes=longest, is_per_drive=True
    )
    day = Formula(per_unit=(_DAY_MINUTES / wait.factor,), unit_minutes=longest)
    is_illustration = None in (shown.speed.outcome, shown.energy.outcome)
    yield row(
        shown.name,
        "difference, no verdict" if is_illustration else "difference",
        _difference(shown.energy, joules, year),
        Cell(_NOT_COMPARED if any(cost.idling for cost in found) else ""),
        Cell(""),
        _difference(shown.speed, waits, day),
    )


def _parts(point: ShownPoint) -> str:
    """Return which parts of a job its energy and its stall are of, where it is split."""
    if not point.is_split:
        return ""
    return f"energy of {point.part(point.energy_phase)}, stall of {point.part(point.phase)}"


def _energy(cost: Cost, shown: VerdictRow) -> Cell:
    if cost.energy_j is None:
        return Cell(MISSING, remark=shown.energies.missing or "not measured in every run")
    to_kwh = _YEAR_DAYS * _DAY_MINUTES / (_KWH_J * cost.drive_count)
    return Formula(
        per_unit=tuple(joules * to_kwh for joules in cost.energy_j.ends),
        unit_minutes=cost.unit_s / _MINUTE_S,
        is_per_drive=True,
    ).cell()


def _with_idle(cost: Cost) -> Cell:
    """Return the energy of the whole year: of the work, and of idling in between."""
    if cost.energy_j is None or not cost.idling:
        return Cell(MISSING)
    to_kwh = _YEAR_DAYS * _DAY_MINUTES / (_KWH_J * cost.drive_count)
    above_idle_j, idle_w = (
        (fmean(each), *(each if len(each) > 1 else ())) for each in zip(*cost.idling, strict=True)
    )
    return Formula(
        per_unit=tuple(joules * to_kwh for joules in above_idle_j),
        always=tuple(watts * _MINUTE_S * to_kwh for watts in idle_w),
        unit_minutes=cost.unit_s / _MINUTE_S,
        is_per_drive=True,
    ).cell()


def _per_tb(cost: Cost) -> Cell:
    if cost.j_per_byte is None:
        return Cell(MISSING)
    value, *ends = (number(each * TB / J_PER_WH, _DIGITS) for each in cost.j_per_byte.ends)
    return Cell(value, remark=" to ".join(ends))


def _wait(cost: Cost, wait: Scale) -> Cell:
    if cost.io_s is None:
        return Cell(MISSING)
    return Formula(
        per_unit=tuple(seconds * _DAY_MINUTES / wait.factor for seconds in cost.io_s.ends),
        unit_minutes=cost.unit_s / _MINUTE_S,
    ).cell()


def _difference(answer: Answer, means: Mapping[str, float | None], basis: Formula) -> Cell:
    """Return what the leading arm saves, by the ratio and interval of the verdict.

    Args:
        answer: the verdict.
        means: the figure of each arm per unit of work.
        basis: the formula of a figure of 1.
    """
    other = next((mean for arm, mean in means.items() if arm != answer.leader), None)
    if answer.outcome == "missing" or None in means.values() or other is None:
        return Cell("")
    ratios = (answer.ratio, answer.lower, answer.upper)
    if answer.shown is None or not all(ratios):
        return Cell(_NO_DIFFERENCE)
    saved = tuple(other * (1 - 1 / ratio) for ratio in ratios if ratio)
    return replace(
        basis,
        per_unit=tuple(each * basis.per_unit[0] for each in saved),
        text=f"{answer.letter} {{0}} less",
    ).cell()
