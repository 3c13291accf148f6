"""docs/mlperf.md has the formulas and words of the code, docs/workloads.md the job of retinanet."""

from __future__ import annotations

import re
from typing import get_args

from tests.docs.commands import ROOT
from wattload.core.mlperf.edition import editions, training_model
from wattload.core.mlperf.rules import Standing

PAGE = (ROOT / "docs" / "mlperf.md").read_text("utf-8")
WORKLOADS = (ROOT / "docs" / "workloads.md").read_text("utf-8")


def table(page: str, head: str) -> list[list[str]]:
    """Return the rows of the table with this first cell, the row of column names first."""
    rows = page.split(f"\n| {head} |")[1].partition("\n\n")[0].splitlines()
    lines = (f"{head} |{rows[0]}", *rows[2:])
    return [[cell.strip() for cell in line.strip(" |").split("|")] for line in lines]


def test_a_column_of_formulas_for_each_edition_leaves_out_its_steps_and_its_first_step() -> None:
    names, throughput, utilisation = table(PAGE, "figure")
    left_out = {name: each.steps_left_out for name, each in editions().items()}
    assert dict(zip(names[1:-1], map(_left_out, throughput[1:-1]), strict=True)) == left_out
    for name, formula in zip(names[1:-1], throughput[1:-1], strict=True):
        assert ("t₁" in formula) is bool(left_out[name])
    assert len(set(utilisation[1:-1])) == 1


def _left_out(formula: str) -> int:
    found = re.match(r"\(S \W (\d)\)", formula)
    return int(found[1]) if found else 0


def test_every_word_of_a_standing_is_explained() -> None:
    explained = " ".join(row[0] for row in table(PAGE, "word"))
    words = {"kept" if each == "closed" else each.replace("_", " ") for each in get_args(Standing)}
    assert {word for word in words if word not in explained} == set()


def test_the_job_of_retinanet_is_the_published_one() -> None:
    found = training_model("retinanet")
    assert found is not None
    _, job = found
    section = WORKLOADS.split("\n### retinanet\n")[1].split("\n## ")[0]
    assert f"{job.record_bytes:,.0f} bytes" in section
    for name, accelerator in job.accelerators.items():
        assert f"{name}: {accelerator.batch_samples}, {accelerator.step_s} s" in section
    assert f"| epochs | 3, {job.epochs}, {job.epochs} |" in section
    assert f"{job.au * 100:.0f} %" in section
