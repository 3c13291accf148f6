"""Wholes and their parts: what is drawn stacked, and what is said where an arm does not tell."""

from __future__ import annotations

import pytest

from tests.records import Scenario, make_run
from wattload.core.record.metric import Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.charts.parts import parts_figures
from wattload.reports.quantity import MISSING

WHOLE = "a step"


def _part(name: str, value: float | None) -> Metric:
    return Metric.of(name, value, Unit.SECONDS, "lower", "A part.", part_of=WHOLE, reason="untold")


def _record(**parts: float | None) -> RunRecord:
    record, _ = make_run(Scenario(run_id="run-1"))
    metrics = [_part(name, value) for name, value in parts.items()]
    return record.model_copy(update={"metrics": (*record.metrics, *metrics)})


def _cells(arms: dict[str, list[RunRecord]]) -> list[list[str]]:
    (figure,) = parts_figures("c", "unet3d", arms)
    return [[cell.text for cell in row] for row in figure.table.rows]


def test_parts_are_stacked_in_their_order_with_their_sum_at_the_end() -> None:
    (figure,) = parts_figures("c", "unet3d", {"A": [_record(load_s=2.0, compute_s=1.5)]})
    assert [text for _, text in figure.legend] == ["load time", "compute time"]
    assert "3.50" in figure.svg
    assert _cells({"A": [_record(load_s=2.0, compute_s=1.5)]}) == [
        ["load time", "2.000"],
        ["compute time", "1.500"],
    ]


def test_an_arm_has_the_median_of_its_runs() -> None:
    runs = [_record(load_s=value) for value in (1.0, 9.0, 2.0)]
    assert _cells({"A": runs}) == [["load time", "2.000"]]


def test_what_an_arm_does_not_tell_is_missing_and_not_zero() -> None:
    cells = _cells({"A": [_record(load_s=1.0, barrier_s=0.5)], "B": [_record(load_s=None)]})
    assert cells == [["load time", "1.000", MISSING], ["barrier time", "0.5000", MISSING]]


@pytest.mark.parametrize("parts", [{}, {"load_s": None}, {"load_s": 0.0}])
def test_of_nothing_there_is_no_chart(parts: dict[str, float | None]) -> None:
    assert parts_figures("c", "unet3d", {"A": [_record(**parts)]}) == ()


def test_each_arm_has_a_bar_of_its_own() -> None:
    arms = {"direct": [_record(load_s=2.0, barrier_s=1.0)], "torch": [_record(load_s=8.0)]}
    (figure,) = parts_figures("c", "unet3d", arms)
    assert "direct" in figure.svg
    assert "torch" in figure.svg
