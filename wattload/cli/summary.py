"""What is printed of a run in about twelve lines, and of a session: its arms, ratios and verdicts.

Numbers are formatted as on the page of a report. What a figure means is in the documentation, and
every check is in ``wattload check``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.cli.escapes import printable
from wattload.cli.terminal import Line, command, place, print_lines
from wattload.core.power import OTHER_SCOPES, Scope
from wattload.core.record.file import RECORD_FILE
from wattload.core.record.results import Latency, Metric
from wattload.core.record.run import RunRecord
from wattload.core.record.sensor_text import meter_lines
from wattload.core.units import Unit, format_seconds
from wattload.reports.runs.energy import (
    ALL_PHASES,
    Energy,
    energy_text,
    has_doubted_meter,
    node_limits,
    phase_energies,
    power_text,
    scope_energy_j,
    tail_text,
    whole_energy,
)
from wattload.reports.runs.hosts import HostShare, shares_of
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import Phase, leading, overlap
from wattload.reports.runs.validity import of_hosts
from wattload.reports.sections.hosts import (
    HOSTS_MAX,
    clock_text,
    drives_text,
    ends_text,
    energy_words,
    shared_text,
)
from wattload.reports.sections.wording import (
    caveats_text,
    check_counts,
    targets_text,
    trust_text,
    unique,
)
from wattload.reports.stats.answers import answer
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.sentence import finding
from wattload.reports.stats.subject import Group, Subject, make_subject
from wattload.reports.stats.sweeps import Point, points
from wattload.results.labels import label
from wattload.results.paths import counted_text
from wattload.results.quantity import (
    MISSING,
    block_text,
    bounded_quantity,
    counted,
    cpu_per_byte,
    listed,
    number,
    one_unit,
    quantity,
    scale_for,
    with_uncertainty,
)
from wattload.results.reading import asked, run_of, view_of

if TYPE_CHECKING:
    from rich.table import Table

NOT_MEASURED = "not measured"


def print_summary(record: RunRecord, folder: Path, *, verbose: bool) -> None:
    """Print a run's summary to standard output; ``verbose`` adds meanings and findings."""
    lines = [*summary(record, folder)]
    if verbose:
        at = next(n for n, line in enumerate(lines) if line.label in ("details", "record"))
        lines[at:at] = details(record)
    print_lines(title(record), lines)


def print_line(record: RunRecord) -> None:
    """Print a run of a session in one line, and each failed check in another."""
    heads = _rates(record) or [metric for metric in record.metrics if metric.headline]
    rates = [f"{label(m.name, m.unit)} {_value(m)}" for m in heads[:2]]
    energies = list(energy_lines(record))[:1]
    energy = "energy " + energies[0].text.partition(" (")[0] if energies else ""
    caveats, _ = caveats_text([(record, record.checks)])
    parts = [*rates, energy, caveats]
    text = ", ".join(part for part in parts if part)
    failed = [line for line in failures(record) if line.label.strip() == "failed"]
    print_lines("", [Line(printable(record.comparison.arm or record.label), text), *failed])


def title(record: RunRecord) -> str:
    workload = record.workload
    ranks = f", {workload.rank_count} ranks" if workload.rank_count > 1 else ""
    ranks += f" on {len(record.hosts)} hosts" if len(record.hosts) > 1 else ""
    loader = f"loader {workload.loader}, " if workload.uses_loader else ""
    failed = sum(check.verdict == "fail" for check in record.checks)
    outcome = f", but {counted(failed, 'check')} failed" if failed else ""
    return (
        f"{workload.name}, {loader}scale {workload.scale}{ranks}, "
        f"label {printable(record.label)}: {record.status}{outcome}"
    )


def summary(record: RunRecord, folder: Path) -> Iterator[Line]:
    """Yield the lines of a run's summary; the last are commands and its record.

    The workload's view may replace those on its job, add to them, and drop them by an empty text.
    """
    run, host = run_of(record), _root_of(record)
    own = {} if run is None else dict(view_of(record).lines(run))
    job = [Line(line.label, own.pop(line.label, line.text)) for line in _job(record)]
    yield from (line for line in job[:-1] if line.text)
    yield from (Line(name, text) for name, text in own.items())
    yield from (line for line in job[-1:] if line.text)
    yield from energy_lines(record)
    meters = unique(meter_lines(record.power, record.started_utc))
    yield from (Line("meter", each) for each in meters)
    yield from host_lines(record)
    yield Line("checks", check_counts(record.checks))
    yield from failures(record)
    if any(check.verdict != "pass" and not check.cause for check in record.checks):
        yield Line("details", command("check", [folder], host), wraps=False)
    yield Line("record", place(folder / RECORD_FILE, host), wraps=False)
    yield Line("report", command("report", [folder], host), wraps=False)


def _root_of(record: RunRecord) -> str:
    """Return the host that has the record of a run of several hosts; empty for one."""
    return record.hosts[0].facts.name if len(record.hosts) > 1 else ""


def _job(record: RunRecord) -> Iterator[Line]:
    """Yield what a run did; the last line is its CPU time."""
    yield Line("target", printable(targets_text(record)))
    if path := counted_text(record):
        yield Line("path", path)
    phases = leading(record)
    yield Line("bytes", _moved(phases))
    yield Line("time", _times(record, phases))
    rates = _rates(record)
    for metric in rates:
        parts = [_value(metric), *_latency(record, metric.phase)]
        yield Line(label(metric.name, metric.unit), ", ".join(parts))
    judged = view_of(record).outcome_figures
    heads = [metric for metric in record.metrics if metric.headline and metric not in rates]
    if others := [metric for metric in heads if metric.name not in judged]:
        yield Line("also", "; ".join(_others(others)))
    if outcome := asked(record, lambda run: view_of(record).outcome([run]), ""):
        yield Line("outcome", outcome)
    quotas = unique(
        f"a quota of {limit:g} CPUs"
        for host in record.hosts
        if (limit := host.facts.cgroup_cpu_limit) is not None
    )
    yield Line("CPU", "; ".join(filter(None, (_cpu(record, phases), *quotas))))


def _moved(phases: Sequence[Phase]) -> str:
    moved = _moved_text(
        sum(phase.read_bytes for phase in phases), sum(phase.written_bytes for phase in phases)
    )
    active_s = sum(phase.active_s for phase in phases)
    is_split = moved == "none" or overlap(phases)
    return moved if is_split else f"{moved} in {quantity(active_s, Unit.SECONDS)} of timed phases"


def _moved_text(read_bytes: int, written_bytes: int) -> str:
    parts = [
        f"{quantity(moved, Unit.BYTES)} {words}"
        for words, moved in (("read", read_bytes), ("written", written_bytes))
        if moved
    ]
    return " and ".join(parts) or "none"


def _times(record: RunRecord, phases: Sequence[Phase]) -> str:
    """Return how long the run took by the wall clock, beside what its timed phases leave out."""
    if record.wall_s is None:
        return "unknown"
    whole = format_seconds(record.wall_s)
    if not any(phase.read_bytes or phase.written_bytes for phase in phases):
        return f"{whole} for the whole run"
    return f"{whole} for the whole run, with data generation, idle times, ceilings and checks"


def _rates(record: RunRecord) -> list[Metric]:
    heads = [metric for metric in record.metrics if metric.headline]
    return [metric for metric in heads if metric.unit is Unit.BYTES_PER_SECOND] or [
        metric for metric in heads if metric.unit is Unit.SAMPLES_PER_SECOND
    ]


def _value(metric: Metric) -> str:
    text = quantity(metric.value, metric.unit)
    return f"unknown ({metric.missing['value']})" if text == MISSING else text


def _others(metrics: Sequence[Metric]) -> Iterator[str]:
    """Yield the metrics with a value, then those without one by the reason."""
    known = [metric for metric in metrics if metric.value is not None]
    if known:
        yield ", ".join(f"{label(m.name, m.unit)} {quantity(m.value, m.unit)}" for m in known)
    reasons: dict[str, list[str]] = {}
    for metric in metrics:
        if metric.value is None:
            reasons.setdefault(metric.missing["value"], []).append(label(metric.name, metric.unit))
    for reason, names in reasons.items():
        yield f"no {listed(names, 'or')} ({reason})"


def _latency(record: RunRecord, phase: str) -> Iterator[str]:
    """Yield the median and the 99th percentile of a phase's operations, over all ranks."""
    row = next((each for each in record.merged_latencies if each.phase == phase), None)
    if row is not None and (known := _percentiles(row)):
        yield f"{known} per {row.kind} of {block_text(row.operation_bytes)}"


def _percentiles(row: Latency) -> str:
    return ", ".join(
        f"{name} {quantity(value, Unit.SECONDS, 3)}"
        for name in ("p50", "p99")
        if (value := row.percentiles_s[f"{name}_s"]) is not None
    )


def _cpu(record: RunRecord, phases: Sequence[Phase]) -> str:
    parts = [
        (phase.name, cpu_per_byte(phase.cpu_s, phase.moved_bytes))
        for phase in phases
        if phase.moved_bytes
    ]
    if len(parts) == 1:
        return parts[0][1]
    return ", ".join(f"{text} ({name})" for name, text in parts)


def energy_lines(record: RunRecord) -> Iterator[Line]:
    """Yield the energy of the run, or of each phase if phases share time.

    It follows that of a phase which has what a joule pays for.
    """
    whole, energies = whole_energy(record), [*phase_energies(record)]
    if whole is not None:
        energies = [*(each for each in energies if each.amount is not None), whole]
    if not energies or not any(each.energy_j or each.upper_j for each in energies):
        yield Line("energy", f"{NOT_MEASURED} ({_why(record, energies)})")
    else:
        for energy in energies:
            of = f" ({energy.phase})" if len(energies) > 1 else ""
            yield Line("energy", _energy(energy) + of)
            if energy_text(energy) != MISSING:
                yield Line("", _tail(energy) + _unknown_margin(record, energy) + energy.words)
    for scope, name in OTHER_SCOPES.items():
        energy_j = scope_energy_j(record, scope, ALL_PHASES)
        if energy_j is not None:
            text = f"{name}: {quantity(energy_j, Unit.JOULES)}, not part of the drive's"
            doubt = "; not checked: its meter is in doubt"
            text += doubt * has_doubted_meter(record, scope)
            limits = node_limits([record], ALL_PHASES) if scope is Scope.NODE else ()
            yield Line("", "; ".join((text, *limits)))


def host_lines(record: RunRecord) -> Iterator[Line]:
    """Yield how the hosts of a run of several ended and, of a few, what each of them did."""
    if len(record.hosts) == 1:
        return
    *shares, whole = shares_of(record)
    energy = whole.energy
    joules = (energy.work_j, energy.energy_j, energy.upper_j) if energy is not None else ()
    with one_unit(Unit.JOULES, scale_for(Unit.JOULES, *joules)):
        texts = [ends_text(record), *_shares(record, shares), shared_text(record)]
    for index, text in enumerate(filter(None, texts)):
        yield Line("" if index else "hosts", printable(text))


def _shares(record: RunRecord, shares: Sequence[HostShare]) -> Iterator[str]:
    for share in shares if len(shares) <= HOSTS_MAX else ():
        energy = share.energy
        moved = (
            (share.read_bytes, "read", share.reading_bytes_per_s),
            (share.written_bytes, "written", share.writing_bytes_per_s),
        )
        parts = [
            counted(share.rank_count, "rank"),
            drives_text(share),
            *(
                f"{quantity(size, Unit.BYTES)} {word} at {quantity(rate, Unit.BYTES_PER_SECOND)}"
                for size, word, rate in moved
                if size
            ),
            "" if energy is None or energy_text(energy) == MISSING else energy_words(energy)[0],
            f"clock {clock_text(record, share)}",
        ]
        yield f"{share.name}: {', '.join(filter(None, parts))}"


def _why(record: RunRecord, energies: Sequence[Energy]) -> str:
    """Return why there is no energy, in a few words if that is enough."""
    causes = [c.cause for c in record.checks if c.name.startswith("power_coverage") and c.cause]
    if record.power.requested == "none":
        return "power=none"
    if causes:
        return causes[0]
    return next((energy.reason for energy in energies if energy.reason), "no timed phase").rstrip(
        "."
    )


def _energy(energy: Energy) -> str:
    """Return the energy for the work, else that in the window, and what it is per watt."""
    text = energy_text(energy)
    if text == MISSING:
        return f"unknown ({energy.reason.rstrip('.')})"
    power = power_text(energy)
    if energy.energy_j is None:
        return f"{text} ({power})"
    value_j, margin_j, per_j = energy.energy_j, energy.uncertainty_j, energy.amount_per_j
    measurand = "in the window"
    if energy.work_j is not None:
        value_j, margin_j, per_j = (
            energy.work_j,
            energy.work_uncertainty_j,
            energy.work_amount_per_j,
        )
        measurand = "for the work"
    replayed = "replayed: " if energy.replayed else ""
    at_least = "at least " if energy.is_at_least else ""
    text = f"{replayed}{at_least}{with_uncertainty(value_j, margin_j, Unit.JOULES)} {measurand}"
    parts = [power]
    if per_j is not None:
        text += f", {number(1e6 / per_j, 3)} µJ per {energy.amount_name}"
    elif energy.bytes_per_j:
        parts.append(quantity(energy.bytes_per_j, Unit.BYTES_PER_JOULE))
    within = "" if energy.work_j is None else " in the window"
    return f"{text} ({', '.join(parts)}{within})"


def _tail(energy: Energy) -> str:
    """Return what energy for the work consists of, or why there is none, for words that follow."""
    if energy.work_j is not None:
        assert energy.energy_j is not None
        window = with_uncertainty(energy.energy_j, energy.uncertainty_j, Unit.JOULES)
        return f"{window} in the window; tail {tail_text(energy)}; "
    if energy.energy_j is not None and energy.no_tail:
        return f"for the work unknown ({energy.no_tail.rstrip('.')}); "
    return ""


def _unknown_margin(record: RunRecord, energy: Energy) -> str:
    """Return why the uncertainty of a measured energy is unknown, for the words that follow."""
    if energy.energy_j is None or energy.uncertainty_j is not None:
        return ""
    reasons = (
        part.missing.get("uncertainty_j", "")
        for part in record.power.energy
        if part.chosen and part.scope is Scope.DRIVE and part.uncertainty_j is None
    )
    reason = next(filter(None, reasons), "no reason is recorded")
    return f"± unknown: {reason.rstrip('.')}; "


def failures(record: RunRecord) -> Iterator[Line]:
    """Yield each failed check with its finding, then the names of the others to look at."""
    checks = of_hosts(record, record.checks)
    for check in checks:
        if check.verdict == "fail":
            yield Line("  failed", printable(f"{check.name}: {check.sentence}"), "bold red")
    warned = [check.name for check in checks if check.verdict == "warn"]
    if warned:
        yield Line("  warned", printable(", ".join(warned)), "yellow")
    unmade = [c.name for c in checks if c.verdict == "not_checked" and not c.cause]
    if unmade:
        yield Line("  unchecked", printable(", ".join(unmade)), "cyan")


def details(record: RunRecord) -> Iterator[Line]:
    """Yield what ``--verbose`` adds: what the figures mean, remarks, and the findings."""
    for metric in record.metrics:
        if metric.headline:
            words = f"{label(metric.name, metric.unit)} {_value(metric)}"
            yield Line("figure", f"{words}: {metric.meaning}")
    for remark in record.workload.remarks:
        yield Line("remark", printable(remark))
    yield Line("power", printable(record.power.choice))
    for check in record.checks:
        if check.verdict in ("warn", "not_checked"):
            unmade = "not applied" if check.cause else "unchecked"
            name = "warned" if check.verdict == "warn" else unmade
            yield Line(name, printable(f"{check.name}: {check.sentence}"))


def print_comparison(runs: Sequence[Run], journal: Path) -> None:
    """Print a session's arms, ratios and verdicts, its report's command, and its finding."""
    from wattload.cli.console import Console

    subject, host = make_subject(runs), _root_of(runs[0].record)
    console = Console()
    for group in subject.groups:
        print()
        print_lines(_title(group), [])
        console.print(_table(subject, group))
        print_lines("", list(_results(subject, group)))
    report = command("report", [journal], host)
    has_failed = any(check.verdict == "fail" for check in subject.all_checks)
    ending = [
        Line("trust", printable(trust_text(subject)), "bold red" if has_failed else ""),
        Line("report", report, wraps=False),
        Line("finding", printable(finding(subject)), "bold"),
    ]
    print_lines("", ending)


def _table(subject: Subject, group: Group) -> Table:
    """Return the arms, at each point of a sweep, with the geometric means that ratios divide."""
    from rich.table import Table

    parts = points(group)
    shown = _shown(compare(subject, group))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    table.add_column("")
    if parts[0].axis:
        table.add_column(parts[0].axis)
    table.add_column("arm", overflow="fold")
    table.add_column("runs", justify="right")
    for key in shown:
        table.add_column(key, justify="right")
    for part in parts:
        rows = {row.quantity.key: row for row in compare(subject, part.group)}
        for arm, of_arm in part.group.arms.items():
            cells = [
                _figure(rows[key], arm) if key in rows else NOT_MEASURED for key in shown.values()
            ]
            at = [part.value] if parts[0].axis else []
            table.add_row("", *at, printable(arm), str(len(of_arm)), *cells)
    return table


def _title(group: Group) -> str:
    workload = group.runs[0].record.workload
    runs = counted(len(group.runs), "run")
    return f"{workload.name}, scale {workload.scale}: {runs}; geometric means of valid runs"


def _shown(rows: Sequence[Row]) -> dict[str, str]:
    """Return the titles of the first headline rate and of its energy, with their keys."""
    headlines = [row for row in rows if row.quantity.headline and row.quantity.better != "neither"]
    speeds = [row for row in headlines if not row.quantity.is_energy]
    rates = [row for row in speeds if row.quantity.unit is Unit.BYTES_PER_SECOND]
    costs = [row for row in headlines if row.quantity.is_energy]
    energies = [row for row in costs if row.quantity.unit is Unit.JOULES] or costs
    asking = [row for row in energies if not row.quantity.asked_by]
    chosen = [*(rates or speeds)[:1], *asking[:1]]
    found = {row.quantity.label: row.quantity.key for row in chosen}
    return found if energies else {**found, "energy": ""}


def _figure(row: Row, arm: str) -> str:
    """Return an arm's geometric mean, or its median if not all figures are positive.

    Without a valid run these are its figures, without a figure its bounds.
    """
    unit, spread, centre = row.quantity.unit, row.spreads.get(arm), row.centres.get(arm)
    if spread is not None:
        cv = "" if spread.cv is None else f" (CV {number(spread.cv * 100, 2)} %)"
        return quantity(spread.median if centre is None else centre, unit) + cv
    figures = row.figures.get(arm, ())
    values = [quantity(each.value, unit) for each in figures if each.value is not None]
    if values:
        return f"{', '.join(values)} (not valid)"
    uppers = [each.upper for each in figures if each.upper is not None]
    lowers = [each.lower for each in figures if each.lower is not None]
    return bounded_quantity(None, min(lowers, default=None), max(uppers, default=None), unit)


def _results(subject: Subject, group: Group) -> Iterator[Line]:
    """Yield the ratio and the verdict of each shown quantity of two arms, at each point."""
    if not group.is_pair:
        return
    keys = set(_shown(compare(subject, group)).values())
    for part in points(group):
        for row in compare(subject, part.group):
            if row.quantity.key in keys:
                yield from _result(row, part, group)


def _result(row: Row, part: Point, group: Group) -> Iterator[Line]:
    """Yield the ratio and the verdict of two arms; at a point of a sweep in one line."""
    name = row.quantity.label
    found = answer("energy" if row.quantity.is_energy else "speed", row, tuple(group.arms))
    interval = f" ({found.interval_text})" if found.interval_text else ""
    ratio = f"{found.leader}: {found.ratio_text}{interval}" if found.ratio_text else ""
    style = "bold green" if found.winner else "bold"
    verdict = f"{found.winner} wins" if found.winner else found.words
    if part.axis:
        at = f"{name} at {part.axis} = {part.value}"
        parts = "; ".join(text for text in (verdict, ratio) if text)
        yield Line("verdict", printable(f"{at}: {parts}"), style)
        return
    if ratio:
        note = f"; {found.note}" if found.note else ""
        yield Line("ratio", printable(f"{name}: {ratio}{note}"))
    yield Line("verdict", printable(f"{name}: {verdict}"), style)
