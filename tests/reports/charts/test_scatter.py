"""Operations over time: where a dot lies, how many there are, and of how many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.records import Scenario, make_run, write_made_run
from wattload.core.histogram import Histogram
from wattload.core.record.results import latencies_of
from wattload.reports.blocks import Figure
from wattload.reports.charts.scatter import POINT_LIMIT, make_scatter, scatter_figure
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.runs.phases import CommonClock
from wattload.reports.runs.timeline import make_timeline
from wattload.reports.runs.traces import OPERATION_COLUMNS

HOST = "box"
SCENARIO = Scenario(run_id="run-a", seconds=3.0, virtual=False, host=HOST)
TYPES = {
    **dict.fromkeys(OPERATION_COLUMNS, pa.int64()),
    **dict.fromkeys(("host", "phase", "kind", "file"), pa.string()),
    **dict.fromkeys(("rank", "target"), pa.int32()),
}


def _row(
    time_ns: int, file: str, offset_bytes: int, *, kind: str = "read", target: int = 0
) -> dict[str, object]:
    return {
        "time_ns": time_ns,
        "host": HOST,
        "rank": 0,
        "phase": "read",
        "kind": kind,
        "target": target,
        "file": file,
        "file_bytes": 1000,
        "offset_bytes": offset_bytes,
        "latency_ns": 5,
    }


def _table(rows: list[dict[str, object]]) -> pa.Table:
    schema = pa.schema([(name, TYPES[name]) for name in OPERATION_COLUMNS])
    return pa.Table.from_pylist(rows, schema=schema)


def _run(folder: Path, rows: list[dict[str, object]], operation_count: int = 0) -> Run:
    record, traces = make_run(SCENARIO)
    if operation_count:
        latencies = latencies_of(
            Histogram.of([1000] * operation_count), phase="read", kind="read", operation_bytes=100
        )
        record = record.model_copy(update={"latencies": latencies})
    traces["operations"] = _table(rows)
    (run,) = load_runs([write_made_run(folder / "run-a", record, traces)])
    return run


def _figure(run: Run) -> Figure:
    scatter = make_scatter(run)
    assert scatter is not None
    return scatter_figure("c", "x", scatter, make_timeline(run).strips)


def test_files_lie_end_to_end_by_name_whatever_the_order_they_were_read_in(tmp_path: Path) -> None:
    run = _run(tmp_path, [_row(10, "b", 300), _row(20, "a", 200), _row(30, "c", 0)])
    scatter = make_scatter(run)
    assert scatter is not None
    (lane,) = scatter.lanes
    assert [(file.name, file.start_bytes) for file in lane.files] == [
        ("a", 0),
        ("b", 1000),
        ("c", 2000),
    ]
    assert lane.position_bytes.tolist() == [1300, 200, 2000]
    assert lane.size_bytes == 3000


def test_times_are_on_the_clock_of_the_phases(tmp_path: Path) -> None:
    run = _run(tmp_path, [_row(7_000_000_000, "a", 0)])
    scatter = make_scatter(run)
    assert scatter is not None
    expected = CommonClock(run.record).seconds(HOST, 7_000_000_000)
    assert scatter.lanes[0].time_s.tolist() == [expected]


def test_a_file_is_one_before_and_after_its_folder_is_whole(tmp_path: Path) -> None:
    rows = [_row(10, "c-0.partial/r", 100, kind="write"), _row(20, "c-0/r", 100)]
    scatter = make_scatter(_run(tmp_path, rows))
    assert scatter is not None
    (lane,) = scatter.lanes
    assert [file.name for file in lane.files] == ["c-0/r"]
    assert lane.position_bytes.tolist() == [100, 100]
    assert lane.is_write.tolist() == [True, False]


def test_each_target_has_a_lane_with_its_own_files(tmp_path: Path) -> None:
    rows = [_row(10, "a", 1), _row(20, "a", 2, target=1), _row(30, "b", 3, target=1)]
    run = _run(tmp_path, rows)
    scatter = make_scatter(run)
    assert scatter is not None
    assert [len(lane.files) for lane in scatter.lanes] == [1, 2]
    assert [lane.position_bytes.tolist() for lane in scatter.lanes] == [[1], [2, 1003]]
    assert [lane.name for lane in scatter.lanes] == [run.record.targets[0].facts.path, "target 1"]


def test_of_many_operations_as_many_as_can_be_drawn_are_kept_evenly(tmp_path: Path) -> None:
    rows = [_row(10 * place, "a", place % 1000) for place in range(2 * POINT_LIMIT + 1)]
    run = _run(tmp_path, rows, operation_count=100_000)
    scatter = make_scatter(run)
    assert scatter is not None
    assert scatter.traced_count == 2 * POINT_LIMIT + 1
    assert scatter.drawn_count == scatter.lanes[0].time_s.size <= POINT_LIMIT
    steps = np.diff(scatter.lanes[0].time_s)
    assert steps.min() == pytest.approx(steps.max())
    figure = _figure(run)
    assert figure.svg == _figure(run).svg
    assert len(figure.svg) < 120_000


def test_without_a_count_no_share_is_made_up(tmp_path: Path) -> None:
    figure = _figure(_run(tmp_path, [_row(10, "a", 0)]))
    assert "Traced: 1 of an unknown number of operations" in figure.caption
    assert "%" not in figure.caption


def test_a_run_whose_loader_traced_nothing_has_no_chart_and_no_note(tmp_path: Path) -> None:
    record, traces = make_run(SCENARIO)
    (run,) = load_runs([write_made_run(tmp_path / "run-a", record, traces)])
    assert make_scatter(run) is None
    assert run.traces.notes == ()
    empty = replace(run, traces=_run(tmp_path / "other", []).traces)
    assert make_scatter(empty) is None


def test_a_trace_that_is_named_and_gone_is_a_note(tmp_path: Path) -> None:
    _run(tmp_path, [_row(10, "a", 0)])
    (tmp_path / "run-a" / "operations.parquet").unlink()
    (run,) = load_runs([tmp_path])
    assert run.traces.operations is None
    assert run.traces.notes == (
        "The operations trace operations.parquet is missing from the run's folder.",
    )
