"""Reads into the memory of made-up GPUs, from real files by O_DIRECT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.context import Context, directory_target
from tests.gpu_machine import gpu_address, on_drives
from tests.workloads.gpu_read.fake import FakeLoader
from tests.workloads.gpu_read.making import FILE_BYTES, files_of, workload_of
from tests.workloads.gpu_read.outcome import made
from wattload.core.errors import ConfigError, RunError
from wattload.loaders.block_reads import ReadFailure
from wattload.workloads.gpu_read.config import Config, Files


def several(target: Path, count: int) -> Context:
    folders = [target / str(number) for number in range(count)]
    for folder in folders:
        folder.mkdir()
    targets = [on_drives(folder, number, index=number) for number, folder in enumerate(folders)]
    return Context(targets=tuple(targets))


def test_the_figures_follow_from_what_was_read(context: Context) -> None:
    found = made(workload_of(block_bytes=16384), context)
    outcome, metrics = found.outcome, found.metrics
    [phase] = context.timed("gpu_read")
    seconds = found.facts.ranks[0].seconds
    assert phase.read_bytes == phase.operations * 16384 > 0
    assert metrics["read_bytes_per_s"] == pytest.approx(phase.read_bytes / seconds)
    assert metrics["read_iops"] == pytest.approx(phase.operations / seconds)
    assert metrics["mean_latency_s"] == pytest.approx(4 * seconds / phase.operations, 1e-3)
    assert metrics["failed_reads"] == 0
    assert (metrics["cpu_s_per_gb"] or 0) * phase.read_bytes < 2 * seconds
    [row] = outcome.latencies
    assert (row.phase, row.kind, row.count) == ("gpu_read", "read", phase.operations)
    assert phase.seconds == pytest.approx(seconds, abs=0.02)
    assert {name: check.verdict for name, check in found.checks.items()} == {
        "cold_cache": "pass",
        "cold_cache_after": "pass",
        "data_path": "pass",
        "written_extents": found.checks["written_extents"].verdict,
        "counted_bytes_gpu_read": "pass",
        "counted_latencies_gpu_read": "pass",
        "delivered_bytes": "pass",
        "failed_reads": "pass",
        "littles_law": "pass",
    }
    assert outcome.paths[0].counts is not None
    assert outcome.paths[0].counts.word == "host_bounce"


def test_each_target_is_read_into_its_nearest_gpu(target: Path) -> None:
    loader, context = FakeLoader(), several(target, 3)
    facts = made(workload_of(loader), context).facts
    links = facts.connections
    assert [each.gpu for each in links] == [gpu_address(number) for number in range(3)]
    assert {each.link for each in links} == {"same switch"}
    assert links[0].model_dump() == {
        "target": 0,
        "path": str(target / "0"),
        "gpu": gpu_address(0),
        "gpu_name": "NVIDIA A100-SXM4-40GB",
        "gpu_node": 0,
        "drive_node": 0,
        "link": "same switch",
    }
    plan = loader.plans[-1]
    assert [file.gpu for file in plan.files] == [each.gpu for each in links]
    assert [file.node for file in plan.files] == [0, 0, 0]
    assert len({file.stamps.word for file in plan.files}) == 3
    assert [file.target for _, file in facts.files] == [0, 1, 2]


def test_files_per_thread_are_spread_over_targets(target: Path) -> None:
    context = several(target, 2)
    found = made(workload_of(threads=5, files=Files.per_thread), context)
    assert [path.parent.parent.parent.name for path in files_of(context)] == list("00011")
    assert len(found.facts.files) == 5


def test_a_gpu_on_another_node_is_on_the_page(target: Path) -> None:
    found = made(workload_of(gpus=[7]), several(target, 1))
    assert found.outcome.remarks == (
        f"{target / '0'} is on another NUMA node than its GPU {gpu_address(7)}: reads cross "
        "between processors.",
    )
    assert found.facts.connections[0].link == "another node"


def test_the_same_reads_for_every_loader(context: Context) -> None:
    one, other = FakeLoader(), FakeLoader(only_direct=True)
    for loader in (one, other):
        made(workload_of(loader), context)
    assert one.plans[-1] == other.plans[-1]


def test_failed_reads_are_counted_and_bar_the_run(context: Context) -> None:
    loader = FakeLoader(
        failures=(
            ReadFailure(reason="cuFileRead returned -5", count=3),
            ReadFailure(reason="Input/output error", count=1),
        )
    )
    found = made(workload_of(loader), context)
    checks = found.checks
    assert found.metrics["failed_reads"] == found.facts.failed == 4
    assert checks["failed_reads"].verdict == "fail"
    assert "4 reads failed" in checks["failed_reads"].sentence
    assert "cuFileRead returned -5" in checks["failed_reads"].sentence


def test_no_read_at_all_is_a_failed_run(context: Context) -> None:
    loader = FakeLoader(failures=(ReadFailure(reason="Input/output error", count=64),))
    workload = workload_of(loader, duration_s=1e-9)
    workload.plan(context)
    workload.prepare(context)
    with pytest.raises(RunError, match=r"no read succeeded in .*; failed reads: 64: Input/output"):
        workload.run(context)


def test_zeros_are_not_what_the_files_have(context: Context) -> None:
    checks = made(workload_of(FakeLoader(delivers_zeros=True)), context).checks
    assert checks["delivered_bytes"].verdict == "fail"


def test_time_in_no_latency_is_a_share_of_a_threads_time(context: Context) -> None:
    checks = made(workload_of(FakeLoader(hidden_share=0.25)), context).checks
    check = checks["littles_law"]
    assert check.verdict == "warn"
    assert "25 % of a thread's time is in no latency" in check.sentence
    assert check.figures["ratio"] == pytest.approx(4 / 3, rel=1e-3)


def test_more_in_flight_than_threads_is_wrong(context: Context) -> None:
    checks = made(workload_of(FakeLoader(hidden_share=-0.5)), context).checks
    assert checks["littles_law"].verdict == "warn"
    assert "more than there are threads" in checks["littles_law"].sentence


def test_a_mean_is_enough_for_little(context: Context) -> None:
    found = made(workload_of(FakeLoader(has_latencies=False)), context)
    assert found.checks["littles_law"].verdict == "pass"
    assert found.outcome.latencies == ()


def test_reads_through_the_page_cache_are_found(context: Context) -> None:
    checks = made(workload_of(FakeLoader(through_page_cache=True)), context).checks
    assert checks["cold_cache"].verdict == "pass"
    assert checks["cold_cache_after"].verdict == "fail"


def test_the_preview_says_what_goes_where(target: Path) -> None:
    plan = workload_of().plan(several(target, 2))
    assert [name for name, _ in plan.lines] == ["blocks", "gpu", "gpu"]
    assert plan.lines[1][1] == (
        f"{target / '0'} into GPU {gpu_address(0)} (NVIDIA A100-SXM4-40GB, node 0 with CPUs "
        "0-63), same switch"
    )
    assert (plan.reading_s, plan.maximum_ranks) == (0.1, 1)
    assert plan.data_bytes == plan.prepare_bytes == 2 * FILE_BYTES


def test_fewer_threads_than_targets_are_refused(target: Path) -> None:
    with pytest.raises(ConfigError, match="at least the number of targets, 3, got 2"):
        workload_of(threads=2).plan(several(target, 3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpus": ["gpu0"]}, "got 'gpu0'; nvidia-smi lists both"),
        ({"block_bytes": 5000}, "workload.block_bytes must be a multiple of 512"),
        ({"block_bytes": 32 << 20}, "512 to 16777216"),
        ({"block_bytes": 8 << 20}, "must be at least workload.block_bytes, 8388608 bytes"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        workload_of(**settings)


def test_numbers_and_addresses_name_gpus() -> None:
    named = Config(gpus=[0, "0000:65:00.0"]).named_gpus
    assert named == ("0", "0000:65:00.0")
    assert Config(gpus=3).named_gpus == ("3",)
    assert Config().named_gpus == ()


def test_a_target_without_facts_gets_the_first_gpu(target: Path) -> None:
    context = Context(targets=(directory_target(target),))
    [found] = made(workload_of(), context).facts.connections
    assert (found.gpu, found.link) == (gpu_address(0), "unknown")
