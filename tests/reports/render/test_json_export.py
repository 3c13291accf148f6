"""The embedded numbers of a page are the printed ones."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, write_run
from tests.reports.conftest import arm, one, render_page
from tests.reports.parsing import Page
from tests.reports.sessions import against_itself, session
from wattload.core.record.file import read_record
from wattload.core.record.run import RunRecord
from wattload.reports.render.json_export import document, json_data, json_report
from wattload.reports.render.output import make_report
from wattload.reports.runs.load import DETAILED_RUNS, Run, load_runs
from wattload.reports.stats.comparison import compare, noise_floors
from wattload.reports.stats.intervals import sign_flip_p_value
from wattload.reports.stats.subject import Subject, make_subject
from wattload.results.reading import judged

HOSTILE = "</script><script>alert(1)</script><!-- \u2028 & ]]>"


@pytest.fixture(scope="module")
def page(arms: tuple[Run, ...]) -> Page:
    return Page(render_page(arms))


def test_a_missing_figure_is_null_with_its_reason(virtual_runs: tuple[Run, ...]) -> None:
    found = document(make_subject(virtual_runs))
    missing = [
        figure
        for run in found["runs"]
        for figure in run["figures"].values()
        if figure["value"] is None
    ]
    assert missing
    assert all(figure.get("note") or "upper" in figure for figure in missing)
    assert 0 not in [figure["value"] for figure in missing]


def test_text_in_the_data_ends_no_script(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="run-a", label=HOSTILE, seconds=1.0))
    text = json_data(make_subject([run]))
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text)["runs"][0]["label"] == HOSTILE
    assert Page(render_page([run])).data()["runs"][0]["label"] == HOSTILE


def test_what_nobody_sees_is_escaped_in_the_data(tmp_path: Path) -> None:
    unseen = "\u202e\u200b\u2028\U000e0041"
    label = f"A{unseen}"
    subject = make_subject([one(tmp_path, Scenario(run_id="run-a", label=label, seconds=1.0))])
    for text in (json_data(subject, claims=True), json_report(subject, claims=True)):
        assert not set(unseen) & set(text)
        assert json.loads(text)["runs"][0]["label"] == label


def test_the_exported_report_is_what_the_page_carries(arms: tuple[Run, ...], page: Page) -> None:
    assert json.loads(json_report(make_subject(arms), claims=False)) == page.data()


def test_inputs_are_the_digests_of_the_files(arms_folder: Path, page: Page) -> None:
    files = sorted(arms_folder.glob("*/record.json"))
    digests = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    over_all = hashlib.sha256("".join(f"{line}\n" for line in digests).encode()).hexdigest()
    assert page.data()["inputs_sha256"] == over_all
    assert over_all in page.text()
    assert all(digest in page.text() for digest in digests)


def test_a_masked_reports_digests_are_of_masked_records(tmp_path: Path) -> None:
    folder = write_run(tmp_path, arm("A", 0))
    (run,) = load_runs([folder], redact=True)
    clear = hashlib.sha256((folder / "record.json").read_bytes()).hexdigest()
    masked = hashlib.sha256(run.record.model_dump_json().encode()).hexdigest()
    page = Page(render_page([run]))
    assert (run.sha256, run.record.seal) == (masked, None)
    assert clear not in page.source
    assert masked in page.text()
    assert "masked records' JSON" in page.text()


def test_an_edited_record_is_shown_and_not_compared(tmp_path: Path) -> None:
    run = replace(one(tmp_path, arm("A", 0)), seal="broken")
    subject = make_subject([run])
    assert subject.faults(run) == (
        "it was edited: The record was edited after the run: its seal does not match its content.",
    )
    reported: dict[str, Any] = document(subject)["runs"][0]
    assert (reported["valid"], reported["seal"]) == (False, "broken")
    assert "edited after the run" in Page(render_page([run])).text()


NEAR = [1.0, 1.004, 0.997, 1.002, 0.999, 1.001, 1.003, 0.998]


def two_arms() -> list[Run]:
    return session({"A": [1.1e9 * x for x in NEAR], "B": [1e9 * x for x in reversed(NEAR)]})


@pytest.fixture(scope="module")
def subject() -> Subject:
    halves = [1e9 * x for x in NEAR], [1e9 * x for x in reversed(NEAR)]
    return make_subject([*two_arms(), *against_itself("B", *halves)])


@pytest.fixture(scope="module")
def data(subject: Subject) -> dict[str, Any]:
    return document(subject, claims=True)


def test_published_figures_are_opt_in(subject: Subject) -> None:
    assert document(subject)["published"] is None


def test_an_effect_has_both_intervals_and_all_p_values(
    subject: Subject, data: dict[str, Any]
) -> None:
    (group,) = subject.groups
    (comparison,) = data["comparisons"]
    checked = 0
    for row, reported in zip(compare(subject, group), comparison["rows"], strict=True):
        effect, found = row.effect, reported.get("effect")
        if effect is None:
            assert found is None
            continue
        assert (found["lower"], found["upper"]) == (effect.lower, effect.upper)
        assert effect.t is not None
        assert found["t"] == list(effect.t)
        assert found["bootstrap"] == (list(effect.bootstrap) if effect.bootstrap else None)
        assert (found["p_value"], found["floor"]) == (effect.p_value, effect.floor)
        if effect.demand is not None and effect.estimate is not None:
            assert found["demand"] == asdict(effect.demand)
            assert found["demanded"] == [list(each) for each in effect.demanded]
            assert found["p_value_sign_flips"] == sign_flip_p_value(effect.estimate)
            checked += 1
    assert checked > 0
    assert [each["share"] for each in data["noise"]] == [n.share for n in noise_floors(subject)]


def test_all_data_have_whole_records_however_many_runs(tmp_path: Path) -> None:
    for number in range(DETAILED_RUNS + 1):
        write_run(tmp_path, Scenario(run_id=f"run-{number:02}", order=number, seconds=1.0))
    found = json.loads(make_report([tmp_path], form="json", full=True).text)
    stored = [judged(read_record(folder)) for folder in sorted(tmp_path.iterdir())]
    assert found["records"] == [record.model_dump(mode="json") for record in stored]
    assert RunRecord.model_validate(found["records"][0]).run_id == "run-00"
    assert "records" not in json.loads(make_report([tmp_path], form="json").text)
