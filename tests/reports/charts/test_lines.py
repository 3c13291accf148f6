"""Latency percentiles of arms, and the rule of steady state against hand-made windows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records import Scenario, make_run
from tests.reports.conftest import one
from wattload.core.histogram import Histogram
from wattload.core.record.results import latencies_of
from wattload.core.record.run import RunRecord
from wattload.core.steady import ROUND_S, MeasurementWindow, measurement_window
from wattload.reports.charts.lines import latency_figure, progress_of
from wattload.reports.charts.themes import light
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import Phase, phases_of
from wattload.reports.runs.traces import Categories, ThroughputTrace
from wattload.results.quantity import MISSING


def record(*, count: int = 20_000, times: int = 1, kind: str = "read") -> RunRecord:
    """Return a run whose operations took from 1 ms to 3 ms, times a factor, evenly."""
    made, _ = make_run(Scenario(run_id="run-1"))
    step = max(2_000_000 // count, 1)
    histogram = Histogram.of([(1_000_000 + step * index) * times for index in range(count)])
    rows = latencies_of(
        histogram, phase="read", kind="read" if kind == "read" else "write",
        operation_bytes=1 << 20,
    )  # fmt: skip
    return made.model_copy(update={"latencies": rows})


def test_an_arm_has_the_median_of_its_runs_at_every_percentile() -> None:
    found = latency_figure("c", "x", {"A": [record(), record(times=2), record(times=9)]})
    assert found is not None
    (row,) = found.table.rows
    assert row[3].text == "3 runs"
    middle = row[4].text.replace("\u00a0", " ")
    assert middle.startswith("4.0")  # p50 of the run in the middle: 2 ms, times 2
    assert middle.count(";") == 2
    assert [column.title for column in found.table.columns][4:] == [
        "p50", "p90", "p95", "p99", "p99.9", "p99.99", "p99.999",
    ]  # fmt: skip


def test_a_percentile_of_too_few_operations_is_missing_with_its_reason() -> None:
    found = latency_figure("c", "x", {"A": [record(count=500)]})
    assert found is not None
    assert [cell.text for cell in found.table.rows[0]][-2:] == [MISSING, MISSING]
    assert "No p99.9: it needs at least 1000 operations; there were 500." in found.caption


def test_percentiles_that_no_arm_has_take_no_room() -> None:
    found = latency_figure("c", "x", {"A": [record(count=500)]})
    assert found is not None
    assert ">p99<" in found.svg
    assert "p99.9" not in found.svg


def test_reads_and_writes_have_a_panel_each() -> None:
    found = latency_figure("c", "x", {"A": [record()], "B": [record(kind="write")]})
    assert found is not None
    assert found.svg.count("<svg xmlns") == 2
    assert "No run of B measured single reads." in found.caption
    assert "No run of A measured single writes." in found.caption


def test_a_run_alone_keeps_the_colour_of_its_arm() -> None:
    found = latency_figure("c", "x", {"PS1": [record()]}, "B")
    assert found is not None
    assert light("b") in found.svg
    assert light("a") not in found.svg


def test_runs_without_latencies_are_no_chart() -> None:
    made, _ = make_run(Scenario(run_id="run-1"))
    assert latency_figure("c", "x", {"A": [made]}) is None
    assert latency_figure("c", "x", {}) is None


def _window(rounds: list[float]) -> MeasurementWindow:
    found = measurement_window(rounds)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("rounds", "first", "is_steady"),
    [
        ([7.0] * 5, 0, True),
        ([95.6, 97.8, 100.0, 102.2, 104.4], 0, True),  # 8.8 % over four steps, 11 % over five
        ([94.0, 97.0, 100.0, 103.0, 106.0], 0, False),  # its range is 12 %, and so is its slope
        ([100.0, 100.0, 130.0, 100.0, 100.0], 0, False),  # its range is 28 %, its slope 0
        ([90.0, 110.0, 100.0, 90.0, 110.0], 0, True),  # its range is the limit of 20 %
        ([400.0, 300.0, 200.0, 102.0, 101.0, 100.0, 99.0, 98.0, 98.0], 3, True),
        ([100.0, 200.0, 300.0, 400.0, 500.0, 600.0], 1, False),  # the last window is reported
        ([0.0] * 5, 0, False),
    ],
)
def test_the_first_steady_window_counts(rounds: list[float], first: int, is_steady: bool) -> None:
    window = _window(rounds)
    assert (window.first, window.is_steady) == (first, is_steady)
    assert measurement_window(rounds[:4]) is None


@settings(deadline=None)
@given(st.lists(st.floats(1.0, 1e6), min_size=5, max_size=5), st.floats(0.5, 1e6))
def test_the_verdict_is_the_same_in_any_unit(rounds: list[float], factor: float) -> None:
    here, there = _window(rounds), _window([value * factor for value in rounds])
    assert there.range_fraction == pytest.approx(here.range_fraction)
    assert there.excursion_fraction == pytest.approx(here.excursion_fraction, abs=1e-9)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return one(tmp_path, Scenario(run_id="run-a", workload="checkpoint", seconds=4.0))


def _phase(run: Run, *intervals_s: tuple[float, float]) -> Phase:
    found = next(phase for phase in phases_of(run.record) if phase.name == "write")
    return replace(found, intervals_s=intervals_s)


def _traced(run: Run, time_s: list[float], written_bytes: list[int]) -> Run:
    """Return the run with this trace of its phase ``write``; times on the common clock."""
    first_ns = min(window.start_ns for window in run.record.windows)
    zeros = np.zeros(len(time_s), dtype=np.int64)
    trace = ThroughputTrace(
        time_ns=np.array([first_ns + round(t * 1e9) for t in time_s]),
        host=Categories((run.record.windows[0].host,), zeros),
        phase=Categories(("write",), zeros),
        read_bytes=zeros,
        written_bytes=np.array(written_bytes),
    )
    return replace(run, traces=replace(run.traces, throughput=trace))


def test_a_round_is_its_bytes_over_its_seconds_and_the_rest_is_left_out(run: Run) -> None:
    times = [float(second) for second in range(150)]
    traced = _traced(run, times, [600] * 60 + [1200] * 90)
    found = progress_of(traced, _phase(run, (0.0, 150.0)))
    assert found is not None
    assert found.rounds.tolist() == [600.0, 1200.0]
    assert found.seconds.size == 150


def test_time_between_two_intervals_of_a_phase_is_in_no_round(run: Run) -> None:
    # 40 s of work, a pause of 100 s, 20 s of work: one round, and the pause is not in it.
    times = [float(second) for second in [*range(40), *range(140, 160)]]
    traced = _traced(run, times, [100] * 60)
    found = progress_of(traced, _phase(run, (0.0, 40.0), (140.0, 160.0)))
    assert found is not None
    assert found.rounds.tolist() == [100.0]
    assert found.seconds.tolist() == [100.0] * 60


def test_a_bin_that_begins_before_its_interval_counts_in_it(run: Run) -> None:
    traced = _traced(run, [99.95, 100.5], [70, 50])
    found = progress_of(traced, _phase(run, (0.0, 60.0), (100.0, 160.0)))
    assert found is not None
    assert found.rounds.tolist() == [0.0, 120 / ROUND_S]


def test_without_a_trace_there_is_no_progress(run: Run) -> None:
    bare = replace(run, traces=replace(run.traces, throughput=None))
    assert progress_of(bare, _phase(run, (0.0, 60.0))) is None
