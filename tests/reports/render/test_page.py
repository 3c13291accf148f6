from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.records import Scenario, write_run
from tests.reports.conftest import LIMITS, arm, one, render_page
from tests.reports.parsing import Page
from wattload.core.record.results import Check, Metric
from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.render.page import page_script, style_sheet
from wattload.reports.runs.load import Run

ROOT = Path(__file__).parents[3]
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


def test_the_same_records_give_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    for name in ("A", "B"):
        write_run(tmp_path, arm(name, 0))
    program = (
        "import hashlib, pathlib, sys; from wattload.reports.runs.load import load_runs; "
        "from wattload.reports.render.page import page_of; "
        "from wattload.reports.stats.subject import make_subject; "
        "page = page_of(make_subject(load_runs([pathlib.Path(sys.argv[1])]))); "
        "print(hashlib.sha256(page.encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_the_page_opens_with_its_verdict(arms_page: Page) -> None:
    text = arms_page.text().replace("\u00a0", " ")
    head = text[: text.index("Power during Unet3D")]
    for words in ("A vs B", "5 runs each", "Confidence"):
        assert words in head
    assert "higher is better" not in head


def test_a_single_run_opens_with_its_figures_and_what_limits_them(virtual_page: Page) -> None:
    text = virtual_page.text().replace("\u00a0", " ")
    head = text[: text.index("Rate during")]
    assert "1.50 GB/s" in head
    assert "not limited by the drive" in head or "the drive, busy" in head
    assert head.count("Drive energy: not measured (no power sensor).") == 1


def test_conditions_say_what_was_run_on_what(virtual_page: Page) -> None:
    assert (
        "Scale quick, loader direct and arrow, on box (2 CPUs, 25.8 GB of memory, a guest under "
        "kvm), against /mnt/ssd (ext4 on virtio vda)"
    ) in virtual_page.text().replace("\u00a0", " ")


def test_what_could_not_be_measured_is_told_once(virtual_page: Page) -> None:
    text = virtual_page.text()
    assert text.count("Power was not measured. No drive-scope power source") == 1
    assert LIMITS[0] in text
    assert "The same run against memory" in text
    assert "1000 batches are the least" in text


def test_without_a_source_there_is_no_chart_of_power(virtual_page: Page) -> None:
    assert "Power, W" not in virtual_page.source
    assert "Cumulative energy" not in virtual_page.text()


def test_a_virtual_disk_is_said_to_be_guest_cold(virtual_page: Page) -> None:
    assert "cold means guest-cold" in virtual_page.text()


def test_the_link_in_use_stands_beside_the_best_one(arms_page: Page) -> None:
    text = arms_page.text()
    assert "16 GT/s x4, 32 GT/s x4" in text
    assert "PCIe link: 16 GT/s x4, the drive supports 32 GT/s x4." in text


def test_the_command_and_the_configuration_are_there(virtual_page: Page) -> None:
    assert "wattload run workload=unet3d target.path=/mnt/ssd label=A" in virtual_page.text()
    assert '"file_count": 28' in virtual_page.source.replace("&#34;", '"')


def test_the_embedded_record_is_the_record(virtual_runs: tuple[Run, ...]) -> None:
    page = Page(render_page(virtual_runs))
    for run in virtual_runs:
        document = json.loads(page.block(f"record-{run.id}"))
        stored = run.record.model_copy(update={"metrics": ()})
        assert RunRecord.model_validate(document) == stored


def test_a_record_too_large_to_embed_says_where_it_is(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="big", seconds=1.0, remarks=("x" * 1_000_001,)))
    text = Page(render_page([run])).text()
    assert "The record is not embedded" in text
    assert "see record.json of run big" in text


def test_a_winner_of_speed_and_one_of_energy_are_named_with_their_intervals(
    arms_page: Page,
) -> None:
    text = arms_page.text().replace("\u00a0", " ")
    assert re.search(r"A 2\.50\u00d7 as fast 95 % CI 2\.49 to 2\.51", text)
    assert re.search(r"A \d\d(\.\d)? % less energy 95 % CI", text)
    assert "slower" not in text


def test_bounds_and_maxima_carry_their_signs_in_charts_and_tables(tmp_path: Path) -> None:
    runs = [
        one(tmp_path, arm("A", 0, power="bounds")),
        one(tmp_path, arm("B", 0, power="upper", rate=0.6e9)),
    ]
    source = render_page(runs).replace("\u00a0", " ")
    assert "Bounds of the drive&#39;s power" in source
    assert "A at least" in source
    assert "B at most" in source
    assert "B at least" not in source
    assert "16.0 to 80.0 J" in source
    assert "≤ 250 J" in source
    assert "A lower bound is soft" in source


def test_more_arms_than_letters_have_no_sections_of_their_own(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm(name, 0)) for name in "abcdefg"]
    page = Page(render_page(runs))
    assert "workload-unet3d-arms" not in page.values("id")
    lead = [value.removeprefix("#") for value in page.values("href") if value.startswith("#")]
    assert set(lead) <= set(page.values("id"))


def test_an_arm_that_did_not_run_a_workload_has_no_verdict_there(tmp_path: Path) -> None:
    runs = [
        one(tmp_path, arm("A", 0)),
        one(tmp_path, arm("B", 0)),
        one(tmp_path, arm("A", 1, workload="checkpoint")),
    ]
    assert "not compared" in Page(render_page(runs)).text()


def _bare(run: Run) -> Run:
    """Return what is left of a run that was killed before its first phase ended."""
    (host,) = run.record.hosts
    record = run.record.model_copy(
        update={
            "status": "aborted",
            "status_reason": "all ranks were killed",
            "finished_utc": None,
            "spans": (),
            "metrics": (),
            "counters": (),
            "checks": (),
            "controllers": (),
            "ranks": (),
            "hosts": (host.model_copy(update={"after": None}),),
            "power": run.record.power.model_copy(update={"energy": (), "states": ()}),
        }
    )
    gone = replace(run.traces, throughput=None, power=None, notes=("No trace was written.",))
    return replace(run, record=record, traces=gone)


def test_an_aborted_run_has_a_page_that_says_so(tmp_path: Path) -> None:
    text = Page(render_page([_bare(one(tmp_path, arm("A", 0)))])).text()
    assert "the run was aborted: all ranks were killed." in text
    assert "No check was made" in text
    assert "no phase finished" in text
    assert "No trace was written." in text


def test_a_missing_headline_is_a_dash_with_its_reason(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="gap", seconds=1.0))
    gap = Metric.of(
        "restore_bytes_per_s",
        None,
        Unit.BYTES_PER_SECOND,
        "higher",
        "Bytes read.",
        headline=True,
        reason="the checkpoint was never read back",
    )
    record = run.record.model_copy(update={"metrics": (gap, *run.record.metrics)})
    text = Page(render_page([replace(run, record=record)])).text()
    assert "No restore rate: the checkpoint was never read back." in text


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


def test_hostile_names_in_the_charts_are_text(tmp_path: Path) -> None:
    source = render_page([one(tmp_path, _hostile())])
    drawn = re.findall(r"<svg .*?</svg>", source, flags=re.DOTALL)
    assert drawn
    for chart in drawn:
        assert "<script" not in chart
        assert "<img" not in chart
