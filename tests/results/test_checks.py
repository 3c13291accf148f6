"""Checks that several workloads declare."""

from __future__ import annotations

import pytest

from tests.records import Scenario, make_run
from tests.reports.gnn import Training, gnn_record
from tests.reports.gpu_reads import of_count, reads_run
from tests.reports.random_reads import random_run
from wattload.core.record.results import latencies_of
from wattload.core.record.run import RunRecord
from wattload.results.reading import judged


def verdict(record: RunRecord, name: str = "counted_bytes_") -> str:
    (found,) = (c for c in judged(record).checks if c.name.startswith(name))
    return found.verdict


@pytest.mark.parametrize(("factor", "expected"), [(1, "pass"), (2, "fail")])
def test_bytes_that_a_phase_counts_twice_fail(factor: int, expected: str) -> None:
    record, _ = make_run(Scenario())
    spans = tuple(
        each.model_copy(update={"read_bytes": factor * each.read_bytes}) for each in record.spans
    )
    assert verdict(record.model_copy(update={"spans": spans})) == expected


READS = {"gpu_read": reads_run().record, "gpu_random_read": random_run().record}


@pytest.mark.parametrize("record", READS.values(), ids=READS)
def test_a_read_without_a_latency_or_with_two_fails(record: RunRecord) -> None:
    (row, *others) = record.latencies
    assert verdict(record, "counted_latencies_") == "pass"
    for count in (row.count - 1, row.count + 1):
        (changed,) = latencies_of(
            of_count([1000] * 100, count),
            phase=row.phase,
            kind="read",
            operation_bytes=row.operation_bytes,
        )
        other = record.model_copy(update={"latencies": (changed, *others)})
        assert verdict(other, "counted_latencies_") == "fail"


@pytest.mark.parametrize("record", [*READS.values(), gnn_record(Training())], ids=[*READS, "gnn"])
@pytest.mark.parametrize(("factor", "expected"), [(1, "pass"), (0.01, "fail")])
def test_readers_with_more_cpu_time_than_all_processes_fail(
    record: RunRecord, factor: float, expected: str
) -> None:
    spans = tuple(each.model_copy(update={"cpu_s": factor * each.cpu_s}) for each in record.spans)
    assert verdict(record.model_copy(update={"spans": spans}), "cpu_time_") == expected
