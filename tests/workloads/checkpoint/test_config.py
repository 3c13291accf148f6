"""What the checkpoint workload refuses, and what it says of a run that is not whole."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.context import Context, context_at, directory_target, run_ranks
from tests.workloads.checkpointing import (
    DIRECT,
    LOADERS,
    RANK_BYTES,
    facts_of,
    made,
    ranks,
    run,
    settings,
)
from wattload.core.errors import ConfigError, MissingExtraError
from wattload.core.storage.file_system import DirectIo
from wattload.core.units import GIB
from wattload.core.workload import Accelerator
from wattload.loaders.checkpoint_store import CheckpointLoader
from wattload.loaders.direct import config as direct_config
from wattload.loaders.torch import config as torch_config
from wattload.workloads.checkpoint.ceilings import shortened
from wattload.workloads.checkpoint.config import Config, plan_job
from wattload.workloads.checkpoint.models import shard_of
from wattload.workloads.checkpoint.remarks import remarks
from wattload.workloads.checkpoint.workload import Checkpoint

pytestmark = pytest.mark.usefixtures("short_ceilings")


def test_more_ranks_than_the_model_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 8 ranks, got 9"):
        made().plan(ranks(tmp_path, 9)[0])


def test_more_targets_than_ranks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 targets need at least as many ranks, got 1"):
        made().plan(ranks(tmp_path, 1, 2)[0])


def test_a_slice_keeps_tensor_sizes_and_says_how_much(tmp_path: Path) -> None:
    workload = made(shrink_bytes=RANK_BYTES, slice_bytes=200_000)
    record, checks = run(workload, context_at(tmp_path))
    assert checks["checkpoint_bytes_on_target"].verdict == "pass"
    size = facts_of(record).checkpoint_bytes
    assert 0 < size <= 200_000
    assert any(
        f"sliced: {size} of {RANK_BYTES} bytes" in remark for remark in record.workload.remarks
    )


def test_quick_slices_and_full_writes_all(tmp_path: Path) -> None:
    quick = Checkpoint(Config(slice_bytes=1_110_000_000), DIRECT, Accelerator())
    plan = quick.plan(context_at(tmp_path, scale="quick"))
    assert plan.peak_bytes <= 2.21e9
    assert plan.run_bytes == plan.peak_bytes * 5
    whole = Checkpoint(Config(), DIRECT, Accelerator())
    contexts = ranks(tmp_path, 8)
    for context in contexts:
        context.scale = "full"
    assert run_ranks(contexts, whole.plan)[0].run_bytes == 10 * 415_000_000_000


def test_demo_alone_may_shrink_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be null at scale=quick"):
        made().plan(context_at(tmp_path, scale="quick"))
    record, _ = run(made(), context_at(tmp_path))
    assert any("shrunken for a demonstration" in remark for remark in record.workload.remarks)


def test_the_preset_says_that_no_real_stage_is_like_it(tmp_path: Path) -> None:
    record, _ = run(made(), context_at(tmp_path))
    assert any(
        "unpublished" in remark and "355.1 GB" in remark for remark in record.workload.remarks
    )


@pytest.mark.parametrize(
    ("model", "message", "gib"),
    [
        ("8b", "105 is published as GB but means GiB", 104.705),
        ("70b", "912 is published as GB", 911.212),
        ("405b", "5.29 TB is published with GiB taken for GB", 5292.249),
        ("1t", "18 TB is wrong", 15426.589),
    ],
)
def test_published_labels_stand_beside_the_sizes(
    tmp_path: Path, model: str, message: str, gib: float
) -> None:
    record, _ = run(made(model=model, checkpoint_count=1), context_at(tmp_path))
    assert any(message in remark for remark in record.workload.remarks)
    assert round(facts_of(record).model_bytes / GIB, 3) == gib


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("mlperf_subset", "first 8 of 512 ranks of 405b"),
        ("mlperf_subset_70b", "113.9 GiB by its own placement, published as 114 GB"),
        ("mlperf_subset_1t", "143.7 GiB by its own placement, published as 161 GB"),
    ],
)
def test_a_subset_says_what_it_is_and_what_was_published(
    tmp_path: Path, model: str, message: str
) -> None:
    config = settings(model=model, shrink_bytes=RANK_BYTES)
    job = run_ranks(ranks(tmp_path, 8), lambda context: plan_job(config, context))[0]
    assert any(message in remark for remark in remarks(job))
    assert not any("of them (the shards" in remark for remark in remarks(job))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": "7b"}, "model must be one of"),
        ({"model": "404b"}, "did you mean 405b"),
        ({"mode": "eventual"}, "workload.mode must be one of sync, async, got 'eventual'"),
        ({"protocol": "spc"}, "workload.protocol must be one of plain, mlperf, got 'spc'"),
        ({"interval_s": -1.0}, "workload.interval_s must be 0 to 1000000 s, got -1.0"),
        ({"step_s": float("nan")}, "workload.step_s must be 0 to 1000000 s, got nan"),
        ({"mode": "async", "interval_s": 0.0}, "workload.interval_s must be above 0"),
        ({"interval_s": 5.0, "step_s": 0.0}, "needs a step time above 0"),
        ({"checkpoint_count": 0}, "workload.checkpoint_count must be 1 to 1000000, got 0"),
        ({"keep": 0}, "workload.keep must be 1 to 1000000"),
        ({"slice_bytes": 10}, "workload.slice_bytes must be at least"),
        ({"shrink_bytes": 7}, "must be a multiple of 4 bytes"),
    ],
)
def test_settings_out_of_range_are_named(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        made(**changed).plan(context_at(tmp_path))


def test_steps_out_of_order_are_refused(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    with pytest.raises(RuntimeError, match=r"plan\(\) has to be called first"):
        made().prepare(context)
    workload = made()
    workload.plan(context)
    with pytest.raises(RuntimeError, match=r"prepare\(\) has to be called"):
        workload.run(context)


def unaligned(path: Path, memory_bytes: int, offset_bytes: int) -> Context:
    needs = DirectIo(
        memory_align_bytes=memory_bytes, offset_align_bytes=offset_bytes, found_by="test"
    )
    return Context(targets=(dataclasses.replace(directory_target(path), direct_io=needs),))


@pytest.mark.parametrize(
    ("memory_bytes", "offset_bytes"),
    [(4096, 1 << 21), (1 << 21, 512)],
)
def test_blocks_that_a_drive_does_not_take_are_refused_before_anything_is_written(
    tmp_path: Path, memory_bytes: int, offset_bytes: int
) -> None:
    context = unaligned(tmp_path, memory_bytes, offset_bytes)
    with pytest.raises(ConfigError, match=r"needs multiples of 2097152 bytes; loader\.block"):
        made().plan(context)
    made(torch_config.Config(bucket_bytes=1 << 20)).plan(context)
    assert list(tmp_path.iterdir()) == []


def test_alignments_that_blocks_are_multiples_of_are_served(tmp_path: Path) -> None:
    made().plan(unaligned(tmp_path, 4, 512))
    made().plan(unaligned(tmp_path, 512, 16384))
    none = dataclasses.replace(directory_target(tmp_path), direct_io=None, direct_io_missing="no")
    assert made().plan(Context(targets=(none,))).needs_direct_io


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (direct_config.Config(queue_depth=0), "loader.queue_depth must be 1 to"),
        (direct_config.Config(block_bytes=5000), "loader.block_bytes must be a multiple of 4096"),
        (torch_config.Config(bucket_bytes=0), "loader.bucket_bytes must be 1 or more"),
    ],
)
def test_a_loader_out_of_range_is_refused_by_the_plan(
    tmp_path: Path, loader: CheckpointLoader, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        made(loader).plan(context_at(tmp_path))


def test_a_seed_below_zero_is_refused_by_the_plan(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seed must be 0 or more, got -1"):
        made().plan(context_at(tmp_path, seed=-1))


def test_missing_torch_is_found_by_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="loader=torch needs PyTorch"):
        made(torch_config.Config()).plan(context_at(tmp_path))


def test_a_shortened_shard_has_exactly_the_bytes() -> None:
    shard = shard_of("405b_server", 0)
    cut = shortened(shard, 600_000_000)
    assert cut.size_bytes == 600_000_000
    assert cut.tensors[0] == shard.tensors[0]
    assert shortened(cut, 1 << 40) == cut


def test_a_whole_model_run_by_all_its_ranks_needs_no_remark_on_ranks(tmp_path: Path) -> None:
    config = made().config
    job = run_ranks(ranks(tmp_path, 8), lambda context: plan_job(config, context))[0]
    assert not any("of them (the shards" in remark for remark in remarks(job))


def test_a_slice_that_holds_all_is_no_slice(tmp_path: Path) -> None:
    job = plan_job(settings(slice_bytes=RANK_BYTES), context_at(tmp_path))
    assert not any("sliced" in remark for remark in remarks(job))


@pytest.mark.parametrize("name", ["torch", "dcp"])
def test_the_plan_counts_what_the_ceilings_keep_in_memory(tmp_path: Path, name: str) -> None:
    """Their files lie in memory: more than a megabyte's bucket or piece takes in the run itself."""
    planned = made(LOADERS[name]).plan(context_at(tmp_path)).memory_bytes_per_rank
    assert planned == 3 * RANK_BYTES
    assert made().plan(context_at(tmp_path)).memory_bytes_per_rank == 4 * (256 << 10)
