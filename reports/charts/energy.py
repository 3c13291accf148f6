"""Energy per phase with its evidence: bars for figures, intervals for bounds, ≤ for a maximum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from wattload.core.power import Evidence
from wattload.core.units import Unit
from wattload.reports.blocks import Figure, Table, columns, row
from wattload.reports.energy import SOFT_BOUND, Energy, energy_text, power_text
from wattload.reports.quantity import Scale, quantity, scale_for
from wattload.reports.svg import hatch_fill, layered, render
from wattload.reports.themes import light, named_axis

WIDTH = 680
_ROW = 34


def energy_figure(name: str, subject: str, energies: Sequence[Energy]) -> Figure | None:
    """Return the chart of energy per phase; ``None`` where no phase has a figure or a bound."""
    known = [e for e in energies if e.energy_j is not None or e.upper_j is not None]
    if not known:
        return None
    largest = max(_end_j(energy) for energy in known)
    scale = scale_for(Unit.JOULES, largest)
    rows = [_row(energy, scale) for energy in known]
    title = f"{subject}: energy per phase"
    description = _description(known)
    return Figure(
        svg=render(
            _chart(scale, rows, scale.shown(largest)),
            {"energy": rows},
            name=name,
            title=title,
            description=description,
        ),
        caption=description,
        table=_table(known),
        legend=_legend(known),
    )


def _end_j(energy: Energy) -> float:
    return energy.energy_j if energy.energy_j is not None else energy.upper_j or 0.0


def _row(energy: Energy, scale: Scale) -> dict[str, Any]:
    """Return one phase's marks: ``v`` ends a bar, ``lower`` to ``upper`` is a drawn interval."""
    declared = energy.evidence is Evidence.DECLARED
    result: dict[str, Any] = {
        "phase": energy.phase,
        "end": scale.shown(_end_j(energy)),
        "text": energy_text(energy, scale, 3),
        "fill": hatch_fill("hatch-declared") if declared else light("power"),
    }
    if energy.energy_j is not None:
        result["v"] = scale.shown(energy.energy_j)
        if energy.uncertainty_j:
            result["lower"] = scale.shown(energy.energy_j - energy.uncertainty_j)
            result["upper"] = scale.shown(energy.energy_j + energy.uncertainty_j)
            result["stroke"] = light("strong")
    else:
        result["bound"] = scale.shown(energy.lower_j or 0.0)
        result["open"] = energy.lower_j is None
    return result


def _chart(scale: Scale, rows: Sequence[dict[str, Any]], largest: float) -> alt.LayerChart:
    order = [entry["phase"] for entry in rows]
    y = alt.Y("phase:N", sort=order, axis=named_axis(order))
    x = alt.X(
        "v:Q",
        axis=alt.Axis(title=f"energy, {scale.unit} (less is better)", tickCount=6),
        scale=alt.Scale(domain=[0, largest * 1.35], nice=False),
    )
    base = alt.Chart(alt.NamedData(name="energy")).encode(y=y)
    fill = alt.Fill("fill:N", scale=None)
    layers = [base.mark_bar(height=16).encode(x=x, fill=fill)]
    layers += _intervals(base, x)
    text = base.mark_text(align="left", dx=9, fontWeight=600, fill=light("strong"))
    layers.append(text.encode(x=alt.X("end:Q"), text="text:N"))
    return layered(layers, width=WIDTH, height=_ROW * len(rows) + 6)


def _intervals(base: alt.Chart, x: alt.X) -> list[alt.Chart]:
    """Return the marks of bounds (both ends capped, or the lower one open) and of uncertainty."""
    bound = base.transform_filter("isValid(datum.bound)")
    between = bound.mark_bar(height=8, fill=light("bound"), fillOpacity=0.22)
    cap = bound.mark_tick(thickness=2, size=18, stroke=light("bound"))
    error = base.transform_filter("isValid(datum.upper)")
    return [
        between.encode(x=alt.X("bound:Q"), x2="end:Q"),
        cap.encode(x=alt.X("end:Q")),
        cap.transform_filter("!datum.open").encode(x=alt.X("bound:Q")),
        error.mark_rule(stroke=light("strong")).encode(x=alt.X("lower:Q"), x2="upper:Q"),
    ]


def _description(energies: Sequence[Energy]) -> str:
    words = list(dict.fromkeys(energy.words for energy in energies))
    text = f"Energy per timed phase: {'; '.join(words)}."
    if any(energy.energy_j is None and energy.lower_j is None for energy in energies):
        text += " A figure with ≤ is an upper bound: the truth lies anywhere below it."
    elif any(energy.energy_j is None for energy in energies):
        text += " The truth lies below the upper end."
        if any(energy.evidence is Evidence.BOUNDS for energy in energies):
            text += f" {SOFT_BOUND}."
    if any(energy.uncertainty_j for energy in energies):
        text += " The line across a bar's end is its uncertainty (k = 2)."
    return text


def _legend(energies: Sequence[Energy]) -> list[tuple[str, str]]:
    legend = []
    for energy in energies:
        role = "declared" if energy.evidence is Evidence.DECLARED else "power"
        legend.append(("bound" if energy.energy_j is None else role, energy.words))
    return list(dict.fromkeys(legend))


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
