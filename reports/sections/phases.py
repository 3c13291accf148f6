"""The phases of a run, and what each counter saw in them."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.phase import IoCounter
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Block, Cell, Section, Table, columns, row
from wattload.reports.charts.stages import stages_figure
from wattload.reports.load import Run
from wattload.reports.phases import Phase, depth, parents, phases_of
from wattload.reports.quantity import MISSING, number, quantity, whole
from wattload.reports.sections.wording import anchor
from wattload.reports.subject import Subject


def phases_section(subject: Subject, run: Run) -> Section | None:
    """Return a run's phases and counters; ``None`` for a run that had no phase."""
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
        note="Bytes are those that the workload counted as they moved; active is the time in "
        "which any rank was in the phase.",
    )


def _phase(phase: Phase, level: int) -> tuple[Cell, ...]:
    return row(
        Cell("· " * level + phase.name, remark="" if phase.timed else "untimed"),
        quantity(phase.seconds, Unit.SECONDS),
        quantity(phase.active_s, Unit.SECONDS),
        quantity(phase.read_bytes or None, Unit.BYTES),
        quantity(phase.written_bytes or None, Unit.BYTES),
        quantity(_over(phase.moved_bytes, phase.active_s), Unit.BYTES_PER_SECOND),
        whole(phase.operations),
        quantity(_over(phase.cpu_s, phase.moved_bytes), Unit.SECONDS_PER_BYTE),
        Cell(whole(phase.rank_count), remark=_spread(phase)),
    )


def _spread(phase: Phase) -> str:
    if phase.rank_count < 2:  # noqa: PLR2004 - one rank is never apart from itself
        return ""
    return f"{quantity(phase.spread_s, Unit.SECONDS, 2)} apart"


def _over(part: float, whole_: float) -> float | None:
    return part / whole_ if part and whole_ else None


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
        caption="What the devices counted",
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
    return _over(sum(filter(None, bytes_)), sum(filter(None, operations)))


def _depth(counter: IoCounter) -> str:
    if not counter.busy_s or counter.weighted_s is None:
        return MISSING
    return number(counter.weighted_s / counter.busy_s, 3)
