"""The statistics behind the table, against cases counted by hand."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import Any

import pytest

from benchmarks.measure import (
    Interval,
    NotMeasuredError,
    Result,
    Verdict,
    interval,
    rounds,
    turned,
)

SEVEN = (0.971, 0.98, 0.99, 1.0, 1.01, 1.02, 1.029)


def result(**changes: Any) -> Result:
    facts: dict[str, Any] = {"name": "read ÷ fio", "unit": "GB/s", "goal": 0.98, "values": SEVEN}
    return Result(**(facts | changes))


def test_rounds_interleave_and_the_order_turns() -> None:
    calls: list[str] = []

    def way(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    taken = rounds({"a": lambda: way("a"), "b": lambda: way("b")}, 3)
    assert calls == ["a", "b", "b", "a", "b", "a"]
    assert taken.order == [["a", "b"], ["b", "a"], ["b", "a"]]
    assert taken.figures == {"a": [1.0, 4.0, 6.0], "b": [2.0, 3.0, 5.0]}


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_every_order_occurs_equally_often(names: str) -> None:
    count = 2 * len(names)
    orders = Counter("".join(turned(list(names), number)) for number in range(count))
    every = {"".join(order) for order in permutations(names)}
    assert orders == {order: count // len(every) for order in every}


def test_a_warm_pass_of_each_way_is_thrown_away() -> None:
    calls: list[float] = []

    def way() -> float:
        calls.append(float(len(calls)))
        return calls[-1]

    assert rounds({"a": way, "b": way}, 1, warm=True).figures == {"a": [2.0], "b": [3.0]}


def test_ratios_compare_within_a_round_only() -> None:
    figures = iter([2.0, 4.0, 3.0, 6.0])
    taken = rounds({"ours": lambda: next(figures), "fio": lambda: next(figures)}, 2)
    assert taken.ratios(float, "ours", "fio") == [2.0 / 4.0, 6.0 / 3.0]


def test_a_yardstick_of_nothing_makes_no_ratio() -> None:
    taken = rounds({"ours": lambda: 1.0, "fio": lambda: 0.0}, 1)
    with pytest.raises(NotMeasuredError, match="a figure of fio is 0"):
        taken.ratios(float, "ours", "fio")


def test_all_figures_are_kept_with_their_order() -> None:
    kept = rounds({"a": lambda: 1.5}, 2).as_json(str)
    assert kept == {"figures": {"a": ["1.5", "1.5"]}, "order": [["a"], ["a"]]}


@pytest.mark.parametrize(
    ("count", "low", "high", "coverage"),
    [
        (1, 1, 1, 0.0),
        (5, 1, 5, 1 - 2 / 32),  # under 95 %: it says so
        (6, 1, 6, 1 - 2 / 64),
        (7, 1, 7, 1 - 2 / 128),
        (8, 1, 8, 1 - 2 / 256),
        (9, 2, 8, 1 - 2 * (1 + 9) / 512),
        (12, 3, 10, 1 - 2 * (1 + 12 + 66) / 4096),
    ],
)
def test_the_interval_leaves_out_what_the_binomial_allows(
    count: int, low: float, high: float, coverage: float
) -> None:
    found = interval([float(value) for value in range(count, 0, -1)])
    assert (found.low, found.high) == (low, high)
    assert found.coverage == pytest.approx(coverage)


def test_half_the_interval_is_its_half_width() -> None:
    assert Interval(0.9, 1.2, 0.95).half_width == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("goal", "sense", "verdict"),
    [
        (1.0, "at_least", Verdict.MET),  # the lower bound, 0.971, is near enough
        (0.99, "at_least", Verdict.MET),
        (1.001, "at_least", Verdict.MISSED),
        (1.0, "at_most", Verdict.MET),  # and so is the upper one, 1.029
        (0.999, "at_most", Verdict.MISSED),
    ],
)
def test_the_median_is_held_against_the_goal(goal: float, sense: str, verdict: Verdict) -> None:
    assert result(goal=goal, sense=sense).verdict is verdict


@pytest.mark.parametrize(
    ("values", "sense"),
    [((0.96, *SEVEN[1:]), "at_least"), ((*SEVEN[:-1], 1.04), "at_most")],
)
def test_a_median_whose_interval_reaches_too_far_is_no_success(
    values: tuple[float, ...], sense: str
) -> None:
    found = result(values=values, goal=1.0, sense=sense)
    assert found.median == 1.0
    assert found.verdict is Verdict.WIDE


def test_what_is_no_ratio_may_reach_past_its_goal_by_a_share() -> None:
    values = [258.0] * 3 + [250.0] * 4
    assert result(values=values, goal=256, sense="at_most", value_unit="MB").verdict is Verdict.MET
    values = [265.0] * 3 + [250.0] * 4
    assert result(values=values, goal=256, sense="at_most", value_unit="MB").verdict is Verdict.WIDE


def test_noise_over_two_per_cent_bars_met_and_missed() -> None:
    quiet = (0.982, *[1.0] * 5, 1.02)
    loud = (0.97, *[1.0] * 5, 1.02)
    assert result(noise=quiet).noise_floor == pytest.approx(0.019)
    assert result(noise=quiet).verdict is Verdict.MET
    assert result(noise=loud).noise_floor == pytest.approx(0.025)
    assert result(noise=loud).verdict is Verdict.NOISY
    assert result(noise=loud, goal=2.0).verdict is Verdict.NOISY
    assert result(noise=loud).reaches is Verdict.MET


def test_fewer_than_seven_pairs_judge_nothing() -> None:
    assert result(values=[1.0] * 6).verdict is Verdict.FEW
    assert result(values=[1.0] * 7).verdict is Verdict.MET


def test_what_has_no_goal_informs() -> None:
    assert result(goal=None).verdict is Verdict.NONE
    assert result(goal=None).reaches is Verdict.NONE


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    missing = result(values=(), missing="fio is not installed")
    assert missing.verdict is Verdict.MISSING
    assert "median" not in missing.as_json()


def test_json_keeps_the_figures_and_what_was_said_of_them() -> None:
    kept = result(noise=[1.0] * 7, order=[["a", "b"]], raw={"pairs": 7}).as_json()
    assert kept["values"] == SEVEN
    assert kept["interval"] == {"low": 0.971, "high": 1.029, "coverage": 1 - 2 / 128}
    assert (kept["median"], kept["noise_floor"], kept["verdict"]) == (1.0, 0.0, "met")
    assert (kept["order"], kept["raw"]) == ([["a", "b"]], {"pairs": 7})
