"""The latencies that a run hands to its record are those of its timed operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.context import context_at
from tests.unet3d import direct, live, torch, workload
from tests.workloads.checkpointing import made, run

pytestmark = pytest.mark.usefixtures("short_ceiling", "short_ceilings")


def test_unet3d_by_direct_times_each_read_of_its_epochs(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    outcome, _ = live(workload(direct()), context)
    (row,) = outcome.latencies
    assert (row.phase, row.kind) == ("read", "read")
    assert row.operation_bytes == direct().block_bytes
    assert row.count == sum(span.operations for span in context.timed("read"))
    assert 0 < row.min_s <= row.mean_s <= row.max_s


def test_a_loader_that_times_nothing_leaves_no_row(tmp_path: Path) -> None:
    outcome, _ = live(workload(torch()), context_at(tmp_path))
    assert outcome.latencies == ()


def test_checkpoints_by_direct_time_their_writes_and_reads(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    outcome, _ = run(made(), context)
    assert [(row.phase, row.kind) for row in outcome.latencies] == [
        ("write", "write"),
        ("read", "read"),
    ]
    for row in outcome.latencies:
        assert row.count == sum(span.operations for span in context.timed(row.phase))
