"""Sections on a swept setting: curves, and accelerators against their utilisation (AU)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from wattload.core.mlperf.published import UNET3D
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Block, Cell, Heading, Section, Table, columns, row
from wattload.reports.charts.curves import load_figure, scaling_figure
from wattload.reports.quantity import MISSING, label, quantity
from wattload.reports.runs.load import Run
from wattload.reports.sections.wording import anchor
from wattload.reports.stats.subject import Group, Subject
from wattload.reports.stats.sweeps import load_curves, scalings

_COLUMNS = columns(
    "#accelerators",
    "#AU",
    "#AU nominal",
    "#samples",
    "#throughput",
    "#harness ceiling",
    "",
    "run",
)
_METRICS = (
    ("au_nominal", Unit.FRACTION),
    ("samples_per_s", Unit.SAMPLES_PER_SECOND),
    ("read_bytes_per_s", Unit.BYTES_PER_SECOND),
    ("harness_ceiling_bytes_per_s", Unit.BYTES_PER_SECOND),
)


def accelerators_section(subject: Subject) -> Section | None:
    """Return AU and throughput by number of accelerators; ``None`` without a session of several."""
    sessions: dict[str, list[Run]] = defaultdict(list)
    for run in subject.runs:
        if _count(run.record) is not None:
            sessions[run.record.comparison.session_id].append(run)
    searches = [
        runs
        for runs in sessions.values()
        if len({_count(run.record) for run in runs}) > 1 and runs[0].record.metric("au_dlio")
    ]
    if not searches:
        return None
    return Section(
        anchor="accelerators",
        title="Utilisation by number of accelerators",
        blocks=[_table(subject, runs) for runs in searches],
    )


def _count(record: RunRecord) -> int | None:
    found = record.workload.details.get("accelerators")
    return found if isinstance(found, int) else None


def _table(subject: Subject, runs: Sequence[Run]) -> Table:
    first = runs[0].record
    threshold = quantity(UNET3D.au_threshold, Unit.FRACTION, 2)
    return Table(
        columns=_COLUMNS,
        rows=[tuple(_row(subject, run)) for run in sorted(runs, key=_order)],
        caption=(
            f"{first.workload.name}, loader {first.workload.loader}, session "
            f"{first.comparison.session_id}"
        ),
        note=(
            f"MLPerf Storage scores the largest number of accelerators that reach {threshold} "
            "AU by DLIO's formula, and the throughput at that number. If the harness ceiling "
            "(the same loop without a drive) is below the demand of a run's accelerators, the "
            "host was its bottleneck."
        ),
    )


def _order(run: Run) -> tuple[int, int, str]:
    return _count(run.record) or 0, run.record.comparison.block, run.id


def _row(subject: Subject, run: Run) -> Iterator[Cell]:
    record = run.record
    deciding = record.metric("au_dlio")
    utilisation = deciding.value if deciding else None
    yield from row(str(_count(record)), quantity(utilisation, Unit.FRACTION))
    for name, unit in _METRICS:
        metric = record.metric(name)
        yield Cell(quantity(metric.value, unit) if metric else MISSING)
    yield _au_badge(utilisation, subject.faults(run))
    yield Cell(run.id)


def _au_badge(utilisation: float | None, faults: Sequence[str]) -> Cell:
    if faults:
        return Cell("not valid", "bad")
    if utilisation is None:
        return Cell("unknown", "open")
    is_reached = utilisation >= UNET3D.au_threshold
    return Cell("reached", "good") if is_reached else Cell("not reached", "warn")


def curves_section(subject: Subject) -> Section | None:
    """Return the curves of every swept group; ``None`` where there is none to draw."""
    parts = [part for group in subject.groups if (part := _part(subject, group)) is not None]
    if not parts:
        return None
    return Section(anchor="curves", title="Curves over the swept setting", parts=parts)


def _part(subject: Subject, group: Group) -> Section | None:
    name = anchor("curves", group.workload)
    blocks: list[Block] = []
    for found in load_curves(subject, group):
        words = f"Latency against throughput: {found.kind}s in {found.phase}"
        place = anchor(name, found.phase, found.kind)
        blocks.append(Heading(words))
        blocks.append(load_figure(f"{place}-chart", f"{group.workload}, {found.phase}", found))
    if rates := scalings(subject, group):
        blocks.append(Heading(f"Rates over {label(rates[0].axis)}"))
        blocks.append(scaling_figure(f"{name}-rates-chart", group.workload, rates))
    if not blocks:
        return None
    return Section(anchor=name, title=group.workload, blocks=blocks)
