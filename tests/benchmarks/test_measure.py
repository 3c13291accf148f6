"""The statistics behind the table, against cases counted by hand, and the table itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from benchmarks.measure import (
    Comparison,
    Figures,
    Result,
    Row,
    Verdict,
    Way,
    absent,
    fastest,
    interval,
    rounds,
    turned,
)
from benchmarks.run import table

SEVEN = (0.971, 0.98, 0.99, 1.0, 1.01, 1.02, 1.029)
RATE = Row(name="read ÷ fio", figure="rate", unit="GB/s", scale=1e-9, goal=0.98)


def result(values: tuple[float, ...] = SEVEN, **changes: Any) -> Result:
    """Return a ratio; ``goal`` and ``sense`` are the row's."""
    row = {name: changes.pop(name) for name in ("goal", "sense") if name in changes}
    return Result(row=replace(RATE, **row), **{"is_ratio": True, "values": values, **changes})


def rates(*values: float) -> Way:
    """Return a way with one rate after another."""
    found: Iterator[float] = iter(values)
    return lambda: {"rate": next(found)}


def test_rounds_interleave_and_the_order_turns() -> None:
    calls: list[str] = []

    def way(name: str) -> Figures:
        calls.append(name)
        return {"call": len(calls)}

    runs = rounds({"a": lambda: way("a"), "b": lambda: way("b")}, 3)
    assert calls == ["a", "b", "b", "a", "b", "a"]
    assert [run["call"] for run in runs["a"]] == [1, 4, 6]


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_every_order_occurs_equally_often(names: str) -> None:
    count = 2 * len(names)
    orders = Counter("".join(turned(list(names), number)) for number in range(count))
    every = {"".join(order) for order in permutations(names)}
    assert orders == {order: count // len(every) for order in every}


def test_ratios_compare_within_a_round_only() -> None:
    ways = {"ours": rates(2e9, 3e9), "fio": rates(4e9, 6e9)}
    (found,) = Comparison(rows=(RATE,), ways=ways, noise=False).measure(2)
    assert found.values == [2.0 / 4.0, 3.0 / 6.0]
    assert found.measured is not None
    assert found.measured["ours"] == pytest.approx([2.0, 3.0])


def test_the_yardstick_is_measured_against_itself() -> None:
    ways = {"ours": rates(1.0), "fio": rates(2.0, 3.0)}
    (found,) = Comparison(rows=(RATE,), ways=ways).measure(1)
    assert found.noise == [1.5]
    assert set(found.runs or ()) == {"ours", "fio", "fio again"}


def test_a_warm_pass_of_each_way_is_thrown_away() -> None:
    ways = {"ours": rates(9.0, 4.0), "fio": rates(9.0, 2.0)}
    (found,) = Comparison(rows=(RATE,), ways=ways, warm=True, noise=False).measure(1)
    assert found.values == [2.0]


def test_one_way_shows_its_figure_and_one_figure_may_be_divided_by_another() -> None:
    rows = (RATE, Row(name="of the pull", figure="rate", per="pull", unit="x"))
    rate, share = Comparison(rows=rows, ways={"a": lambda: {"rate": 2e9, "pull": 4e9}}).measure(1)
    assert (rate.values, share.values) == ([2.0], [0.5])
    assert not rate.is_ratio


@pytest.mark.parametrize(
    ("ways", "reason"),
    [
        ({"ours": rates(1.0), "fio": rates(0.0)}, "rate of fio is 0"),
        ({"ours": rates(1.0), "fio": lambda: {}}, "the run did not measure rate"),
        (absent("", "fio is not installed").ways, "fio is not installed"),
    ],
)
def test_a_figure_that_is_missing_is_reported(ways: dict[str, Way], reason: str) -> None:
    (found,) = Comparison(rows=(RATE,), ways=ways, noise=False).measure(1)
    assert (found.verdict, found.missing) == (Verdict.MISSING, reason)
    assert "median" not in found.as_json()


def test_the_fastest_setting_is_chosen_once_by_its_median() -> None:
    notes: list[str] = []
    candidates = {"QD 8": rates(1, 9, 1, 1, 9, 1), "QD 32": rates(2, 2, 2, 2, 2, 7, 8)}
    way = fastest(candidates, "rate", notes)
    assert (way(), way()) == ({"rate": 7}, {"rate": 8})
    assert notes == ["QD 32"]


@pytest.mark.parametrize(
    ("count", "low", "high", "coverage"),
    [
        (1, 1, 1, 0.0),
        (5, 1, 5, 1 - 2 / 32),  # under 95 %: it says so
        (6, 1, 6, 1 - 2 / 64),
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


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"goal": 1.0}, Verdict.MET),  # the lower bound, 0.971, is near enough
        ({"goal": 1.001}, Verdict.MISSED),
        ({"goal": 1.0, "sense": "at_most"}, Verdict.MET),  # and so is the upper one, 1.029
        ({"goal": 0.999, "sense": "at_most"}, Verdict.MISSED),
        ({"goal": 1.0, "values": (0.96, *SEVEN[1:])}, Verdict.WIDE),
        ({"goal": 1.0, "sense": "at_most", "values": (*SEVEN[:-1], 1.04)}, Verdict.WIDE),
        ({"goal": None}, Verdict.NONE),
        ({"noise": (0.982, *[1.0] * 5, 1.02)}, Verdict.MET),
        ({"noise": (0.97, *[1.0] * 5, 1.02)}, Verdict.NOISY),
        ({"noise": (0.97, *[1.0] * 5, 1.02), "goal": 2.0}, Verdict.NOISY),
    ],
)
def test_median_and_interval_are_held_against_the_goal(
    changes: dict[str, Any], verdict: Verdict
) -> None:
    assert result(**changes).verdict is verdict


@pytest.mark.parametrize(("high", "verdict"), [(258.0, Verdict.MET), (265.0, Verdict.WIDE)])
def test_a_quantity_may_reach_past_its_goal_by_a_share(high: float, verdict: Verdict) -> None:
    values = (*[high] * 3, *[250.0] * 4)
    assert result(values, goal=256, sense="at_most", is_ratio=False).verdict is verdict


def line(found: Result) -> str:
    return table([found]).splitlines()[2]


def test_a_row_has_median_interval_floor_goal_verdict_and_figures() -> None:
    values = (*[1.0] * 6, 1.1)
    measured = {"wattload": (1.0, 2.0, 9.0), "fio": (2.0,)}
    assert line(result(values, measured=measured, noise=[1.0] * 6 + [1.02])) == (
        "| read ÷ fio | 1 x | 1 to 1.1 | ± 1.0% | ≥ 0.98 | met | wattload 2 GB/s, fio 2 GB/s |"
    )
    assert line(result(values, goal=None)) == "| read ÷ fio | 1 x | 1 to 1.1 |  | none |  |  |"
    missing = result((), missing="fio is not installed", sense="at_most")
    assert "| ≤ 0.98 | not measured | fio is not installed |" in line(missing)


@pytest.mark.parametrize(
    ("goal", "sense", "side"),
    [
        (1.0, "at_least", "good side"),
        (1.05, "at_least", "both sides of the goal"),
        (1.2, "at_least", "bad side"),
        (1.1, "at_most", "good side"),
        (0.9, "at_most", "bad side"),
    ],
)
def test_noise_replaces_a_verdict(goal: float, sense: str, side: str) -> None:
    found = line(result((*[1.0] * 6, 1.1), goal=goal, sense=sense, noise=[0.9] + [1.0] * 6))
    assert f"not resolvable here (noise over 2%), {side} |" in found


def test_a_note_of_several_results_stands_once() -> None:
    assert table([result(notes=["`fio`"]), result(notes=["`fio`"])]).count("- `fio`") == 1


def test_what_takes_long_is_measured_in_fewer_rounds() -> None:
    once = Comparison(rows=(RATE,), ways={"ours": rates(1e9)}, rounds=1)
    (found,) = once.measure(7)
    assert found.values == [1.0]
    assert "| 1 GB/s | one round |" in table([found])
