"""The figures of a run: headlines as tiles, phases with their counters, latency percentiles."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.phase import IoCounter
from wattload.core.record.results import Latency, Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import (
    Block,
    Cell,
    Notice,
    Section,
    Table,
    Tile,
    Tiles,
    Tone,
    columns,
    row,
)
from wattload.reports.charts.latency import PERCENTILES, latency_figure
from wattload.reports.charts.stacks import parts_figures, stages_figure
from wattload.reports.quantity import (
    DIRECTIONS,
    MISSING,
    UNIT_SPACE,
    label,
    number,
    quantity,
    whole,
)
from wattload.reports.runs.energy import (
    Energy,
    energy_text,
    phase_energies,
    power_text,
    whole_energy,
)
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import Phase, depth, parents, phases_of
from wattload.reports.sections.wording import anchor, letter_of
from wattload.reports.stats.subject import Subject


def headline_section(subject: Subject, run: Run) -> Section | None:
    """Return a run's own figures; ``None`` for a run without figures and remarks."""
    record = run.record
    blocks: list[Block] = []
    if record.workload.remarks:
        blocks.append(Notice("Remarks of the workload", list(record.workload.remarks), "warn"))
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
    """Return the headline metrics in the order of the record, then energy."""
    tiles = [_tile(metric, digits) for metric in record.metrics if metric.headline]
    energies = phase_energies(record)
    energy = whole_energy(record) or (energies[0] if len(energies) == 1 else None)
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
    """Return energy and, where it is more than a bound, the rate per watt."""
    name = f"energy, {energy.phase}"
    text = energy_text(energy, digits=digits)
    if text == MISSING:
        return [Tile(name, MISSING, "", energy.reason, "open")]
    value, _, unit = text.partition(UNIT_SPACE)
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
    titles = columns("figure", "#value", "phase", "better", "meaning, or why it is missing")
    return Table(columns=titles, rows=rows, caption=caption)


def latency_section(subject: Subject, run: Run) -> Section | None:
    """Return a run's latency percentiles; ``None`` for a run whose loader measured none."""
    rows = run.record.latencies
    if not rows:
        return None
    percentiles = [f"#{words}" for words in PERCENTILES.values()]
    titles = ("phase", "operation", "#count", "#mean", *percentiles, "#max")
    table = Table(
        columns=columns(*titles),
        rows=[_row(found, run.record.workload.rank_count) for found in rows],
        caption="Latency of single operations",
        note="The time from just before an operation is submitted to the kernel until its "
        "completion is seen, with queueing: at full depth it is depth ÷ rate. Percentiles are up "
        f"to 1/64 too high; {MISSING} means that there were too few operations for one.",
    )
    name, record = anchor(run.id, "latency"), run.record
    own = {record.label: [record]}
    letter = letter_of(subject, run)
    figure = latency_figure(name + "-chart", record.workload.name, own, letter)
    return Section(anchor=name, title="Latency", blocks=[*([figure] if figure else []), table])


def _row(found: Latency, rank_count: int) -> tuple[Cell, ...]:
    return row(
        Cell(found.phase, remark=_ranks(found, rank_count)),
        f"{found.kind} {quantity(found.operation_bytes, Unit.BYTES)}",
        whole(found.count),
        quantity(found.mean_s, Unit.SECONDS),
        *(quantity(getattr(found, name), Unit.SECONDS) for name in PERCENTILES),
        quantity(found.max_s, Unit.SECONDS),
    )


def _ranks(found: Latency, rank_count: int) -> str:
    """Return which ranks made the operations; empty where there is one rank."""
    if rank_count == 1:
        return ""
    every = len(found.ranks) == rank_count
    return "all ranks" if every else f"rank {', '.join(map(str, found.ranks))}"


def phases_section(subject: Subject, run: Run) -> Section | None:
    """Return a run's phases and counters; ``None`` for a run without a phase."""
    phases = phases_of(run.record)
    if not phases:
        return None
    tables = [_phases(run.record, phases)]
    block = [counter for counter in run.record.counters if counter.source != "application"]
    if block:
        tables.append(_counters(run.record, block))
    name, record = anchor(run.id, "phases"), run.record
    figure = stages_figure(name + "-chart", record.workload.name, {record.label: [record]})
    blocks: list[Block] = [*([figure] if figure else []), *tables]
    return Section(anchor=name, title="Phases and counters", blocks=blocks)


def _phases(record: RunRecord, phases: Sequence[Phase]) -> Table:
    above = parents(record)
    titles = columns(
        "phase",
        "#first start to last end",
        "#active",
        "#read",
        "#written",
        "#bytes ÷ active",
        "#operations",
        "#CPU time per GB",
        "#ranks",
    )
    return Table(
        columns=titles,
        rows=[_phase(phase, depth(phase.name, above)) for phase in phases],
        caption="Phases",
        note="The workload counts bytes as they move. Active is the time during which any rank "
        "was in the phase.",
    )


def _phase(phase: Phase, level: int) -> tuple[Cell, ...]:
    return row(
        Cell("· " * level + phase.name, remark="" if phase.timed else "untimed"),
        quantity(phase.seconds, Unit.SECONDS),
        quantity(phase.active_s, Unit.SECONDS),
        quantity(phase.read_bytes or None, Unit.BYTES),
        quantity(phase.written_bytes or None, Unit.BYTES),
        quantity(_quotient(phase.moved_bytes, phase.active_s), Unit.BYTES_PER_SECOND),
        whole(phase.operations),
        quantity(_quotient(phase.cpu_s, phase.moved_bytes), Unit.SECONDS_PER_BYTE),
        Cell(
            whole(phase.rank_count),
            remark=f"{quantity(phase.spread_s, Unit.SECONDS, 2)} apart"
            if phase.rank_count > 1
            else "",
        ),
    )


def _quotient(part: float, total: float) -> float | None:
    return part / total if part and total else None


def _counters(record: RunRecord, counters: Sequence[IoCounter]) -> Table:
    rows = [
        row(
            counter.phase,
            Cell(counter.device, remark=counter.source),
            quantity(counter.read_bytes, Unit.BYTES),
            quantity(counter.written_bytes, Unit.BYTES),
            _ratio(record, counter),
            quantity(_request_bytes(counter), Unit.BYTES),
            _depth(counter),
        )
        for counter in counters
    ]
    titles = columns(
        "phase",
        "device",
        "#read",
        "#written",
        "#device ÷ workload",
        "#mean request",
        "#mean queue depth",
    )
    return Table(
        columns=titles,
        rows=rows,
        caption="Device counters",
        note="Mean queue depth is weighted time ÷ busy time of the block layer.",
    )


def _ratio(record: RunRecord, counter: IoCounter) -> str:
    moved_bytes = sum(
        window.read_bytes + window.written_bytes
        for window in record.windows
        if (window.name, window.host) == (counter.phase, counter.host)
    )
    if counter.read_bytes is None or counter.written_bytes is None or not moved_bytes:
        return MISSING
    return number((counter.read_bytes + counter.written_bytes) / moved_bytes)


def _request_bytes(counter: IoCounter) -> float | None:
    bytes_ = (counter.read_bytes, counter.written_bytes)
    operations = (counter.read_operations, counter.write_operations)
    if None in bytes_ or None in operations:
        return None
    return _quotient(sum(filter(None, bytes_)), sum(filter(None, operations)))


def _depth(counter: IoCounter) -> str:
    if not counter.busy_s or counter.weighted_s is None:
        return MISSING
    return number(counter.weighted_s / counter.busy_s, 3)
