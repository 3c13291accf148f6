"""Runs whose energy is excluded by a check: what the first screen says, and what it leaves out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from tests.reports.runs.test_energy import recorded
from tests.reports.sessions import known, session, turn
from tests.reports.stats.test_summary import FAST, REAL, SLOW, row, screen, with_ceiling
from wattload.core.record.results import Check
from wattload.reports.blocks import Link
from wattload.reports.render.json_export import document
from wattload.reports.render.text_export import markdown_report
from wattload.reports.runs.load import Run
from wattload.reports.sections.first import failed_check
from wattload.reports.sections.over_time import representative_run
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.subject import Subject, make_subject
from wattload.reports.stats.summary import first_screen

UNMADE = [f"s1-B-{block}" for block in (2, 3)]


def unchecked(runs: Sequence[Run], ids: Collection[str]) -> list[Run]:
    """Return the runs, of which in those of these ids a mandatory check of power was not made."""
    unmade = Check(
        name="power_of_this_run", verdict="not_checked", sentence="Replayed.", mandatory=True
    )
    return [with_check(each, unmade) if each.id in ids else each for each in runs]


def with_check(run: Run, check: Check) -> Run:
    record = run.record
    return replace(run, record=record.model_copy(update={"checks": (*record.checks, check)}))


def pairs(**changes: Any) -> list[Run]:
    """Return eight pairs of measured runs on hosts that limit nothing."""
    return with_ceiling(session({"A": FAST, "B": SLOW}, **REAL, **changes), 3.0)


def test_a_row_of_which_nothing_is_excluded_says_nothing_of_it() -> None:
    found = row(pairs())
    assert (found.counts, found.grade.word) == ("", "high")
    assert [bar.mean_count for bar in found.every_bar] == [8] * 6
    assert screen(pairs()).excluded_energies == ()


def test_a_failed_check_has_its_run_and_whether_it_counts() -> None:
    wrong = Check(name="data_content", verdict="fail", sentence="A block is wrong.")
    warm_up = with_check(turn("B", -1, 1e9, warm_up=True, name="s1-B-w1", **REAL), wrong)
    runs = [*pairs(), warm_up]
    assert said(runs) == "Failed check: data content, Unet3D warm-up w1 (not counted)"
    assert "failed check: data content, Unet3D warm-up w1" in markdown_report(make_subject(runs))
    runs[0] = with_check(runs[0], wrong)
    excluded = "Failed check: data content, Unet3D run 0 (excluded) and 1 more"
    assert said(runs) == excluded
    forced = make_subject(runs, forced=True)
    assert said(runs, forced) == excluded.replace("excluded", "counted")


def said(runs: Sequence[Run], subject: Subject | None = None) -> str:
    """Return what the page's heading says of failed checks."""
    words = failed_check(first_screen(subject or make_subject(runs)))
    return "".join(word.text if isinstance(word, Link) else word for word in words)


def test_excluded_energies_are_named_and_their_partners_are_not_in_the_mean() -> None:
    runs = unchecked(pairs(), UNMADE)
    found = row(runs)
    assert found.counts == "energy: n = 6 of 8 (2 excluded)"
    a, b = found.energies.bars
    assert [mark.in_mean for mark in a.marks] == [True] * 2 + [False] * 2 + [True] * 4
    assert [mark.in_mean for mark in b.marks] == [True] * 6
    assert [(bar.mean_count, bar.run_count) for bar in (a, b)] == [(6, 8)] * 2
    assert [bar.mean_count for bar in found.rates.bars] == [8, 8]
    excluded = screen(runs).excluded_energies
    assert [text.partition(":")[0] for text in excluded] == UNMADE


def test_a_workload_without_any_energy_that_counts_says_that_it_is_excluded() -> None:
    runs = unchecked(pairs(), [each.id for each in pairs()])
    found = row(runs)
    assert found.energies.missing == "excluded: checks of power failed or were not made"
    assert known(found.energy).words == "excluded (checks of power failed or were not made)"


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
    runs = unchecked(plain, ["s1-A-2"])
    assert known(representative_run(make_subject(runs), runs)).id == "s1-A-1"
    alone = unchecked(plain[:1], ["s1-A-0"])
    assert known(representative_run(make_subject(alone), alone)).id == "s1-A-0"


def test_json_and_markdown_say_the_same() -> None:
    subject = make_subject(unchecked(pairs(), UNMADE))
    found = document(subject)["first_screen"]
    assert len(found["excluded_energies"]) == 2
    (line,) = found["rows"]
    bars = line["bars"][1]["bars"]
    assert [(each["run_count"], each["mean_count"]) for each in bars] == [(8, 6), (8, 6)]
    text = markdown_report(subject)
    assert "B: 8 valid runs, 6 with valid energy" in text
    assert "**Excluded energies**" in text


def energy_row(runs: Sequence[Run]) -> Row:
    """Return the row of the energy that the verdict is on."""
    return known(known(row(runs).energy).row)


def test_runs_that_were_made_are_not_told_as_missing() -> None:
    every = unchecked(pairs(), [each.id for each in pairs()])
    (group,) = (subject := make_subject(every)).groups
    found = {each.quantity.key: each for each in compare(subject, group)}
    reason = "excluded: checks of power failed or were not made"
    assert found["energy for the work, read"].reason == reason
    some = unchecked(pairs(), [f"s1-B-{block}" for block in range(4)])
    assert energy_row(some).reason == "4 pairs with a valid energy of both; 6 needed"
    one_arm = unchecked(pairs(), [f"s1-B-{block}" for block in range(8)])
    assert energy_row(one_arm).reason == f"no figure of B ({reason})"


def test_an_arm_without_a_sensor_is_named() -> None:
    runs = [*session({"A": FAST}, **REAL), *session({"B": SLOW})]
    assert energy_row(runs).reason == "no figure of B (not measured: no power sensor)"


def test_power_of_another_run_is_told_as_such() -> None:
    replayed = [
        replace(each, record=recorded(each.record, is_recorded=True))
        for each in unchecked(pairs(), [each.id for each in pairs()])
    ]
    words = "power was replayed from another run, not measured here"
    assert known(row(replayed).energy).words == f"excluded ({words})"
    (group,) = (subject := make_subject(replayed)).groups
    found = {each.quantity.key: each for each in compare(subject, group)}
    assert found["energy for the work, read"].reason == f"excluded: {words}"
