"""Published runs of checkpoints, KV caches and vector databases, from trees written here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from wattload.core.mlperf.formulas import (
    cache_per_s,
    checkpoint_bytes_per_s,
    index_bytes,
    mean_checkpoint_bytes_per_s,
    memory_share,
    storage_read_bytes,
    worst_p95_s,
)
from wattload.core.mlperf.notes import notes
from wattload.core.mlperf.published import (
    CacheFacts,
    CheckpointFacts,
    PublishedRun,
    PublishedSet,
    VectorFacts,
)
from wattload.core.mlperf.tree import Tree, read_tree
from wattload.core.units import GIB

ORGANISATION = "closed/acme"
SYSTEM = f"{ORGANISATION}/results/box"
CHECKPOINTS = f"{SYSTEM}/checkpointing/llama3-8b/20260721_000424"
CACHE = f"{SYSTEM}/kv_cache/llama3.1-8b/run/20260721_002332"
VECTORS = f"{SYSTEM}/vector_database/milvus/DISKANN/run/20260723_195753"
START = datetime(2026, 7, 21, 0, 4, 30)  # noqa: DTZ001 - as DLIO writes it
"""By a clock 9 h ahead of UTC."""
SIZE_GIB = 8.0


def write(root: Path, path: str, found: object) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(found if isinstance(found, str) else json.dumps(found))


def spans(kind: str, seconds: list[float], first_s: float) -> Iterator[tuple[str, dict[str, str]]]:
    at = START + timedelta(seconds=first_s)
    for number, each in enumerate(seconds, 1):
        end = at + timedelta(seconds=each)
        yield f"{kind}_ckpt{number}", {"start": at.isoformat(), "end": end.isoformat()}
        at = end + timedelta(seconds=5)


def checkpoints(
    root: Path,
    path: str = CHECKPOINTS,
    *,
    saves: tuple[float, ...] = (4.0, 6.0),
    loads: tuple[float, ...] = (10.0, 10.0, 2.0),
    ranks: int = 2,
    files: int | None = None,
    location: str = "local",
) -> None:
    """Write a run whose rank r takes r s longer for each save."""
    means = {}
    for kind, each in (("save", saves), ("load", loads)):
        if each:
            rates = [SIZE_GIB / seconds for seconds in each]
            means[f"{kind}_checkpoint_io_mean_GB_per_second"] = sum(rates) / len(rates)
            means[f"{kind}_checkpoint_duration_mean_seconds"] = sum(each) / len(each)
    write(
        root,
        f"{path}/summary.json",
        {
            "start": START.isoformat(),
            "end": (START + timedelta(seconds=200)).isoformat(),
            "num_accelerators": ranks,
            "num_hosts": 1,
            "host_memory_GB": [377.0],
            "host_cpu_count": [8],
            "metric": {**means, "checkpoint_size_GB": SIZE_GIB},
            "epochs": 0,
        },
    )
    for rank in range(ranks if files is None else files):
        own = dict(spans("save", [each + rank for each in saves], 5))
        own |= dict(spans("load", list(loads), 100))
        write(root, f"{path}/{rank}_per_epoch_stats.json", {"1": {"start": "x", **own}})
    config = "workload:\n  model:\n    name: llama_8b\n  checkpoint:\n"
    config += "    fsync: true\n    time_between_checkpoints: 5\n"
    write(root, f"{path}/dlio_config/config.yaml", config)
    write(root, f"{path}/dlio_config/overrides.yaml", "- ++workload.checkpoint.mode=default\n")
    describe(root, location)


def describe(root: Path, location: str) -> None:
    text = f"system_under_test:\n solution:\n  architecture:\n   storage_location: {location}\n"
    write(root, f"{ORGANISATION}/systems/box.yaml", text)


def samples(root: Path, path: str, read_gib: Callable[[float], float], zone_h: int = 9) -> None:
    """Write the counters of one host's drive every 10 s, beside names that count the same bytes."""
    series = []
    for second in range(0, 210, 10):
        sectors = int(read_gib(second) * GIB) // 512
        names = ("nvme0n1", "nvme0c0n1", "nvme0n1p1", "dm-0", "md0", "loop3")
        at = START - timedelta(hours=zone_h) + timedelta(seconds=second)
        series.append(
            {
                "timestamp": f"{at.isoformat()}Z",
                "diskstats": [
                    {"device_name": name, "sectors_read": sectors + 7, "sectors_written": 9}
                    for name in names
                ],
            }
        )
    write(root, f"{path}/checkpointing_1_timeseries.json", {"samples_by_host": {"a": series}})


def cached_last_load(second: float) -> float:
    """Return GiB read so far: 8 in each of the loads from 100 s and 115 s, none from 130 s on."""
    return min(max(second - 100, 0), 10) * 0.8 + min(max(second - 115, 0), 10) * 0.8


def trial(read: tuple[float, float, float], **changes: object) -> dict[str, Any]:
    tiers = dict(zip(("gpu", "cpu", "storage"), read, strict=True))
    stats = {f"tier_{name}_kv_bytes_read_gb": each for name, each in tiers.items()}
    return {
        "summary": {
            "elapsed_time": 300.0,
            "cache_stats": {
                **stats,
                "tier_storage_kv_bytes_written_gb": 30.0,
                "storage_tokens_processed": 6000.0,
                "storage_write_p95_ms": 1899.0,
                "storage_write_device_p95_ms": 21.8,
                **changes,
            },
        }
    }


def cache(root: Path, ranks: int = 2, read_gib_per_s: float = 0.2) -> None:
    option = {
        "aggregated_read_bandwidth_gbps": read_gib_per_s,
        "aggregated_write_bandwidth_gbps": 0.2,
        "aggregated_avg_throughput_tokens_per_sec": 800.0,
        "aggregated_storage_throughput_tokens_per_sec": 4.6,
    }
    summary = {"total_ranks": ranks, "trials_per_option": 2, "options": {"1": option}}
    write(root, f"{CACHE}/summary.json", summary)
    for number in range(2):
        for rank in range(ranks):
            name = f"option_1/trial_{number}/rank_{rank}/kvcache_results_1.json"
            write(root, f"{CACHE}/{name}", trial((0.0, 70.0, 30.0)))
    metadata = {
        "model": "llama3.1-8b",
        "parameters": {"num_users": 100},
        "invocation_start_time": "2026-07-21T00:23:32.1",
        "system_info": {"hosts": [{"hostname": "a", "memory": {"total": 64 * GIB}}] * 2},
    }
    write(root, f"{CACHE}/kv_cache_1_metadata.json", metadata)


def vectors(root: Path, **changes: object) -> None:
    summary = {
        "num_vectors": 1_000_000,
        "dimension": 1536,
        "index_type": "DISKANN",
        "database": {"database": "milvus"},
        "throughput_qps": 500.0,
        "total_time_seconds": 60.0,
        "query_count": 30_000,
        "mean_latency_ms": 2.0,
        "p99_latency_ms": 3.0,
        "recall": 0.21,
    }
    write(root, f"{VECTORS}/summary.json", summary | changes)
    arguments = {"vdb_engine": "milvus", "vdb_index": "DISKANN", "vector_dim": 1536}
    more = {"search_ef": 100, "batch_size": 8, "num_query_processes": 24}
    metadata = {"args": {**arguments, **more}, "mpi_world_size": 4, "system_info": None}
    write(root, f"{VECTORS}/vector_database_1_metadata.json", metadata)


def only(tree: Tree) -> tuple[PublishedSet, PublishedRun]:
    assert [each.reason for each in tree.unread] == []
    (found,) = tree.sets
    (run,) = found.runs
    return found, run


def checkpoint_run(root: Path) -> tuple[PublishedRun, CheckpointFacts]:
    _, run = only(read_tree(root))
    assert isinstance(run.facts, CheckpointFacts)
    return run, run.facts


def test_a_run_of_checkpoints_has_each_ranks_times(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    found, run = only(read_tree(tmp_path))
    assert (found.organisation, found.system, found.division) == ("acme", "box", "closed")
    facts = run.facts
    assert isinstance(facts, CheckpointFacts)
    assert (facts.model, facts.ranks, facts.checkpoint_bytes) == ("llama3-8b", 2, 8 * GIB)
    assert (facts.fsync, facts.interval_s) == (True, 5)
    assert [each.seconds for each in facts.writes] == [
        pytest.approx((4, 5), abs=1e-5),
        pytest.approx((6, 7), abs=1e-5),
    ]
    assert run.overrides == {"checkpoint.mode": "default"}


def test_total_over_total_stands_beside_the_mean_of_rates(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    _, facts = checkpoint_run(tmp_path)
    size = 8 * GIB
    assert checkpoint_bytes_per_s(facts, facts.reads).value == pytest.approx(3 * size / 22)
    assert checkpoint_bytes_per_s(facts, facts.writes).value == pytest.approx(2 * size / 12)
    for done, reported in (
        (facts.reads, facts.reported_read_bytes_per_s),
        (facts.writes, facts.reported_write_bytes_per_s),
    ):
        assert reported is not None
        assert mean_checkpoint_bytes_per_s(facts, done).value == pytest.approx(reported)


def test_v2_and_runs_of_one_direction_lie_otherwise(tmp_path: Path) -> None:
    path = "results/checkpointing/llama3-8b/20250601_101010"
    checkpoints(tmp_path, path, loads=())
    checkpoints(tmp_path, path.replace("1010", "2020"), saves=(), files=0)
    (tmp_path / ORGANISATION / "systems/box.yaml").unlink()
    tree = read_tree(tmp_path)
    (found,) = tree.sets
    written, read = (run.facts for run in found.runs)
    assert isinstance(written, CheckpointFacts)
    assert isinstance(read, CheckpointFacts)
    assert (len(written.writes), written.reads, written.reported_read_bytes_per_s) == (2, (), None)
    assert (read.writes, read.reads) == ((), ())
    assert (written.source, read.source) == ("blocks", "summary")
    assert read.reported_read_bytes_per_s is not None
    assert "times" in checkpoint_bytes_per_s(read, read.reads).reason


@pytest.mark.parametrize("zone_h", [9, 0, -4])
def test_devices_moved_fewer_bytes_than_a_cached_load(tmp_path: Path, zone_h: int) -> None:
    checkpoints(tmp_path)
    samples(tmp_path, CHECKPOINTS, cached_last_load, zone_h)
    _, facts = checkpoint_run(tmp_path)
    moved = [each.device_bytes for each in facts.reads]
    assert moved == [8 * GIB, 8 * GIB, 4 * GIB]  # the last is the second load's second half
    assert [each.device_bytes for each in facts.writes] == [0, 0]


@pytest.mark.parametrize("location", ["remote", "remote_and_local"])
def test_counters_are_unknown_where_they_are_blind(tmp_path: Path, location: str) -> None:
    checkpoints(tmp_path, location=location)
    samples(tmp_path, CHECKPOINTS, cached_last_load)
    _, facts = checkpoint_run(tmp_path)
    assert {each.device_bytes for each in (*facts.reads, *facts.writes)} == {None}


@pytest.mark.parametrize(
    ("read_gib", "known"),
    [
        (lambda _: 0.0, [False] * 3),
        (lambda second: 200.0 - second, [False] * 3),
        (lambda second: second, [True] * 3),
    ],
)
def test_still_and_backward_counters_are_unknown(
    tmp_path: Path, read_gib: Callable[[float], float], known: list[bool]
) -> None:
    checkpoints(tmp_path)
    samples(tmp_path, CHECKPOINTS, read_gib)
    _, facts = checkpoint_run(tmp_path)
    assert [each.device_bytes is not None for each in facts.reads] == known


def test_a_time_series_that_is_no_json_loses_only_itself(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    write(tmp_path, f"{CHECKPOINTS}/checkpointing_1_timeseries.json", "{")
    tree = read_tree(tmp_path)
    assert [each.path for each in tree.unread] == [f"{CHECKPOINTS}/checkpointing_1_timeseries.json"]
    assert len(tree.sets) == 1


def test_what_staff_pruned_is_absent(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    write(tmp_path, f"{CHECKPOINTS}/1_per_epoch_stats.json", "PRUNED BY STAFF\n")
    tree = read_tree(tmp_path)
    _, run = only(tree)
    assert isinstance(run.facts, CheckpointFacts)
    assert [len(each.seconds) for each in run.facts.writes] == [1, 1]
    assert tree.absent == (f"{CHECKPOINTS}/1_per_epoch_stats.json",)


def backwards(found: dict[str, Any]) -> None:
    found["1"]["save_ckpt2"]["start"] = found["1"]["save_ckpt1"]["start"]


def without_duration(found: dict[str, Any]) -> None:
    found["1"]["save_ckpt1"]["end"] = found["1"]["save_ckpt1"]["start"]


def fewer(found: dict[str, Any]) -> None:
    del found["1"]["load_ckpt3"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (backwards, "epoch 1, save_ckpt2: its times run backwards"),
        (without_duration, "epoch 1, save_ckpt1: its times run backwards"),
        (fewer, "its rank or checkpoints are not those of summary.json and the first"),
    ],
)
def test_bad_times_leave_out_the_run_and_name_the_file(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    checkpoints(tmp_path)
    checkpoints(tmp_path, CHECKPOINTS.replace("000424", "010424"))
    name = f"{CHECKPOINTS}/1_per_epoch_stats.json"
    found = json.loads((tmp_path / name).read_text())
    change(found)
    write(tmp_path, name, found)
    tree = read_tree(tmp_path)
    assert [(each.path, each.reason) for each in tree.unread] == [(name, reason)]
    assert [len(each.runs) for each in tree.sets] == [1]


def test_a_cache_run_has_its_options_and_trials(tmp_path: Path) -> None:
    cache(tmp_path)
    _, run = only(read_tree(tmp_path))
    facts = run.facts
    assert isinstance(facts, CacheFacts)
    (option,) = facts.options
    assert option.read_bytes_per_s == pytest.approx(0.2 * GIB)
    assert (len(option.trials), facts.source) == (4, "blocks")
    assert cache_per_s(facts, option, storage_read_bytes).value == pytest.approx(0.2 * GIB)
    assert cache_per_s(facts, option, lambda each: each.tokens_processed).value == 40
    assert memory_share(facts, option).value == pytest.approx(0.7)
    assert worst_p95_s(facts, option, lambda each: each.write_p95_s).value == pytest.approx(1.899)
    assert worst_p95_s(facts, option, lambda each: each.fsync_p95_s).value == pytest.approx(0.0218)
    assert run.host_memory_bytes == (64 * GIB, 64 * GIB)
    assert run.settings == {}


def test_reported_figures_of_caches_and_vectors_are_held_against_their_own(tmp_path: Path) -> None:
    cache(tmp_path)
    vectors(tmp_path)
    same = [each for found in read_tree(tmp_path).sets for each in notes(found, "v3.0")]
    assert {each.rule for each in same} == {"low_recall"}
    cache(tmp_path, read_gib_per_s=0.3)
    vectors(tmp_path, query_count=15_000)
    other = [each for found in read_tree(tmp_path).sets for each in notes(found, "v3.0")]
    assert [each.sentence.split(" is ")[0] for each in other if each.rule == "recomputed"] == [
        "20260721_002332: option 1's rate read in B/s",
        "20260723_195753: queries/s",
    ]


def test_a_run_without_a_summary_is_listed(tmp_path: Path) -> None:
    cache(tmp_path)
    (tmp_path / CACHE / "summary.json").unlink()
    tree = read_tree(tmp_path)
    assert [(each.path, each.reason) for each in tree.unread] == [
        (f"{CACHE}/summary.json", "not in this copy")
    ]


def test_trials_that_are_absent_leave_rates_unknown(tmp_path: Path) -> None:
    cache(tmp_path)
    next((tmp_path / CACHE).rglob("kvcache_results_*")).unlink()
    _, run = only(read_tree(tmp_path))
    assert isinstance(run.facts, CacheFacts)
    (option,) = run.facts.options
    assert run.facts.source == "summary"
    value, reason = cache_per_s(run.facts, option, storage_read_bytes)
    assert (value, reason) == (None, "only 3 of 4 files of trials and ranks have it")
    share = memory_share(run.facts, option)
    assert share.value == pytest.approx(0.7)
    assert share.reason == "of 3 of 4 files of trials and ranks"


@pytest.mark.parametrize(
    ("name", "found", "reason"),
    [
        (
            "option_1/trial_0/rank_0/kvcache_results_1.json",
            trial((0.0, -1.0, 30.0)),
            "memory_bytes: Input should be greater than or equal to 0",
        ),
        (
            "option_1/trial_0/rank_0/kvcache_results_1.json",
            trial((0.0, 1.0, 30.0), storage_write_p95_ms="12"),
            "storage_write_p95_ms: a number is needed, not '12'",
        ),
        (
            "option_1/trial_0/rank_2/kvcache_results_1.json",
            trial((0.0, 1.0, 30.0)),
            "its option, trial or rank is not in summary.json, or twice here",
        ),
        (
            "option_1/trial_0/rank_0/kvcache_results_2.json",
            trial((0.0, 1.0, 30.0)),
            "its option, trial or rank is not in summary.json, or twice here",
        ),
        (
            "option_1/trial_0/rank_0/kvcache_results_1.json",
            '{"summary": {"elapsed_time": NaN}}',
            "NaN is not a number of JSON",
        ),
    ],
)
def test_bad_values_of_a_trial_leave_out_the_run(
    tmp_path: Path, name: str, found: object, reason: str
) -> None:
    cache(tmp_path)
    write(tmp_path, f"{CACHE}/{name}", found)
    (unread,) = read_tree(tmp_path).unread
    assert unread.path == f"{CACHE}/{name}"
    assert reason in unread.reason


def test_a_vector_run_has_recall_and_settings(tmp_path: Path) -> None:
    vectors(tmp_path)
    _, run = only(read_tree(tmp_path))
    facts = run.facts
    assert isinstance(facts, VectorFacts)
    assert (facts.database, facts.index, facts.vectors) == ("milvus", "DISKANN", 1_000_000)
    assert (facts.queries_per_s, facts.recall, facts.latency_p99_s) == (500, 0.21, 0.003)
    assert run.settings["args.search_ef"] == 100
    assert run.settings["ranks"] == 4
    size, reason = index_bytes(facts)
    assert (size, reason[:18]) == (1536 * 4 * 1_000_000, "its vectors alone:")


def test_without_a_summary_statistics_and_the_log_say_it(tmp_path: Path) -> None:
    vectors(tmp_path)
    (tmp_path / VECTORS / "summary.json").unlink()
    statistics = {"total_queries": 30_000, "total_time_seconds": 60.0, "throughput_qps": 500.0}
    write(tmp_path, f"{VECTORS}/statistics.json", statistics | {"recall": {"mean_recall": 0.31}})
    log = "{'row_count': 1000000, 'params': {'max_degree': 64, 'search_list_size': 200}}"
    write(tmp_path, f"{VECTORS}/vector_database_run.stdout.log", log)
    _, run = only(read_tree(tmp_path))
    facts = run.facts
    assert isinstance(facts, VectorFacts)
    assert (facts.recall, facts.queries, facts.dimensions) == (0.31, 30_000, 1536)
    assert index_bytes(facts).value == 4096 + 1_000_000 * 8192


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"recall": 21.0}, "recall: Input should be less than or equal to 1"),
        ({"total_time_seconds": 0.0}, "seconds: Input should be greater than 0"),
        ({"throughput_qps": "fast"}, "throughput_qps: a number is needed, not 'fast'"),
        ({"num_vectors": 0.5}, "vectors: Input should be a valid integer"),
    ],
)
def test_bad_values_of_vectors_leave_out_the_run(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    vectors(tmp_path, **changes)
    (unread,) = read_tree(tmp_path).unread
    assert unread.path == f"{VECTORS}/summary.json"
    assert reason in unread.reason


def test_metadata_stands_in_for_a_configuration_that_is_absent(tmp_path: Path) -> None:
    checkpoints(tmp_path)
    for name in ("config", "overrides"):
        (tmp_path / CHECKPOINTS / f"dlio_config/{name}.yaml").unlink()
    metadata = {
        "model": "llama3-8b",
        "accelerator": "b200",
        "parameters": {"checkpoint": {"fsync": False, "time_between_checkpoints": 7}},
        "override_parameters": {"checkpoint.num_checkpoints_read": 10},
        "args": {"o_direct": True},
        "system_info": {"hosts": [{"hostname": "a", "memory": {"total": GIB}}]},
    }
    write(tmp_path, f"{CHECKPOINTS}/checkpointing_1_metadata.json", metadata)
    run, facts = checkpoint_run(tmp_path)
    assert (facts.fsync, facts.interval_s) == (False, 7)
    assert run.settings["args.o_direct"] is True
    assert run.overrides == {
        "checkpoint.num_checkpoints_read": "10",
        "workload": "llama3-8b_b200",
    }
    assert run.host_memory_bytes == (GIB,)
