"""How long single operations took: percentiles per phase."""

from __future__ import annotations

from wattload.core.record.latency import SHARES, Latency
from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Section, Table, columns, row
from wattload.reports.charts.latency import latency_figure
from wattload.reports.load import Run
from wattload.reports.quantity import MISSING, quantity, whole
from wattload.reports.sections.armcharts import letter_of
from wattload.reports.sections.wording import anchor
from wattload.reports.subject import Subject

_TITLES = {
    "p50_s": "#p50",
    "p90_s": "#p90",
    "p95_s": "#p95",
    "p99_s": "#p99",
    "p999_s": "#p99.9",
    "p9999_s": "#p99.99",
}


def latency_section(subject: Subject, run: Run) -> Section | None:
    """Return a run's table of percentiles; ``None`` for a run whose loader took none."""
    rows = run.record.latencies
    if not rows:
        return None
    titles = ("phase", "operation", "#count", "#mean", *_TITLES.values(), "#max")
    table = Table(
        columns=columns(*titles),
        rows=[_row(found, run.record.workload.rank_count) for found in rows],
        caption="Latency of single operations",
        note="From just before an operation is handed to the kernel to when its completion is "
        "seen, queueing included: at full depth it is depth ÷ rate. Percentiles are up to 1/64 "
        f"too high; {MISSING} stands where there were too few operations for one.",
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
        *(quantity(getattr(found, name), Unit.SECONDS) for name in SHARES),
        quantity(found.max_s, Unit.SECONDS),
    )


def _ranks(found: Latency, rank_count: int) -> str:
    """Say whose the operations were, where there is more than one rank."""
    if rank_count == 1:
        return ""
    return (
        "all ranks"
        if len(found.ranks) == rank_count
        else f"rank {', '.join(map(str, found.ranks))}"
    )
