"""Where the time went, and in which power state the energy was used."""

from __future__ import annotations

import pytest

from tests.records import Scenario, make_run, of_windows
from tests.reports.sessions import checkpoint_record
from wattload.core.record.results import Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.charts.arms import parts_figures, stages_figure
from wattload.results.quantity import MISSING


def test_phases_that_share_time_are_never_stacked() -> None:
    made = checkpoint_record()
    timed = [window for window in made.windows if window.timed]
    shared = ((timed[0].start_ns, timed[-1].end_ns),)
    windows = [
        window.model_copy(update={"intervals": shared} if window.timed else {})
        for window in made.windows
    ]
    assert stages_figure("c", "x", {"A": [made.model_copy(update=of_windows(windows))]}) is None


WHOLE = "a step"


def _part(name: str, value: float | None) -> Metric:
    return Metric.of(name, value, Unit.SECONDS, "lower", "A part.", part_of=WHOLE, reason="untold")


def _record(**parts: float | None) -> RunRecord:
    record, _ = make_run(Scenario(run_id="run-1"))
    metrics = [_part(name, value) for name, value in parts.items()]
    return record.model_copy(update={"metrics": metrics})


def _cells(arms: dict[str, list[RunRecord]]) -> list[list[str]]:
    (figure,) = parts_figures("c", "unet3d", arms)
    return [[cell.text for cell in row] for row in figure.table.rows]


def test_what_an_arm_does_not_tell_is_missing_and_not_zero() -> None:
    runs = [_record(load_s=value, barrier_s=0.5) for value in (1.0, 9.0, 2.0)]
    assert _cells({"A": runs, "B": [_record(load_s=None)]}) == [
        ["load time", "2.00", MISSING],
        ["barrier time", "0.500", MISSING],
        ["sum", "2.50", "0"],
    ]


@pytest.mark.parametrize("parts", [{}, {"load_s": None}, {"load_s": 0.0}])
def test_of_nothing_there_is_no_chart(parts: dict[str, float | None]) -> None:
    assert parts_figures("c", "unet3d", {"A": [_record(**parts)]}) == ()


def test_a_part_has_its_initial_in_it_where_no_other_has_the_same() -> None:
    found = stages_figure("c", "checkpoint", {"A": [checkpoint_record()]})
    assert found is not None
    assert ">W</text>" in found.svg
    assert ">R</text>" in found.svg
    (alike,) = parts_figures("c", "x", {"A": [_record(wait=1.0, work=2.0)]})
    assert ">W</text>" not in alike.svg
