"""Accelerators against utilisation: the runs of a search, a row each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from wattload.core.mlperf import UNET3D
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Section, Table, columns, row
from wattload.reports.load import Run
from wattload.reports.quantity import MISSING, quantity
from wattload.reports.subject import Subject

COLUMNS = columns(
    "#accelerators",
    "#AU",
    "#AU nominal",
    "#samples",
    "#throughput",
    "#without a drive",
    "",
    "run",
)
FIGURES = (
    ("au_nominal", Unit.FRACTION),
    ("samples_per_s", Unit.SAMPLES_PER_SECOND),
    ("read_bytes_per_s", Unit.BYTES_PER_SECOND),
    ("harness_ceiling_bytes_per_s", Unit.BYTES_PER_SECOND),
)
LEAST = 2
"""Numbers of accelerators that make a section: one is a run like others."""


def accelerators_section(subject: Subject) -> Section | None:
    """Return AU and throughput by emulated accelerators; ``None`` without a session of several."""
    sessions: dict[str, list[Run]] = defaultdict(list)
    for run in subject.runs:
        if _count(run.record) is not None:
            sessions[run.record.comparison.session_id].append(run)
    searches = [
        runs
        for runs in sessions.values()
        if len({_count(run.record) for run in runs}) >= LEAST and runs[0].record.metric("au_dlio")
    ]
    if not searches:
        return None
    return Section(
        anchor="accelerators",
        title="Accelerators against AU",
        blocks=[_table(subject, runs) for runs in searches],
    )


def _count(record: RunRecord) -> int | None:
    found = record.workload.details.get("accelerators")
    return found if isinstance(found, int) else None


def _table(subject: Subject, runs: Sequence[Run]) -> Table:
    first = runs[0].record
    threshold = quantity(UNET3D.au_threshold, Unit.FRACTION, 2)
    return Table(
        columns=COLUMNS,
        rows=[tuple(_row(subject, run)) for run in sorted(runs, key=_order)],
        caption=(
            f"{first.workload.name}, loader {first.workload.loader}, session "
            f"{first.comparison.session_id}"
        ),
        note=(
            f"MLPerf Storage scores the most accelerators that hold {threshold} AU by DLIO's "
            "formula, and the throughput there. A run whose harness ceiling, the same loop without "
            "a drive, is below what its accelerators demand was held up by the host."
        ),
    )


def _order(run: Run) -> tuple[int, int, str]:
    return _count(run.record) or 0, run.record.comparison.block, run.id


def _row(subject: Subject, run: Run) -> Iterator[Cell]:
    record = run.record
    deciding = record.metric("au_dlio")
    utilisation = deciding.value if deciding else None
    yield from row(str(_count(record)), quantity(utilisation, Unit.FRACTION))
    for name, unit in FIGURES:
        metric = record.metric(name)
        yield Cell(quantity(metric.value, unit) if metric else MISSING)
    yield _standing(utilisation, subject.faults(run))
    yield Cell(run.id)


def _standing(utilisation: float | None, faults: Sequence[str]) -> Cell:
    if faults:
        return Cell("not valid", "bad")
    if utilisation is None:
        return Cell("unknown", "open")
    holds = utilisation >= UNET3D.au_threshold
    return Cell("holds", "good") if holds else Cell("does not hold", "warn")
