"""Checks of vector search, each with its fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.reports.vectors import QUERIES, search_record
from wattload.core.record.results import Check
from wattload.results.reading import checks_of, run_of
from wattload.results.vector_search.checks import OBSERVED

OPEN: dict[str, Any] = {"query_rate": 2000.0}
BUFFERED: dict[str, Any] = {"reads_directly": False}
READS = 5_281_408
"""Reads of the made-up run."""
CLEAN = (
    "reads_search", "delivered_nodes", "recall", "littles_law", "counted_bytes_search",
    "cpu_time_search",
)  # fmt: skip


def check_of(name: str, **changes: Any) -> Check:
    return next(each for each in checks_of(search_record(**changes)) if each.name == name)


@pytest.mark.parametrize(
    ("changes", "more", "lacking"),
    [
        ({}, (), ()),
        (OPEN, ("schedule",), ("littles_law",)),
        (BUFFERED, ("reads_first_pass", "counted_bytes_first_pass"), ()),
        ({"is_walk": True}, (), ("recall",)),
        ({"cache_nodes": 1000}, (), ()),
    ],
)
def test_a_clean_run_passes_every_check(
    changes: Mapping[str, Any], more: tuple[str, ...], lacking: tuple[str, ...]
) -> None:
    found = {each.name: each.verdict for each in checks_of(search_record(**changes))}
    assert found == dict.fromkeys({*CLEAN, *more} - {*lacking}, "pass")


def answers(queries: int) -> dict[str, Any]:
    return {"answers": {"hits": [*[0] * 10, queries], "short": 0, "digest": ""}}


FAULTS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "a node that was read twice": (
        "reads_search", {"search": {"reads": READS + 1}}, "do not add up"
    ),
    "a node that was expanded and not read": (
        "reads_search", {"search": {"expanded": READS + 1}}, "do not add up"
    ),
    "reads of half a node": (
        "reads_search", {"search": {"read_bytes": READS * 2048}}, "do not add up"
    ),
    "a cached node that was read": (
        "reads_search", {"cache_nodes": 100, "search": {"cached": 0}}, "0 of them in memory"
    ),
    "more reads in a round than the beam": (
        "reads_search", {"search": {"rounds": READS // 4 - 1}}, "at most 4"
    ),
    "another node than was written": (
        "delivered_nodes", {"search": {"wrong": 1}}, "1 were wrong"
    ),
    "nodes that were not compared": ("delivered_nodes", {"search": {"compared": 0}}, "0 nodes"),
    "a query that was lost": ("recall", {"facts": answers(QUERIES - 1)}, "9,999 of 10,000"),
    "an answer that counts twice": ("recall", {"facts": answers(QUERIES + 1)}, "10,001 of"),
    "bytes that were not counted": ("counted_bytes_search", {"moved": 0.9}, "counted"),
    "bytes that moved and no read had": ("counted_bytes_search", {"moved": 1.1}, "counted"),
    "CPU time in another unit": ("cpu_time_search", {"search": {"cpu_s": 1e4}}, "more"),
    "a schedule that slides": (
        "schedule", {**OPEN, "facts": {"schedule_s": 3_601_950.0 * 1.02}}, "slid"
    ),
    "arrivals that were skipped": (
        "schedule", {**OPEN, "facts": {"schedule_s": 3_601_950.0 * 0.9}}, "skipped"
    ),
    "a first pass over other reads": (
        "counted_bytes_first_pass", {**BUFFERED, "moved": 1.05}, "counted"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_check(fault: str) -> None:
    name, changes, sentence = FAULTS[fault]
    check = check_of(name, **changes)
    assert check.verdict == "fail"
    assert sentence in check.sentence


def test_what_is_delivered_and_scheduled_has_to_be_checked() -> None:
    mandatory = {each.name for each in checks_of(search_record(**OPEN)) if each.mandatory}
    assert mandatory == {"delivered_nodes", "schedule"}


def test_a_recall_below_a_half_warns_and_says_what_to_set() -> None:
    check = check_of("recall", recall=0.49)
    assert check.verdict == "warn"
    assert "workload.search_list" in check.sentence
    assert check_of("recall", recall=0.51).verdict == "pass"


@pytest.mark.parametrize(("share", "verdict"), [(0.9, "warn"), (0.96, "pass"), (1.06, "warn")])
def test_queries_fill_the_time_of_a_closed_loop(share: float, verdict: str) -> None:
    facts = search_record().workload.facts["passes"]["search"]["latency"]
    latency = {**facts, "sum_s": share * 1920.0}
    assert check_of("littles_law", search={"latency": latency, "cut": 0}).verdict == verdict


def test_queries_that_were_cut_may_fill_the_rest() -> None:
    latency = search_record().workload.facts["passes"]["search"]["latency"]
    few = {**latency, "sum_s": 1700.0, "max_s": 3.5}
    assert check_of("littles_law", search={"latency": few, "cut": 32}).verdict == "warn"
    long = {**latency, "sum_s": 1700.0, "max_s": 4.0}
    assert check_of("littles_law", search={"latency": long, "cut": 32}).verdict == "pass"


def test_only_own_graphs_have_a_medoid_that_is_known() -> None:
    def due(**changes: Any) -> set[str]:
        run = run_of(search_record(**changes))
        assert run is not None
        return {each.name for each in OBSERVED if each.applies(run)}

    index = search_record().workload.facts["index"]
    assert due() == {"cold_cache", "stored_nodes", "medoid"}
    assert due(is_walk=True) == {"cold_cache"}
    assert due(facts={"index": {**index, "build_list": None}}) == {"cold_cache", "stored_nodes"}
