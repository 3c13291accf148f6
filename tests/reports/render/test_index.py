"""The index of a folder: a row for every run, even with a broken record."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.records import Scenario, make_run, write_made_run, write_run
from tests.reports.conftest import arm
from tests.reports.parsing import Page
from wattload.core.errors import RecordError
from wattload.core.record.file import RECORD_FILE
from wattload.core.record.results import Check
from wattload.reports.render.index import PAGE, TITLES, render_index

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}"
BAD = Check(name="delivered", verdict="fail", sentence="3 of 4 hashes differ.")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    write_run(folder, arm("A", 0))
    write_run(folder, arm("B", 0, power="declared", checks=(BAD,)))
    write_run(folder, Scenario(run_id="run-v", workload="checkpoint", seconds=1.0))
    return folder


def index(runs: Path, *, redact: bool = False) -> Page:
    return Page(render_index(runs, output=runs.parent / "index.html", redact=redact))


def cells(page: Page, name: str) -> list[str]:
    """Return the texts of the row of a run."""
    rows = re.findall(r"<tr>(.*?)</tr>", page.source, flags=re.DOTALL)
    row = next(row for row in rows if name in row)
    return [
        " ".join(Page(cell).raw().split())
        for cell in re.findall(r"<t[dh].*?</t[dh]>", row, flags=re.DOTALL)
    ]


def test_every_run_is_a_row_with_a_cell_per_column(runs: Path) -> None:
    page = index(runs)
    row = cells(page, "run-A-0")
    assert len(row) == len(TITLES) + 1
    assert row[:3] == ["run-A-0", "2026-11-20 23:00:05", "unet3d"]
    assert row[6:9] == ["quick", "complete", "0"]
    assert "measured by a meter" in row[-2]
    assert row[-1] == "first run"
    assert page.unbalanced == []


def test_a_row_says_what_changed_since_the_arms_last_run(runs: Path) -> None:
    write_run(runs, arm("A", 1, rate=3e9, state=0))
    row = cells(index(runs), "run-A-1")
    assert row[-1].startswith("read rate +100")
    assert "power state PS1 \u2192 PS0" in row[-1]
    assert cells(index(runs), "run-A-0")[-1] == "first run"
    write_run(runs, arm("A", 2, rate=3e9, state=0))
    assert "same settings" in cells(index(runs), "run-A-2")[-1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "truncated or not JSON"),
        ('{"schema_version": 9}', "schema version 9, and this wattload reads version 1"),
        ('{"schema_version": 1}', "not a valid record"),
    ],
)
def test_a_broken_record_is_a_row_that_says_why(runs: Path, text: str, words: str) -> None:
    (runs / "run-x").mkdir()
    (runs / "run-x" / RECORD_FILE).write_text(text)
    page = index(runs)
    row = cells(page, "run-x")
    assert len(row) == 2
    assert words in row[1]
    assert str(runs) not in row[1]
    assert "1 record unreadable" in page.text()


def test_energy_without_a_meter_is_told_in_few_words(runs: Path) -> None:
    record, traces = make_run(Scenario(run_id="run-n", seconds=1.0))
    choice = "power=none was requested: nothing is measured."
    power = record.power.model_copy(update={"requested": "none", "choice": choice})
    write_made_run(runs / "run-n", record.model_copy(update={"power": power}), traces)
    assert cells(index(runs), "run-n")[-2] == "\u2013not measured (power=none)"


def test_the_path_of_a_run_may_break_at_its_folders(runs: Path) -> None:
    write_run(runs / "session", Scenario(run_id="run-n", seconds=1.0))
    page = index(runs)
    assert ">session/<wbr>run-n</a>" in page.source
    assert cells(page, "<wbr>run-n")[0] == "session/run-n"


def test_a_link_to_no_record_is_a_row_that_says_where_it_leads(runs: Path) -> None:
    (runs / "run-x").mkdir()
    (runs / "run-x" / RECORD_FILE).symlink_to("moved.json")
    assert "a link to moved.json, which does not exist" in cells(index(runs), "run-x")[1]


@pytest.mark.parametrize("is_broken", [False, True])
def test_bytes_of_a_name_that_are_no_text_are_escaped(runs: Path, is_broken: bool) -> None:
    folder = runs / os.fsdecode(b"run-\xff")
    try:
        shutil.move(runs / "run-v", folder)
    except OSError:
        pytest.skip("this file system holds no name that is not UTF-8")
    if is_broken:
        (folder / RECORD_FILE).write_text("")
    page = index(runs)
    page.source.encode()
    assert cells(page, r"run-\xff")[0] == r"run-\xff"
    assert "runs/run-%FF/" in page.values("href")


def test_an_edited_record_says_so(runs: Path) -> None:
    file = runs / "run-A-0" / RECORD_FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | {"label": "Z"}))
    assert "edited after the run" in cells(index(runs), "run-A-0")[7]


def test_a_run_leads_to_its_page_or_else_to_its_folder(runs: Path) -> None:
    (runs / "run-A-0" / PAGE).touch()
    shutil.move(runs / "run-v", runs / "run v#1")
    links = index(runs).values("href")
    assert {"runs/run-A-0/report.html", "runs/run-B-0/", "runs/run%20v%231/"} <= set(links)


def test_the_policy_allows_this_one_script_and_nothing_else(runs: Path) -> None:
    page = index(runs)
    (script,) = re.findall(r"<script>(.*?)</script>", page.source, flags=re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page.source, flags=re.DOTALL)
    policy = next(value for value in page.values("content") if "default-src" in value)
    for kind, text in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_without_a_script_there_are_no_controls(runs: Path) -> None:
    page = index(runs)
    assert "button" not in page.tags
    assert ("form", "hidden", "") in page.attributes


def test_hostile_names_are_text(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", Scenario(run_id="run-h", label=HOSTILE, host=HOSTILE, seconds=1.0))
    page = index(tmp_path / "runs")
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert HOSTILE in page.raw()


def test_a_masked_index_names_no_machine_and_links_nowhere(tmp_path: Path) -> None:
    folder = tmp_path / "secret lab" / "runs"
    scenario = Scenario(run_id="run-s", path="/mnt/secret lab/ssd", seconds=1.0, label="db7")
    write_run(folder, Scenario(run_id="run-t", host="db7.corp.example", seconds=1.0))
    write_run(folder, scenario)
    (folder / "run-x").mkdir()
    (folder / "run-x" / RECORD_FILE).write_text("")
    page = index(folder, redact=True)
    for secret in ("secret lab", "db7", "/mnt/", str(tmp_path)):
        assert secret not in page.source, secret
    assert page.values("href") == ["data:,", "#runs"]


def test_the_same_folder_gives_the_same_bytes(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = index(runs).source
    monkeypatch.chdir(runs)
    assert render_index(Path(), output=Path("../index.html")) == first


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no runs in"):
        render_index(tmp_path, output=tmp_path / "index.html")
    with pytest.raises(RecordError, match="is not a folder"):
        render_index(tmp_path / "none", output=tmp_path / "index.html")
