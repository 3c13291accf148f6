"""The table says what was measured, how surely, and never a verdict that noise forbids."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.measure import Result
from benchmarks.table import table


def row(**changes: Any) -> str:
    facts: dict[str, Any] = {
        "name": "read ÷ fio",
        "unit": "GB/s",
        "goal": 0.98,
        "values": [1.0] * 6 + [1.1],
    }
    lines = table([Result(**(facts | changes))]).splitlines()
    return lines[2]


def test_a_row_has_median_interval_floor_goal_verdict_and_figures() -> None:
    figures = {"wattload": (1.0, 2.0, 9.0), "fio": (2.0,)}
    assert row(figures=figures, noise=[1.0] * 6 + [1.02]) == (
        "| read ÷ fio | 1 x | 1 to 1.1 | ± 1.0% | ≥ 0.98 x | met | wattload 2 GB/s, fio 2 GB/s |"
    )


def test_without_a_yardstick_there_is_no_floor_and_without_a_goal_no_verdict() -> None:
    assert row(goal=None) == "| read ÷ fio | 1 x | 1 to 1.1 |  | none |  |  |"


def test_what_is_missing_says_what_to_install() -> None:
    found = row(values=(), missing="fio is not installed (apt-get install fio)", sense="at_most")
    assert "| ≤ 0.98 x | not measured | fio is not installed (apt-get install fio) |" in found


@pytest.mark.parametrize(
    ("goal", "sense", "side"),
    [
        (1.0, "at_least", "all on the good side"),
        (1.05, "at_least", "astride"),
        (1.2, "at_least", "all on the bad side"),
        (1.1, "at_most", "all on the good side"),
        (0.9, "at_most", "all on the bad side"),
    ],
)
def test_noise_is_said_in_place_of_a_verdict(goal: float, sense: str, side: str) -> None:
    found = row(goal=goal, sense=sense, noise=[0.9] + [1.0] * 6)
    assert f"not resolvable here (noise over 2%); the interval lies {side} of the goal" in found
    assert "met" not in found
    assert "missed" not in found


def test_a_note_of_several_results_stands_once() -> None:
    results = [Result(name=name, unit="GB/s", values=[1.0], notes=["`fio`"]) for name in "ab"]
    assert table(results).count("- `fio`") == 1
