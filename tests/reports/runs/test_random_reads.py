"""Random reads as recorded: words for who asked and what limited, whatever the details hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reports.random_reads import GPUS, random_run
from wattload.core.record.run import RunRecord
from wattload.reports.runs.random_reads import (
    arms_asked,
    asked_words,
    both_rates,
    bottleneck_words,
    cores_words,
    counts_words,
    generation,
    headroom,
    load_words,
    no_bottleneck,
    operations_of,
    random_reads,
)


def record(**changes: Any) -> RunRecord:
    return random_run(**changes).record


def plain(text: str) -> str:
    return text.replace("\xa0", " ").replace("\u202f", " ")


def test_a_gpu_is_named_only_where_counts_prove_it() -> None:
    assert asked_words(record()).startswith("asked by the GPU")
    assert asked_words(record(requester="cpu")).startswith("asked by CPU threads through the queue")
    assert asked_words(record(lost=1)) == "path not proved"


def test_blocks_are_said_to_pass_through_host_memory() -> None:
    assert "host memory" in asked_words(record())
    assert "host memory" in asked_words(record(loader="direct", bottleneck=None))


@pytest.mark.parametrize("engine", ["null", "memory", "something"])
def test_an_engine_without_storage_is_named_so_whoever_asked(engine: str) -> None:
    made = record(engine=engine)
    assert asked_words(made).startswith("no storage was read")
    assert operations_of(made, "gpu_random_read") is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bottleneck": "link", "rate": 94.09e6}, "the GPU's link, 0.97 of its pull ceiling"),
        (
            {"bottleneck": "link", "rate": 281.34e6, "gpus": 3, "targets": 42},
            "the links of the GPUs, 0.97 of their pull ceiling",
        ),
        ({"bottleneck": "queue", "rate": 133e6}, "the queue, 0.95 of its ceiling"),
        ({"bottleneck": "queue", "rate": 155e6}, "the queue, at its measured ceiling"),
        ({"bottleneck": "pollers"}, "the pollers, 81 % busy"),
        ({"rate": 9.7e6}, "storage: link at 0.10 of its ceiling, pollers 81 % busy"),
        ({"bottleneck": None}, ""),
        ({"bottleneck": "weather"}, ""),
        ({"engine": "null"}, ""),
        ({"loader": "mmap", "cached": 0.99, "details": {"bottleneck": "storage"}}, ""),
    ],
)
def test_a_bottleneck_is_named_with_the_figure_that_shows_it(
    changes: dict[str, Any], words: str
) -> None:
    assert plain(bottleneck_words([record(**changes)])) == words


def test_mapped_files_are_not_limited_by_storage_that_the_page_cache_replaced() -> None:
    made = record(loader="mmap", cached=0.99, details={"bottleneck": "storage"})
    assert plain(no_bottleneck([made])) == "the page cache served 99 % of the pages"


def test_runs_that_disagree_name_no_bottleneck() -> None:
    assert bottleneck_words([record(), record(bottleneck="link")]) == ""


def test_cores_are_cpu_seconds_over_seconds() -> None:
    assert plain(cores_words([record(cores=2.0), record(cores=4.0)])) == "3.0 CPU cores"
    assert plain(cores_words([record(cores=1.0)])) == "1.0 CPU core"


def test_each_arm_says_who_asked_and_with_how_many_cores() -> None:
    arms = {"A": [record()], "B": [record(loader="direct", bottleneck=None)]}
    first, second = plain(arms_asked(arms)).split(" · ")
    assert first.startswith("A: asked by the GPU")
    assert first.endswith("2.1 CPU cores")
    assert second == "B: asked by CPU threads, delivered in host memory, 6.0 CPU cores"


def test_equal_counts_are_printed_once_and_others_apart() -> None:
    whole, short = random_reads(record(rate=1e6)), random_reads(record(rate=1e6, lost=2))
    assert whole is not None
    assert short is not None
    assert plain(counts_words([whole])) == ("asked, taken, answered and delivered: 10 000 000 each")
    assert plain(counts_words([short])).startswith("asked 10 000 002, taken 10 000 002, ")


def test_what_was_delivered_is_counted_by_who_asked_and_null_delivers_nothing() -> None:
    wrong = random_reads(record(rate=1e6, details={"delivered": 9_999_999}))
    null = random_reads(record(rate=1e6, engine="null", details={"delivered": 0}))
    assert wrong is not None
    assert null is not None
    assert plain(counts_words([wrong])).endswith("answered 10 000 000, delivered 9 999 999")
    assert plain(counts_words([null])) == "asked, taken and answered: 10 000 000 each"


def test_a_loader_without_a_queue_has_no_counts_and_names_no_queue_pairs() -> None:
    made = record(loader="direct", bottleneck=None)
    found = random_reads(made)
    assert found is not None
    assert counts_words([found]) == ""
    assert "queue pair" not in load_words([made], [made])


def test_the_binary_rate_of_the_paper_follows_the_decimal_one() -> None:
    assert plain(both_rates(96.01e6 * 512)) == "49.2 GB/s (45.8 GiB/s)"


@pytest.mark.parametrize(
    ("speed", "name"), [(64.0, "Gen6"), (32.0, "Gen5"), (2.5, "Gen1"), (12.0, ""), (None, "")]
)
def test_a_link_has_a_generation_by_its_speed(speed: float | None, name: str) -> None:
    assert generation(speed) == name


def test_headroom_is_how_far_both_ceilings_are_above_the_rate() -> None:
    assert headroom(record(rate=48.5e6)) == pytest.approx([2.0, 140 / 48.5])


def test_each_gpu_and_target_is_read_from_the_details() -> None:
    found = random_reads(record(targets=6, gpus=3))
    assert found is not None
    assert [gpu.address for gpu in found.gpus] == list(GPUS)
    assert [file.path for file in found.files] == [f"/mnt/{index}" for index in range(6)]
    assert found.files[4].gpu == GPUS[1]
    assert found.files[4].p99_s == pytest.approx(214e-6)


@pytest.mark.parametrize("value", [None, -1, "many", True, float("nan"), [[]], {"a": 1}, 10**400])
def test_details_of_another_kind_are_unknown_and_stop_nothing(value: Any) -> None:
    names = (
        "read_bytes", "queue_pairs", "operations", "seconds", "cpu_s", "pull_per_s", "pollers",
        "files", "gpus", "failures", "requests", "one_drive_targets",
    )  # fmt: skip
    made = record(details=dict.fromkeys(names, value))
    found = random_reads(made)
    assert found is not None
    assert found.reads_per_s is None
    assert found.cores is None
    assert found.files == ()
    assert found.amplification == 1
    assert headroom(made) == []
    asked_words(made)
    bottleneck_words([made])


def test_mapped_files_have_a_read_in_flight_for_each_thread() -> None:
    made = record(loader="mmap", bottleneck=None)
    details = {**made.workload.details, "outstanding_asked": 4}
    workload = made.workload.model_copy(update={"details": details})
    mapped = [made.model_copy(update={"workload": workload})]
    assert plain(load_words(mapped, mapped)) == "512 B random reads, 4 in flight"
