"""Energy per phase of a run with its evidence: bars for figures, lines with caps for bounds."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.power import Evidence
from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.charts.bars import Bar, Panel, in_range
from wattload.reports.charts.bounds import intervals_caption
from wattload.reports.energy import SOFT_BOUND, Energy, energy_text, power_text
from wattload.reports.quantity import quantity, scale_for
from wattload.reports.svg import render

WIDTH = 640
_QUESTION = "How much energy does each phase use?"


def energy_figure(name: str, subject: str, energies: Sequence[Energy]) -> Figure | None:
    """Return the chart of energy per phase; ``None`` where no phase has a figure or a bound."""
    known = [e for e in energies if e.energy_j is not None or e.upper_j is not None]
    if not known:
        return None
    scale = scale_for(Unit.JOULES, *[_end_j(energy) for energy in known])
    words = list(dict.fromkeys(energy.words for energy in known))
    panel = Panel(
        key="energy",
        bars=[in_range(_bar(energy, is_named=len(words) > 1)) for energy in energies],
        scale=scale,
        question=_QUESTION,
        remark=[f"energy, {scale.unit}", *words],
        better="lower",
        width=WIDTH,
    )
    description = _description(known)
    told = [f"{bar.label}: {bar.text(scale)} {scale.unit}." for bar in panel.bars]
    return Figure(
        svg=render(
            panel.chart(),
            panel.data(),
            name=name,
            title=f"{subject}: energy per phase",
            description=" ".join([description, *told]),
        ),
        caption=description,
        table=_table(energies),
        legend=_legend(known),
    )


def _end_j(energy: Energy) -> float:
    return energy.energy_j if energy.energy_j is not None else energy.upper_j or 0.0


def _bar(energy: Energy, *, is_named: bool) -> Bar:
    """Return one phase's bar; ``is_named`` prints its evidence, where phases differ in it."""
    is_bound = energy.energy_j is None
    declared = energy.evidence is Evidence.DECLARED
    return Bar(
        label=energy.phase,
        role="bound" if is_bound else "declared" if declared else "power",
        value=energy.energy_j,
        lower=energy.lower_j if is_bound else None,
        upper=energy.upper_j if is_bound else None,
        error=energy.uncertainty_j,
        note=energy.words if is_named else "",
        reason=energy.reason,
    )


def _description(energies: Sequence[Energy]) -> str:
    words = list(dict.fromkeys(energy.words for energy in energies))
    text = f"Energy per timed phase: {'; '.join(words)}."
    bounded = [energy for energy in energies if energy.energy_j is None]
    if bounded:
        text += f" {intervals_caption(energy.words for energy in bounded)}"
    if any(e.evidence is Evidence.BOUNDS and e.lower_j is not None for e in bounded):
        text += f" {SOFT_BOUND}."
    if any(energy.uncertainty_j for energy in energies):
        text += " The line across a bar's end is its uncertainty (k = 2)."
    return text


def _legend(energies: Sequence[Energy]) -> list[tuple[str, str]]:
    found = [(_bar(energy, is_named=False).role, energy.words) for energy in energies]
    return list(dict.fromkeys(found))


def _table(energies: Sequence[Energy]) -> Table:
    rows = [
        row(
            energy.phase,
            energy_text(energy),
            power_text(energy),
            quantity(energy.uncertainty_j, Unit.JOULES),
            energy.words,
        )
        for energy in energies
    ]
    titles = columns("phase", "#energy", "#mean power", "#uncertainty (k = 2)", "evidence")
    return Table(columns=titles, rows=rows, caption="Energy per phase")
