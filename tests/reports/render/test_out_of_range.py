"""Impossible values are not drawn and break nothing: they are missing, with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.records import Scenario, make_run
from tests.reports.parsing import Page
from tests.reports.sessions import session
from wattload.core.record.results import Metric
from wattload.core.units import Unit
from wattload.reports.charts.arms import PointRows, arms_figure, parts_figures
from wattload.reports.charts.bars import Bar, Dot, checked_range
from wattload.reports.render.page import page_of
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.subject import Subject, make_subject
from wattload.results.quantity import MISSING

BEYOND = [1.7e308, -1e308, 1e200, 1e-200, 5e-324]
RATES = [1e9, 1.01e9, 0.99e9, 1e9, 1.02e9]


def with_metrics(run: Run, value: float) -> Run:
    changes = {"value": value, "missing": {}}
    metrics = tuple(metric.model_copy(update=changes) for metric in run.record.metrics)
    return replace(run, record=run.record.model_copy(update={"metrics": metrics}))


def with_energy(run: Run, value: float) -> Run:
    power = run.record.power
    known = ("energy_j", "lower_j", "upper_j", "net_j", "uncertainty_j")
    energy = tuple(
        each.model_copy(update={k: value for k in known if getattr(each, k) is not None})
        for each in power.energy
    )
    record = run.record.model_copy(update={"power": power.model_copy(update={"energy": energy})})
    return replace(run, record=record)


def subject_of(changed: Sequence[Run]) -> Subject:
    """Return B's changed runs beside five of A."""
    a = session({"A": RATES}, interleave="none", power="measured", virtual=False)
    return make_subject([*a, *changed])


def b_runs() -> list[Run]:
    return session({"B": RATES}, interleave="none", power="measured", virtual=False)


@pytest.mark.parametrize("value", [*BEYOND, 0.0, -0.0, 1e30, 1e-30])
def test_a_page_is_made_of_whatever_a_record_says(value: float) -> None:
    metrics = page_of(subject_of([with_metrics(run, value) for run in b_runs()]))
    energy = page_of(subject_of([with_energy(run, value) for run in b_runs()]))
    if value in BEYOND:
        assert "out of range" in Page(metrics).text()
        assert "out of range" in Page(energy).text()
    for source in (metrics, energy):
        assert "NaN" not in source
        assert "Infinity" not in source
        assert ">-0<" not in source


@pytest.mark.parametrize("value", BEYOND)
def test_an_arm_out_of_range_has_its_reason_beside_the_other_s_bar(value: float) -> None:
    subject = subject_of([with_metrics(run, value) for run in b_runs()])
    (group,) = subject.groups
    row = next(r for r in compare(subject, group) if r.quantity.key == "read_bytes_per_s")
    assert row.effect is None
    found = arms_figure("c", "x", [PointRows("", [row], group.arms)])
    assert found is not None
    lines = [line for line in found.table.rows if line[2].text == "B"]
    reported = f"the record has {value:.3g}, which is out of range"
    assert [line[5].text for line in lines] == [reported] * 5


@pytest.mark.parametrize(
    "changes", [{"value": 1e308}, {"upper": 1e308}, {"marks": [("ceiling", 1e308)]}]
)
def test_a_bar_that_can_t_be_drawn_says_why(changes: dict[str, Any]) -> None:
    found = checked_range(Bar(label="A", role="a", dots=[Dot(1.0)], **changes))
    assert found.end is None
    assert found.reason == "the record has 1e+308, which is out of range"


def test_a_part_out_of_range_is_in_no_sum() -> None:
    record, _ = make_run(Scenario(run_id="run-1"))
    parts = [
        Metric.of(name, value, Unit.SECONDS, "lower", "A part.", part_of="a step")
        for name, value in (("load_s", 2.0), ("compute_s", 1e308))
    ]
    changed = record.model_copy(update={"metrics": parts})
    (found,) = parts_figures("c", "unet3d", {"A": [changed]})
    load, compute, _ = found.table.rows
    assert load[1].text == "2.00"
    assert compute[1].text == MISSING
    assert "No compute time: the record has 1e+308, which is out of range." in found.caption
