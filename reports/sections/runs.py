"""The runs of a page: each from headlines to record, folded if several; of many, a row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.core.record.phase import IoCounter
from wattload.core.record.results import Latency, Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S, Unit
from wattload.reports.blocks import (
    Block,
    Cell,
    Facts,
    Fold,
    Notice,
    Paragraph,
    Section,
    Table,
    columns,
    listing,
    row,
)
from wattload.reports.charts.lines import PERCENTILES
from wattload.reports.charts.scatter import make_scatter, scatter_figure
from wattload.reports.charts.timeline import power_figure, rate_figure
from wattload.reports.charts.tracks import make_track
from wattload.reports.runs.energy import Energy, energy_text, phase_energies, whole_energy
from wattload.reports.runs.load import DETAILED_RUNS, Run
from wattload.reports.runs.phases import Phase, depth, parents, phases_of
from wattload.reports.runs.timeline import make_timeline
from wattload.reports.sections.energy import energy_blocks
from wattload.reports.sections.hosts import host_blocks
from wattload.reports.sections.machine import machine_blocks
from wattload.reports.sections.power import whole_tables
from wattload.reports.sections.provenance import reproduce_blocks
from wattload.reports.sections.trust import check_blocks
from wattload.reports.sections.wording import (
    anchor,
    device_text,
    letter_of,
    moment,
    run_badges,
    sentence_of,
)
from wattload.reports.stats.subject import Subject
from wattload.results.labels import label
from wattload.results.quantity import (
    DIRECTIONS,
    MISSING,
    block_text,
    counted,
    cpu_per_byte,
    number,
    quantity,
    whole,
)

FIGURES_MAX = 2
"""The most headline figures in a run's row; the record has all."""

_COLUMNS = columns("run", "arm", "started", "status", "#headline figures", "#energy")
_LABEL_COLUMNS = 3
"""The columns after the first that are left out if all runs have the same there."""


def runs_section(subject: Subject) -> Section:
    """Return a row per run, in the order of the page's groups and arms, and the runs in detail.

    Of more than ``DETAILED_RUNS`` there are only the rows; warm-ups without a failed check are only
    counted.
    """
    shown = [
        run
        for run in subject.runs
        if not run.record.comparison.warm_up
        or any(check.verdict == "fail" for check in subject.checks(run))
    ] or subject.runs
    tables = [
        _runs_table(subject, name, [run for run in shown if run.record.workload.name == name])
        for name in dict.fromkeys(run.record.workload.name for run in shown)
    ]
    is_detailed = len(subject.runs) <= DETAILED_RUNS
    blocks: list[Block] = [Fold("Every run", tables, data=True)]
    if not is_detailed:
        blocks.append(
            Paragraph(
                f"More than {DETAILED_RUNS} runs are only listed: pass fewer for their details."
            )
        )
    return Section(
        anchor="runs",
        title="Runs",
        remark=counted(len(shown), "run"),
        blocks=blocks,
        parts=[_run(subject, run) for run in shown] if is_detailed else [],
        looked_up=True,
    )


def _runs_table(subject: Subject, workload: str, runs: Sequence[Run]) -> Table:
    """Return the runs of a workload, without columns in which all of them are the same."""
    rows = [_row(subject, run) for run in runs]
    kept = [
        index
        for index in range(len(_COLUMNS))
        if index == 0 or len({cells[index] for cells in rows}) > 1 or index > _LABEL_COLUMNS
    ]
    return Table(
        columns=[_COLUMNS[index] for index in kept],
        rows=[[cells[index] for index in kept] for cells in rows],
        caption=f"Runs of {workload}",
    )


def _run(subject: Subject, run: Run) -> Section:
    record = run.record
    arm = subject.arm(run)
    title = record.workload.name
    if len(subject.runs) > len(subject.groups):
        title += f", {arm}, {moment(record.started_utc)[11:19]}"
    return Section(
        anchor=anchor("run", run.id),
        title=title,
        remark=run.id,
        badges=run_badges(subject, run),
        blocks=list(_details(subject, run)),
        folded=True,
    )


def _details(subject: Subject, run: Run) -> Iterator[Block]:
    record = run.record
    yield Facts(_facts(run), "brief")
    faults = subject.faults(run)
    if faults:
        yield Notice("Excluded", list(map(sentence_of, faults)), "bad")
    alone = any(group.runs == (run,) for group in subject.groups)
    if not alone:  # the sections of its workload and hosts have them
        track = make_track(letter_of(subject, run), run.record.label, run)
        title = f"{record.workload.name} {run.id}"
        for figure in (
            rate_figure(anchor(run.id, "rate"), f"{title}: rate", [track]),
            power_figure(anchor(run.id, "power"), f"{title}: power", [track]),
        ):
            if figure is not None:
                yield figure
    if scatter := make_scatter(run):
        name, strips = anchor(run.id, "operations"), make_timeline(run).strips
        yield Fold(
            "Operations over time", [scatter_figure(name, record.workload.name, scatter, strips)]
        )
    parts: tuple[tuple[str, str, Sequence[Block]], ...] = (
        ("figures", "Figures", figures_tables(run)),
        ("hosts", "By host", host_blocks(record) if faults or not alone else ()),
        ("phases", "Phases and counters", phases_tables(run)),
        ("latency", "Latency", latency_tables(run)),
        ("energy", "Energy and power", [*energy_blocks(run), *whole_tables(record)]),
        ("checks", "Checks", check_blocks(subject, run)),
        ("machine", "Hosts and targets", machine_blocks(run)),
        ("reproduce", "Reproduce", reproduce_blocks(run)),
    )
    for name, title, blocks in parts:
        if blocks:
            yield Fold(title, blocks, data=True, anchor=anchor(run.id, name))


def _facts(run: Run) -> list[tuple[str, str]]:
    record = run.record
    work = record.workload
    facts = [
        ("label", record.label),
        ("loader", work.loader if work.uses_loader else "none takes part"),
        ("scale", work.scale),
        ("accelerator", work.accelerator),
        ("processes", counted(work.rank_count, "rank")),
        ("started", moment(record.started_utc)),
        ("duration", _duration(run)),
    ]
    if record.status != "complete":
        facts.append(("ended", f"{record.status}: {record.status_reason}"))
    return facts


def _duration(run: Run) -> str:
    """Return the time from the first to the last phase, on the first host's monotonic clock."""
    windows = run.record.joined_windows
    if not windows:
        return "no phase finished"
    first, last = min(w.start_ns for w in windows), max(w.end_ns for w in windows)
    return f"{(last - first) / NS_PER_S:.1f} s from first to last phase"


def first_figures(record: RunRecord) -> list[Metric]:
    """Return the first headline figures of a run, which are in its row."""
    return [each for each in record.metrics if each.headline][:FIGURES_MAX]


def row_energy(record: RunRecord) -> Energy | None:
    """Return the energy of all timed phases of a run, or else of the first one."""
    return whole_energy(record) or next(iter(phase_energies(record)), None)


def _row(subject: Subject, run: Run) -> tuple[Cell, ...]:
    record, is_detailed = run.record, len(subject.runs) <= DETAILED_RUNS
    figures = [
        f"{label(m.name, m.unit)} {quantity(m.value, m.unit)}" for m in first_figures(record)
    ]
    return row(
        Cell(run.id, anchor="" if is_detailed else anchor("run", run.id)),
        subject.arm(run),
        moment(record.started_utc),
        _status(record, subject.faults(run)),
        ", ".join(figures) or MISSING,
        _energy(row_energy(record)),
    )


def _status(record: RunRecord, faults: tuple[str, ...]) -> Cell:
    """Return how a run ended and whether it is compared, with the first reason if not."""
    if faults:
        more = f"; and {len(faults) - 1} more" if len(faults) > 1 else ""
        return Cell("", "bad", "not valid", f"{faults[0].rstrip('.')}{more}")
    return Cell("", "good", record.status)


def _energy(energy: Energy | None) -> Cell:
    """Return a run's energy with its evidence, or why there is none."""
    if energy is None:
        return Cell(MISSING, "open", remark="no timed phase finished")
    text = energy_text(energy)
    words = energy.reason if text == MISSING else energy.words
    return Cell(text, "" if energy.ranks else "quiet", remark=words)


def figures_tables(run: Run) -> list[Table]:
    """Return a run's own figures: headlines, latencies and others."""
    metrics = run.record.metrics
    heads = [metric for metric in metrics if metric.headline]
    latencies = [m for m in metrics if not m.headline and "latency" in m.name]
    rest = [m for m in metrics if not m.headline and "latency" not in m.name]
    named = (("Headline figures", heads), ("Latencies", latencies), ("Other figures", rest))
    return [_figures_table(caption, found) for caption, found in named if found]


def _figures_table(caption: str, metrics: Sequence[Metric]) -> Table:
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
            rows=[_latency_row(found, run.record) for found in rows],
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


def _latency_row(found: Latency, record: RunRecord) -> tuple[Cell, ...]:
    return row(
        Cell(found.phase, remark=_ranks(found, record)),
        f"{found.kind} {block_text(found.operation_bytes)}",
        whole(found.count),
        quantity(found.mean_s, Unit.SECONDS),
        *(quantity(found.percentiles_s[name], Unit.SECONDS) for name in PERCENTILES),
        quantity(found.max_s, Unit.SECONDS),
    )


def _ranks(found: Latency, record: RunRecord) -> str:
    """Return which ranks made the operations; empty where there is one rank."""
    if record.workload.rank_count == 1:
        return ""
    every = len(found.ranks) == record.workload.rank_count
    on_hosts = f" on {', '.join(found.hosts)}" if len(record.hosts) > 1 else ""
    return "all ranks" if every else f"rank {', '.join(map(str, found.ranks))}{on_hosts}"


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
            "device": lambda each: device_text(record, each.host, each.device),
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
