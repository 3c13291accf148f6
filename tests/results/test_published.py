"""Each kind of published result is shown by its own view, next to runs of ours in the same form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.records import write_run
from tests.reports.caches import cache_run
from tests.reports.conftest import arm
from tests.reports.published import published
from tests.reports.vectors import search_run
from wattload.core.mlperf.published import (
    CacheFacts,
    CacheOption,
    CacheTrial,
    CheckpointFacts,
    Operation,
    VectorFacts,
)
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.sections.published import PublishedRow, published_rows, published_texts
from wattload.reports.stats.subject import Subject, make_subject

CHECKPOINTS = CheckpointFacts(
    model="llama3-8b", ranks=8, checkpoint_bytes=80_000_000_000, fsync=True, interval_s=5.0,
    writes=(Operation(seconds=(8.0, 10.0)),),
    reads=(Operation(seconds=(4.0, 4.0)), Operation(seconds=(10.0, 12.0))),
    reported_read_bytes_per_s=14e9,
)  # fmt: skip
TRIAL = CacheTrial(
    seconds=100.0, read_bytes=1000, memory_bytes=877, tokens_processed=5000,
    write_p95_s=1.892, fsync_p95_s=0.0218,
)  # fmt: skip
CACHE = CacheFacts(
    model="llama3.1-8b", ranks=1, trials=1,
    options=(
        CacheOption(option="1", read_bytes_per_s=9.0, written_bytes_per_s=2.0, tokens_per_s=3.0),
        CacheOption(option="2", read_bytes_per_s=1.23, written_bytes_per_s=2.0, tokens_per_s=3.0,
                    trials=(TRIAL,)),
    ),
)  # fmt: skip
VECTORS = VectorFacts(
    database="milvus", index="HNSW", vectors=1000, dimensions=10, queries=600, seconds=60.0,
    queries_per_s=10.0, recall=0.3, latency_p99_s=None,
)  # fmt: skip

DISKANN = VECTORS.model_copy(update={"index": "DISKANN"})


def subject_of(facts: Any, folder: Path | None = None) -> Subject:
    runs = load_runs([folder]) if folder else ()
    return make_subject(runs, published=(published("X", facts, edition="v3.0"),))


def shown(row: PublishedRow) -> dict[str, float | str | None]:
    return {name: found.value for name, found in row.figures.items()}


def test_checkpoints_have_bytes_over_time_next_to_the_reported_mean_of_rates() -> None:
    subject = subject_of(CHECKPOINTS)
    (row,) = published_rows(subject)["checkpoints, 8b"]
    assert shown(row) == {
        "save_bytes_per_s": 8e9,
        "reported_save_bytes_per_s": None,
        "load_bytes_per_s": 10e9,
        "reported_load_bytes_per_s": 14e9,
    }
    assert row.data_from == "checkpoint times"
    assert (
        "1 within 0.1\u00a0% of the reported one (1 from checkpoint times)"
        in published_texts(subject)[0]
    )


def test_checkpoints_of_ours_have_the_table_of_their_model(tmp_path: Path) -> None:
    settings = {"model": "8b"}
    write_run(tmp_path, arm("A", 0, workload="checkpoint", power="measured", settings=settings))
    rows = published_rows(subject_of(CHECKPOINTS, tmp_path))["checkpoints, 8b"]
    (own,) = (row for row in rows if row.is_own)
    (facts,) = own.facts
    slowest_s = sum(each.seconds[0] for each in facts.writes)
    expected = facts.checkpoint_bytes * len(facts.writes) / slowest_s
    assert shown(own)["save_bytes_per_s"] == pytest.approx(expected)
    assert own.energy_j is not None


def test_each_option_of_a_cache_is_a_row_and_only_trials_tell_of_memory() -> None:
    first, second = published_rows(subject_of(CACHE))["KV cache"]
    failed = "fails cache_options and cache_trials"
    assert first.remark == f"Maker, closed, option 1, {failed}"
    assert second.remark == f"Maker, closed, option 2, {failed}"
    assert shown(first)["share_from_memory"] is None
    found = shown(second)
    assert found["share_from_memory"] == pytest.approx(0.877)
    assert found["processed_tokens_per_s"] == 50.0
    assert found["generated_tokens_per_s"] == 3.0
    assert (found["write_p95_s"], found["fsync_p95_s"]) == (1.892, 0.0218)


def test_vectors_have_recall_and_at_least_the_size_of_their_vectors() -> None:
    (row,) = published_rows(subject_of(VECTORS))["vector search, HNSW"]
    found = shown(row)
    assert (found["queries_per_s"], found["recall"]) == (10.0, 0.3)
    assert found["index_bytes"] == 40_000
    size = row.figures["index_bytes"]
    assert "vectors alone" in size.reason


@pytest.mark.parametrize(
    ("facts", "table", "make", "score"),
    [
        (CACHE, "KV cache", cache_run, None),
        (DISKANN, "vector search, DISKANN", search_run, "queries_per_s"),
    ],
)
def test_runs_of_ours_of_other_work_say_that_no_edition_has_it(
    facts: Any, table: str, make: Callable[[], Run], score: str | None
) -> None:
    run = make()
    subject = make_subject([run], published=(published("X", facts, edition="v3.0"),))
    (own,) = (row for row in published_rows(subject)[table] if row.is_own)
    assert own.differences[-1].endswith("of wattload's own")
    name = next(iter(own.figures))
    metrics = {metric.name: metric.value for metric in run.record.metrics}
    found = shown(own)
    if score is not None:
        assert found[name] == pytest.approx(metrics[score])
    else:
        moved = run.record.moved_bytes("steady", "read")
        seconds = sum(each.seconds for each in run.record.joined_windows if each.name == "steady")
        assert found[name] == pytest.approx(moved / seconds)
