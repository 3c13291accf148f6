from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from tests.records import Scenario
from tests.reports.conftest import arm, one
from wattload.core.record.results import Check
from wattload.reports.render.text_export import COLUMNS, csv_report, markdown_report
from wattload.reports.runs.load import Run
from wattload.reports.stats.figures import quantities
from wattload.reports.stats.subject import make_subject


def rows(*runs: Run) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_report(make_subject(runs)))))


def test_there_is_a_row_per_run_and_figure(arms: tuple[Run, ...]) -> None:
    found = rows(*arms)
    assert len(found) == sum(len(quantities(run.record)) for run in arms)
    assert tuple(found[0]) == COLUMNS
    first = arms[0].record.metrics[0]
    assert first.value is not None
    assert (found[0]["figure"], float(found[0]["value"])) == (first.name, first.value)
    assert (found[0]["unit"], found[0]["valid"]) == (first.unit.value, "true")


def test_a_missing_figure_is_an_empty_field_with_its_reason(tmp_path: Path) -> None:
    found = rows(one(tmp_path, Scenario(run_id="run-v", seconds=1.0, limits=("none",))))
    empty = [row for row in found if not row["value"]]
    assert empty
    assert all(row["valid"] == "false" and row["why_not"] for row in empty if not row["upper"])


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


def test_no_text_is_a_formula(tmp_path: Path) -> None:
    (first, *_) = rows(one(tmp_path, Scenario(run_id="run-a", label="=cmd|x!A1", seconds=1.0)))
    assert first["label"] == "'=cmd|x!A1"


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
    runs = [
        one(tmp_path, arm("A", 0)),
        one(tmp_path, arm("B", 0, scale="demo")),
    ]
    text = csv_report(make_subject(runs, forced=True))
    found = list(csv.DictReader(io.StringIO(text)))
    assert {row["forced"] for row in found} == {"different work: scale differ"}
    assert {row["forced"] for row in rows(*runs)} == {""}


def test_two_arms_are_a_summary_and_a_table(arms: tuple[Run, ...]) -> None:
    text = markdown_report(make_subject(arms))
    assert text.startswith("## A against B: unet3d\n\n1. ")
    (head,) = (line for line in text.splitlines() if line.startswith("| quantity "))
    assert head == "| quantity | better | A | B | B/A | 95 % interval | verdict |"
    bodies = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({line.count("|") for line in bodies}) == 1
    assert re.search(r"SHA-256 of the records: `[0-9a-f]{64}`", text)


def test_a_single_run_is_a_table_of_its_figures(tmp_path: Path) -> None:
    text = markdown_report(make_subject([one(tmp_path, Scenario(run_id="r", seconds=1.0))]))
    assert "| quantity | better | figure |" in text


def test_text_of_records_is_no_markup(tmp_path: Path) -> None:
    label = "<img src=x> | `x` [a](http://b) @someone #1"
    text = markdown_report(
        make_subject([one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, label=label))])
    )
    assert "<img" not in text.replace(r"\<img", "")
    assert "@someone" not in text
    assert r"\[a\](http" in text
    assert r"\|" in text


def test_more_arms_than_letters_are_said_and_not_shown(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm("A", index, label=f"arm{index}")) for index in range(7)]
    assert "at most 6 are shown side by side" in markdown_report(make_subject(runs))


def test_text_of_records_is_no_link_and_turns_no_direction(tmp_path: Path) -> None:
    label = "https://evil.example HTTP://x www.evil.example me@evil.example \u202egpj.exe"
    text = markdown_report(
        make_subject([one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, label=label))])
    )
    for bare in ("https://", "HTTP://", "www.", "me@evil", "\u202e"):
        assert bare not in text, bare
    assert r"\\u202egpj.exe" in text
