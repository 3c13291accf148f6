"""Random reads from real files by O_DIRECT, through the queue, by requesters on the CPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.context import Context, ThreadCommunicator, run_ranks
from tests.gpu_machine import on_drives
from tests.workloads.gpu_read.asking import (
    FILE_BYTES,
    FaultyLoader,
    context_of,
    files_of,
    verdicts,
    workload_of,
)
from tests.workloads.gpu_read.outcome import followed, made, read_by
from wattload.core.errors import ConfigError, DataError, RunError
from wattload.core.workload import Outcome
from wattload.loaders.gpu_queue.config import DRIVER
from wattload.loaders.gpu_queue.config import Config as Loader
from wattload.results.gpu_read.figures import seen_in_flight
from wattload.run.ranks import LocalCommunicator
from wattload.workloads.gpu_read.config import Files
from wattload.workloads.gpu_read.workload import GpuRead

PROOFS = ("delivered_bytes", "queue_counts", "failed_reads")


def test_the_figures_follow_from_what_was_read(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    found = made(workload_of(), context)
    outcome, checks, facts, metrics = found.outcome, found.checks, found.facts, found.metrics
    [phase] = context.timed("gpu_random_read")
    seconds = facts.ranks[0].seconds
    assert phase.read_bytes == phase.operations * 512 > 0
    assert (phase.edges_ns[1] - phase.edges_ns[0]) / 1e9 == pytest.approx(seconds)
    rate = phase.operations / seconds
    assert metrics["reads_per_s"] == pytest.approx(rate)
    assert metrics["delivered_bytes_per_s"] == pytest.approx(rate * 512)
    assert metrics["read_bytes_per_s"] == pytest.approx(rate * 512)
    assert metrics["failed_reads"] == 0
    assert (metrics["cpu_s_per_million_reads"] or 0) > 0
    assert verdicts(checks, PROOFS) == ["pass"] * 3
    assert checks["cold_cache"].verdict == "pass"
    rows = {row.kind: row for row in outcome.latencies}
    assert rows["read"].count == phase.operations
    assert metrics["mean_latency_s"] == pytest.approx(rows["request"].mean_s)
    assert 0 < rows["request"].count <= phase.operations
    assert seen_in_flight(found.run) == pytest.approx(rate * rows["read"].mean_s)
    assert facts.queue is not None
    assert facts.requests == facts.queue["taken"] == facts.queue["answered"] == phase.operations
    assert [file.operations for _, file in facts.files] == [phase.operations]
    assert [poller.answered for _, poller in facts.pollers] == [phase.operations]
    assert (outcome.queue_depth, outcome.block_bytes) == (64, 512)
    [path] = outcome.paths
    assert path.counts is not None
    assert (path.counts.word, path.initiator) == ("cpu_queue", "cpu")
    assert any("not of a GPU" in remark for remark in path.remarks)
    [traced] = outcome.operations
    assert 0 < len(traced.rows) <= phase.operations / 1000 + len(facts.pollers)


def test_what_o_direct_reads_at_least_is_amplification(tmp_path: Path) -> None:
    context = context_of(tmp_path, least_bytes=4096)
    found = made(workload_of(), context)
    [phase] = context.timed("gpu_random_read")
    assert phase.read_bytes == phase.operations * 4096
    assert found.facts.read_bytes == 4096
    delivered = found.metrics["delivered_bytes_per_s"] or 1
    assert (found.metrics["read_bytes_per_s"] or 0) / delivered == pytest.approx(8)
    remarks = found.outcome.remarks
    assert any("8 bytes read for each one delivered" in remark for remark in remarks)
    assert verdicts(found.checks, PROOFS) == ["pass"] * 3


@pytest.mark.parametrize("settings", [{"block_bytes": 4096}, {"pattern": "regions"}])
def test_other_blocks_are_proved_too(tmp_path: Path, settings: dict[str, Any]) -> None:
    found = made(workload_of(**settings), context_of(tmp_path))
    assert verdicts(found.checks, PROOFS) == ["pass"] * 3
    assert found.facts.settings.pattern == settings.get("pattern", "uniform")


def test_one_target_and_several_read_the_same_files(tmp_path: Path) -> None:
    made(workload_of(), context_of(tmp_path, "a"))
    both = context_of(tmp_path, "b", "a")
    plan = workload_of().plan(both)
    assert (plan.data_bytes, plan.prepare_bytes) == (2 * FILE_BYTES, FILE_BYTES)
    found = made(workload_of(), both)
    assert verdicts(found.checks, PROOFS) == ["pass"] * 3
    stamps = [np.fromfile(path, dtype="<u8").reshape(-1, 64) for path in files_of(both)]
    assert len({int(word) for each in stamps for word in np.unique(each[:, 1])}) == 2
    for each in stamps:
        assert list(each[:, 2]) == list(range(FILE_BYTES // 512))
    assert all(file.operations for _, file in found.facts.files)


def test_two_targets_on_a_drive_count_as_one(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    drives = (0, 0, 1)
    targets = [on_drives(path, drives[i], index=i) for i, path in enumerate(folders)]
    found = made(workload_of(), Context(targets=tuple(targets)))
    assert found.facts.shared_targets == 2
    assert any(
        remark == f"2 targets share a drive and count as one drive: {folders[0]}, {folders[1]}."
        for remark in found.outcome.remarks
    )
    assert len(found.facts.pollers) == 2


@pytest.mark.parametrize("engine", ["null", "memory"])
def test_without_storage_no_byte_is_read(tmp_path: Path, engine: str) -> None:
    context = context_of(tmp_path)
    workload = workload_of(Loader(requester="cpu", engine=engine))
    plan = workload.plan(context)
    assert (plan.data_bytes, plan.prepare_bytes, plan.needs_direct_io) == (0, 0, False)
    found = made(workload, context)
    [phase] = context.timed("gpu_random_read")
    assert (phase.read_bytes, files_of(context)) == (0, [])
    assert phase.operations == found.facts.operations > 0
    assert verdicts(found.checks, PROOFS) == ["pass"] * 3
    assert not found.checks.keys() & {"data_path", "cold_cache", "written_extents"}
    assert found.metrics["read_bytes_per_s"] is None
    is_memory = engine == "memory"
    assert (found.metrics["delivered_bytes_per_s"] is not None) == is_memory
    assert bool(found.facts.total("compared_bytes")) == is_memory
    [path] = found.outcome.paths
    assert path.counts is None
    assert any(text.startswith("No storage was read") for text in path.remarks)


def test_a_changed_block_is_named(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    workload = workload_of()
    workload.plan(context)
    workload.prepare(context)
    [path] = files_of(context)
    with path.open("r+b") as file:
        for offset in range(0, FILE_BYTES, 8192):
            file.seek(offset)
            file.write(b"changed!")
        os.fsync(file.fileno())
    found = read_by(workload, context)
    check = found.checks["delivered_bytes"]
    assert check.verdict == "fail"
    assert f"blocks, the first of {path} at byte " in check.sentence
    assert found.facts.total("wrong_blocks") > 0


@pytest.mark.parametrize(
    ("fault", "name"), [("twice", "queue_counts"), ("swapped", "delivered_bytes")]
)
def test_a_doubled_and_a_swapped_answer_are_found(tmp_path: Path, fault: str, name: str) -> None:
    loader = FaultyLoader(requester="cpu", fault=fault)
    found = made(workload_of(loader), context_of(tmp_path))
    assert found.checks[name].verdict == "fail"
    [path] = found.outcome.paths
    assert path.counts is not None
    assert path.counts.word == "unverified"


def test_a_lost_answer_is_a_request_that_hangs(tmp_path: Path) -> None:
    workload = workload_of(FaultyLoader(requester="cpu", fault="lost", hang_s=0.3), duration_s=1)
    context = context_of(tmp_path)
    workload.plan(context)
    workload.prepare(context)
    with pytest.raises(RunError, match=r"\d+ requests unanswered for 0.3 s on .*blocks_0.bin: the"):
        workload.run(context)


def test_reads_of_a_file_that_is_cut_fail_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_of(tmp_path)
    workload = workload_of(duration_s=0.5)
    workload.plan(context)
    workload.prepare(context)
    [path] = files_of(context)
    whole = Context.phase

    def cut(self: Context, name: str, *, timed: bool = True) -> Any:
        os.truncate(path, FILE_BYTES // 2)
        return whole(self, name, timed=timed)

    monkeypatch.setattr(Context, "phase", cut)
    found = read_by(workload, context)
    checks = found.checks
    assert verdicts(checks, ("failed_reads", "queue_counts")) == ["fail", "pass"]
    assert f"Most failed on {path} (fewer bytes than requested" in checks["failed_reads"].sentence
    [failure] = found.facts.failures
    assert (failure.offset_bytes or 0) >= FILE_BYTES // 2
    assert found.metrics["failed_reads"] == failure.count


def test_a_file_without_any_block_left_is_a_failed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_of(tmp_path)
    workload = workload_of()
    workload.plan(context)
    workload.prepare(context)
    [path] = files_of(context)
    whole = Context.phase

    def empty(self: Context, name: str, *, timed: bool = True) -> Any:
        os.truncate(path, 0)
        return whole(self, name, timed=timed)

    monkeypatch.setattr(Context, "phase", empty)
    with pytest.raises(
        RunError, match=r"no read succeeded in 0.2\d* s; failed reads: [\d,]+: fewer"
    ):
        workload.run(context)


def test_targets_are_dealt_to_ranks_in_order(tmp_path: Path) -> None:
    contexts = [
        context_of(tmp_path, "a", "b", "c", communicator=rank)
        for rank in ThreadCommunicator.world(2)
    ]

    def run(context: Context) -> tuple[GpuRead, Outcome]:
        workload = workload_of(requesters=32, queue_size=32)
        workload.plan(context)
        workload.prepare(context)
        return workload, workload.run(context)

    (workload, outcome), (_, other) = run_ranks(contexts, run)
    found = followed(workload, outcome, contexts)
    assert [(rank.rank, file.target) for rank, file in found.facts.files] == [
        (0, 0),
        (1, 1),
        (0, 2),
    ]
    moved = [context.timed("gpu_random_read")[0].operations for context in contexts]
    by_file = sum(file.operations or 0 for _, file in found.facts.files)
    assert sum(moved) == found.facts.operations == by_file
    assert found.facts.in_flight == 96
    assert verdicts(found.checks, PROOFS) == ["pass"] * 3
    [path] = outcome.paths
    assert path.counts is not None
    assert (path.counts.word, path.counts.reads) == ("cpu_queue", sum(moved))
    assert (other.facts, len(other.latencies)) == (None, 2)


def test_each_host_reads_the_files_of_its_own_targets(tmp_path: Path) -> None:
    contexts = []
    for host, rank in zip("ab", ThreadCommunicator.world(2), strict=True):
        (tmp_path / host).mkdir()
        contexts.append(context_of(tmp_path / host, communicator=rank))
        contexts[-1].on_host = LocalCommunicator()

    def run(context: Context) -> tuple[GpuRead, Outcome]:
        workload = workload_of(requesters=32, queue_size=32)
        assert workload.plan(context).data_bytes == FILE_BYTES
        workload.prepare(context)
        return workload, workload.run(context)

    (workload, outcome), _ = run_ranks(contexts, run)
    found = followed(workload, outcome, contexts)
    assert [file.path for _, file in found.facts.files] == [
        str(path) for context in contexts for path in files_of(context)
    ]
    assert verdicts(found.checks, PROOFS) == ["pass"] * 3


def test_more_ranks_than_targets_are_refused(tmp_path: Path) -> None:
    contexts = [
        context_of(tmp_path, "a", "b", communicator=rank) for rank in ThreadCommunicator.world(3)
    ]
    with pytest.raises(ConfigError, match=r"3 processes, but target.path names 2: .* most 2, or"):
        run_ranks(contexts, lambda context: workload_of().plan(context))


@pytest.mark.skipif(Path(DRIVER).exists(), reason="there is a GPU")
def test_without_a_gpu_the_plan_says_what_to_use(tmp_path: Path) -> None:
    plan = workload_of(Loader()).plan(context_of(tmp_path))
    assert plan.refusal == (
        "loader=gpu_queue needs an NVIDIA GPU and /dev/nvidiactl is missing; loader.requester=cpu "
        "runs the same queue from CPU threads, and every page says so"
    )
    assert plan.data_bytes == FILE_BYTES


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"requesters": 500}, r"multiple of 32, the threads of a warp, got 500; use 512"),
        ({"requesters": 512, "queue_size": 256}, "that holds the 512 requests that may meet on"),
        ({"queue_size": 1000}, "must be a power of two .* got 1000"),
        ({"block_bytes": 1536}, "power of two, up to 65536, got 1536; use 2048"),
        ({"block_bytes": 131072}, "power of two, up to 65536, got 131072; use 65536"),
        ({"file_bytes": 1000}, "workload.file_bytes must be a multiple of 1048576"),
        ({"pattern": "zipf"}, "workload.pattern must be one of uniform, regions, got 'zipf'"),
        ({"file_bytes": None, "files": Files.per_thread}, "needs workload.file_bytes"),
    ],
)
def test_settings_out_of_range_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        workload_of(**settings).plan(context_of(tmp_path))


def test_regions_need_a_block_each(tmp_path: Path) -> None:
    workload = workload_of(pattern="regions", requesters=1024, block_bytes=65536)
    with pytest.raises(ConfigError, match="a block for each of 32 warps, and the file has 16 of"):
        workload.plan(context_of(tmp_path))


def test_a_file_may_fill_its_file_system(tiny_file_system: Path) -> None:
    context = Context(targets=(context_of(tiny_file_system).targets[0],))
    workload = workload_of(file_bytes=None)
    plan = workload.plan(context)
    status = os.statvfs(tiny_file_system)
    whole_bytes = status.f_blocks * status.f_frsize
    left_bytes = status.f_bavail * status.f_frsize - plan.data_bytes
    assert 0.05 * whole_bytes <= left_bytes < 0.05 * whole_bytes + (1 << 20) + 4096
    workload.prepare(context)
    again = workload_of(file_bytes=None).plan(context)
    assert (again.data_bytes, again.prepare_bytes) == (plan.data_bytes, 0)


def test_stamps_that_were_edited_are_refused(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    made(workload_of(), context)
    (manifest,) = files_of(context)[0].parent.glob(".wattload-manifest-*.jsonl")
    manifest.write_text(manifest.read_text().replace('"unit_bytes": 512', '"unit_bytes": "512"'))
    with pytest.raises(DataError, match="has stamps of another version"):
        workload_of().plan(context)
