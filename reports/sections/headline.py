"""The figures of a run: headlines as tiles, latencies and the rest as tables."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.metric import Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Block, Notice, Section, Table, Tile, Tiles, Tone, columns, row
from wattload.reports.charts.parts import parts_figures
from wattload.reports.energy import Energy, energy_text, phase_energies, power_text, whole
from wattload.reports.load import Run
from wattload.reports.quantity import DIRECTIONS, MISSING, UNIT_SPACE, label, quantity
from wattload.reports.sections.wording import anchor
from wattload.reports.subject import Subject


def headline_section(subject: Subject, run: Run) -> Section | None:
    """Return a run's own figures; ``None`` for a run that has none and says nothing."""
    record = run.record
    blocks: list[Block] = []
    if record.workload.remarks:
        blocks.append(Notice("The workload says", list(record.workload.remarks), "warn"))
    tiles = headline_tiles(record)
    if tiles:
        blocks.append(Tiles(tiles))
    name = anchor(run.id, "figures")
    blocks.extend(parts_figures(name, record.workload.name, {record.label: [record]}))
    others = [metric for metric in record.metrics if not metric.headline]
    latencies = [metric for metric in others if "latency" in metric.name]
    rest = [metric for metric in others if "latency" not in metric.name]
    for caption, metrics in (("Latencies", latencies), ("Other figures", rest)):
        if metrics:
            blocks.append(_table(caption, metrics))
    if not blocks:
        return None
    return Section(anchor=name, title="Figures", blocks=blocks)


def headline_tiles(record: RunRecord, digits: int = 4) -> list[Tile]:
    """Return the headline metrics in the order given, then energy."""
    tiles = [_tile(metric, digits) for metric in record.metrics if metric.headline]
    energies = phase_energies(record)
    energy = whole(record) or (energies[0] if len(energies) == 1 else None)
    if energy is not None:
        tiles.extend(energy_tiles(energy, digits))
    return tiles


def _tile(metric: Metric, digits: int) -> Tile:
    name = label(metric.name, metric.unit)
    if metric.value is None:
        return Tile(name, MISSING, "", metric.missing["value"], "open")
    value, _, unit = quantity(metric.value, metric.unit, digits).partition(UNIT_SPACE)
    return Tile(name, value, unit, metric.meaning)


def energy_tiles(energy: Energy, digits: int) -> list[Tile]:
    """Return energy and, where it is a figure, the rate per watt."""
    name = f"energy, {energy.phase}"
    text = energy_text(energy, digits=digits)
    if text == MISSING:
        return [Tile(name, MISSING, "", energy.reason, "open")]
    value, unit = text.split(UNIT_SPACE)
    tone: Tone = "" if energy.ranks else "warn"
    mean = f"{power_text(energy)} on average, {energy.words}."
    tiles = [Tile(name, value, unit, mean, tone)]
    if energy.bytes_per_j is not None:
        per_watt = quantity(energy.bytes_per_j, Unit.BYTES_PER_JOULE, digits)
        shown, _, unit = per_watt.partition(UNIT_SPACE)
        note = f"Bytes moved ÷ energy over the same window; energy is {energy.words}."
        tiles.append(Tile("rate per watt", shown, unit, note, tone))
    return tiles


def _table(caption: str, metrics: Sequence[Metric]) -> Table:
    rows = [
        row(
            label(metric.name, metric.unit),
            quantity(metric.value, metric.unit),
            metric.phase,
            DIRECTIONS[metric.better],
            metric.meaning if metric.value is not None else metric.missing["value"],
        )
        for metric in metrics
    ]
    titles = columns("figure", "#value", "phase", "better", "meaning, or why there is none")
    return Table(columns=titles, rows=rows, caption=caption)
