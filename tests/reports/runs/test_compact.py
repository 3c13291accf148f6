"""A page of many runs has the same figures as a page of few: only details are dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.records import write_run
from tests.reports.conftest import arm, render_page
from tests.reports.parsing import Page
from wattload.core.record.results import Check
from wattload.reports.render import page
from wattload.reports.render.json_export import document
from wattload.reports.runs import load
from wattload.reports.runs.compact import Compactor
from wattload.reports.runs.load import load_runs
from wattload.reports.sections import runs as run_section
from wattload.reports.sections.trust import trust_section
from wattload.reports.sections.workload import workload_sections
from wattload.reports.stats.subject import Subject, make_subject

EXAMPLES = Path(__file__).parents[3] / "docs/examples/lab"


@pytest.fixture(params=["arms", "examples"])
def folder(request: pytest.FixtureRequest, arms_folder: Path) -> Path:
    return arms_folder if request.param == "arms" else EXAMPLES


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "DETAILED_RUNS", 1)
    monkeypatch.setattr(run_section, "DETAILED_RUNS", 1)


def subjects(folder: Path) -> tuple[Subject, Subject]:
    full = load_runs([folder])
    return make_subject(full), make_subject(load_runs([folder], keep=Compactor()))


@pytest.mark.usefixtures("few_are_many")
def test_a_light_run_gives_the_same_sections(folder: Path) -> None:
    full, light = subjects(folder)
    assert light.runs[0].record != full.runs[0].record
    assert workload_sections(light) == workload_sections(full)
    for section in page.AFTER_WORKLOADS:
        if section is not trust_section:  # of checks that passed it has no figures
            assert section(light) == section(full), section.__name__


@pytest.mark.usefixtures("few_are_many")
def test_a_light_run_gives_the_same_document(folder: Path) -> None:
    full, light = subjects(folder)
    assert document(light) == document(full)


@pytest.mark.usefixtures("few_are_many")
def test_many_runs_are_rows_and_the_page_says_so(tmp_path: Path) -> None:
    bad = Check(name="delivered", verdict="fail", sentence="3 of 4 hashes differ.")
    write_run(tmp_path, arm("A", 0))
    write_run(tmp_path, arm("A", 1, checks=(bad,)))
    found = Page(render_page(load_runs([tmp_path], keep=Compactor())))
    assert "are only listed" in found.text()
    assert "not valid the check delivered failed" in found.text()
    assert {"run-run-a-0", "run-run-a-1"} <= set(found.values("id"))


@pytest.mark.usefixtures("few_are_many")
def test_traces_of_many_runs_stay_on_disk_and_are_there_when_asked(arms_folder: Path) -> None:
    run, other = load_runs([arms_folder])[:2]
    first = run.traces.throughput
    assert first is not None
    assert run.traces.throughput is first
    assert other.traces.power is not None
    assert run.traces.throughput is not first
    assert run.traces.digests.keys() == {"throughput", "power"}
    assert run.traces.notes == ()
    assert run.traces.operations is None
