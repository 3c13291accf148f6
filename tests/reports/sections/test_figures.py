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


def test_the_page_shows_the_section(run: Run) -> None:
    assert "Latency of single operations" in Page(render_page([run])).text()
