"""Published results stand next to runs of ours by the same formulas, and enter no verdict."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.records import write_run
from tests.reports.conftest import arm
from tests.reports.parsing import Page
from tests.reports.published import published, training
from wattload.core.errors import RecordError
from wattload.core.mlperf.formulas import samples_per_s
from wattload.core.mlperf.published import PublishedSet
from wattload.core.mlperf.store import write_sets
from wattload.reports.render.json_export import document
from wattload.reports.render.output import make_report
from wattload.reports.render.page import page_of
from wattload.reports.render.text_export import csv_report, markdown_report
from wattload.reports.runs.energy import phase_energies
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.sections.published import (
    PublishedRow,
    published_rows,
    published_texts,
    recomputed_runs,
)
from wattload.reports.stats.comparison import compare
from wattload.reports.stats.sentence import finding
from wattload.reports.stats.subject import Subject, arm_name, make_subject

TABLE = "unet3d, h100"
HOSTILE = "</script><script>alert(1)</script>"


def value(row: PublishedRow, name: str) -> float | None:
    return row.figures[name].value


def subject_of(*sets: PublishedSet, runs: tuple[Run, ...] = ()) -> Subject:
    return make_subject(runs, published=sets)


def own_run(tmp_path: Path, **changes: Any) -> tuple[Run, ...]:
    return load_runs([write_run(tmp_path, arm("A", 0, **changes))])


def test_a_row_is_the_mean_of_the_runs_of_a_set() -> None:
    (row,) = published_rows(subject_of(published("X", training(), training(file_count=14000))))[
        TABLE
    ]
    assert value(row, "samples_per_s") == pytest.approx((35 + 70) / 2)
    assert value(row, "nominal_bytes_per_s") == pytest.approx(52.5 * 146_600_628)
    assert value(row, "au") is None


def test_an_unknown_figure_has_its_reason_and_is_no_zero() -> None:
    (row,) = published_rows(subject_of(published("X", training())))[TABLE]
    found = row.figures["au"]
    assert not isinstance(found, str)
    assert found.value is None
    assert "step lists" in found.reason


def test_the_formula_is_that_of_the_edition_that_parameters_match() -> None:
    facts = training(ranks=2, listed=True)
    rows = {
        edition: published_rows(subject_of(published("X", facts, edition=edition)))[TABLE][0]
        for edition in ("v1.0", "v2.0")
    }
    assert value(rows["v1.0"], "samples_per_s") == pytest.approx(2 * 500 * 7 / 200)
    assert value(rows["v2.0"], "samples_per_s") == pytest.approx(2 * 498 * 7 / 180)
    assert {value(row, "whole_block_samples_per_s") for row in rows.values()} == {35.0}
    assert value(rows["v1.0"], "au") == pytest.approx(499 * 0.323 / 180)
    assert rows["v1.0"].data_from == "step lists"


def test_a_row_that_matches_no_edition_says_why() -> None:
    (row,) = published_rows(subject_of(published("X", training(batch_samples=8))))[TABLE]
    assert row.differences == ("batch 8 instead of 7",)
    text = Page(page_of(subject_of(published("X", training(batch_samples=8))))).text()
    assert "none batch 8 instead of 7; computed as v1.0" in text


def test_rows_are_sorted_by_score_and_a_table_of_ours_comes_first(tmp_path: Path) -> None:
    sets = [
        published("Slow", training(file_count=7)),
        published("Fast", training()),
        published("Other", training(model="resnet50")),
    ]
    found = published_rows(subject_of(*sets, runs=own_run(tmp_path)))
    assert list(found) == [TABLE, "resnet50, h100"]
    scores = [value(row, "samples_per_s") or 0.0 for row in found[TABLE]]
    assert scores == sorted(scores, reverse=True)
    assert [row.is_own for row in found[TABLE]].count(True) == 1
    assert not any(row.is_own for row in found["resnet50, h100"])


def test_runs_of_ours_alone_make_no_table(tmp_path: Path) -> None:
    subject = make_subject(own_run(tmp_path))
    assert published_rows(subject) == {}
    assert published_texts(subject) == []
    assert "Published results" not in Page(page_of(subject)).text()


def test_an_invalid_run_of_ours_has_no_row(tmp_path: Path) -> None:
    runs = own_run(tmp_path, status="failed")
    (row,) = published_rows(subject_of(published("X", training()), runs=runs))[TABLE]
    assert not row.is_own


def test_runs_of_ours_that_did_other_work_are_other_rows(tmp_path: Path) -> None:
    for index, batch in enumerate((7, 7, 14)):
        settings = {"batch_samples": batch}
        write_run(tmp_path, arm("A", index, settings=settings))
    rows = published_rows(subject_of(published("X", training()), runs=load_runs([tmp_path])))
    assert sorted(len(row.facts) for row in rows[TABLE] if row.is_own) == [1, 2]


def test_runs_of_ours_have_the_energy_of_their_samples(tmp_path: Path) -> None:
    runs = own_run(tmp_path, power="measured")
    rows = published_rows(subject_of(published("X", training()), runs=runs))[TABLE]
    (row,) = (row for row in rows if row.is_own)
    (energy,) = (each for each in phase_energies(runs[0].record) if each.phase == "read")
    (facts,) = row.facts
    ranks = [rank for epoch in facts.epochs for rank in epoch]
    samples = sum(rank.steps for rank in ranks) * facts.batch_samples
    assert row.energy_j == pytest.approx(energy.energy_j)
    assert row.joules_per_unit == pytest.approx(energy.energy_j / samples)
    text = Page(page_of(subject_of(published("X", training()), runs=runs))).text()
    assert "per sample" in text
    assert "not published" in text


def test_runs_are_counted_by_how_close_their_recomputed_figure_is() -> None:
    subject = subject_of(
        published("Close", training(35.0), training(35.03)),
        published("Listed", training(35.0, ranks=2, listed=True)),
        published("Near", training(35.3)),
        published("Far", training(40.0), training(31.0)),
        published("Silent", training(None), training(35.0, epochs=())),
    )
    assert published_texts(subject) == [
        "Recomputed figures of 8 published runs: 3 within 0.1\u00a0% of the reported one (2 from "
        "block times and 1 from step lists), 1 within 1\u00a0%, 2 farther from it and "
        "2 not recomputable.",
        "5 of 5 published sets fail a rule of their edition: run_count 5 and "
        "accelerator_utilisation 5.",
    ]
    worst = recomputed_runs(subject)[4].worst
    assert worst is not None
    assert (worst.said, worst.got) == (40.0, 35.0)
    assert worst.difference == pytest.approx(0.125)
    text = Page(page_of(subject)).text()
    assert "2 runs over 1 % from the reported figure" in text.replace("\u00a0", " ")
    assert "closed/Maker/results/Far/run0" in text
    assert "closed/Maker/results/Near/run0" not in text


def test_one_published_row_has_a_plain_factor_and_what_differs(tmp_path: Path) -> None:
    runs = own_run(tmp_path)
    subject = subject_of(published("X", training(35.0)), runs=runs)
    (facts,) = next(row.facts for row in published_rows(subject)[TABLE] if row.is_own)
    own = samples_per_s(facts, "v1.0").value
    assert own is not None
    factor = own / 35
    *_, text = published_texts(subject)
    assert text.startswith(
        f"{TABLE}: A has {factor:#.3g} times the published samples/s of X (Maker"
    )
    assert "by the formulas of v1.0" in text
    assert "another host; scale quick, loader direct" in text
    assert f"files {facts.file_count} instead of 7\u202f000" in text
    assert "batch" not in text
    assert "better" not in text


def test_among_two_published_rows_ours_has_a_place_and_no_factor(tmp_path: Path) -> None:
    sets = published("X", training(35.0)), published("Y", training(35.0))
    *_, text = published_texts(subject_of(*sets, runs=own_run(tmp_path)))
    assert text == f"{TABLE}: A (scale quick, loader direct) is row 3 of 3."


def test_published_rows_change_no_verdict(arms: tuple[Run, ...]) -> None:
    alone, beside = make_subject(arms), subject_of(published("X", training(35.0)), runs=arms)
    assert finding(alone) == finding(beside)
    for one, other in zip(alone.groups, beside.groups, strict=True):
        assert compare(alone, one) == compare(beside, other)
    (own,) = ({row.system for row in rows} for rows in published_rows(beside).values())
    assert own == {"A", "B", "X"}


def test_every_export_has_the_rows(tmp_path: Path) -> None:
    subject = subject_of(published("X", training(35.0)), runs=own_run(tmp_path))
    rows = document(subject)["published_results"]["rows"]
    (row,) = (row for row in rows if not row.get("is_own"))
    assert row["figures"]["samples_per_s"] == {"value": 35.0, "reason": ""}
    assert row["figures"]["au"]["value"] is None
    cells = list(csv.DictReader(io.StringIO(csv_report(subject))))
    (cell,) = (c for c in cells if c["arm"] == "X" and c["quantity"] == "samples_per_s")
    assert (cell["value"], cell["evidence"], cell["valid"]) == ("35.0", "published", "false")
    text = markdown_report(subject, full=True)
    failed = "fails run\\_count and accelerator\\_utilisation"
    line = f"| X<br><sub>Maker, closed, {failed}</sub> | 1 | 35.00 /s |"
    assert line in text.replace("\u00a0", " ")
    assert "Recomputed figures of 1 published run: 1 within" in markdown_report(subject)


def test_published_sets_alone_make_a_page(tmp_path: Path) -> None:
    write_sets([published("X", training(35.0)), published("Y", training(35.0))], tmp_path)
    page = Page(make_report([tmp_path], by="system").text)
    assert page.unbalanced == []
    assert "2 sets of results_made_up" in page.text()
    assert "of 2 published runs: 2 within 0.1 % of the reported one" in page.text()
    for form in ("json", "csv", "markdown"):
        assert make_report([tmp_path], form=form).text
    with pytest.raises(RecordError, match=r"contains no record\.json"):
        make_report([tmp_path], form="svg")


def test_sets_are_found_next_to_runs_and_count_once(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", arm("A", 0))
    write_sets([published("X", training(35.0))], tmp_path / "runs/published")
    (broken := tmp_path / "runs/published/broken").mkdir()
    (broken / "published.json").write_text("{}")
    report = make_report([tmp_path / "runs", tmp_path / "runs/published"], form="json")
    found = json.loads(report.text)
    assert len(found["runs"]) == 1
    assert len(found["published_results"]["runs"]) == 1
    assert {each.name for each in report.left_out} == {"a published set"}


def test_redact_masks_our_rows_and_no_published_one(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", arm("A", 0, host="secret-host", model="Drive 9"))
    write_sets([published("/srv/public", training(35.0))], tmp_path / "published")
    text = make_report([tmp_path], by="system", redact=True).text
    assert "secret-host" not in text
    assert "/srv/public" in text


def test_texts_of_sets_are_no_markup(tmp_path: Path) -> None:
    each = published(HOSTILE, training(35.0), organisation=HOSTILE, path=HOSTILE, tree=HOSTILE)
    for runs in ((), own_run(tmp_path)):
        page = page_of(subject_of(each, runs=runs))
        assert HOSTILE not in page
        assert Page(page).unbalanced == []


def test_a_system_is_its_hosts_and_drives_unless_it_has_a_label(tmp_path: Path) -> None:
    (run,) = own_run(tmp_path, host="node1", model="Drive 9")
    assert arm_name(run.record, "system") == "A"
    command = tuple(word for word in run.record.command if not word.startswith("label="))
    bare = run.record.model_copy(update={"command": command})
    assert arm_name(bare, "system") == "node1, Drive 9"


def test_a_run_is_recomputed_by_the_edition_whose_formula_it_reports() -> None:
    facts = training(2 * 500 * 7 / 200, ranks=2, listed=True)
    (found,) = recomputed_runs(subject_of(published("X", facts, edition="v2.0")))
    assert found.edition == "v1.0"
    assert found.difference < 1e-9
    (row,) = published_rows(subject_of(published("X", facts, edition="v2.0")))[TABLE]
    assert row.edition == "v2.0"
