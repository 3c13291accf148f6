"""Reads of blocks: who asked, what limited the rate, counts, and what checks find."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reports.gpu_reads import reads_run
from tests.reports.random_reads import GPUS, random_run
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.results.gpu_read.facts import Run
from wattload.results.gpu_read.figures import bottleneck, cores, reads_per_s
from wattload.results.gpu_read.requesters import (
    VIEW,
    asked_text,
    cores_text,
    counts_text,
    limit_text,
    no_limit_text,
)
from wattload.results.reading import checks_of, run_of

RATE = 1e6


def known(record: RunRecord) -> Run:
    run = run_of(record)
    assert run is not None
    return run


def found(**changes: Any) -> Run:
    return known(random_run(**changes).record)


def with_ranks(record: RunRecord, **changes: Any) -> RunRecord:
    """Return a record with other facts of its ranks."""
    facts = record.workload.facts
    ranks = [{**rank, **changes} for rank in facts["ranks"]]
    workload = record.workload.model_copy(update={"facts": {**facts, "ranks": ranks}})
    return record.model_copy(update={"workload": workload})


def check_of(record: RunRecord, name: str) -> Check:
    return next(check for check in checks_of(record) if check.name == name)


def plain(text: str) -> str:
    return text.replace("\xa0", " ").replace("\u202f", " ")


def test_a_gpu_is_named_only_where_counts_prove_it() -> None:
    assert asked_text(found()).startswith("asked by the GPU")
    assert asked_text(found(requester="cpu")).startswith("asked by CPU threads through the queue")
    assert asked_text(found(lost=1)) == "path not proved"
    assert "delivered in host memory" in asked_text(found(loader="direct"))


@pytest.mark.parametrize("engine", ["null", "memory"])
def test_an_engine_without_storage_is_named_whoever_asked(engine: str) -> None:
    run = found(engine=engine)
    assert asked_text(run).startswith("no storage was read")
    assert VIEW.joule is not None
    assert VIEW.joule.count(run, "gpu_random_read") is None


def limited(**changes: Any) -> Run:
    """Return a run at a million reads a second, with what its ranks say of their limits."""
    in_flight = changes.pop("in_flight", 0.95)
    engine = changes.pop("engine", "storage")
    record = random_run(rate=RATE, engine=engine).record
    record = with_ranks(
        record, **{"pull_per_s": 2 * RATE, "queue_per_s": 4 * RATE, "in_flight": 100, **changes}
    )
    reads = [row for row in record.latencies if row.kind == "read"]
    rest = [row for row in record.latencies if row.kind != "read"]
    seen = [
        row.model_copy(update={"sum_s": row.count * in_flight * 100 / RATE})
        for row in reads
        if in_flight
    ]
    return known(record.model_copy(update={"latencies": (*seen, *rest)}))


def busy(seconds: float) -> list[dict[str, Any]]:
    return [{"answered": 1, "busy_s": seconds}]


@pytest.mark.parametrize(
    ("changes", "word", "reason"),
    [
        ({"pull_per_s": RATE / 0.905}, "link", "0.91 of what the GPU pulls without a queue"),
        ({"pull_per_s": RATE / 1.04}, "link", "1.04 of what the GPU pulls without a queue"),
        ({"pull_per_s": RATE / 1.06}, "storage", "0.95 of the reads that were asked for at once"),
        ({"pull_per_s": RATE / 0.89}, "storage", "0.95 of the reads"),
        ({"queue_per_s": RATE / 0.905}, "queue", "0.91 of what the queue does with nothing to"),
        ({"queue_per_s": RATE / 1.06}, "storage", "0.95 of the reads"),
        ({"pollers": busy(9.1)}, "pollers", "the busiest poller worked for 0.91 of the time"),
        ({"pollers": busy(9.1), "pull_per_s": RATE / 0.95}, "link", "0.95 of what"),
        ({"in_flight": 0.8}, "", "0.80 of the reads that were asked for at once were in flight"),
        ({"in_flight": None}, "", "how many reads were in flight is not known"),
        ({"pull_per_s": None}, "storage", "0.95 of the reads"),
        ({"engine": "memory", "pull_per_s": RATE / 0.95}, "link", "0.95 of what"),
        ({"engine": "memory"}, "", "no storage was read, and neither"),
        ({"engine": "null", "pull_per_s": RATE / 0.95}, "", "no storage was read, and neither"),
        ({"engine": "null", "queue_per_s": RATE / 0.95}, "queue", "0.95 of what"),
    ],
)
def test_a_limit_is_named_only_where_a_figure_shows_it(
    changes: dict[str, Any], word: str, reason: str
) -> None:
    limit = bottleneck(limited(**changes))
    assert limit[0] == word
    assert limit[1].startswith(reason)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rate": 94.09e6}, "the GPU's link, 0.97 of its pull ceiling"),
        (
            {"rate": 281.34e6, "gpus": 3, "targets": 42},
            "the links of the GPUs, 0.97 of their pull ceiling",
        ),
        ({"rate": 133e6, "engine": "null"}, "the queue, 0.95 of its ceiling"),
        ({"rate": 140e6, "engine": "null"}, "the queue, at its measured ceiling"),
        ({"rate": 9.7e6}, "storage (the link is at 10 % of its ceiling, the pollers 81 % busy)"),
        ({"engine": "memory", "rate": 9.7e6}, ""),
        ({"loader": "mmap", "cached": 0.99}, ""),
    ],
)
def test_a_limit_has_the_figure_that_shows_it(changes: dict[str, Any], text: str) -> None:
    assert plain(limit_text([found(**changes)])) == text


def test_runs_that_disagree_or_that_the_page_cache_served_name_no_limit() -> None:
    assert limit_text([found(rate=9.7e6), found(rate=94.09e6)]) == ""
    mapped = found(loader="mmap", cached=0.99)
    assert plain(no_limit_text([mapped])) == "the page cache served 99 % of the pages"


def test_cores_are_cpu_seconds_over_seconds() -> None:
    assert cores(found(cores=2.0)) == pytest.approx(2.0)
    assert plain(cores_text([found(cores=2.0), found(cores=4.0)])) == "2.8 CPU cores"
    assert plain(cores_text([found(cores=1.0)])) == "1.0 CPU core"


def test_equal_counts_are_printed_once_and_others_by_name() -> None:
    whole, short = found(rate=1e6), found(rate=1e6, lost=2)
    assert plain(counts_text([whole])) == "asked, taken, answered and delivered: 10 000 000 each"
    assert plain(counts_text([short])).startswith("asked 10 000 002, taken 10 000 002, ")
    null = found(rate=1e6, engine="null")
    assert plain(counts_text([null])) == "asked, taken and answered: 10 000 000 each"
    assert counts_text([found(loader="direct")]) == ""


def test_the_job_of_mapped_files_has_the_threads_and_no_queue() -> None:
    mapped = known(with_ranks(random_run(loader="mmap").record, in_flight=4))
    assert VIEW.job is not None
    assert plain(VIEW.job([mapped], [mapped])) == "512 B random reads, 4 in flight"


def test_headroom_is_how_far_both_ceilings_are_above_the_rate() -> None:
    assert VIEW.headroom is not None
    assert VIEW.headroom(found(rate=48.5e6)) == pytest.approx([2.0, 140 / 48.5])


def test_the_time_of_several_processes_is_from_the_first_start_to_the_last_end() -> None:
    record = random_run(gpus=2, targets=2, rate=1e6).record
    (span,) = record.spans
    later = span.model_copy(update={"rank": 1, "end_ns": span.end_ns + 10 * NS_PER_S})
    longer = record.model_copy(update={"spans": (span, later)})
    assert reads_per_s(known(longer)) == pytest.approx(0.5e6)
    assert [address for _, address in VIEW.gpus(known(record))] == list(GPUS[:2])


@pytest.mark.parametrize(
    ("changes", "name", "sentence"),
    [
        ({"wrong_blocks": 3, "first_wrong": "/f at byte 512"}, "delivered_bytes", "3 blocks, the"),
        ({"bad_blocks": 2, "bad_files": ["/f"]}, "delivered_bytes", "2 blocks of 512 bytes of /f"),
        ({"operations": 9_999_999}, "queue_counts", "these counts must be equal"),
        (
            {"failures": [{"reason": "EIO", "count": 1, "file": None, "offset_bytes": None}]},
            "failed_reads",
            "Most failed (EIO, 1 time)",
        ),
    ],
)
def test_a_fault_fails_its_check(changes: dict[str, Any], name: str, sentence: str) -> None:
    record = random_run(rate=1e6).record
    assert {check.verdict for check in checks_of(record)} == {"pass"}
    check = check_of(with_ranks(record, **changes), name)
    assert (check.verdict, check.mandatory) == ("fail", True)
    assert sentence in check.sentence


def test_what_no_byte_was_compared_of_is_not_checked_and_bars_the_run() -> None:
    record = with_ranks(random_run(rate=1e6).record, compared_bytes=0)
    check = check_of(record, "delivered_bytes")
    assert (check.verdict, check.mandatory) == ("not_checked", True)
    of_threads = with_ranks(reads_run().record, compared_bytes=0)
    assert check_of(of_threads, "delivered_bytes").mandatory


@pytest.mark.parametrize(
    ("faults", "drive_bytes", "verdict"),
    [(1000, 1000 * 4096, "pass"), (1000, 500 * 4096, "fail"), (400, 400 * 4096, "warn")],
)
def test_page_faults_need_as_many_bytes_of_drives(
    faults: int, drive_bytes: int, verdict: str
) -> None:
    made = random_run(loader="mmap", cached=0.0).record
    record = with_ranks(made, major_faults=faults, drive_bytes=drive_bytes)
    assert check_of(record, "page_faults").verdict == verdict


def test_requests_of_a_cache_must_add_up() -> None:
    record = random_run(rate=1e6, cache_bytes=1 << 20).record
    assert check_of(record, "queue_counts").verdict == "pass"
    queue = record.workload.facts["ranks"][0]["queue"]
    record = with_ranks(record, queue={**queue, "hits": queue["hits"] + 1})
    assert "these counts must add up" in check_of(record, "queue_counts").sentence
