"""The page says what the measuring itself cost, and marks what was missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports.conftest import arm, one
from wattload.core.record.energy import SamplerRecord
from wattload.core.record.run import RunRecord
from wattload.reports.quantity import MISSING
from wattload.reports.runs.load import Run
from wattload.reports.runs.redact import Masker
from wattload.reports.sections.energy import sampling_table


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
