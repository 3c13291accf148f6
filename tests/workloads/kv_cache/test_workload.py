"""The cache on real files: what is counted agrees with what moved, and nothing stays behind."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.context import Context, context_at, directory_target
from tests.workloads.kv_cache.making import (
    BLOCK_TOKENS,
    CAPACITY,
    REQUESTS,
    TINY,
    TINY_MLA,
    UNIT_BYTES,
    Bounded,
    block_files,
    config,
    layered,
    made,
    planned,
    require_empty,
    sampled_bytes,
    small_runs,
    write_trace,
)
from wattload.core.errors import ConfigError
from wattload.loaders.block_transfers import BlockTransferConfig
from wattload.loaders.data.data_folder import list_folders
from wattload.loaders.direct.config import Config as DirectConfig
from wattload.loaders.torch.config import Config as TorchConfig
from wattload.results.kv_cache.facts import (
    FILL,
    RESTORE,
    STEADY,
    STORE,
    Admission,
    Arrivals,
    KvFacts,
    Layout,
    Source,
)
from wattload.workloads.kv_cache.sources import source_of, source_report
from wattload.workloads.kv_cache.tier import DriveTier

__all__ = ["small_runs"]

CASES: dict[str, tuple[dict[str, Any], BlockTransferConfig]] = {
    "a file a block": ({}, DirectConfig()),
    "a file a block, by threads": ({}, DirectConfig(engine="pread")),
    "a file a shard": ({"tp": 2}, DirectConfig()),
    "layers": (layered(TINY, 6), DirectConfig()),
    "layers of shards": (layered(TINY, 12, tp=2), DirectConfig()),
    "latent vectors replicated": (layered(TINY_MLA, 6, tp=2), DirectConfig()),
    "latent vectors once": (layered(TINY_MLA, 3, tp=2, mla_shards="once"), DirectConfig()),
    "open loop": ({"arrivals": Arrivals.open, "request_rate": 200.0}, DirectConfig()),
    "behind a cache in memory": ({"memory_tier_bytes": 16 * 16384}, DirectConfig()),
    "stored at the second use": ({"admission": Admission.second_use}, DirectConfig()),
    "paced": ({"prefill_tokens_per_s": 1e5, "decode_ms_per_token": 0.1}, DirectConfig()),
    "page cache": ({"tp": 2}, TorchConfig()),
    "page cache, layers": (layered(TINY, 6), TorchConfig()),
}


@pytest.mark.parametrize(("settings", "loader"), CASES.values(), ids=CASES)
def test_what_is_counted_is_what_moved(
    tmp_path: Path, settings: dict[str, Any], loader: BlockTransferConfig
) -> None:
    chosen = config(**settings)
    run = made(context_at(tmp_path), chosen, loader)
    facts, moved = run.facts, run.facts.moved_block_bytes
    assert facts.capacity_blocks == CAPACITY
    assert list(facts.counts) == [FILL, STEADY, RESTORE, STORE]
    for name, counts in facts.counts.items():
        assert run.phase(name).read_bytes == counts.restored_blocks * moved
        assert run.phase(name).written_bytes == counts.stored_blocks * moved
        files = counts.stored_blocks * facts.pieces
        if chosen.layout is Layout.block_file:
            assert counts.synced_files == counts.renamed_files == files
        else:
            assert (counts.synced_files, counts.renamed_files) == (
                0 if name == RESTORE else facts.pieces,
                0,
            )
        assert counts.bad_blocks == counts.cut_requests == 0
        refused = counts.unadmitted_blocks + counts.no_room_blocks
        assert counts.missed_blocks == counts.stored_blocks + refused
    fill, steady, restore, store = facts.counts.values()
    assert fill.requests + steady.requests == REQUESTS
    assert fill.restored_blocks == store.restored_blocks == restore.stored_blocks == 0
    assert steady.restored_blocks == steady.drive_blocks > 0
    compared = sum(counts.compared_bytes for counts in facts.counts.values())
    assert compared == sampled_bytes(chosen, run.restored, run.context.seed)
    stored = sum(counts.stored_blocks for counts in facts.counts.values())
    evicted = sum(counts.evicted_blocks for counts in facts.counts.values())
    check = run.check("stored_blocks")
    assert check.figures["expected_bytes"] == (stored - evicted) * moved
    assert [each.verdict for each in run.checks if each.name != "freed_space"] == ["pass", "pass"]
    assert sum(facts.hit_shares) == steady.requests
    assert facts.times[0].response.count <= steady.requests
    assert facts.loop.arrived == steady.requests
    require_empty(tmp_path)
    as_stored = facts.model_dump(mode="json")
    assert KvFacts.model_validate({**as_stored, "settings": facts.settings}) == facts


def test_padding_is_moved_and_never_restored(tmp_path: Path) -> None:
    run = made(context_at(tmp_path), config(**layered(TINY_MLA, 3)))
    facts = run.facts
    assert (facts.block_bytes, facts.moved_block_bytes) == (3 * 2304, 3 * UNIT_BYTES)
    assert facts.bytes_per_token * BLOCK_TOKENS == facts.block_bytes
    assert run.phase(STEADY).read_bytes == run.counts(STEADY).restored_blocks * 3 * UNIT_BYTES


def test_one_user_hits_what_an_lru_cache_would(tmp_path: Path) -> None:
    """The source's report has a simpler cache, which this one must agree with to the block."""
    chosen = config(users=1)
    run = made(context_at(tmp_path), chosen)
    fill, steady = run.counts(FILL), run.counts(STEADY)
    source = Bounded(source_of(chosen, seed=run.context.seed), REQUESTS)
    report = source_report(source, [CAPACITY])
    hits = fill.drive_blocks + fill.pending_blocks + steady.drive_blocks + steady.pending_blocks
    assert hits == report.lru[0].hit_blocks
    assert fill.stored_blocks + steady.stored_blocks == report.lru[0].stored_blocks
    assert fill.input_tokens + steady.input_tokens == report.input_tokens


def test_hits_in_memory_are_not_restored(tmp_path: Path) -> None:
    """A cache in memory that is as large as that on the drive leaves nothing to restore."""
    run = made(context_at(tmp_path), config(memory_tier_bytes=2 << 20))
    steady = run.counts(STEADY)
    assert steady.memory_blocks > 0
    assert steady.restored_blocks == steady.drive_blocks == run.phase(STEADY).read_bytes == 0
    assert RESTORE not in run.facts.counts
    assert any("Nothing could be restored alone" in remark for remark in run.outcome.remarks)
    assert run.facts.times == ()


def test_without_admission_only_the_fill_stores(tmp_path: Path) -> None:
    run = made(context_at(tmp_path), config(admission=Admission.none))
    steady = run.counts(STEADY)
    assert run.counts(FILL).stored_blocks > CAPACITY
    assert steady.stored_blocks == run.phase(STEADY).written_bytes == steady.evicted_blocks == 0
    assert steady.unadmitted_blocks == steady.missed_blocks > 0


def test_the_second_use_stores_fewer_blocks(tmp_path: Path) -> None:
    every = made(context_at(tmp_path), config())
    second = made(context_at(tmp_path), config(admission=Admission.second_use))
    assert second.counts(STEADY).unadmitted_blocks > 0 == every.counts(STEADY).unadmitted_blocks
    stored = [
        run.counts(FILL).stored_blocks + run.counts(STEADY).stored_blocks for run in (every, second)
    ]
    assert stored[1] < stored[0]


def test_the_requests_of_a_trace_are_served_as_published(tmp_path: Path) -> None:
    """Ten prompts of three blocks of 512 tokens, then each of them again with another end."""
    lines = [(0, 1536, 1, [3 * n, 3 * n + 1, 3 * n + 2]) for n in range(10)]
    lines += [(50, 1536, 1, [3 * n, 3 * n + 1, 100 + n]) for n in range(10)]
    target = tmp_path / "target"
    target.mkdir()
    trace = write_trace(tmp_path / "trace.jsonl", lines)
    run = made(
        context_at(target),
        config(
            requests=Source.trace,
            trace=trace,
            block_tokens=256,
            bytes_per_token=64,
            capacity_bytes=2 * CAPACITY * 16384,
        ),
    )
    fill, steady = run.counts(FILL), run.counts(STEADY)
    assert fill.requests == steady.requests == 10
    assert fill.stored_blocks == 60
    assert steady.restored_blocks == 40
    assert steady.stored_blocks == steady.missed_blocks == 20
    assert any("No block was evicted" in remark for remark in run.outcome.remarks)
    assert run.facts.loop.schedule_s == pytest.approx(run.facts.loop.planned_s)
    assert run.facts.loop.planned_s == pytest.approx(10 * 0.05)
    require_empty(target)


def test_several_targets_share_the_blocks(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    context = Context(
        targets=tuple(directory_target(folder, index=n) for n, folder in enumerate(folders))
    )
    workload = planned(context, config())
    outcome = workload.run(context)
    assert isinstance(outcome.facts, KvFacts)
    shares = [len(block_files(folder)) for folder in folders]
    assert sum(shares) == CAPACITY
    assert shares[0] == shares[1]
    [check, _] = workload.verify(context)
    assert check.verdict == "pass"
    for folder in folders:
        require_empty(folder)


@pytest.mark.parametrize("tp", [1, 2])
def test_a_block_has_a_file_for_each_shard_as_long_as_it_is_cached(tmp_path: Path, tp: int) -> None:
    context = context_at(tmp_path)
    workload = planned(context, config(tp=tp))
    seen: list[int] = []
    delete = DriveTier.delete

    def noted(tier: DriveTier, *given: Any, **named: Any) -> None:
        delete(tier, *given, **named)
        seen.append(len([path for path in block_files(tmp_path) if path.suffix == ".kv"]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DriveTier, "delete", noted)
        workload.run(context)
    assert max(seen) <= CAPACITY * tp  # evicted files were there no longer
    files = block_files(tmp_path)
    assert len(files) == CAPACITY * tp
    assert {path.stat().st_size for path in files} == {16384 // tp}
    workload.verify(context)
    require_empty(tmp_path)


def test_layers_are_preallocated_and_never_grow(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    workload = planned(context, config(**layered(TINY, 6)))
    workload.run(context)
    files = block_files(tmp_path)
    assert [path.name for path in files] == [f"{piece:05d}.kv" for piece in range(6)]
    assert {path.stat().st_size for path in files} == {CAPACITY * UNIT_BYTES}
    workload.verify(context)
    require_empty(tmp_path)


def test_the_first_layer_is_there_before_the_last(tmp_path: Path) -> None:
    [row, *_] = made(context_at(tmp_path), config(**layered(TINY, 6))).facts.times
    assert row.first_layer is not None
    assert row.first_layer.count == row.response.count
    assert row.first_layer.max_s <= row.response.max_s
    [row, *_] = made(context_at(tmp_path), config()).facts.times
    assert row.first_layer is None


def test_rows_of_times_add_up(tmp_path: Path) -> None:
    run = made(context_at(tmp_path), config())
    every, *rows = run.facts.times
    by_stores = [row.response.count for row in rows if row.storing is not None]
    by_prefix = [row.response.count for row in run.facts.by_prefix]
    assert sum(by_stores) == sum(by_prefix) == every.response.count > 0
    assert every.service.max_s <= every.response.max_s


def test_each_run_writes_blocks_of_its_own(tmp_path: Path) -> None:
    """A block of an earlier run must not pass for one of this run."""
    contents = []
    for _ in range(2):
        context = context_at(tmp_path)
        workload = planned(context, config(users=1))
        workload.run(context)
        contents.append({path.name: path.read_bytes()[:8] for path in block_files(tmp_path)})
        workload.verify(context)
    first, second = ({*each.values()} for each in contents)
    assert len(first) == len(second) == 1
    assert first != second


def test_what_an_interrupted_run_left_is_deleted_first(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    planned(context, config()).run(context)  # and then it was killed
    left = block_files(tmp_path)
    assert len(left) == CAPACITY
    [folder] = list_folders(tmp_path)
    foreign = folder.path / "thesis"
    foreign.write_text("three years of work")
    planned(context_at(tmp_path), config())
    assert block_files(tmp_path) == []
    assert foreign.read_text() == "three years of work"


@pytest.mark.parametrize("after", [1, 100_000, 3_000_000, 8_000_000])
def test_an_interrupt_leaves_nothing_on_the_target(tmp_path: Path, after: int) -> None:
    context = context_at(tmp_path)
    advance, moved = context.progress.advance, 0

    def counted(**given: int) -> None:
        nonlocal moved
        moved += sum(given.values())
        advance(**given)
        if moved >= after:
            raise KeyboardInterrupt

    workload = planned(context, config(saturation_s=600.0))
    context.progress.advance = counted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        workload.run(context)
    require_empty(tmp_path)


def test_capacity_defaults_to_most_of_the_file_system(tiny_file_system: Path) -> None:
    context = context_at(tiny_file_system)
    plan = planned(context, config(capacity_bytes=None)).plan(context)
    size = os.statvfs(tiny_file_system).f_blocks * os.statvfs(tiny_file_system).f_frsize
    assert 0.79 * size < plan.peak_bytes <= 0.8 * size


def test_a_target_without_direct_io_is_for_loaders_through_the_page_cache(tmp_path: Path) -> None:
    context = context_at(tmp_path)
    [target] = context.targets
    without = replace(context, targets=(replace(target, direct_io=None),))
    run = made(without, config(), TorchConfig())
    assert run.facts.drive_ceiling_bytes_per_s is None
    assert not run.facts.reads_directly


def test_the_phases_are_timed_in_their_order(tmp_path: Path) -> None:
    run = made(context_at(tmp_path), config())
    timed = [phase for phase in run.context.phases if phase.timed]
    assert [phase.name for phase in timed] == [FILL, STEADY, RESTORE, STORE]
    assert all(a.end_ns <= b.start_ns for a, b in pairwise(timed))
    assert run.context.has_ended


@pytest.mark.parametrize("settings", [{"tp": 2}, layered(TINY, 6)], ids=["files", "layers"])
def test_what_an_overloaded_mix_cuts_off_leaves_no_files(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    context = context_at(tmp_path)
    rate = {"arrivals": Arrivals.open, "request_rate": 1e5, "max_backlog": 8}
    workload = planned(context, config(**settings, **rate))
    outcome = workload.run(context)
    assert isinstance(outcome.facts, KvFacts)
    facts = outcome.facts
    assert facts.loop.ended_early
    assert facts.loop.backlog_end == facts.counts[STEADY].cut_requests > 8
    assert facts.loop.residence_s == pytest.approx(facts.loop.in_system_s)
    assert any(remark.startswith("Overloaded: ") for remark in outcome.remarks)
    files = block_files(tmp_path)
    check, _ = workload.verify(context)
    assert check.verdict == "pass"
    if facts.settings.layout is Layout.block_file:
        assert len(files) * 8192 == check.figures["expected_bytes"]
        assert {path.suffix for path in files} == {".kv"}
    require_empty(tmp_path)


def test_a_capacity_under_one_request_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"capacity_bytes holds 16 blocks of 16384 bytes, but one request may have 32; use at "
        r"least 524288, or fewer workload\.most_input_tokens",
    ):
        planned(context_at(tmp_path), config(capacity_bytes=16 * 16384))
    assert not list(tmp_path.iterdir())
