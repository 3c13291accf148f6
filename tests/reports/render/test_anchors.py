"""Every link of a page has a target on it, however long the names in its records are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports.conftest import arm, one, render_page
from tests.reports.parsing import Page
from tests.reports.sessions import run
from wattload.reports.runs.load import Run
from wattload.reports.sections.wording import anchor

LONG = "workload-" + "x" * 300


def lead_somewhere(page: Page) -> None:
    places = page.values("id")
    links = {value.removeprefix("#") for value in page.values("href") if value.startswith("#")}
    assert links - set(places) == set()
    assert len(set(places)) == len(places)
    for names in page.values("aria-labelledby"):
        assert set(names.split()) - set(places) == set()


def test_short_names_are_the_place_and_long_ones_end_in_a_digest() -> None:
    assert anchor("run", "run-A 0") == "run-run-a-0"
    first, second = anchor("run", LONG + "1"), anchor("run", LONG + "2")
    assert first != second
    assert len(first) == len(second) < 100
    assert first.startswith("run-workload-xxx")


@pytest.mark.parametrize("count", [1, 3])
def test_long_run_ids_lead_to_their_runs_and_charts(tmp_path: Path, count: int) -> None:
    runs = [
        one(tmp_path, arm(name, index, run_id=f"{name}{index}-{'y' * 180}"))
        for index in range(count)
        for name in "AB"
    ]
    lead_somewhere(Page(render_page(runs)))


def test_long_workloads_lead_to_their_comparisons() -> None:
    def named(each: Run) -> Run:
        workload = each.record.workload.model_copy(update={"name": LONG})
        record = each.record.model_copy(update={"workload": workload})
        return Run(record=record, traces=each.traces)

    runs = [named(run(f"{label}{n}", label=label, order=n)) for n in range(5) for label in "AB"]
    page = Page(render_page(runs))
    assert any(name.startswith("workload-workload-xxx") for name in page.values("id"))
    lead_somewhere(page)
