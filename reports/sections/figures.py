"""The figures of a run: metrics, phases with their counters, latency percentiles."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.phase import IoCounter
from wattload.core.record.results import Latency, Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Table, columns, listing, row
from wattload.reports.charts.lines import PERCENTILES
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import Phase, depth, parents, phases_of
from wattload.results.labels import label
from wattload.results.quantity import (
    DIRECTIONS,
    MISSING,
    block_text,
    cpu_per_byte,
    number,
    quantity,
    whole,
)


def figures_tables(run: Run) -> list[Table]:
    """Return a run's own figures: headlines, latencies and others."""
    metrics = run.record.metrics
    heads = [metric for metric in metrics if metric.headline]
    latencies = [m for m in metrics if not m.headline and "latency" in m.name]
    rest = [m for m in metrics if not m.headline and "latency" not in m.name]
    named = (("Headline figures", heads), ("Latencies", latencies), ("Other figures", rest))
    return [_table(caption, found) for caption, found in named if found]


def _table(caption: str, metrics: Sequence[Metric]) -> Table:
    return listing(
        caption,
        metrics,
        {
            "figure": lambda each: label(each.name, each.unit),
            "#value": lambda each: quantity(each.value, each.unit),
            "phase": lambda each: each.phase,
            "better": lambda each: DIRECTIONS[each.better],
            "meaning, or why it is missing": lambda each: each.missing.get("value", each.meaning),
        },
    )


def latency_tables(run: Run) -> list[Table]:
    """Return a run's latency percentiles; empty for a run whose loader measured none."""
    rows = [
        row
        for merged in run.record.merged_latencies
        for row in (merged, *_parts(run.record, merged))
    ]
    if not rows:
        return []
    percentiles = [f"#{words}" for words in PERCENTILES.values()]
    titles = ("phase", "operation", "#count", "#mean", *percentiles, "#max")
    return [
        Table(
            columns=columns(*titles),
            rows=[_row(found, run.record.workload.rank_count) for found in rows],
            caption="Latency of single operations",
            note="From the submission of an operation until its completion is seen, with queueing. "
            f"Percentiles are up to 1/64 too high; {MISSING}: too few operations.",
        )
    ]


def _parts(record: RunRecord, merged: Latency) -> Sequence[Latency]:
    """Return the rows of single ranks that were merged, if there are several."""
    key = (merged.phase, merged.kind, merged.operation_bytes)
    own = [row for row in record.latencies if (row.phase, row.kind, row.operation_bytes) == key]
    return own if len(own) > 1 else ()


def _row(found: Latency, rank_count: int) -> tuple[Cell, ...]:
    return row(
        Cell(found.phase, remark=_ranks(found, rank_count)),
        f"{found.kind} {block_text(found.operation_bytes)}",
        whole(found.count),
        quantity(found.mean_s, Unit.SECONDS),
        *(quantity(found.percentiles_s[name], Unit.SECONDS) for name in PERCENTILES),
        quantity(found.max_s, Unit.SECONDS),
    )


def _ranks(found: Latency, rank_count: int) -> str:
    """Return which ranks made the operations; empty where there is one rank."""
    if rank_count == 1:
        return ""
    every = len(found.ranks) == rank_count
    return "all ranks" if every else f"rank {', '.join(map(str, found.ranks))}"


def phases_tables(run: Run) -> list[Table]:
    """Return a run's phases and counters; empty for a run without a phase."""
    phases = phases_of(run.record)
    if not phases:
        return []
    counters = run.record.counters
    return [_phases(run.record, phases), *([_counters(run.record, counters)] if counters else [])]


def _phases(record: RunRecord, phases: Sequence[Phase]) -> Table:
    above = parents(record)
    return listing(
        "Phases",
        phases,
        {
            "phase": lambda each: Cell(
                "· " * depth(each.name, above) + each.name, remark="" if each.timed else "untimed"
            ),
            "#first start to last end": lambda each: quantity(each.seconds, Unit.SECONDS),
            "#active": lambda each: quantity(each.active_s, Unit.SECONDS),
            "#read": lambda each: quantity(each.read_bytes or None, Unit.BYTES),
            "#written": lambda each: quantity(each.written_bytes or None, Unit.BYTES),
            "#bytes ÷ active": lambda each: quantity(
                _quotient(each.moved_bytes, each.active_s), Unit.BYTES_PER_SECOND
            ),
            "#operations": lambda each: whole(each.operations),
            "#CPU time per GB": lambda each: cpu_per_byte(each.cpu_s, each.moved_bytes),
            "#ranks": lambda each: Cell(whole(each.rank_count), remark=_spread(each)),
        },
        "The workload counts bytes as they move. Active is the time during which any rank was in "
        "the phase.",
    )


def _spread(phase: Phase) -> str:
    return f"{quantity(phase.spread_s, Unit.SECONDS, 2)} apart" if phase.rank_count > 1 else ""


def _quotient(part: float, total: float) -> float | None:
    return part / total if part and total else None


def _counters(record: RunRecord, counters: Sequence[IoCounter]) -> Table:
    return listing(
        "Device counters",
        counters,
        {
            "phase": lambda each: each.phase,
            "device": lambda each: each.device,
            "#read": lambda each: quantity(each.read_bytes, Unit.BYTES),
            "#written": lambda each: quantity(each.written_bytes, Unit.BYTES),
            "#device ÷ workload": lambda each: _ratio(record, each),
            "#mean request": lambda each: quantity(_request_bytes(each), Unit.BYTES),
            "#mean queue depth": _depth,
        },
        "Mean queue depth is weighted time ÷ busy time of the block layer.",
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
