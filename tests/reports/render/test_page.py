"""A page is whole: links, policy, texts of records, names of any length, and one unit of energy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.records import Scenario, write_run
from tests.reports.conftest import arm, one, render_page
from tests.reports.parsing import Page
from tests.reports.sessions import run
from wattload.core.record.results import Check
from wattload.reports.render.output import make_report
from wattload.reports.render.page import page_script, style_sheet
from wattload.reports.runs.load import Run
from wattload.reports.sections.wording import anchor

FETCHING = ("src", "srcset", "action", "data", "poster", "formaction", "background", "ping")
DATA = [("type", "application/json"), ("id", "wattload-data")]
"""The attributes of the scripts of a page: its data; its own script has none."""
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}"


@pytest.fixture(scope="module")
def virtual_page(virtual_runs: tuple[Run, ...]) -> Page:
    return Page(render_page(virtual_runs))


@pytest.fixture(scope="module")
def arms_page(arms: tuple[Run, ...]) -> Page:
    return Page(render_page(arms))


@pytest.fixture(params=["virtual_page", "arms_page"])
def page(request: pytest.FixtureRequest) -> Page:
    found: Page = request.getfixturevalue(request.param)
    return found


def test_tags_are_balanced_and_ids_are_unique(page: Page) -> None:
    assert page.unbalanced == []
    ids = page.values("id")
    assert len(ids) == len(set(ids))


def test_links_and_references_lead_to_something_on_the_page(page: Page) -> None:
    ids = set(page.values("id"))
    for href in page.values("href"):
        assert href == "data:," or href.removeprefix("#") in ids, href
    for names in page.values("aria-labelledby"):
        assert set(names.split()) <= ids
    for place in re.findall(r"url\(([^)]*)\)", page.source):
        assert place.removeprefix("#") in ids


def test_nothing_is_fetched_from_anywhere(page: Page) -> None:
    for name in FETCHING:
        assert page.values(name) == [], name
    assert "@import" not in page.source
    schemes = [value for tag, name, value in page.attributes if "://" in value and name != "xmlns"]
    assert schemes == []
    assert set(page.values("xmlns")) == {"http://www.w3.org/2000/svg"}


def test_only_the_page_s_own_script_runs_and_no_style_is_inline(page: Page) -> None:
    assert page.scripts() == DATA
    assert page.values("style") == []
    assert not [name for _tag, name, _value in page.attributes if name.startswith("on")]


def test_the_policy_allows_one_style_sheet_one_script_and_nothing_else(page: Page) -> None:
    import base64
    import hashlib

    def digest(text: str) -> str:
        return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"

    policy = next(value for value in page.values("content") if "default-src" in value)
    assert policy.startswith(
        f"default-src 'none'; style-src '{digest(style_sheet())}'; "
        f"script-src '{digest(page_script())}';"
    )
    assert "unsafe" not in policy
    assert f"<style>{style_sheet()}</style>" in page.source
    assert f"<script>{page_script()}</script>" in page.source


def test_every_chart_has_a_name_a_description_and_its_data(page: Page) -> None:
    pictures = page.source.count('class="pic ')
    assert pictures > 0
    assert page.values("role").count("img") == pictures
    assert all(label for label in page.values("aria-label"))
    figures = page.tags.count("figure")
    assert figures > 0
    assert page.values("class").count("chart-title") == figures
    assert page.tags.count("figcaption") == figures


def test_a_page_names_the_record_of_each_run_and_how_to_check_it(
    virtual_runs: tuple[Run, ...],
) -> None:
    page = Page(render_page(virtual_runs))
    text = page.text()
    assert text.count("record.json in the run's folder; its SHA-256 is under Inputs") == 3
    assert all(run.sha256 in text for run in virtual_runs)


def test_facts_by_rank_make_a_record_heavy_and_its_page_not(tmp_path: Path) -> None:
    runs = [
        one(tmp_path, Scenario(run_id=f"ranks-{ranks}", seconds=1.0, ranks=ranks))
        for ranks in (1, 100)
    ]
    records = [len(each.record.model_dump_json()) for each in runs]
    pages = [len(render_page([each])) for each in runs]
    assert pages[1] - pages[0] < 0.2 * (records[1] - records[0])


def test_more_arms_than_letters_have_no_sections_of_their_own(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm(name, 0)) for name in "abcdefg"]
    page = Page(render_page(runs))
    assert "workload-unet3d-arms" not in page.values("id")
    lead = [value.removeprefix("#") for value in page.values("href") if value.startswith("#")]
    assert set(lead) <= set(page.values("id"))


def _hostile() -> Scenario:
    return Scenario(
        run_id="run-hostile",
        label=HOSTILE,
        host=HOSTILE,
        path=f"/mnt/{HOSTILE}",
        serial=HOSTILE,
        model=HOSTILE,
        seconds=1.0,
        virtual=False,
        power="measured",
        limits=(HOSTILE,),
        remarks=(HOSTILE,),
        checks=(Check(name=HOSTILE, verdict="warn", sentence=HOSTILE, figures={HOSTILE: 1}),),
    )


def test_hostile_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    run = one(tmp_path, _hostile())
    clean = one(tmp_path, replace(_hostile(), run_id="run-clean", label="A", host="h", serial="S"))
    page = Page(render_page([run, clean]))
    assert page.scripts() == DATA
    assert "img" not in page.tags
    assert page.unbalanced == []
    assert not [name for _tag, name, _value in page.attributes if name.startswith("on")]
    assert HOSTILE in page.raw()
    assert "49" not in re.findall(r"\{\{.*?\}\}|&\d+", page.raw())
    assert "{{7*7}}" in page.raw()


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


REAL: dict[str, Any] = {"power": "measured", "virtual": False}


@pytest.mark.parametrize(("seconds", "other"), [(0.5, 40.0), (0.5, 0.6)])
def test_no_page_mixes_joules_and_watt_hours(seconds: float, other: float) -> None:
    runs = [
        run("short", workload="unet3d", seconds=seconds, **REAL),
        run("long", workload="checkpoint", seconds=other, **REAL),
    ]
    text = Page(render_page(runs)).text().replace("\u00a0", " ")
    text = re.sub(r"(energy is|minus idle power times seconds is) [\d.]+ J", "", text)
    units = set(re.findall(r"[\d.] (J|Wh|kWh)\b(?!/)", text))
    assert len(units) == 1, units


def test_a_page_links_to_the_records_beside_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs of today", arm("A", 0))
    page = tmp_path / "pages" / "report.html"
    found = Page(make_report([folder], output=page).text)
    (link,) = (href for href in found.values("href") if href.endswith("record.json"))
    assert (page.parent / unquote(link)).resolve() == (folder / "record.json").resolve()
    for other in (make_report([folder], output=page, redact=True), make_report([folder])):
        hrefs = Page(other.text).values("href")
        assert not [href for href in hrefs if href.endswith("record.json")]
