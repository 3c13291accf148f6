"""The runs of a page: each from headlines to record, folded if several; of many, a row each.

A run includes its power outside the phases: the whole run by source, and idle before and after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wattload.core.record.energy import EnergyRecord, HostPower, IdleRecord, Moment, PollingCost
from wattload.core.record.results import Metric
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
from wattload.reports.charts.scatter import make_scatter, scatter_figure
from wattload.reports.charts.timeline import make_track, power_figure, rate_figure
from wattload.reports.runs.energy import Energy, energy_text, phase_energies, whole_energy
from wattload.reports.runs.load import DETAILED_RUNS, Run
from wattload.reports.runs.timeline import make_timeline
from wattload.reports.sections.checks import check_blocks
from wattload.reports.sections.energy import energy_blocks, evidence_words, source_facts
from wattload.reports.sections.figures import figures_tables, latency_tables, phases_tables
from wattload.reports.sections.machine import ABSOLUTE_ZERO_C, machine_blocks
from wattload.reports.sections.provenance import reproduce_blocks
from wattload.reports.sections.wording import anchor, letter_of, moment, run_badges, sentence_of
from wattload.reports.stats.subject import ARMS, Subject
from wattload.results.labels import label
from wattload.results.quantity import MISSING, counted, percent, quantity

_INTEGRATING = "integral"
"""The kind of sensor that integrates power itself, from start to stop."""
_POWER_DIGITS = 6
"""Decimals of watts: no sensor resolves less than 1 µW, and rounding errors are below that."""

Key = tuple[str, str, str, Moment]
"""Host, device, source, and which of the idle baselines."""

FIGURES_MAX = 2
"""The most headline figures in a run's row; the record has all."""

_COLUMNS = columns("run", "arm", "started", "status", "#headline figures", "#energy")
_LABEL_COLUMNS = 3
"""The columns after the first that are left out if all runs have the same there."""


def whole_tables(record: RunRecord) -> list[Table]:
    """Return power of the whole run and of its idle times; empty where nothing is recorded."""
    tables = (whole_run_table(record), idle_table(record), hosts_table(record))
    return [table for table in tables if table is not None]


def whole_run_table(record: RunRecord) -> Table | None:
    """Return the energy of the whole run by source, compared with the device's own integral."""
    energies = record.power.whole_run
    if not energies:
        return None
    own = {
        (each.host, each.device): each
        for each in energies
        if (facts := source_facts(record, each)) and facts.sensor.kind == _INTEGRATING
    }
    return listing(
        "Energy of the whole run by source",
        energies,
        {
            "device": lambda each: Cell(each.device, remark=f"{each.source}, {each.scope}"),
            "#window": lambda each: quantity(each.seconds, Unit.SECONDS),
            "#energy, gross": lambda each: Cell(
                quantity(each.energy_j, Unit.JOULES), remark=each.missing.get("energy_j", "")
            ),
            "#uncertainty, k = 2": lambda each: Cell(
                quantity(each.uncertainty_j, Unit.JOULES), remark=_no_uncertainty(each)
            ),
            "#difference from own count": lambda each: _difference_from_own(
                each, own.get((each.host, each.device))
            ),
            "#mean power": lambda each: quantity(each.mean_w, Unit.WATTS),
            "#coverage": lambda each: Cell(
                percent(each.coverage), remark=counted(each.sample_count, "sample")
            ),
            "evidence": lambda each: evidence_words(record, each),
        },
        "All figures of a device cover one window, from the sampler's start to its end, with the "
        "idle time before and after the phases. What a device integrates itself (a drive by "
        "feature 25h) is never split into phases; the other figures are for comparison. No total "
        "includes any of them.",
    )


def _no_uncertainty(energy: EnergyRecord) -> str:
    """Return why an uncertainty is missing, unless the energy is missing for the same reason."""
    reason = energy.missing.get("uncertainty_j", "")
    return "" if reason == energy.missing.get("energy_j") else reason


def _difference_from_own(energy: EnergyRecord, own: EnergyRecord | None) -> Cell:
    """Return the difference between a figure and the device's own integral."""
    if own is energy:
        return Cell("own count", "quiet")
    if own is None or not own.energy_j or energy.energy_j is None:
        return Cell(MISSING)
    difference_j = energy.energy_j - own.energy_j
    sign = "+" if difference_j > 0 else ""
    share = percent(difference_j / own.energy_j)
    return Cell(f"{sign}{share}", remark=f"{sign}{quantity(difference_j, Unit.JOULES, 3)}")


def idle_table(record: RunRecord) -> Table | None:
    """Return idle power before and after the run, polled and quiet, and what polling costs."""
    pairs: defaultdict[Key, dict[bool, IdleRecord]] = defaultdict(dict)
    for idle in record.power.idle:
        pairs[idle.host, idle.device, idle.source, idle.moment][idle.polled] = idle
    if not pairs:
        return None
    costs = {(c.host, c.device, c.source, c.moment): c for c in record.power.polling}
    known = {
        key: pair
        for key, pair in pairs.items()
        if any(idle.mean_w is not None for idle in pair.values())
    }
    reasons: dict[str, str] = {}
    for key, pair in pairs.items():
        for idle in pair.values() if key not in known else ():
            reasons.setdefault(idle.source, idle.missing["mean_w"])
    without = "".join(f" No figure from {source}: {reason}." for source, reason in reasons.items())
    titles = columns(
        "device", "when", "#polled", "#quiet", "#polled - quiet", "power state", "evidence"
    )
    return Table(
        columns=titles,
        rows=[_idle(record, pair, costs.get(key)) for key, pair in known.items()],
        caption="Idle power, and the effect of polling on it",
        note=(
            "Polled: while the sampler reads. Quiet: nothing was sent to the drive until one read "
            f"at the end.{without}"
        ),
    )


def _idle(
    record: RunRecord, pair: Mapping[bool, IdleRecord], cost: PollingCost | None
) -> tuple[Cell, ...]:
    some = next(iter(pair.values()))
    polled = pair.get(True)
    return row(
        Cell(some.device, remark=some.source),
        f"{some.moment} the run",
        _mean(polled),
        _mean(pair.get(False)),
        _difference(pair, cost),
        _state(polled),
        evidence_words(record, some),
    )


def _mean(idle: IdleRecord | None) -> Cell:
    if idle is None:
        return Cell(MISSING, remark="not measured")
    if idle.mean_w is None:
        return Cell(MISSING, remark=idle.missing["mean_w"])
    seconds = quantity(idle.seconds, Unit.SECONDS, 3)
    remark = f"{seconds}, {counted(idle.sample_count, 'sample')}"
    return Cell(quantity(idle.mean_w, Unit.WATTS), remark=remark)


def _difference(pair: Mapping[bool, IdleRecord], cost: PollingCost | None) -> Cell:
    """Return polled minus quiet; a reason that another cell of the row has is not repeated."""
    if cost is None:
        return Cell(MISSING, remark="" if len(pair) == 1 else "not computed")
    if cost.difference_w is None:
        reason = cost.missing["difference_w"]
        shown = {idle.missing.get("mean_w") for idle in pair.values()}
        return Cell(MISSING, remark="" if reason in shown else reason)
    return Cell(quantity(round(cost.difference_w, _POWER_DIGITS), Unit.WATTS))


def _state(polled: IdleRecord | None) -> Cell:
    """Return the power state, if it did not change, and the drive's temperature."""
    if polled is None or polled.power_state is None:
        return Cell(MISSING, remark="" if polled is None else polled.missing["power_state"])
    kelvin = polled.temperature_k
    remark = "" if kelvin is None else f"{kelvin + ABSOLUTE_ZERO_C:g} °C"
    return Cell(f"PS{polled.power_state}", remark=remark)


def hosts_table(record: RunRecord) -> Table | None:
    """Return how long each host's drives were sampled at idle, and which readings were lost.

    A host without any of that is left out.
    """
    hosts = [
        host
        for host in record.power.hosts
        if any((host.idle_s, host.idle_after_s, host.quiet_s, host.tail_s))
        or host.lost
        or host.data_lost
    ]
    if not hosts:
        return None
    return listing(
        "Sampling of each host's drives",
        hosts,
        {
            "host": lambda each: Cell(each.host, remark=each.choice if len(hosts) > 1 else ""),
            "#quiet": lambda each: _length(each.quiet_s),
            "#idle before": lambda each: _length(each.idle_s),
            "#tail": lambda each: Cell(
                quantity(each.tail_s, Unit.SECONDS, 3),
                remark="not sampled, or it did not end" if each.tail_s is None else "",
            ),
            "#idle after": lambda each: _length(each.idle_after_s),
            "sampler": lambda each: (
                Cell("lost", "bad", remark=each.lost) if each.lost else Cell("completed", "good")
            ),
            "dropped readings": _dropped,
        },
    )


def _dropped(host: HostPower) -> Cell:
    if not host.data_lost:
        return Cell("none reported")
    count = counted(len(host.data_lost), "meter")
    return Cell(f"by {count}", "bad", remark="; ".join(host.data_lost))


def _length(seconds: float) -> Cell:
    if not seconds:
        return Cell(MISSING, remark="not measured")
    return Cell(quantity(seconds, Unit.SECONDS, 3))


def runs_section(subject: Subject) -> Section:
    """Return a row per run, in the order of the page's groups and arms, and the runs in detail.

    Of more than ``DETAILED_RUNS`` there are only the rows; warm-ups without a failed check are only
    counted.
    """
    shown = [
        run
        for run in subject.runs
        if not run.record.comparison.warm_up
        or any(
            check.verdict == "fail" for check in (*run.record.checks, *subject.file_checks[run.id])
        )
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
        badges=run_badges(run, subject.faults(run)),
        blocks=list(_details(subject, run)),
        folded=True,
    )


def _details(subject: Subject, run: Run) -> Iterator[Block]:
    record = run.record
    yield Facts(_facts(run), "brief")
    if faults := subject.faults(run):
        yield Notice("Excluded", list(map(sentence_of, faults)), "bad")
    alone = any(group.runs == (run,) for group in subject.groups)
    if not alone:  # the section of its workload has them
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
    """Return the time from the first to the last phase, on the host's monotonic clock."""
    windows = run.record.windows
    if not windows:
        return "no phase finished"
    first, last = min(w.start_ns for w in windows), max(w.end_ns for w in windows)
    return f"{(last - first) / NS_PER_S:.1f} s from first to last phase"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One run in a table: ``failed`` names failed checks, ``figures`` are its first headlines."""

    run_id: str
    started_utc: str
    workload: str
    label: str
    drive: str
    state: str
    scale: str
    status: str
    failed: tuple[str, ...]
    figures: tuple[Metric, ...]
    energy: Energy | None


def line_of(record: RunRecord, failed: Sequence[str] = ()) -> Line:
    """Return a run's line.

    Args:
        record: that of the run.
        failed: names of failed checks that are not in the record.
    """
    energies = phase_energies(record)
    return Line(
        run_id=record.run_id,
        started_utc=record.started_utc,
        workload=record.workload.name,
        label=record.label,
        drive=ARMS["target"](record),
        state=ARMS["power_state"](record),
        scale=record.workload.scale,
        status=record.status,
        failed=(*(each.name for each in record.checks if each.fails_run), *failed),
        figures=tuple(each for each in record.metrics if each.headline)[:FIGURES_MAX],
        energy=whole_energy(record) or (energies[0] if energies else None),
    )


def _row(subject: Subject, run: Run) -> tuple[Cell, ...]:
    line, is_detailed = line_of(run.record), len(subject.runs) <= DETAILED_RUNS
    figures = [f"{label(m.name, m.unit)} {quantity(m.value, m.unit)}" for m in line.figures]
    return row(
        Cell(line.run_id, anchor="" if is_detailed else anchor("run", line.run_id)),
        subject.arm(run),
        moment(line.started_utc),
        _status(line, subject.faults(run)),
        ", ".join(figures) or MISSING,
        _energy(line),
    )


def _status(line: Line, faults: tuple[str, ...]) -> Cell:
    """Return how a run ended and whether it is compared, with the first reason if not."""
    if faults:
        more = f"; and {len(faults) - 1} more" if len(faults) > 1 else ""
        return Cell("", "bad", "not valid", f"{faults[0].rstrip('.')}{more}")
    return Cell("", "good", line.status)


def _energy(line: Line) -> Cell:
    """Return a run's energy with its evidence, or why there is none."""
    if line.energy is None:
        return Cell(MISSING, "open", remark="no timed phase finished")
    text = energy_text(line.energy)
    words = line.energy.reason if text == MISSING else line.energy.words
    return Cell(text, "" if line.energy.ranks else "quiet", remark=words)
