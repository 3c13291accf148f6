"""A verdict does not survive manipulation of the runs behind it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.reports.sessions import session
from wattload.core.record.results import Check
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.subject import make_subject
from wattload.results.reading import judged

NEAR = [1.0, 1.004, 0.997, 1.002, 0.999, 1.001]
FAILED = Check(name="cold", verdict="fail", sentence="The cache was warm.", mandatory=True)


@pytest.fixture
def runs() -> list[Run]:
    """Six pairs in which A is 10 % ahead."""
    return session({"A": [1.1e9 * x for x in NEAR], "B": [1e9 * x for x in reversed(NEAR)]})


RATE = "throughput_bytes_per_s"
UNCLOSED = "au_nominal"
"""A headline figure that no other figure of a record can be held against."""


def throughput(runs: list[Run], key: str = RATE) -> Row:
    subject = make_subject(runs)
    (group,) = subject.groups
    return next(row for row in compare(subject, group) if row.quantity.key == key)


def changed(runs: list[Run], index: int, **update: Any) -> list[Run]:
    own = runs[index]
    other = replace(own, record=judged(own.record.model_copy(update=update)))
    return [*runs[:index], other, *runs[index + 1 :]]


def with_value(
    runs: list[Run], index: int, change: Callable[[float], float | None], key: str = UNCLOSED
) -> list[Run]:
    metrics = []
    for metric in runs[index].record.metrics:
        if metric.name == key and metric.value is not None:
            value = change(metric.value)
            missing = {"value": "it was taken out"} if value is None else {}
            metrics.append(metric.model_copy(update={"value": value, "missing": missing}))
        else:
            metrics.append(metric)
    return changed(runs, index, metrics=tuple(metrics))


def test_untouched_it_is_called(runs: list[Run]) -> None:
    assert throughput(runs).words == "A is better"


def test_labels_that_are_exchanged_turn_the_call(runs: list[Run]) -> None:
    turned = [
        replace(
            run, record=run.record.model_copy(update={"label": "BA"["AB".index(run.record.label)]})
        )
        for run in runs
    ]
    row, other = throughput(runs), throughput(turned)
    assert (other.call, other.words) == ("b", "B is better")
    assert row.effect is not None
    assert other.effect is not None
    assert other.effect.ratio == pytest.approx(1 / row.effect.ratio)


def test_a_failed_check_takes_a_pair_away(runs: list[Run]) -> None:
    (first, *_) = runs
    found = throughput(changed(runs, 0, checks=(*first.record.checks, FAILED)))
    assert found.effect is not None
    assert (found.effect.count_a, found.effect.pairs) == (5, 0)
    twice = changed(runs, 0, checks=(*first.record.checks, FAILED))
    twice = changed(twice, 1, checks=(*first.record.checks, FAILED))
    assert throughput(twice).words == "inconclusive"


def test_a_figure_that_is_missing_is_no_zero(runs: list[Run]) -> None:
    row = throughput(with_value(runs, 0, lambda _: None), UNCLOSED)
    assert row.effect is not None
    assert row.effect.count_a == 5
    assert row.spreads["A"] is not None
    assert row.spreads["A"].minimum > 0


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_figure_that_is_not_positive_forms_no_ratio(runs: list[Run], value: float) -> None:
    row = throughput(with_value(runs, 0, lambda _: value, RATE))
    assert row.effect is None
    assert row.reason == "no ratio: not every figure is positive"


def test_a_share_of_nothing_has_a_difference(runs: list[Run]) -> None:
    idle = runs
    for index in range(6):
        idle = with_value(idle, index, lambda _: 0.0)
    row = throughput(idle, UNCLOSED)
    assert row.leader == "B"
    assert row.centres["A"] == pytest.approx(0.0, abs=1e-9)
    assert row.effect is not None
    assert math.log(row.effect.ratio) == pytest.approx(row.centres["B"])


def test_one_figure_made_ten_times_as_large_calls_nothing(runs: list[Run]) -> None:
    row = throughput(with_value(runs, 6, lambda value: value * 10), UNCLOSED)
    assert row.call not in ("a", "b")
    assert row.effect is not None
    assert not row.effect.differs
    assert row.spreads["B"] is not None
    assert row.spreads["B"].gate == "unstable"


def test_a_block_that_is_moved_breaks_its_pair(runs: list[Run]) -> None:
    place = runs[0].record.comparison.model_copy(update={"block": 77})
    row = throughput(changed(runs, 0, comparison=place))
    assert row.effect is not None
    assert row.effect.pairs == 0


def test_other_data_under_one_run_bars_all(runs: list[Run]) -> None:
    workload = runs[0].record.workload
    assert workload.data is not None
    other = workload.model_copy(update={"data": workload.data.model_copy(update={"key": "x"})})
    row = throughput(changed(runs, 0, workload=other))
    assert row.reason == "different work: data set differs"
