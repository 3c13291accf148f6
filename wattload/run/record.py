"""The record of a run, assembled on rank 0 from the reports of all hosts, one after the other.

A draft is written before the first byte moves, the complete record at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wattload.core.checks.io import device_bytes, initiator_of
from wattload.core.clock import utc_text
from wattload.core.errors import ForeignFileError, RunError, WattloadError, host_fault
from wattload.core.files import open_folder
from wattload.core.host.facts import software_facts
from wattload.core.io import PathCounts
from wattload.core.power import Evidence, Scope
from wattload.core.record.energy import PowerStateRecord
from wattload.core.record.file import (
    DRAFT_FILE,
    release_space,
    write_record,
)
from wattload.core.record.host import LoadRecord, RankRecord
from wattload.core.record.phase import (
    IoCounter,
    PhaseHalves,
    PhaseSpan,
    PhaseWindow,
    TraceFile,
    phase_windows,
)
from wattload.core.record.results import Check, Latency
from wattload.core.record.run import (
    Comparison,
    ConfigFile,
    DataRecord,
    RunRecord,
    Status,
    WorkloadSection,
)
from wattload.core.record.target import TargetRecord
from wattload.core.workload import Outcome
from wattload.power.energy.trace import TraceBuilder
from wattload.power.sampler.aborted_record import finish_in
from wattload.power.sampler.samples import read_samples
from wattload.results.reading import judged
from wattload.run.compose import workload_class
from wattload.run.config import RunConfig
from wattload.run.energy import HostEnergy, energy_of_host, power_section
from wattload.run.folder import remove_run_folder, settle, spare_folder, write_configuration
from wattload.run.host import CaptureReport
from wattload.run.phases import MarkedSpan, PhaseTraffic, block_counters, phase_halves
from wattload.run.power_session import PowerReport
from wattload.run.traces import PlacedOperations, RunTraces, write_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The run to make: its configuration, typed and as plain data, and its place in a session."""

    config: RunConfig
    config_values: Mapping[str, Any]
    config_files: tuple[ConfigFile, ...]
    comparison: Comparison
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What is known about a run before it starts."""

    order: Order
    folder: Path
    started_utc: str
    workload: str
    world_size: int
    launch_remark: str = ""
    """What launchers said of the number of processes if a setting overrode it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """The report of one rank: its process, spans, bytes over time, latencies and operations."""

    rank: RankRecord
    marked: Sequence[MarkedSpan]
    traffic: Sequence[PhaseTraffic] = ()
    latencies: Sequence[Latency] = ()
    operations: Sequence[PlacedOperations] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """The report of one host: what its leader found, and the reports of its ranks.

    ``folder`` is where the root finds the host's samples and journals.
    """

    folder: Path
    ranks: Sequence[RankReport]
    capture: CaptureReport | None
    power: PowerReport | None
    load: LoadRecord | None

    @property
    def host(self) -> str:
        return self.ranks[0].rank.host


HOST_FOLDER = "host-"
"""The start of the name of the folder, in the run's, for the files of another host."""

HostReports = Callable[[Path], Iterable[HostReport]]
"""Returns the reports of all hosts, one after the other, with their files put in a folder.

It is called once more, with another folder, if the first one can't be written.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPart:
    """What a host adds to the record. It is small: the traces are in their files by then."""

    ranks: Sequence[RankRecord]
    spans: Sequence[PhaseSpan]
    halves: Sequence[PhaseHalves]
    counters: Sequence[IoCounter]
    latencies: Sequence[Latency]
    capture: CaptureReport | None
    load: LoadRecord | None
    energy: HostEnergy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The workload's results, on rank 0."""

    data: DataRecord | None = None
    outcome: Outcome = field(default_factory=Outcome)
    verification: Sequence[Check] = ()


def draft_document(header: Header, reports: Sequence[HostReport]) -> str:
    """Return the draft, from which the record of a run that dies is made."""
    record = build_record(
        header,
        [_part(header, report, None) for report in reports],
        Findings(),
        status="aborted",
        reason="the run ended before it was finished",
    )
    return record.model_dump_json(indent=1)


def conclude(
    header: Header, reports: HostReports, findings: Findings
) -> tuple[RunRecord, Path, str]:
    """Write the traces and the record of a finished run; return the record and its folder.

    If that fails in the run's folder, because it is full or gone, they are written to a folder of
    this user, and the reason is returned, too: what was measured is not lost.

    Raises:
        RunError: they can't be written there either.
    """
    release_space(header.folder)
    try:
        return _store(header, reports, findings, header.folder), header.folder, ""
    except (OSError, ForeignFileError) as error:  # full, gone, or replaced by somebody
        failure = str(host_fault(error) or error)
    for of_host in header.folder.glob(f"{HOST_FOLDER}*"):
        remove_run_folder(of_host)
    try:
        place = spare_folder(header.folder.name)
        with open_folder(place) as spare:
            write_configuration(spare, header.order.config_values)
        return _store(header, reports, findings, place), place, failure
    except OSError as error:
        raise RunError(
            f"the run is complete, but its record is lost: {failure}; nor can it be written to the "
            f"state folder: {host_fault(error) or error}; then run again"
        ) from error


def record_failure(
    folder: Path, draft: str, status: Status, reason: str, states: Sequence[PowerStateRecord]
) -> tuple[Path, str]:
    """Make sure that a run that failed has a record, and return the record's folder.

    That is a folder of this user if the run's folder is full or gone; the reason is returned, too.

    Raises:
        OSError: it can't be written there either.
    """
    try:
        with open_folder(folder) as opened:
            finish_in(opened, status, reason, states=states)
    except (WattloadError, OSError) as error:
        place = spare_folder(folder.name)
        with open_folder(place) as spare:
            spare.write(DRAFT_FILE, draft)
            finish_in(spare, status, reason, states=states)
            spare.remove(DRAFT_FILE)
        return place, str(host_fault(error) or error)
    return folder, ""


def _store(header: Header, reports: HostReports, findings: Findings, place: Path) -> RunRecord:
    """Write the traces, the record and the log of a finished run to ``place``."""
    parts, folders = [], {header.folder: None}
    with RunTraces(place) as traces:
        for report in reports(place):
            parts.append(_part(header, report, traces))
            folders[report.folder] = None
    named = [write_named(place, *table) for table in findings.outcome.tables.items()]
    record = build_record(
        header,
        parts,
        findings,
        traces=[*traces.files(), *named],
        status="complete",
        reason="every phase ran to its end",
    )
    write_record(record, place)
    settle(record, list(folders), place)
    return record


def _part(header: Header, report: HostReport, traces: RunTraces | None) -> HostPart:
    """Return what a host adds to the record, and write its traces."""
    marked = [item for rank in report.ranks for item in rank.marked]
    traffic = [each for rank in report.ranks for each in rank.traffic]
    windows = phase_windows([item.span for item in marked])
    if traces is not None:
        traces.add_throughput(traffic)
        for rank in report.ranks:
            traces.add_operations(report.host, rank.rank.rank, rank.operations)
    return HostPart(
        ranks=[rank.rank for rank in report.ranks],
        spans=[item.span for item in marked],
        halves=list(phase_halves(windows, traffic)),
        counters=block_counters(marked),
        latencies=[
            row.model_copy(update={"hosts": (report.host,), "ranks": (rank.rank.rank,)})
            for rank in report.ranks
            for row in rank.latencies
        ],
        capture=report.capture,
        load=report.load,
        energy=_energy(header, report, windows, traffic, traces),
    )


def _energy(
    header: Header,
    report: HostReport,
    windows: Sequence[PhaseWindow],
    traffic: Sequence[PhaseTraffic],
    traces: RunTraces | None,
) -> HostEnergy | None:
    """Return the energies of a host from its samples, which become a part of the power trace."""
    if report.power is None or traces is None:
        return None
    builder, file = TraceBuilder(), report.power.samples_file
    if file is not None:
        traces.add_power(report.host, builder.adding(read_samples(report.folder / file)))
    config = header.order.config.power
    return energy_of_host(config, report.power, windows, builder.traces(), traffic)


def build_record(
    header: Header,
    parts: Sequence[HostPart],
    findings: Findings,
    *,
    traces: Sequence[TraceFile] = (),
    status: Status,
    reason: str,
) -> RunRecord:
    """Return the record of a finished or unfinished run, with its checks and its limits."""
    record = RunRecord(
        run_id=header.folder.name,
        status=status,
        status_reason=reason,
        **_order_section(header.order),
        started_utc=header.started_utc,
        finished_utc=utc_text() if status == "complete" else None,
        software=software_facts(),
        workload=_workload_section(header, findings),
        **_machine_section(parts),
        ranks=tuple(sorted((rank for part in parts for rank in part.ranks), key=_number)),
        spans=tuple(span for part in parts for span in part.spans),
        halves=tuple(each for part in parts for each in part.halves),
        counters=tuple(each for part in parts for each in part.counters),
        power=power_section(
            header.order.config.power, [part.energy for part in parts if part.energy is not None]
        ),
        checks=(),
        limits=(),
        traces=tuple(traces),
        latencies=tuple(row for part in parts for row in part.latencies),
        loads=tuple(part.load for part in parts if part.load is not None),
    )
    return _judged(record, findings)


def _number(rank: RankRecord) -> int:
    return rank.rank


def _order_section(order: Order) -> dict[str, Any]:
    """Return the configuration of the run and its place in a comparison."""
    label = order.config.label
    return {
        "label": label,
        "command": order.command,
        "config": order.config_values,
        "config_files": order.config_files,
        "comparison": order.comparison.model_copy(update={"arm": order.comparison.arm or label}),
    }


def _machine_section(parts: Sequence[HostPart]) -> dict[str, Any]:
    """Return the hosts, targets and controllers, as the hosts' leaders reported them."""
    known = [(part.capture, part.spans) for part in parts if part.capture is not None]
    return {
        "hosts": tuple(capture.host for capture, _ in known),
        "targets": tuple(
            _with_session_bytes(target, spans) if len(capture.targets) == 1 else target
            for capture, spans in known
            for target in capture.targets
        ),
        "controllers": tuple(found for capture, _ in known for found in capture.controllers),
    }


def _with_session_bytes(target: TargetRecord, spans: Sequence[PhaseSpan]) -> TargetRecord:
    """Return a host's only target with the bytes that this run wrote to it, including its data."""
    written_bytes = sum(span.written_bytes for span in spans if not span.is_part)
    history = target.history.model_copy(update={"session_written_bytes": written_bytes})
    return target.model_copy(update={"history": history})


def _workload_section(header: Header, findings: Findings) -> WorkloadSection:
    config, outcome = header.order.config, findings.outcome
    is_direct = any(
        path.path_requested == "o_direct" or path.counts is not None for path in outcome.paths
    )
    uses_loader = bool(workload_class(config).needs)
    # A workload that decides how many operations are in flight leaves the loader nothing to choose.
    is_own = not uses_loader or hasattr(config.workload, "queue_depth")
    settings = config.workload if is_own else config.loader
    # Under a rate the queue need not be deep.
    is_limited = getattr(settings, "rate_bytes_per_s", None) is not None
    depth = getattr(settings, "queue_depth", None) if is_direct and not is_limited else None
    block_bytes = getattr(settings, "block_bytes", None) if is_direct else None
    return WorkloadSection(
        name=header.workload,
        loader=config.loader.name,
        uses_loader=uses_loader,
        scale=config.scale.name,
        accelerator=config.accelerator.name,
        rank_count=header.world_size,
        queue_depth_asked=outcome.queue_depth
        if outcome.queue_depth is not None
        else depth * getattr(settings, "pollers", 1) * header.world_size
        if isinstance(depth, int)
        else None,
        block_bytes_asked=outcome.block_bytes
        or (block_bytes if isinstance(block_bytes, int) else None),
        paths=tuple(findings.outcome.paths),
        facts=outcome.facts.model_dump(mode="json") if outcome.facts is not None else {},
        remarks=_remarks(header, findings.outcome),
        data=findings.data,
    )


def _remarks(header: Header, outcome: Outcome) -> tuple[str, ...]:
    """Return the remarks on the run, its processes and its data paths, each once."""
    of_processes = [header.launch_remark] if header.launch_remark else []
    of_paths = (remark for path in outcome.paths for remark in path.remarks)
    return tuple(dict.fromkeys((*of_processes, *outcome.remarks, *of_paths)))


def _judged(record: RunRecord, findings: Findings) -> RunRecord:
    record = with_effective_paths(record)
    observed = (*findings.outcome.checks, *findings.verification)
    record = judged(record.model_copy(update={"checks": observed}))
    return record.model_copy(update={"limits": limits_of(record)})


def with_effective_paths(record: RunRecord) -> RunRecord:
    """Return the record with each effective data path, where counters prove it.

    A path with ``counts`` is what they prove. Any other stays ``unverified`` unless the device
    moved 0.98 to 1.02 of the application's bytes in every timed phase that moved any.
    """
    proofs = device_bytes(record)
    proved = bool(proofs) and all(check.verdict == "pass" for check in proofs)
    evidence = "; ".join(_figure(check) for check in proofs) or "no timed phase moved a byte"
    paths = tuple(
        path.model_copy(
            update={
                "path_effective": _name(path.path_requested) if proved else "unverified",
                "path_evidence": evidence,
            }
            if path.counts is None
            else _proof(path.counts, under_load=bool(record.loads))
        )
        for path in record.workload.paths
    )
    return record.model_copy(
        update={"workload": record.workload.model_copy(update={"paths": paths})}
    )


def _proof(counts: PathCounts, *, under_load: bool) -> dict[str, object]:
    """Return what counts prove; under a load memory moves more than the reads make it."""
    if under_load:
        counts = counts.model_copy(update={"memory_bytes_per_byte": None})
    return {
        "initiator": initiator_of(counts),
        "counts": counts,
        "path_effective": counts.word,
        "path_evidence": counts.evidence,
    }


def _name(requested: str) -> str:
    return requested if requested == "o_direct" else f"{requested}, filled from the device"


def _figure(check: Check) -> str:
    ratio = check.figures.get("ratio")
    phase = check.name.removeprefix("device_bytes_")
    if not isinstance(ratio, float):
        return f"{phase}: not counted"
    return f"{phase}: device bytes over application bytes {ratio:.4f}"


def limits_of(record: RunRecord) -> tuple[str, ...]:
    """Return the run's limits, one sentence each, the most important first, without duplicates."""
    found = (*_of_power(record), *_of_targets(record), *_of_checks(record))
    return tuple(dict.fromkeys(found))


def _of_power(record: RunRecord) -> Iterator[str]:
    if recomputed := record.power.recomputed_text:
        yield recomputed
    drive = [e for e in record.power.energy if e.chosen and e.scope is Scope.DRIVE]
    if not drive:
        yield f"Drive energy was not measured: {record.power.unmeasured_text}"
    weak = {e.evidence for e in drive} & {Evidence.BOUNDS, Evidence.DECLARED}
    sources = [each.facts for each in record.power.sources if each.facts is not None]
    read = {facts.name for facts in sources if facts.has_declared_readings}
    for evidence in sorted(weak):
        if evidence is Evidence.DECLARED and any(each.source in read for each in drive):
            yield (
                "Drive energy is declared by the user, as scope or accuracy is not stated; it "
                "ranks nothing."
            )
            continue
        what = {"bounds": "the drive's power state table", "declared": "a data sheet"}[evidence]
        yield f"Drive energy comes from {what}, not from a measurement; it ranks nothing."
    if not record.controllers:
        yield (
            "There is no NVMe controller under the target: power state, link, temperature and "
            "SMART counters are unknown."
        )


def _of_targets(record: RunRecord) -> Iterator[str]:
    for target in record.targets:
        yield from (f"{text[:1].upper()}{text[1:]}." for text in target.facts.warnings)


def _of_checks(record: RunRecord) -> Iterator[str]:
    for check in record.checks:
        if check.verdict == "not_checked" and check.mandatory and check.name != "power_coverage":
            yield f"Not checked, {check.name}: {check.sentence}"
