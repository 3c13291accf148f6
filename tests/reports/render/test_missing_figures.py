"""Records with missing parts still give a page, and an unknown value is never a zero."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.records import Scenario, make_run, write_run
from tests.reports.conftest import render_page
from tests.reports.parsing import Page
from wattload.core.errors import RecordError
from wattload.core.record.run import RunRecord
from wattload.reports.render.json_export import document
from wattload.reports.render.page import page_of
from wattload.reports.render.text_export import csv_report, markdown_report
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.runs.traces import Traces
from wattload.reports.stats.subject import make_subject
from wattload.results.reading import run_of

Document = dict[str, Any] | list[Any]
BARE = Traces(throughput=None, power=None, notes=(), digests={})
WHY = "a hole was made here"


def gaps(value: Document, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the place of every part of a record's JSON that a hole can be made in."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, part in parts:
        at = (*place, key)
        found.append(at)
        if isinstance(part, dict | list) and key != "missing":
            found += gaps(part, at)
    return found


def holed(document: dict[str, Any], place: tuple[str | int, ...]) -> dict[str, Any]:
    """Return the document with a hole: null with a reason where one can stand, else nothing."""
    copy: dict[str, Any] = json.loads(json.dumps(document))
    *above, last = place
    parent: Any = copy
    for key in above:
        try:
            parent = parent[key]
        except (KeyError, IndexError, TypeError):
            return copy  # it lay in a hole that was made before
    if isinstance(parent, dict) and last in parent:
        if isinstance(parent[last], list):
            parent[last] = []
        else:
            parent[last] = None
            if isinstance(parent.get("missing"), dict):
                parent["missing"][str(last)] = WHY
    return copy


DOCUMENT: dict[str, Any] = json.loads(
    make_run(Scenario(run_id="run-h", seconds=1.0, power="measured", virtual=False))[
        0
    ].model_dump_json()
)
PLACES = gaps(DOCUMENT)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(PLACES), min_size=1, max_size=25))
def test_a_record_with_holes_still_makes_every_form(places: list[tuple[str | int, ...]]) -> None:
    document_ = DOCUMENT
    for place in places:
        candidate = holed(document_, place)
        try:
            run_of(RunRecord.model_validate(candidate))
        except (ValidationError, RecordError):
            continue  # the format asks for it: such a record is refused
        document_ = candidate
    run = Run(record=RunRecord.model_validate(document_), traces=BARE)
    subject = make_subject([run])
    page = Page(page_of(subject))
    assert page.unbalanced == []
    reported = document(subject)["runs"][0]["figures"]
    for metric in run.record.metrics:
        assert reported[metric.name]["value"] == metric.value
        if metric.value is None:
            assert reported[metric.name]["note"]
    assert csv_report(subject)
    assert markdown_report(subject)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_no_number_in_free_text_is_a_figure(tmp_path: Path, text: str) -> None:
    """A configuration may hold anything; what JSON has no word for is null in the page's data."""
    folder = write_run(tmp_path, Scenario(run_id="run-n", seconds=1.0))
    file = folder / "record.json"
    file.write_text(file.read_text().replace('"depth": 8', f'"depth": {text}'))
    (run,) = load_runs([folder])
    assert not math.isfinite(run.record.config["loader"]["depth"])
    data = Page(render_page([run])).data()
    assert data["runs"][0]["seal"] == "broken"
    assert make_subject([run], "loader.depth").arms[0].startswith("depth=")
