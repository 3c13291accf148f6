"""What is read of a record by its workload's name: known, of another package, or unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from types import SimpleNamespace
from typing import Any

import pytest

from tests.reports.gnn import Training, gnn_record, gnn_run
from wattload.core.record.phase import TRACE_NAMES
from wattload.core.record.run import RunRecord
from wattload.reports.render.page import page_of
from wattload.reports.runs.load import Run
from wattload.reports.stats.subject import make_subject
from wattload.results import registry
from wattload.results.checks import CheckRule
from wattload.results.facts import Facts, fact
from wattload.results.figures import Figure
from wattload.results.labels import label, workload_title
from wattload.results.reading import checks_of, judged, metrics_of, run_of, view_of
from wattload.results.registry import Results, every_results, results_of
from wattload.results.view import View


def named(record: RunRecord, name: str, **changes: Any) -> RunRecord:
    workload = record.workload.model_copy(update={"name": name, **changes})
    return record.model_copy(update={"workload": workload})


@pytest.mark.parametrize("name", ["os", "", "..", "facts", "gnn.facts", "__init__", "gnn/../facts"])
def test_a_name_from_a_record_finds_results_and_nothing_else(name: str) -> None:
    assert results_of(name) is None


def test_every_figure_check_and_table_has_a_name_of_its_own_and_says_what_it_is() -> None:
    for results in every_results():
        assert results_of(results.name) is results
        assert all(table.row and all(c.meaning for c in table.columns) for table in results.tables)
        rules = [rule for rule in results.checks if isinstance(rule, CheckRule)]
        faults = [(each.name, each.fault) for each in rules]
        faults += [(each.name, each.fault) for each in results.observed]
        assert all(fault for _, fault in faults)
        assert len(dict(faults)) == len(faults)


def test_every_fact_has_a_meaning() -> None:
    for results in every_results():
        schema = results.facts.model_json_schema()
        for model in (schema, *schema.get("$defs", {}).values()):
            for name, field in model.get("properties", {}).items():
                if "json_schema_extra" in field or "unit" in field:
                    assert field.get("description"), (results.name, name)


def test_figures_are_those_of_facts_and_not_those_that_a_record_carries() -> None:
    record = gnn_record(Training())
    bare = record.model_copy(update={"metrics": record.metrics[:1]})
    assert judged(bare).metrics == record.metrics
    assert {check.name for check in checks_of(record)} >= {"compared_rows", "row_counts"}


@pytest.mark.parametrize(
    ("name", "status", "is_barred"),
    [("gnn", "complete", True), ("gnn", "failed", False), ("null", "complete", False)],
)
def test_a_complete_run_without_its_facts_gets_no_verdict(
    name: str, status: str, is_barred: bool
) -> None:
    record = named(gnn_record(Training()), name, facts={})
    found = judged(record.model_copy(update={"status": status}))
    assert found.metrics == ()
    barring = {check.name for check in found.checks if check.bars_verdict}
    assert ("workload_facts" in barring) == is_barred


def test_the_page_of_an_unknown_workload_is_made() -> None:
    known = gnn_run(has_power=True)
    record = named(known.record, "of_another_wattload")
    assert run_of(record) is None
    assert metrics_of(record) == ()
    assert view_of(record) == View()
    page = page_of(make_subject([Run(record=judged(record), traces=known.traces)]))
    assert "Of another wattload" in page
    assert "so the checks that its runs must have are unknown" in page


class _Rides(Facts):
    rides: int = fact("rides", ge=0)


@pytest.fixture
def _plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    results = Results(name="carousel", facts=_Rides, view=View(title="Carousel"))
    point = EntryPoint(name="carousel", value="carousel", group=registry.ENTRY_POINTS)
    monkeypatch.setattr(EntryPoint, "load", lambda _: SimpleNamespace(RESULTS=results))
    monkeypatch.setattr(registry, "entry_points", lambda **_: EntryPoints([point]))
    results_of.cache_clear()
    yield
    results_of.cache_clear()


@pytest.mark.usefixtures("_plugin")
def test_results_of_another_package_are_found_by_its_entry_point() -> None:
    assert workload_title("carousel") == "Carousel"


def test_figures_of_one_name_have_one_label() -> None:
    """Labels are looked up by a figure's name alone."""
    labels: dict[str, set[str]] = defaultdict(set)
    for results in every_results():
        for figure in results.figures:
            if isinstance(figure, Figure):
                labels[figure.name].add(figure.label)
    assert [name for name, own in labels.items() if len(own) > 1] == []


def test_labels_come_from_figures_and_views() -> None:
    assert label("wall_s") == "time of all steps"
    assert label("gnn") == "GNN training"
    assert label("unheard_of_s") == "unheard of"


@pytest.mark.parametrize("results", list(every_results()), ids=lambda each: each.name)
def test_tables_of_a_workload_are_named_otherwise_than_the_traces_of_every_run(
    results: Results[Any],
) -> None:
    assert {table.name for table in results.tables}.isdisjoint(TRACE_NAMES)
