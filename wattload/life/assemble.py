"""From what the ranks of a run report to its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from wattload.config import RunConfig
from wattload.core.checks import evaluate
from wattload.core.clock import utc_text
from wattload.core.host import software_facts
from wattload.core.record.check import Check
from wattload.core.record.energy import PowerSection
from wattload.core.record.host import RankRecord
from wattload.core.record.phase import PhaseWindow, Total, TraceFile
from wattload.core.record.run import Comparison, DataRecord, RunRecord, Status, WorkloadSection
from wattload.core.record.target import TargetRecord
from wattload.core.workload import DataFacts, Outcome
from wattload.life.capture import CaptureReport
from wattload.life.evidence import with_effective_paths
from wattload.life.limits import limits_of
from wattload.life.operations import OperationRow
from wattload.life.phases import MarkedSpan, TrafficRow
from wattload.life.powering import PowerReport
from wattload.life.windows import (
    application_counters,
    block_counters,
    phase_windows,
    with_half_rates,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be run: the typed configuration, the same as plain data, and where it stands."""

    config: RunConfig
    plain: Mapping[str, Any]
    comparison: Comparison
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What is known of a run before it starts."""

    order: Order
    folder: Path
    started_utc: str
    workload: str
    world_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """What one rank hands in; ``capture`` and ``power`` come from each host's leader only."""

    rank: RankRecord
    marked: Sequence[MarkedSpan]
    traffic: Sequence[TrafficRow]
    capture: CaptureReport | None
    power: PowerReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the workload left behind, on rank 0."""

    data: DataFacts | None = None
    outcome: Outcome = field(default_factory=Outcome)
    verification: Sequence[Check] = ()
    operations: Sequence[OperationRow] = ()


def windows_of(reports: Sequence[RankReport]) -> tuple[PhaseWindow, ...]:
    """Return the phases' windows over all ranks, with the rates of their halves."""
    spans = [item.span for report in reports for item in report.marked]
    traffic = [row for report in reports for row in report.traffic]
    return with_half_rates(phase_windows(spans), traffic)


def build_record(
    header: Header,
    reports: Sequence[RankReport],
    findings: Findings,
    *,
    power: PowerSection,
    traces: Sequence[TraceFile] = (),
    status: Status,
    reason: str,
) -> RunRecord:
    """Return the record with its checks made and its limits told; also of an unfinished run."""
    captures = [report.capture for report in reports if report.capture is not None]
    marked = [item for report in reports for item in report.marked]
    windows = windows_of(reports)
    record = RunRecord(
        run_id=header.folder.name,
        status=status,
        status_reason=reason,
        **_order_section(header.order),
        started_utc=header.started_utc,
        finished_utc=utc_text() if status == "complete" else None,
        software=software_facts(),
        workload=_workload_section(header, findings),
        **_machine_section(captures, marked),
        ranks=tuple(report.rank for report in reports),
        spans=tuple(item.span for item in marked),
        windows=windows,
        metrics=tuple(findings.outcome.metrics),
        counters=(*application_counters(windows), *block_counters(marked)),
        totals=(_moved(windows), _drive_energy(power, windows)),
        power=power,
        checks=(),
        limits=(),
        traces=tuple(traces),
        latencies=tuple(findings.outcome.latencies),
    )
    return _judged(record, findings)


def _order_section(order: Order) -> dict[str, Any]:
    """Return what was asked for, and what the run may be compared with."""
    label = order.config.label
    return {
        "label": label,
        "command": order.command,
        "config": order.plain,
        "comparison": order.comparison.model_copy(update={"arm": order.comparison.arm or label}),
    }


def _machine_section(
    captures: Sequence[CaptureReport], marked: Sequence[MarkedSpan]
) -> dict[str, Any]:
    """Return what the leaders of all hosts found: hosts, targets and controllers."""
    return {
        "hosts": tuple(capture.host for capture in captures),
        "targets": tuple(
            _with_session_bytes(target, marked) if len(capture.targets) == 1 else target
            for capture in captures
            for target in capture.targets
        ),
        "controllers": tuple(found for capture in captures for found in capture.controllers),
    }


def _judged(record: RunRecord, findings: Findings) -> RunRecord:
    record = with_effective_paths(record)
    checks = (*findings.outcome.checks, *findings.verification, *evaluate(record))
    record = record.model_copy(update={"checks": checks})
    return record.model_copy(update={"limits": limits_of(record)})


def _workload_section(header: Header, findings: Findings) -> WorkloadSection:
    config, data = header.order.config, findings.data
    is_direct = any(path.path_requested == "o_direct" for path in findings.outcome.paths)
    depth = getattr(config.loader, "queue_depth", None) if is_direct else None
    block_bytes = getattr(config.loader, "block_bytes", None) if is_direct else None
    return WorkloadSection(
        name=header.workload,
        loader=type(config.loader).__module__.rpartition(".")[2],
        scale=config.scale.name,
        accelerator=config.accelerator.name,
        rank_count=header.world_size,
        queue_depth_asked=(
            depth * getattr(config.loader, "pollers", 1) * header.world_size
            if isinstance(depth, int)
            else None
        ),
        block_bytes_asked=block_bytes if isinstance(block_bytes, int) else None,
        paths=tuple(findings.outcome.paths),
        details=dict(findings.outcome.details),
        remarks=_remarks(findings.outcome),
        data=None if data is None else _data_record(data),
    )


def _remarks(outcome: Outcome) -> tuple[str, ...]:
    """Return what the page must print of the run and of the ways its bytes took, each once."""
    of_paths = (remark for path in outcome.paths for remark in path.remarks)
    return tuple(dict.fromkeys((*outcome.remarks, *of_paths)))


def _data_record(data: DataFacts) -> DataRecord:
    return DataRecord(
        key=data.key,
        folder=str(data.folder),
        file_count=data.file_count,
        data_bytes=data.data_bytes,
        reused=data.reused,
        parameters=dict(data.parameters),
    )


def _with_session_bytes(target: TargetRecord, marked: Sequence[MarkedSpan]) -> TargetRecord:
    """Return the host's only target with what this run wrote there, generation included."""
    written_bytes = sum(
        item.span.written_bytes for item in marked if item.span.host == target.facts.host
    )
    history = target.history.model_copy(update={"session_written_bytes": written_bytes})
    return target.model_copy(update={"history": history})


def _moved(windows: Sequence[PhaseWindow]) -> Total:
    timed = [window for window in windows if window.timed]
    return Total(
        name="moved_bytes",
        value=float(sum(window.read_bytes + window.written_bytes for window in timed)),
        unit="B",
        keys=tuple(f"{window.host}/{window.name}" for window in timed),
    )


def _drive_energy(power: PowerSection, windows: Sequence[PhaseWindow]) -> Total:
    """Sum the chosen drive figures of the timed phases; ``None`` when a part is missing.

    The tail is no part of it, nor is there a sum of phases that share time: it would count that
    time's energy twice.
    """
    timed = [window for window in windows if window.timed]
    names = {(window.host, window.name) for window in timed}
    chosen = [
        energy
        for energy in power.energy
        if energy.chosen and energy.scope == "drive" and (energy.host, energy.phase) in names
    ]
    keys = tuple(f"{e.host}/{e.device}/{e.source}/{e.phase}" for e in chosen)
    known = [energy.energy_j for energy in chosen if energy.energy_j is not None]
    if chosen and len(known) == len(chosen) and not _share_time(timed):
        return Total(name="drive_energy", value=sum(known), unit="J", keys=keys)
    reason = "a part is missing" if chosen else power.choice
    if chosen and _share_time(timed):
        reason = "phases share time, and a sum would count its energy twice"
    return Total(name="drive_energy", value=None, unit="J", keys=keys, missing={"value": reason})


def _share_time(windows: Sequence[PhaseWindow]) -> bool:
    """Return whether two phases of one host were active at the same time."""
    spans = sorted(
        (window.host, start_ns, end_ns)
        for window in windows
        for start_ns, end_ns in window.intervals or ((window.start_ns, window.end_ns),)
    )
    return any(one[0] == other[0] and other[1] < one[2] for one, other in pairwise(spans))
