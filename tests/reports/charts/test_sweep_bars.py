"""Arms over a sweep: a group of bars per point, and none that pools the points."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.record_power import PowerKind
from tests.records import make_run, write_made_run
from tests.reports.conftest import arm
from wattload.core.checks.evaluation import derived_metrics
from wattload.core.record.results import Metric
from wattload.core.record.run import RunRecord, Status
from wattload.core.units import Unit
from wattload.reports.blocks import Figure
from wattload.reports.charts.sweep_bars import sweep_figure
from wattload.reports.quantity import MISSING
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.sections.comparison import arm_figures
from wattload.reports.sections.wording import letter_of
from wattload.reports.stats.subject import make_subject

WORKERS = (1, 8, 24)
SECONDS = {"A": {1: 60.0, 8: 9.0, 24: 4.0}, "B": {1: 61.0, 8: 10.0, 24: 6.0}}


def at(record: RunRecord, workers: int, seconds: float) -> RunRecord:
    config = {**record.config, "workload": {"workers": workers}}
    took = Metric.of("conversion_s", seconds, Unit.SECONDS, "lower", "Conversion.", headline=True)
    derived = derived_metrics("dlrm")
    others = [metric for metric in record.metrics if metric.name not in derived]
    rounds_s = {"tsv_to_parquet_round_s": [seconds], "parquet_to_binary_round_s": [0.0]}
    workload = record.workload.model_copy(update={"details": {"rounds": 1, **rounds_s}})
    return record.model_copy(
        update={"config": config, "metrics": (took, *others), "workload": workload}
    )


def write(
    folder: Path,
    letter: str,
    workers: int,
    index: int,
    *,
    status: Status = "complete",
    power: PowerKind = "measured",
) -> None:
    seconds = SECONDS[letter][workers]
    scenario = arm(
        letter, index, workload="dlrm", run_id=f"run-{letter}-{workers}-{index}",
        seconds=seconds, rate=6e9 / seconds, status=status, power=power,
    )  # fmt: skip
    record, traces = make_run(scenario)
    write_made_run(folder / scenario.run_id, at(record, workers, seconds), traces)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, ...]:
    """Two arms at 1, 8 and 24 workers, twice; at 24 workers one run of B failed."""
    folder = tmp_path_factory.mktemp("swept")
    for workers in WORKERS:
        for index in range(2):
            write(folder, "A", workers, index)
            failed = workers == 24 and index == 1
            write(folder, "B", workers, index, status="failed" if failed else "complete")
    return load_runs([folder])


def figure(runs: tuple[Run, ...]) -> Figure | None:
    subject = make_subject(runs)
    (group,) = subject.groups
    return sweep_figure("c", subject, group)


def cells(found: Figure, quantity: str) -> list[list[str]]:
    rows = [[cell.text for cell in row] for row in found.table.rows]
    return [row[2:] for row in rows if row[0] == quantity]


def test_points_stand_in_order_of_their_number_with_a_bar_per_arm(runs: tuple[Run, ...]) -> None:
    found = figure(runs)
    assert found is not None
    assert [row[:3] for row in cells(found, "conversion time")] == [
        ["1", "A", "60.00"],
        ["1", "B", "61.00"],
        ["8", "A", "9.000"],
        ["8", "B", "10.00"],
        ["24", "A", "4.000"],
        ["24", "B", "6.000"],
    ]


def test_the_ratio_of_each_point_stands_above_its_group(runs: tuple[Run, ...]) -> None:
    found = figure(runs)
    assert found is not None
    ratios = [row[-1] for row in cells(found, "conversion time") if row[1] == "B"]
    assert ratios == ["1.02", "1.11", "1.50"]
    assert all(f">{ratio}</text>" in found.svg for ratio in ratios)


def test_a_failed_run_is_listed_and_in_no_median(runs: tuple[Run, ...]) -> None:
    found = figure(runs)
    assert found is not None
    last = cells(found, "conversion time")[-1]
    assert last[2:5] == ["6.000", "2 runs", "6.000; 6.000 (not compared)"]
    assert "n = 1 to 2 per bar" in found.svg


def test_seconds_and_watt_hours_are_drawn_and_rates_are_left_to_curves(
    runs: tuple[Run, ...],
) -> None:
    found = figure(runs)
    assert found is not None
    titles = re.findall(r">(How [^<]*\?)<", found.svg)
    assert titles[:3] == [
        "How long does conversion take?",
        "How much energy does the whole job use?",
        "How fast is the whole job per watt?",
    ]
    assert "measured by a meter or a rail sensor" in found.svg


def test_evidence_is_told_once_for_all_points_and_wrapped(tmp_path: Path) -> None:
    for workers in WORKERS:
        write(tmp_path, "A", workers, 0)
        write(tmp_path, "B", workers, 0, power="upper")
    found = figure(load_runs([tmp_path]))
    assert found is not None
    reported = "A: measured by a meter or a rail sensor; B: bounds from power states, not measured"
    assert found.svg.count(f">{reported}<") == 1
    (width,) = re.findall(r'^<svg [^>]*? width="([0-9.]+)"', found.svg)
    assert float(width) < 900
    assert "A line with caps is an interval" in found.caption


def test_an_arm_without_a_run_at_a_point_is_a_dash_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path, "A", 1, 0)
    write(tmp_path, "A", 8, 0)
    write(tmp_path, "B", 1, 0)
    found = figure(load_runs([tmp_path]))
    assert found is not None
    row = next(r for r in found.table.rows if (r[2].text, r[3].text) == ("8", "B"))
    assert row[4].text == MISSING
    assert row[5].remark == "no run"
    assert f">{MISSING}</text>" in found.svg


@pytest.mark.parametrize("power", ["bounds", "upper"])
def test_energy_known_by_its_ends_alone_has_no_figure_above_it(
    tmp_path: Path, power: PowerKind
) -> None:
    for workers in WORKERS:
        write(tmp_path, "A", workers, 0, power=power)
        write(tmp_path, "B", workers, 0, power=power)
    found = figure(load_runs([tmp_path]))
    assert found is not None
    assert "How much energy does the whole job use?" in found.svg
    assert not re.findall(r">(undefined|null|NaN)</text>", found.svg)


def test_a_group_that_was_not_swept_has_no_such_chart(arms: tuple[Run, ...]) -> None:
    assert figure(arms) is None


def test_stages_of_a_sweep_are_stacked_per_point_and_arm(runs: tuple[Run, ...]) -> None:
    subject = make_subject(runs)
    (group,) = subject.groups
    _, stages = arm_figures(subject, group)
    assert [column.title for column in stages.table.columns][1:] == [
        "workers 1, A", "workers 1, B", "workers 8, A", "workers 8, B", "workers 24, A",
        "workers 24, B",
    ]  # fmt: skip


def test_one_arm_alone_is_drawn_over_its_sweep_without_ratios(tmp_path: Path) -> None:
    for workers in WORKERS:
        write(tmp_path, "A", workers, 0)
    found = figure(load_runs([tmp_path]))
    assert found is not None
    assert "B ÷ A" not in found.caption
    assert {row[-1] for row in cells(found, "conversion time")} == {""}


def test_a_run_has_the_letter_of_its_arm(runs: tuple[Run, ...]) -> None:
    subject = make_subject(runs)
    assert {(run.record.label, letter_of(subject, run)) for run in runs} == {
        ("A", "A"),
        ("B", "B"),
    }
