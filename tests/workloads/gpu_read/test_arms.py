"""The arms without a queue: what their runs report of the drives, and of the page cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.workloads.gpu_read.asking import context_of, files_of, made, metric
from wattload.core.workload import Accelerator
from wattload.loaders.direct.config import Config as Direct
from wattload.loaders.mmap.config import Config as Mmap
from wattload.workloads.gpu_read.config import Config
from wattload.workloads.gpu_read.workload import GpuRead

CONFIG = Config(block_bytes=512, file_bytes=1 << 20, duration_s=0.2, requesters=64, queue_pairs=2)


def test_direct_reads_what_is_delivered(tmp_path: Path) -> None:
    context = context_of(tmp_path, "a", "b")
    outcome, checks = made(GpuRead(CONFIG, Direct(), Accelerator()), context)
    [phase] = context.timed("gpu_random_read")
    assert phase.read_bytes == phase.operations * 512 == outcome.details["compared_bytes"]
    assert metric(outcome, "read_bytes_per_s") == metric(outcome, "delivered_bytes_per_s")
    assert {check.verdict for check in checks.values()} == {"pass"}
    assert (outcome.queue_depth, outcome.block_bytes) == (128, 512)
    assert outcome.details["drive_bytes"] is None
    assert [row.kind for row in outcome.latencies] == ["read", "request"]


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
    [check] = [each for each in workload.run(context).checks if each.name == "delivered_bytes"]
    assert check.verdict == "fail"
    assert check.sentence.endswith(f" of 512 bytes of {path}.")


def test_mmap_reports_what_the_drives_read(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    loader = Mmap(threads=3, advice="random")
    outcome, checks = made(GpuRead(CONFIG, loader, Accelerator()), context)
    [phase] = context.timed("gpu_random_read")
    details = outcome.details
    assert phase.read_bytes == details["drive_bytes"] > 0
    assert metric(outcome, "read_bytes_per_s") == pytest.approx(
        phase.read_bytes / details["seconds"]
    )
    assert metric(outcome, "delivered_bytes_per_s") == pytest.approx(
        phase.operations * 512 / details["seconds"]
    )
    assert 0 <= details["resident_fraction"] < 1
    assert (outcome.queue_depth, details["outstanding_asked"]) == (3, 3)
    assert outcome.block_bytes is None
    assert checks["page_faults"].verdict == "warn"  # the small file is soon in the page cache
    assert "the page cache served" in checks["page_faults"].sentence
    assert {each.verdict for name, each in checks.items() if name != "page_faults"} == {"pass"}
    assert details["files"][0]["p99_s"] is None
