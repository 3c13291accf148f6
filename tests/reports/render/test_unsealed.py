"""A record without a seal counts, and the page states so wherever it is compared."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.records import write_run
from tests.reports.conftest import arm
from tests.reports.parsing import Page
from wattload.core.record.file import RECORD_FILE
from wattload.reports.render.index import render_index
from wattload.reports.render.json_export import document
from wattload.reports.render.page import page_of
from wattload.reports.render.text_export import csv_report, markdown_report
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.stats.subject import Subject, make_subject


def unseal(folder: Path) -> None:
    """Make a record one of version 1, as anybody can."""
    file = folder / RECORD_FILE
    document = json.loads(file.read_text()) | {"schema_version": 1}
    del document["seal"]
    file.write_text(json.dumps(document))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, ...]:
    """Five runs of A and five of B, the first of which has no seal."""
    folder = tmp_path_factory.mktemp("unsealed")
    for index in range(5):
        write_run(folder, arm("A", index))
        write_run(folder, arm("B", index, rate=0.6e9))
    unseal(folder / "run-B-0")
    return load_runs([folder])


@pytest.fixture(scope="module")
def subject(runs: tuple[Run, ...]) -> Subject:
    return make_subject(runs)


def test_it_is_compared(subject: Subject) -> None:
    (comparison,) = document(subject)["comparisons"]
    assert {row["effect"]["n_b"] for row in comparison["rows"] if row["effect"]} == {5}
    assert comparison["unsealed"] == ["run-B-0"]


def test_it_is_among_the_caveats_and_in_the_inputs(subject: Subject) -> None:
    text = Page(page_of(subject)).text()
    assert "has no seal, so nothing says whether it was edited. (1 of 10 runs" in text
    assert "no seal: edits cannot be detected" in text


def test_every_form_says_it(runs: tuple[Run, ...], subject: Subject) -> None:
    assert "1 run without a seal: edits can't be detected" in markdown_report(subject)
    rows = csv.DictReader(io.StringIO(csv_report(subject)))
    assert {row["run_id"] for row in rows if row["seal"] == "none"} == {"run-B-0"}
    reported = {run["run_id"]: run["seal"] for run in document(subject)["runs"]}
    assert {run.id: run.seal for run in runs} == reported


def test_the_index_says_it(tmp_path: Path) -> None:
    unseal(write_run(tmp_path / "runs", arm("A", 0)))
    text = Page(render_index(tmp_path / "runs", output=tmp_path / "index.html")).text()
    assert "no seal" in text


def test_a_page_of_sealed_records_says_nothing_of_it(arms: tuple[Run, ...]) -> None:
    text = Page(page_of(make_subject(arms))).text()
    assert "has no seal, so" not in text
    assert "Compared without a seal" not in text
    assert "seal matches the content" in text
    assert "as the run wrote it" not in text
