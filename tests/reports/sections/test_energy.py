"""The page says what the measuring itself cost, and marks what was missed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.reports.conftest import arm, one
from wattload.core.power import PowerBin
from wattload.core.record.energy import WHOLE_RUN, PowerStatistics, SamplerRecord
from wattload.core.record.run import RunRecord
from wattload.reports.blocks import Fold, Table
from wattload.reports.runs.load import Run
from wattload.reports.runs.redact import Masker
from wattload.reports.sections.energy import energy_blocks, power_table, sampling_table
from wattload.results.quantity import MISSING, number


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return one(tmp_path, arm("A", 0))


def with_sampler(record: RunRecord, **changes: object) -> RunRecord:
    sampler = SamplerRecord(
        host=record.hosts[0].facts.name,
        period_s=0.1,
        seconds=60.0,
        tick_count=600,
        missed_tick_count=0,
        sample_count=2400,
        lost_sample_count=0,
        cpu_s=0.18,
        cpu_share=0.003,
        tick_mean_s=0.0002,
        tick_max_s=0.004,
        admin_command_count=1200,
        admin_commands_per_s=20.0,
        admin_mean_s=52e-6,
        admin_max_s=3e-3,
    ).model_copy(update=changes)
    power = record.power.model_copy(update={"samplers": (sampler,)})
    return record.model_copy(update={"power": power})


def test_share_rounds_and_commands_stand_in_one_row(run: Run) -> None:
    table = sampling_table(with_sampler(run.record))
    (cells,) = table.rows
    shown = [cell.text.replace("\u00a0", " ") for cell in cells[1:]]
    assert shown == [
        "0.100 s",
        "600",
        "0",
        "2\u202f400",
        "0",
        "0.300 %",
        "4.00 ms",
        "20.0/s",
        "52.0 µs",
        "3.00 ms",
    ]
    assert {cell.tone for cell in cells} == {""}


def test_missed_deadlines_and_lost_readings_are_marked(run: Run) -> None:
    record = with_sampler(run.record, missed_tick_count=3, lost_sample_count=1)
    (cells,) = sampling_table(record).rows
    assert [cell.text for cell in cells if cell.tone == "warn"] == ["3", "1"]


def test_what_was_not_measured_is_a_dash(run: Run) -> None:
    record = with_sampler(run.record, cpu_share=None, admin_mean_s=None, admin_max_s=None)
    (cells,) = sampling_table(record).rows
    assert [cell.text for cell in cells].count(MISSING) == 3


def test_host_is_masked_for_publication(run: Run) -> None:
    record = with_sampler(run.record)
    masked = Masker([record]).record(record)
    assert masked.power.samplers[0].host == "host-1"


def test_module_of_a_meter_is_masked_where_it_is_named(run: Run) -> None:
    module = "tcp::qtl1999-02-020"
    record = run.record.model_copy(update={"config": {"power": {"quarch": {"module": module}}}})
    power = record.power.model_copy(update={"choice": f"took quarch: PPM {module}: 12V"})
    record = record.model_copy(update={"power": power})
    text = Masker([record]).record(record).model_dump_json()
    assert "qtl1999" not in text


def statistics(**figures: Any) -> PowerStatistics:
    values: dict[str, Any] = {
        "peak_100us_w": None,
        "peak_100ms_w": None,
        "peak_1s_w": 24.0,
        "p99_w": 23.5,
        "slew_w_per_s": 8.0,
        "slew_over_s": 1.0,
        "fifths_w": (20.0, 20.5, 20.0, 19.5, 20.0),
        "bin_w": 1.0,
        **figures,
    }
    missing = {name: "its readings resolve 1 s" for name, value in values.items() if value is None}
    return PowerStatistics(resolution_s=1.0, reading_count=600, missing=missing, **values)


def with_energy(record: RunRecord, **changes: Any) -> RunRecord:
    energy = tuple(each.model_copy(update=changes) for each in record.power.energy)
    return with_power(record, energy=energy)


def with_power(record: RunRecord, **changes: Any) -> RunRecord:
    return record.model_copy(update={"power": record.power.model_copy(update=changes)})


def shown(table: Table) -> dict[str, str]:
    (cells,) = table.rows
    titles = [column.title for column in table.columns]
    return {t: c.text.replace("\u00a0", " ") for t, c in zip(titles, cells, strict=True)}


def test_columns_without_a_figure_are_left_out(run: Run) -> None:
    assert power_table(run.record) is None
    table = power_table(with_energy(run.record, statistics=statistics()))
    assert table is not None
    cells = shown(table)
    assert cells["peak of 1 s"] == "24.00 W"
    assert cells["P99"] == "23.50 W"
    assert cells["slew"] == "8.00 W/s"
    assert cells["stability"] == "5.00 %"
    assert not {"peak of 100 µs", "peak of 100 ms", "max. interval"} & set(cells)
    assert "MIPWR" not in table.note
    assert "stability: (highest - lowest) ÷ mean" in table.note


def test_rates_per_watt_and_idle_power_per_tb_follow_the_printed_formulas(run: Run) -> None:
    (controller,) = run.record.controllers
    assert controller.before is not None
    reasons = {k: v for k, v in controller.before.missing.items() if k != "capacity_bytes"}
    state = controller.before.model_copy(update={"capacity_bytes": 4 * 10**12, "missing": reasons})
    record = with_energy(run.record, statistics=statistics(), energy_j=100.0, idle_w=5.0)
    record = record.model_copy(
        update={"controllers": (controller.model_copy(update={"before": state}),)}
    )
    phase = record.power.energy[0].phase
    table = power_table(record)
    assert table is not None
    moved = record.moved_bytes(phase, "read") + record.moved_bytes(phase, "written")
    operations = sum(
        (each.read_operations or 0) + (each.write_operations or 0)
        for each in record.counters
        if each.phase == phase
    )
    cells = shown(table)
    assert cells["idle per TB"] == "1.25 W"
    assert cells["rate per watt"] == f"{number(moved / 100 / 1e6)} MB/s per W"
    assert cells["I/O rate per watt"] == f"{number(operations / 100)} /s per W"
    twice = (*record.power.energy, record.power.energy[0].model_copy(update={"device": "OTHER"}))
    both = power_table(with_power(record, energy=twice))
    assert both is not None
    assert "rate per watt" not in {column.title for column in both.columns}


def test_what_the_drive_measured_itself_is_on_the_page(run: Run) -> None:
    own = run.record.power.energy[0].model_copy(
        update={
            "phase": WHOLE_RUN,
            "source": "nvme_25h",
            "max_interval_w": 24.5,
            "histogram": (PowerBin(lower_w=0.0, count=30), PowerBin(lower_w=12.5, count=10)),
        }
    )
    record = with_power(run.record, whole_run=(own,))
    table = power_table(record)
    assert table is not None
    assert shown(table)["max. interval"] == "24.50 W"
    assert "MIPWR" in table.note
    blocks = energy_blocks(replace(run, record=record))
    (fold,) = [block for block in blocks if isinstance(block, Fold)]
    assert fold.summary.startswith("Histogram of power by nvme_25h")
    (histogram,) = fold.blocks
    assert isinstance(histogram, Table)
    assert [cells[2].text.replace("\u00a0", " ") for cells in histogram.rows] == [
        "75.0 %",
        "25.0 %",
    ]


@pytest.mark.parametrize(("uncertainty_j", "is_outside"), [(0.9, False), (1.2, True)])
def test_an_uncertainty_over_one_percent_is_noted(
    run: Run, uncertainty_j: float, is_outside: bool
) -> None:
    record = with_energy(run.record, energy_j=100.0, uncertainty_j=uncertainty_j)
    blocks = energy_blocks(replace(run, record=record))
    remarks = [
        cell.remark
        for block in blocks
        if isinstance(block, Table)
        for cells in block.rows
        for cell in cells
    ]
    assert any("outside MLPerf Power's limit" in each for each in remarks) == is_outside
