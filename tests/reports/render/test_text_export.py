from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from tests.records import Scenario, cluster_of, make_cluster, write_made_run
from tests.reports.conftest import arm, one
from tests.reports.sessions import run, turn
from wattload.core.record.results import Check
from wattload.core.units import Unit
from wattload.reports.render.json_export import document
from wattload.reports.render.text_export import (
    csv_report,
    markdown_report,
    ratios_report,
)
from wattload.reports.runs.energy import power_text
from wattload.reports.runs.hosts import shares_of
from wattload.reports.runs.load import LeftOut, Run, load_runs
from wattload.reports.stats.figures import quantities
from wattload.reports.stats.subject import make_subject
from wattload.results.quantity import quantity


def rows(*runs: Run) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_report(make_subject(runs)))))


def test_a_row_is_one_quantity_of_one_phase_of_one_run(arms: tuple[Run, ...]) -> None:
    found = rows(*arms)
    assert len(found) == sum(len(quantities(run.record)) + 1 for run in arms), "and a tail each"
    assert list(found[0])[:4] == ["run_id", "session_id", "workload", "arm"]
    assert list(found[0])[-3:] == ["evidence", "valid", "why_not"]
    keys = {(row["run_id"], row["phase"], row["quantity"]) for row in found}
    assert len(keys) == len(found)
    both = {"energy in the window", "energy for the work"}
    assert {row["quantity"] for row in found} >= both | {"rate per watt", "tail within 30 s"}
    of_energy = [row for row in found if row["quantity"] in both]
    assert all(float(row["uncertainty"]) > 0 for row in of_energy)
    first = arms[0].record.metrics[0]
    assert first.value is not None
    assert (found[0]["quantity"], float(found[0]["value"])) == (first.name, first.value)
    assert (found[0]["unit"], found[0]["valid"]) == (first.unit.value, "true")


def test_every_form_has_the_figures_of_each_host(tmp_path: Path) -> None:
    record, traces = make_cluster(cluster_of("ada", "bob", slow="bob", power="measured", ranks=2))
    runs = load_runs([write_made_run(tmp_path / "run", record, traces)])
    *shares, whole = shares_of(record)
    subject = make_subject(runs)
    (made,) = document(subject)["runs"]
    assert [each["name"] for each in made["hosts"]] == ["ada", "bob", "both hosts"]
    found = rows(*runs)
    lines = markdown_report(subject).splitlines()
    page_rows = [line for line in lines if re.match(r"\| (ada|bob|both) ", line)]
    assert len(page_rows) == 3
    for share, in_json, in_markdown in zip((*shares, whole), made["hosts"], page_rows, strict=True):
        assert share.energy is not None
        expected = {
            "ranks": share.rank_count,
            "read": share.read_bytes,
            "read rate": share.reading_bytes_per_s,
            "energy for the work": share.energy.work_j,
            "mean power": share.energy.mean_w,
            "clock known to": share.clock_bound_s,
        }
        figures = {
            row["quantity"]: float(row["value"]) if row["value"] else None
            for row in found
            if row["host"] == share.name
        }
        assert not figures if share is whole else figures.items() >= expected.items()
        energy = in_json["energy"]
        assert [in_json[name] for name in ("rank_count", "read_bytes", "reading_bytes_per_s")] == [
            *list(expected.values())[:3]
        ]
        assert (energy["work_j"], energy["mean_w"]) == (share.energy.work_j, share.energy.mean_w)
        for text in (
            power_text(share.energy),
            quantity(share.reading_bytes_per_s, Unit.BYTES_PER_SECOND),
        ):
            assert text.replace("\N{NO-BREAK SPACE}", " ") in in_markdown


def test_every_swept_setting_has_a_column_and_warm_ups_are_marked() -> None:
    runs = [
        run(f"{label}-{workers}", {"workload": {"workers": workers}}, label=label)
        for label in "AB"
        for workers in (1, 2)
    ]
    warm = turn("A", -1, 1e9, warm_up=True, settings={"workload": {"workers": 1}})
    found = rows(*runs, warm)
    assert {row["workload.workers"] for row in found} == {"1", "2"}
    marked = {row["run_id"] for row in found if row["warm_up"] == "true"}
    assert marked == {warm.id}
    assert {row["valid"] for row in found if row["warm_up"] == "true"} == {"false"}


def test_ratios_have_a_file_of_their_own(arms: tuple[Run, ...]) -> None:
    text = ratios_report(make_subject(arms))
    found = list(csv.DictReader(io.StringIO(text)))
    (rate,) = (row for row in found if row["quantity"] == "read_bytes_per_s")
    assert (rate["arm_a"], rate["arm_b"], rate["n_a"], rate["call"]) == ("A", "B", "5", "a")
    ratio = float(rate["mean_b"]) / float(rate["mean_a"])
    assert float(rate["ratio_b_over_a"]) == pytest.approx(ratio, rel=1e-9)
    assert float(rate["lower"]) < ratio < float(rate["upper"])
    assert ratios_report(make_subject(arms[:1])) == ""


def test_a_barred_run_says_why_in_every_row(tmp_path: Path) -> None:
    bad = Check(name="delivered", verdict="fail", sentence="3 of 4 hashes differ.")
    for row in rows(one(tmp_path, arm("A", 0, checks=(bad,)))):
        assert row["valid"] == "false"
        assert "delivered" in row["why_not"]


def test_declared_energy_is_no_valid_figure(tmp_path: Path) -> None:
    found = rows(one(tmp_path, arm("A", 0, power="declared")))
    energy = [row for row in found if row["unit"] == "J" and row["value"]]
    assert energy
    assert {row["valid"] for row in energy} == {"false"}
    assert all("declared" in row["evidence"] for row in energy)


@pytest.mark.parametrize(
    "label", ["=1+1", "+1", "-1", "@x", " =1", "\t=1", "\r=1", "\n=1", "\uff1d1", "\u00a0=1"]
)
def test_no_cell_begins_as_a_formula(tmp_path: Path, label: str) -> None:
    for row in rows(one(tmp_path, Scenario(run_id="run-a", label=label, seconds=1.0))):
        for name in ("label", "arm"):
            assert row[name].startswith(("'", "\\")), row[name]


def test_what_nobody_sees_is_escaped(tmp_path: Path) -> None:
    text = csv_report(
        make_subject([one(tmp_path, Scenario(run_id="r", label="A\u202egpj", seconds=1.0))])
    )
    assert "\u202e" not in text
    assert r"A\u202egpj" in text


def test_what_was_forced_is_said_in_its_rows(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, scale="demo"))]
    text = ratios_report(make_subject(runs, forced=True))
    found = list(csv.DictReader(io.StringIO(text)))
    assert {row["forced"] for row in found} == {"different work: scale differs"}
    text = ratios_report(make_subject(runs))
    assert {row["forced"] for row in csv.DictReader(io.StringIO(text))} == {""}


@pytest.mark.parametrize("arm_count", [1, 2, 3, 7, 30])
def test_markdown_is_short_whatever_the_number_of_arms(arm_count: int) -> None:
    runs = [
        run(f"{workload}-{index}", workload=workload, label=f"arm{index}")
        for workload in ("unet3d", "checkpoint", "dlrm")
        for index in range(arm_count)
    ]
    text = markdown_report(make_subject(runs))
    assert text.count("\n") <= 60
    assert ("more row" in text) == (arm_count > 12)


def test_text_of_records_is_no_markup(tmp_path: Path) -> None:
    label = "<img src=x> | `x` [a](http://b) @someone #1"
    text = markdown_report(
        make_subject([one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, label=label))])
    )
    assert "<img" not in text.replace(r"\<img", "")
    assert "@someone" not in text
    assert r"\[a\](http" in text
    assert r"\|" in text


def test_text_of_records_is_no_link_and_turns_no_direction(tmp_path: Path) -> None:
    label = "https://evil.example HTTP://x www.evil.example me@evil.example \u202egpj.exe"
    text = markdown_report(
        make_subject([one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, label=label))])
    )
    for bare in ("https://", "HTTP://", "www.", "me@evil", "\u202e"):
        assert bare not in text, bare
    assert r"\\u202egpj.exe" in text


def test_markdown_counts_and_names_the_records_that_are_left_out(arms: tuple[Run, ...]) -> None:
    newer = LeftOut(name="run-new", reason="has schema version 99", path=Path("run-new"))
    text = markdown_report(make_subject(arms, left_out=(newer,)))
    assert "5 valid runs, B: 5 valid runs; 1 record left out." in text
    assert "- run-new: has schema version 99" in text
