"""Figures of vector search: recall and its interval, what a query costs, values at a recall."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.reports.vectors import QUERIES, K, hits, search_record
from wattload.core.record.run import RunRecord
from wattload.results.reading import metrics_of, run_of
from wattload.results.vector_search.facts import FIRST_PASS, SEARCH
from wattload.results.vector_search.figures import (
    at_recall,
    is_overloaded,
    latency_s,
    rate,
    recall,
    recall_interval,
)


def values(record: RunRecord) -> Mapping[str, float | None]:
    return {each.name: each.value for each in metrics_of(record)}


def run(**changes: Any) -> Any:
    found = run_of(search_record(**changes))
    assert found is not None
    return found


def test_the_rate_is_that_of_the_window_and_alone_leads() -> None:
    record = search_record(queries_per_s=1234)
    assert values(record)["queries_per_s"] == 1234
    assert [each.name for each in metrics_of(record) if each.headline] == ["queries_per_s"]


def test_a_pass_has_its_own_rate() -> None:
    found = run(reads_directly=False, queries_per_s=3000)
    assert rate(found, FIRST_PASS) == QUERIES / 20
    assert rate(found, SEARCH) == 3000


def test_recall_is_the_mean_share_of_true_neighbours() -> None:
    answers = {"hits": [1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 7], "short": 0, "digest": ""}
    assert recall(run(facts={"answers": answers})) == pytest.approx((2 * 5 + 7 * 10) / 100)


def test_the_interval_is_that_of_resampled_queries() -> None:
    """Half of 10,000 queries with all and half with none: the mean varies by 0.005."""
    half = [QUERIES // 2, *[0] * (K - 1), QUERIES // 2]
    found = run(facts={"answers": {"hits": half, "short": 0, "digest": ""}})
    low, high = recall_interval(found) or (0.0, 0.0)
    assert low == pytest.approx(0.5 - 1.96 * 0.005, abs=6e-4)
    assert high == pytest.approx(0.5 + 1.96 * 0.005, abs=6e-4)
    assert recall_interval(found) == (low, high)


def test_fewer_queries_have_a_wider_interval() -> None:
    def width(scale: int) -> float:
        few = [count // scale for count in hits(0.9)]
        answers = {"hits": few, "short": 0, "digest": ""}
        low, high = recall_interval(run(facts={"answers": answers})) or (0.0, 0.0)
        return high - low

    assert width(100) == pytest.approx(10 * width(1), rel=0.15)


def test_a_walk_has_no_recall() -> None:
    found = run(is_walk=True)
    assert recall(found) is None
    assert recall_interval(found) is None
    reasons = {each.name: each.missing.get("value") for each in metrics_of(found.record)}
    assert reasons["recall"] == "replayed reads answer no query"


def test_what_a_query_costs_is_per_query_that_was_answered() -> None:
    found = {"queries": 100, "cut": 7, "rounds": 1300, "expanded": 5000, "reads": 4800,
             "read_bytes": 4800 * 4096, "cpu_s": 0.5}  # fmt: skip
    got = values(search_record(search=found))
    assert got["reads_per_query"] == 48
    assert got["rounds_per_query"] == 13
    assert got["read_bytes_per_query"] == 48 * 4096
    assert got["cpu_s_per_query"] == 0.005


def test_memory_is_that_of_all_parts_and_the_ceiling_of_the_same_reads() -> None:
    got = values(search_record(facts={}, drive_ceiling=200_000.0, search={"reads": 6_000_000}))
    assert got["held_memory_bytes"] == 6_400_000 + 131_072 + 1_600_000 + 3_000_000
    assert got["ceiling_fraction"] == 0.5
    for changes in ({"drive_ceiling": None}, {"reads_directly": False}):
        assert values(search_record(**changes))["ceiling_fraction"] is None


def test_an_open_loop_that_fell_behind_has_no_latency() -> None:
    """2000 queries a second were answered; chance leaves 60 s of 2005 within four deviations."""
    kept, behind = run(query_rate=2005.0), run(query_rate=2050.0)
    assert not is_overloaded(kept)
    assert latency_s(kept, "p99_s") is not None
    assert is_overloaded(behind)
    assert latency_s(behind, "p99_s") is None
    assert is_overloaded(run(query_rate=2050.0, search={"cut": 3000})), "they waited at the end"
    assert not is_overloaded(run())


CURVE = [("L=80", 0.96, 500.0), ("L=10", 0.60, 4000.0), ("L=40", 0.92, 1000.0)]


def test_a_value_between_two_points_is_interpolated_in_its_logarithm() -> None:
    value, how = at_recall(CURVE, 0.94)
    assert value == pytest.approx(math.sqrt(500 * 1000))
    assert how == "interpolated between L=40 and L=80"
    value, _ = at_recall(CURVE, 0.95)
    assert value == pytest.approx(1000**0.25 * 500**0.75)


def test_a_point_at_the_recall_is_its_own_value() -> None:
    assert at_recall(CURVE, 0.96) == (500.0, "measured at L=80")


def test_neighbours_too_far_apart_give_the_next_point_above() -> None:
    assert at_recall(CURVE, 0.90) == (1000.0, "next point above, L=40: recall 0.9200")
    near = [("L=30", 0.88, 2000.0), *CURVE]
    assert at_recall(near, 0.90)[1] == "interpolated between L=30 and L=40"
    edge = [("L=30", 0.8699, 2000.0), *CURVE]
    assert at_recall(edge, 0.90)[1].startswith("next point above")


def test_nothing_is_extrapolated_beyond_either_end() -> None:
    assert at_recall(CURVE, 0.97) == (None, "not reached: 0.9600 at L=80")
    assert at_recall(CURVE, 0.5) == (4000.0, "next point above, L=10: recall 0.6000")
    assert at_recall([], 0.9) == (None, "not reached")


def test_an_unknown_value_is_missing_where_it_is_needed() -> None:
    lost = [("L=80", 0.96, None), ("L=40", 0.92, 1000.0)]
    assert at_recall(lost, 0.95) == (None, "interpolated between L=40 and L=80")
    assert at_recall(lost, 0.96) == (None, "measured at L=80")
    assert at_recall(lost, 0.92) == (1000.0, "measured at L=40")


def test_of_points_with_equal_recall_the_first_counts() -> None:
    """Longer lists that find no more cost more, so the shortest that reaches it is used."""
    full = [("L=40", 0.97, 900.0), ("L=80", 1.0, 500.0), ("L=160", 1.0, 250.0)]
    assert at_recall(full, 1.0) == (500.0, "measured at L=80")
    assert at_recall(full, 0.99)[1] == "interpolated between L=40 and L=80"


def test_an_interpolated_value_lies_between_its_neighbours() -> None:
    goals = np.linspace(0.92, 0.96, 9)
    found = [at_recall(CURVE, float(goal))[0] or 0.0 for goal in goals]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(1000)
    assert found[-1] == pytest.approx(500)


def test_neighbours_exactly_as_far_apart_as_allowed_are_interpolated() -> None:
    """0.92 - 0.87 is a little over 0.05 in floating point."""
    value, how = at_recall([("L=30", 0.87, 1000.0), ("L=40", 0.92, 2000.0)], 0.895)
    assert value == pytest.approx(math.sqrt(2) * 1000)
    assert how == "interpolated between L=30 and L=40"


def test_a_rate_of_nothing_has_no_logarithm() -> None:
    none = [("L=80", 0.96, 0.0), ("L=40", 0.92, 1000.0)]
    assert at_recall(none, 0.95) == (None, "interpolated between L=40 and L=80")
