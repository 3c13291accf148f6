"""The start and the end of a record on rank 0: the draft, then traces, energy and checks."""

from __future__ import annotations

from collections.abc import Sequence

from wattload.core.record.run import RunRecord, write_record
from wattload.life.account import pending_section, power_section, read_all
from wattload.life.assemble import Findings, Header, RankReport, build_record, windows_of
from wattload.life.folder import settle, write_draft_document
from wattload.life.traces import write_operations, write_power, write_throughput


def write_draft(header: Header, reports: Sequence[RankReport]) -> None:
    """Write what is known before the first byte moves, for the record of a run that dies."""
    record = build_record(
        header,
        reports,
        Findings(),
        power=pending_section(header.order.config.power),
        status="aborted",
        reason="the run ended before it was finished",
    )
    write_draft_document(header.folder, record.model_dump_json(indent=1))


def conclude(header: Header, reports: Sequence[RankReport], findings: Findings) -> RunRecord:
    """Write traces and record of a run that has finished, and return the record."""
    power_reports = [report.power for report in reports if report.power is not None]
    samples = read_all(header.folder, power_reports)
    traffic = [row for report in reports for row in report.traffic]
    traces = [
        write_throughput(header.folder, traffic),
        write_power(header.folder, [sample for host in samples.values() for sample in host]),
    ]
    if findings.operations:
        traces.append(write_operations(header.folder, findings.operations))
    record = build_record(
        header,
        reports,
        findings,
        power=power_section(
            header.order.config.power, power_reports, windows_of(reports), samples, traffic
        ),
        traces=traces,
        status="complete",
        reason="every phase ran to its end",
    )
    write_record(record, header.folder)
    settle(header.folder, [report.samples_file or "" for report in power_reports])
    return record
