"""A run of checkpoints from end to end, and what its figures mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.context import Context, context_at, contexts_on_hosts, run_ranks
from tests.workloads.checkpointing import (
    DIRECT,
    LOADERS,
    RANK_BYTES,
    STEP_S,
    data_folder,
    facts_of,
    made,
    ranks,
    record_of,
    remains,
    run,
    value,
)
from wattload.core.record.results import Check
from wattload.core.workload import Outcome, WorkloadPlan
from wattload.loaders.checkpoint_store import CheckpointLoader
from wattload.loaders.data.data_folder import list_folders
from wattload.results.reading import checks_of
from wattload.workloads.checkpoint.storage import complete_checkpoints

pytestmark = pytest.mark.usefixtures("short_ceilings")


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_every_checkpoint_is_written_proved_read_back_and_removed(
    tmp_path: Path, loader: CheckpointLoader
) -> None:
    context = context_at(tmp_path)
    record, checks = run(made(loader), context)
    assert {check.verdict for check in checks.values()} == {"pass"}
    assert set(checks) == {
        "cold_cache",
        "written_extents",
        "checkpoint_durable",
        "checkpoint_bytes_on_target",
        "checkpoint_committed",
        "checkpoint_read_back",
    }
    names = [phase.name for phase in context.phases]
    assert names == ["write", "read"] * 3 + ["harness_ceiling"]
    assert [phase.timed for phase in context.phases] == [True] * 6 + [False]
    written = sum(phase.written_bytes for phase in context.timed("write"))
    read = sum(phase.read_bytes for phase in context.timed("read"))
    assert written == read == value(record, "written_bytes") == value(record, "read_bytes")
    assert 0 <= written - 3 * RANK_BYTES <= 3 * 2048 * 60
    assert sum(context.progress.moved_bytes) == written + read
    assert list_folders(tmp_path) == ()
    assert remains(tmp_path) == []


def test_rates_are_total_bytes_over_total_time(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    record, _ = run(made(), context)
    for phase, verb in (("write", "written"), ("read", "read")):
        seconds = [span.seconds for span in context.timed(phase)]
        total = value(record, f"{verb}_bytes")
        assert value(record, f"{phase}_bytes_per_s") == pytest.approx(total / sum(seconds))
        each = value(record, f"{phase}_seconds_per_checkpoint")
        assert each == pytest.approx(sum(seconds) / 3)
        name = {"write": "save", "read": "load"}[phase]
        mean = sum(total / 3 / s for s in seconds) / 3
        assert value(record, f"dlio_{name}_mean_of_rates_bytes_per_s") == pytest.approx(mean)
        of_rank = value(record, f"mlperf_{name}_min_over_ranks_bytes_per_s")
        assert of_rank >= value(record, f"{phase}_bytes_per_s")
        assert value(record, f"{phase}_cpu_seconds_per_byte") > 0
    headline = [metric.name for metric in record.metrics if metric.headline]
    assert headline == [metric.name for metric in record.metrics[:4]]
    assert headline[:2] == ["write_bytes_per_s", "read_bytes_per_s"]


def test_each_operation_is_in_a_latency(tmp_path: Path) -> None:
    record, _ = run(made(), context_at(tmp_path))
    assert [(row.phase, row.kind) for row in record.latencies] == [
        ("write", "write"),
        ("read", "read"),
    ]
    blocks = 3 * -(-RANK_BYTES // DIRECT.block_bytes)
    assert all(row.count == blocks for row in record.latencies)
    assert all(row.operation_bytes == DIRECT.block_bytes for row in record.latencies)
    record, _ = run(made(LOADERS["torch"]), context_at(tmp_path))
    assert record.latencies == ()


def test_ceilings_are_metrics(tmp_path: Path) -> None:
    record, _ = run(made(), context_at(tmp_path))
    for name in ("harness_write", "harness_read", "generator"):
        assert value(record, f"{name}_ceiling_bytes_per_s") > 0


@pytest.mark.parametrize(
    ("keep", "order"),
    [(1, "wrwrwr"), (2, "wwrrwr"), (3, "wwwrrr"), (9, "wwwrrr")],
)
def test_keep_says_how_many_lie_on_the_target(tmp_path: Path, keep: int, order: str) -> None:
    context = context_at(tmp_path)
    workload = made(keep=keep)
    run(workload, context, verify=False)
    assert "".join(p.name[0] for p in context.phases if p.timed) == order
    assert len(complete_checkpoints(data_folder(context))) == min(keep, 3)
    assert workload.plan(context).peak_bytes == min(keep + 1, 3) * RANK_BYTES


def test_no_two_blocks_of_a_run_are_equal(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    run(made(keep=3), context, verify=False)
    blocks: list[bytes] = []
    for path in data_folder(context).rglob("*.bin"):
        content = path.read_bytes()
        blocks += [content[start : start + 4096] for start in range(0, len(content), 4096)]
    assert len(blocks) == 3 * -(-RANK_BYTES // 4096)
    assert len(set(blocks)) == len(blocks)


def test_two_runs_with_one_seed_share_no_block(tmp_path: Path) -> None:
    found: list[set[bytes]] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        context = context_at(tmp_path / name)
        run(made(checkpoint_count=1), context, verify=False)
        (path,) = data_folder(context).rglob("*.bin")
        content = path.read_bytes()
        found.append({content[start : start + 4096] for start in range(0, len(content), 4096)})
    assert not found[0] & found[1]


@pytest.mark.parametrize("targets", [1, 2])
def test_ranks_divide_the_checkpoint(tmp_path: Path, targets: int) -> None:
    contexts = ranks(tmp_path, 3, targets)
    results = run_ranks(contexts, lambda context: run(made(), context, contexts))
    record, checks = results[0]
    assert {check.verdict for check in checks.values()} == {"pass"}
    assert value(record, "written_bytes") == 3 * 3 * RANK_BYTES
    for context in contexts:
        assert sum(p.written_bytes for p in context.timed("write")) == 3 * RANK_BYTES
    text = " ".join(record.workload.remarks)
    assert "has 8 ranks. This run had the first 3 of them (the shards of ranks 0 to 2)" in text
    assert ("3 ranks do not divide evenly over 2 targets" in text) == (targets == 2)
    assert facts_of(record).rank_bytes == (RANK_BYTES,) * 3
    assert all(remains(tmp_path / str(index)) == [] for index in range(targets))


def test_ranks_commit_one_checkpoint_per_target(tmp_path: Path) -> None:
    contexts = ranks(tmp_path, 3, 2)
    run_ranks(contexts, lambda context: run(made(), context, verify=False))
    names = []
    for target in (0, 1):
        (folder,) = complete_checkpoints(data_folder(contexts[0], target))
        names.append(sorted(path.name for path in folder.iterdir()))
    assert names == [
        ["manifest.json", "rank-00000.bin", "rank-00002.bin"],
        ["manifest.json", "rank-00001.bin"],
    ]


@pytest.mark.parametrize("shared", [False, True])
def test_ranks_of_several_hosts_write_their_shards_to_the_drives_of_their_hosts(
    tmp_path: Path, shared: bool
) -> None:
    folders = [tmp_path / host for host in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    contexts = contexts_on_hosts([folders[0], folders[0 if shared else 1]], 2)
    for context in contexts:
        context.shares_targets = shared

    def written(context: Context) -> tuple[Outcome, Sequence[Check], list[str], WorkloadPlan]:
        subject = made(mode="async", interval_s=STEP_S, keep=1)
        plan = subject.plan(context)
        subject.prepare(context)
        outcome = subject.run(context)
        (folder,) = complete_checkpoints(data_folder(context))
        names = sorted(path.name for path in folder.glob("*.bin"))
        return outcome, subject.verify(context), names, plan

    results = run_ranks(contexts, written)
    outcome, found, _, _ = results[0]
    record = record_of(made(), outcome, contexts)
    checks = (*outcome.checks, *found, *checks_of(record))
    assert {check.verdict for check in checks} == {"pass"}
    assert value(record, "written_bytes") == 4 * 3 * RANK_BYTES
    names = [f"rank-{rank:05d}.bin" for rank in range(4)]
    of_host = [names, names] if shared else [names[:2], names[2:]]
    assert [each for _, _, each, _ in results] == [of_host[0]] * 2 + [of_host[1]] * 2
    assert {plan.run_bytes for *_, plan in results} == {3 * len(of_host[0]) * RANK_BYTES}
    assert [remains(folder) for folder in folders] == [[], []]


def test_without_fsync_the_record_warns(tmp_path: Path) -> None:
    _, checks = run(made(fsync=False), context_at(tmp_path))
    assert checks["checkpoint_durable"].verdict == "warn"


def test_verify_before_run_gives_the_space_back(tmp_path: Path) -> None:
    workload = made()
    context = context_at(tmp_path)
    workload.plan(context)
    workload.prepare(context)
    assert workload.verify(context) == ()
    assert remains(tmp_path) == []
