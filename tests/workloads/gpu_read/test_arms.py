"""The arms without a queue: what their runs report of the drives, and of the page cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.workloads.gpu_read.asking import context_of, files_of
from tests.workloads.gpu_read.outcome import made, read_by
from wattload.core.workload import Accelerator
from wattload.loaders.direct.config import Config as Direct
from wattload.loaders.mmap.config import Config as Mmap
from wattload.workloads.gpu_read.config import Config
from wattload.workloads.gpu_read.workload import GpuRead

CONFIG = Config(block_bytes=512, file_bytes=1 << 20, duration_s=0.2, requesters=64, queue_pairs=2)


def test_direct_reads_what_is_delivered(tmp_path: Path) -> None:
    context = context_of(tmp_path, "a", "b")
    found = made(GpuRead(CONFIG, Direct(), Accelerator()), context)
    [phase] = context.timed("gpu_random_read")
    assert phase.read_bytes == phase.operations * 512 == found.facts.total("compared_bytes")
    assert found.metrics["read_bytes_per_s"] == found.metrics["delivered_bytes_per_s"]
    assert {check.verdict for check in found.checks.values()} == {"pass"}
    assert (found.outcome.queue_depth, found.outcome.block_bytes) == (128, 512)
    assert found.facts.total("drive_bytes") is None
    assert [row.kind for row in found.outcome.latencies] == ["read", "request"]


def test_direct_names_the_file_of_a_changed_block(tmp_path: Path) -> None:
    context = context_of(tmp_path, "a", "b")
    workload = GpuRead(CONFIG, Direct(), Accelerator())
    workload.plan(context)
    workload.prepare(context)
    _, path = files_of(context)
    with path.open("r+b") as file:
        for offset in range(0, CONFIG.file_bytes or 0, 8192):
            file.seek(offset)
            file.write(b"changed!")
        os.fsync(file.fileno())
    check = read_by(workload, context).checks["delivered_bytes"]
    assert check.verdict == "fail"
    assert check.sentence.endswith(f" of 512 bytes of {path}.")


def test_mmap_reports_what_the_drives_read(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    loader = Mmap(threads=3, advice="random")
    found = made(GpuRead(CONFIG, loader, Accelerator()), context)
    outcome, checks, facts = found.outcome, found.checks, found.facts
    [phase] = context.timed("gpu_random_read")
    assert phase.read_bytes == facts.drive_bytes > 0
    rate = phase.read_bytes / facts.ranks[0].seconds
    assert found.metrics["read_bytes_per_s"] == pytest.approx(rate)
    delivered = phase.operations * 512 / facts.ranks[0].seconds
    assert found.metrics["delivered_bytes_per_s"] == pytest.approx(delivered)
    assert 0 <= (facts.resident_fraction or 0) < 1
    assert (outcome.queue_depth, facts.in_flight) == (3, 3)
    assert outcome.block_bytes is None
    assert checks["page_faults"].verdict == "warn"  # the small file is soon in the page cache
    assert "the page cache served" in checks["page_faults"].sentence
    assert {each.verdict for name, each in checks.items() if name != "page_faults"} == {"pass"}
    assert facts.files[0][1].p99_s is None
