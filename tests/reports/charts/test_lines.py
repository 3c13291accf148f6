"""Latency percentiles per arm: medians of runs, a logarithmic axis, and why one is missing."""

from __future__ import annotations

from tests.records import Scenario, make_run
from wattload.core.histogram import Histogram
from wattload.core.record.results import latencies_of
from wattload.core.record.run import RunRecord
from wattload.reports.charts.lines import latency_figure
from wattload.reports.charts.themes import light
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


def test_the_axis_is_logarithmic_and_says_which_way_is_better() -> None:
    found = latency_figure("c", "x", {"A": [record()]})
    assert found is not None
    assert "logarithmic" in found.caption
    assert " log ms" in found.svg
    assert "lower is better" in found.svg


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
