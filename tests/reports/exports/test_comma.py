from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from tests.records import Scenario
from tests.reports.conftest import arm, one
from wattload.core.record.check import Check
from wattload.reports.exports.comma import COLUMNS, csv_report
from wattload.reports.figures import quantities
from wattload.reports.load import Run
from wattload.reports.subject import make_subject


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
    assert {row["forced"] for row in found} == {"not the same work: scale differ"}
    assert {row["forced"] for row in rows(*runs)} == {""}
