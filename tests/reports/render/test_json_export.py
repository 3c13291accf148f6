"""The embedded numbers of a page are the printed ones."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.records import Scenario, write_run
from tests.reports.conftest import arm, one, render_page
from tests.reports.parsing import Page
from wattload.core.units import Unit
from wattload.reports.render.json_export import document, json_data, json_report
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.stats.subject import make_subject
from wattload.results.quantity import number, scale_for, scaled

HOSTILE = "</script><script>alert(1)</script><!-- \u2028 & ]]>"


@pytest.fixture(scope="module")
def page(arms: tuple[Run, ...]) -> Page:
    return Page(render_page(arms))


def tables(source: str) -> Iterator[list[list[str]]]:
    """Yield the rows of every table of a page as texts."""
    for table in re.findall(r"<table.*?</table>", source, flags=re.DOTALL):
        rows = re.findall(r"<tr>(.*?)</tr>", table, flags=re.DOTALL)
        yield [
            [Page(cell).raw() for cell in re.findall(r"<t[dh].*?</t[dh]>", row, flags=re.DOTALL)]
            for row in rows
        ]


def test_every_row_of_a_comparison_prints_what_its_data_holds(page: Page) -> None:
    data = page.data()
    (comparison,) = data["comparisons"]
    printed = {row[0]: row for table in tables(page.source) for row in table if len(row) == 7}
    checked = 0
    for row in comparison["rows"]:
        known = data["quantities"][row["quantity"]]
        means = list(row["centres"].values())
        if None in means or "effect" not in row:
            continue
        scale = scale_for(Unit(known["unit"]), *means)
        name = f"{known['label']}{scale.unit}"
        cells = next(cells for first, cells in printed.items() if first.startswith(name))
        for cell, mean in zip(cells[2:4], means, strict=True):
            assert cell.startswith(scaled(mean, scale)), cells
        ratio = row["effect"]["ratio"]
        assert row["words"] in cells[6]
        if known["unit"] == Unit.FRACTION.value:
            assert row["difference"] == pytest.approx(abs(math.log(ratio)))
            assert cells[4].endswith("points")
            continue
        assert row["ratio"] == pytest.approx(max(ratio, 1 / ratio))
        assert cells[4].startswith(f"{row['leader']} {number(row['ratio'], 3)}")
        ends = [number(end, 4) for end in row["interval"]]
        assert cells[5].startswith(" to ".join(ends))
        checked += 1
    assert checked > 5


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
