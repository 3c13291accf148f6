"""The section of random writes, and the page around it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.reports.conftest import render_page
from tests.reports.random_writes import writes_run
from wattload.core.record.results import Metric
from wattload.core.units import Unit
from wattload.reports.blocks import Paragraph, Table
from wattload.reports.charts.timeline import make_track
from wattload.reports.claims.comparison import compare_claims
from wattload.reports.sections.random_writes import write_blocks
from wattload.reports.stats.subject import make_subject

FILL = {"until": "fill", "draw": "each_once"}
MOST_WORDS = 1500


def table(**changes: Any) -> dict[str, tuple[str, str]]:
    """Return the text and the remark of each figure of a run."""
    blocks = write_blocks("w", "Writes", [make_track("A", "A", writes_run(**changes))])
    (found,) = [each for each in blocks if isinstance(each, Table)]
    return {cells[0].text: (cells[1].text, cells[1].remark) for cells in found.rows}


def test_a_steady_run_has_both_verdicts_and_the_figures_of_its_window() -> None:
    found = table(rate=1e9, watts=10.0, amplification=2.5)
    assert found["steady by minutes (SNIA PTS)"][0] == "steady"
    assert found["steady by drive writes"] == ("steady", "range 4.00\u00a0%, drift 1.00\u00a0%")
    assert found["steady rate"][0] == "1.02\u00a0GB/s"
    assert found["write amplification"][0] == "2.50"
    assert found["energy per GB from the host"][0] == "9.80\u00a0J/GB"
    assert found["energy per GB on the media"][0] == "3.92\u00a0J/GB"
    assert "time to write the range" not in found


def test_a_run_that_is_not_steady_has_the_reason_and_no_steady_figure() -> None:
    found = table(is_steady=False)
    assert found["steady by drive writes"] == ("not steady", "the last 5 rounds range over 31 %")
    assert not {"steady rate", "steady window"} & set(found)


def test_a_fill_has_its_time_and_no_verdict() -> None:
    found = table(**FILL)
    assert found["time to write the range"][1] == "2 times"
    assert not any(name.startswith("steady") for name in found)


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ((2e9, 1.5e9), "2.00, 1.50\u00a0GB/s"),
        ((2e9, 1.5e9, 1.4e9, 1.3e9, 1.2e9), "2.00 … 1.20\u00a0GB/s"),
    ],
)
def test_rates_of_passes_are_one_row(rates: tuple[float, ...], text: str) -> None:
    run = writes_run(**FILL)
    passes = tuple(
        Metric.of(
            f"pass_{number}_write_bytes_per_s",
            rate,
            Unit.BYTES_PER_SECOND,
            "higher",
            "bytes / time of a pass",
            phase="random_write",
        )
        for number, rate in enumerate(rates, start=1)
    )
    record = run.record.model_copy(update={"metrics": (*run.record.metrics, *passes)})
    blocks = write_blocks("w", "Writes", [make_track("A", "A", replace(run, record=record))])
    (found,) = [each for each in blocks if isinstance(each, Table)]
    assert {cells[0].text: cells[1].text for cells in found.rows}["rate by pass"] == text


def test_a_file_is_said_to_be_less_than_a_drive() -> None:
    file = write_blocks("w", "Writes", [make_track("A", "A", writes_run(where="directory"))])
    drive = write_blocks("w", "Writes", [make_track("A", "A", writes_run())])
    (found,) = [each for each in file if isinstance(each, Paragraph)]
    assert found.quiet
    assert "spare area" in found.text
    assert not any(isinstance(each, Paragraph) for each in drive)


def test_a_page_of_two_drives_shows_one_rule_of_steady_states_in_few_words() -> None:
    page = render_page(
        [
            writes_run(name="run-a", label="A", rate=1.9e9),
            writes_run(name="run-b", label="B", rate=1.3e9, serial="SERIALB"),
        ]
    )
    assert "Pauses are left out" not in page
    assert page.count("rate over drive writes</") == 1
    words = re.sub(r"<(script|style|svg|details|template)\b.*?</\1>", " ", page, flags=re.DOTALL)
    assert len(re.sub(r"<[^>]+>", " ", words).split()) <= MOST_WORDS


@pytest.mark.parametrize(
    "details",
    [
        {"range_bytes": "all"},
        {"range_bytes": 10**400},
        {"range_bytes": 10**12, "block_bytes": "4k", "queue_depth": None},
        {"range_bytes": 10**12, "steady": {"headline": {"steady": True, "start_s": "soon"}}},
        {"range_bytes": 10**12, "steady": {"headline": {"steady": True, "start_s": -1e300}}},
        {"range_bytes": 10**12, "steady": ["drive"]},
    ],
)
def test_details_of_any_content_make_a_page(details: dict[str, Any]) -> None:
    run = writes_run()
    section = run.record.workload.model_copy(update={"details": details})
    record = run.record.model_copy(update={"workload": section})
    assert "Random write" in render_page([replace(run, record=record)])


def test_published_figures_of_random_writes_are_answered() -> None:
    def measured(**changes: Any) -> dict[str, str]:
        runs = [
            writes_run(name=f"run-{label}", label=label, serial=f"S{label}", **changes)
            for label in "AB"
        ]
        parts = compare_claims(make_subject(runs, "label"))
        (part,) = [each for each in parts if each.paper.id == "P4"]
        return {claim.id: one.verdict for claim, (one,) in part.claims}

    assert measured(**FILL) == {"fill_time": "few", "steady_rate": "unmeasured"}
    assert measured() == {"fill_time": "unmeasured", "steady_rate": "few"}
