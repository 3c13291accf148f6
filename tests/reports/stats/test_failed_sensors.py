"""Runs whose power sensor failed its check: what the first screen says, and what it leaves out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.reports.sessions import known, session, turn
from tests.reports.stats.test_summary import FAST, REAL, SLOW, row, screen, with_ceiling
from wattload.core.record.results import Check
from wattload.reports.blocks import Link
from wattload.reports.render.json_export import document
from wattload.reports.render.text_export import markdown_report
from wattload.reports.runs.load import Run
from wattload.reports.sections.first import failed_check, representative_run
from wattload.reports.stats.subject import Subject, make_subject
from wattload.reports.stats.summary import first_screen

FAILED = [f"s1-B-{block}" for block in range(8)]
UNEXPLAINED = FAILED[2:4]


def failing(
    runs: Sequence[Run],
    failed: Collection[str],
    unexplained: Collection[str] = (),
    source: str = "meter",
) -> list[Run]:
    """Return the runs, of which those of these ids have a failed check of their sensor.

    No sensor explains the readings of the ``unexplained`` ones, so their energy is excluded.
    """
    found = []
    for each in runs:
        record = each.record
        check = Check(
            name=f"sensor_model_{record.power.energy[0].device}_{source}",
            verdict="fail",
            sentence="The readings are late.",
            mandatory=each.id in unexplained,
        )
        if each.id in failed:
            record = record.model_copy(update={"checks": (*record.checks, check)})
        found.append(replace(each, record=record))
    return found


def pairs(**changes: Any) -> list[Run]:
    """Return eight pairs of measured runs on hosts that limit nothing."""
    return with_ceiling(session({"A": FAST, "B": SLOW}, **REAL, **changes), 3.0)


def test_a_row_without_failed_sensors_says_nothing_of_them() -> None:
    found = row(pairs())
    assert (found.sensor, found.counts, found.grade.word) == ("", "", "high")
    assert [bar.mean_count for bar in found.every_bar] == [8] * 6
    assert screen(pairs()).excluded_energies == ()


@pytest.mark.parametrize(("unexplained", "effect"), [((), "counts"), (FAILED[:1], "is excluded")])
def test_a_single_failed_sensor_is_named_with_its_run(
    unexplained: Sequence[str], effect: str
) -> None:
    found = row(failing(pairs(), FAILED[:1], unexplained))
    assert found.sensor == f"power sensor failed its check in run 0; its energy {effect}"


def test_a_failed_check_that_no_row_names_has_its_run_and_whether_it_counts() -> None:
    warm_up = turn("B", -1, 1e9, warm_up=True, name="s1-B-w1", **REAL)
    runs = [*pairs(), *failing([warm_up], [warm_up.id])]
    assert said(runs) == "Failed check: power sensor, Unet3D warm-up w1 (not counted)"
    assert "failed check: power sensor, Unet3D warm-up w1" in markdown_report(make_subject(runs))
    wrong = Check(name="data_content", verdict="fail", sentence="A block is wrong.")
    (first, *others) = runs
    record = first.record.model_copy(update={"checks": (*first.record.checks, wrong)})
    runs = [replace(first, record=record), *others]
    excluded = "Failed check: data content, Unet3D run 0 (excluded) and 1 more"
    assert said(runs) == excluded
    forced = make_subject(runs, forced=True)
    assert said(runs, forced) == excluded.replace("excluded", "counted")
    assert said(failing(pairs(), FAILED)) == ""


def said(runs: Sequence[Run], subject: Subject | None = None) -> str:
    """Return what the page's heading says of failed checks."""
    words = failed_check(first_screen(subject or make_subject(runs)))
    return "".join(word.text if isinstance(word, Link) else word for word in words)


@pytest.mark.parametrize("workload", ["unet3d", "dlrm"])
def test_failed_sensors_are_counted_in_the_row_and_lower_the_grade(workload: str) -> None:
    found = row(failing(pairs(workload=workload), FAILED))
    assert found.sensor == "power sensor failed its check in 8 of 16 runs; their energies count"
    assert found.counts == ""
    assert "power sensor failed its check" in found.grade.reason
    assert found.grade.word != "high"


def test_the_sensor_of_another_source_than_the_energys_is_not_counted() -> None:
    found = row(failing(pairs(), FAILED, source="other"))
    assert (found.sensor, found.grade.word) == ("", "high")


def test_excluded_energies_are_named_and_their_partners_are_not_in_the_mean() -> None:
    runs = failing(pairs(), FAILED, UNEXPLAINED)
    found = row(runs)
    assert found.counts == "energy: n = 6 of 8 (2 excluded)"
    a, b = found.energies.bars
    assert [mark.in_mean for mark in a.marks] == [True] * 2 + [False] * 2 + [True] * 4
    assert [mark.in_mean for mark in b.marks] == [True] * 6
    assert [(bar.mean_count, bar.run_count) for bar in (a, b)] == [(6, 8)] * 2
    assert [bar.mean_count for bar in found.rates.bars] == [8, 8]
    excluded = screen(runs).excluded_energies
    assert [text.partition(":")[0] for text in excluded] == UNEXPLAINED


def test_a_workload_without_any_energy_that_counts_says_that_it_is_excluded() -> None:
    runs = failing(pairs(), [each.id for each in pairs()], [each.id for each in pairs()])
    found = row(runs)
    assert found.energies.missing == "excluded: checks of power failed or were not made"
    assert known(found.energy).words == "excluded (checks of power failed or were not made)"
    assert found.sensor == "power sensor failed its check in 16 of 16 runs"


def test_runs_without_a_sensor_have_no_excluded_energy() -> None:
    runs = session({"A": FAST, "B": SLOW})
    unmade = Check(
        name="trace_digest_power", verdict="not_checked", sentence="No trace.", mandatory=True
    )
    without = [
        replace(run, record=run.record.model_copy(update={"checks": (*run.record.checks, unmade)}))
        for run in runs
    ]
    assert screen(without).excluded_energies == ()
    assert row(without).counts == ""
    assert "with valid energy" not in markdown_report(make_subject(without))


def test_a_chart_of_one_run_takes_one_whose_energy_counts() -> None:
    middle = [1.0e9, 1.1e9, 1.2e9, 1.3e9, 1.4e9]
    plain = session({"A": middle}, interleave="none", **REAL)
    subject = make_subject(plain)
    assert known(representative_run(subject, plain)).id == "s1-A-2"
    runs = failing(plain, ["s1-A-2"], ["s1-A-2"])
    assert known(representative_run(make_subject(runs), runs)).id == "s1-A-1"
    alone = failing(plain[:1], ["s1-A-0"], ["s1-A-0"])
    assert known(representative_run(make_subject(alone), alone)).id == "s1-A-0"


def test_json_and_markdown_say_the_same() -> None:
    subject = make_subject(failing(pairs(), FAILED, UNEXPLAINED))
    found = document(subject)["first_screen"]
    assert len(found["excluded_energies"]) == 2
    (line,) = found["rows"]
    assert line["sensor"] == "power sensor failed its check in 8 of 16 runs"
    bars = line["bars"][1]["bars"]
    assert [(each["run_count"], each["mean_count"]) for each in bars] == [(8, 6), (8, 6)]
    text = markdown_report(subject)
    assert "B: 8 valid runs, 6 with valid energy" in text
    assert "power sensor failed its check in 8 of 16 runs" in text
    assert "**Excluded energies**" in text
