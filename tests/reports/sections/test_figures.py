"""The table of latencies on the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports.conftest import arm, one, render_page
from tests.reports.parsing import Page
from wattload.core.histogram import Histogram
from wattload.core.record.results import Latency, latencies_of
from wattload.reports.runs.load import Run
from wattload.reports.runs.redact import Masker
from wattload.reports.sections.figures import latency_tables
from wattload.run.record import latencies_of_rank


def rows(rank: int, host: str) -> list[Latency]:
    histogram = Histogram.of(range(1_000_000, 3_000_000, 10_000))
    found = latencies_of(histogram, phase="read", kind="read", operation_bytes=1 << 20)
    return latencies_of_rank(found, host=host, rank=rank)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    found = one(tmp_path, arm("A", 0, ranks=2))
    host = found.record.hosts[0].facts.name
    latencies = (*rows(0, host), *rows(1, host))
    record = found.record.model_copy(update={"latencies": latencies})
    return replace(found, record=record)


def test_percentiles_stand_by_phase_all_ranks_first(run: Run) -> None:
    (table,) = latency_tables(run)
    cells = [[cell.text.replace("\u00a0", " ") for cell in row] for row in table.rows]
    assert [row[0].remark for row in table.rows] == ["all ranks", "rank 0", "rank 1"]
    assert cells[0][:3] == ["read", "read 1 MiB", "400"]
    assert cells[1][2] == "200"
    assert cells[0][-1] == "2.990 ms"
    titles = [column.title for column in table.columns]
    percentiles = ["p50", "p90", "p95", "p99", "p99.9", "p99.99", "p99.999"]
    assert titles[3:] == ["mean", *percentiles, "max"]
    assert cells[0][titles.index("p99.9")] == "\u2013"


def test_a_run_without_latencies_has_no_section(run: Run) -> None:
    bare = replace(run, record=run.record.model_copy(update={"latencies": ()}))
    assert latency_tables(bare) == []


def test_the_page_shows_the_section(run: Run) -> None:
    assert "Latency of single operations" in Page(render_page([run])).text()


def test_hosts_of_latencies_are_masked(run: Run) -> None:
    masked = Masker([run.record]).record(run.record)
    assert {host for row in masked.latencies for host in row.hosts} == {"host-1"}
    assert [row.buckets for row in masked.latencies] == [
        row.buckets for row in run.record.latencies
    ]
