"""A single run that differs leaves the comparison of the others as it is, and is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.reports.sessions import run, session, turn
from wattload.reports.runs.load import Run
from wattload.reports.stats.subject import make_subject
from wattload.reports.stats.summary import first_screen

REAL: dict[str, Any] = {"power": "measured", "virtual": False}


def paths(runs: Sequence[Run]) -> list[Run]:
    """Return the runs, each arm on a path of its own."""
    return [on(each, f"/mnt/{each.record.label}") for each in runs]


def on(each: Run, path: str) -> Run:
    """Return the run, configured with another path."""
    config = {**each.record.config, "target": {"path": path}}
    record = each.record.model_copy(update={"config": config})
    return Run(record=record, traces=each.traces)


TWELVE = paths(session({"A": [2e9] * 6, "B": [1e9] * 6}, **REAL))


def stray(**changes: Any) -> Run:
    """Return one more run of A."""
    return run("stray", label="A", **{**REAL, "seed": 77, "order": 30, **changes})


@pytest.mark.parametrize("path", ["/mnt/elsewhere", "/mnt/B"])
@pytest.mark.parametrize("status", ["complete", "failed"])
def test_a_run_on_another_path_is_named_and_the_others_are_compared(path: str, status: str) -> None:
    subject = make_subject([*TWELVE, on(stray(status=status), path)])
    screen = first_screen(subject)
    (row,) = screen.rows
    assert row.speed is not None
    assert (row.speed.winner, row.at) == ("A", "")
    (excluded,) = screen.excluded
    reason = f"stray: target.path is {path}; it is /mnt/A in 6 other runs of A"
    assert excluded.startswith(reason)
    assert ("the run was interrupted" in excluded) == (status == "failed")


def test_a_failed_run_makes_no_third_arm() -> None:
    failed = run("failed", label="C", status="failed", **REAL)
    subject = make_subject([*TWELVE, failed])
    assert subject.arms == ("A", "B")
    screen = first_screen(subject)
    assert screen.rows[0].speed is not None
    assert screen.rows[0].speed.winner == "A"
    (excluded,) = screen.excluded
    assert excluded.startswith("failed: no run of C is valid; ")
    assert "the run was interrupted" in excluded


def test_one_valid_run_of_a_third_arm_is_named_beside_two_full_arms() -> None:
    subject = make_subject([*TWELVE, run("one", label="C", **REAL)])
    assert subject.arms == ("A", "B")
    assert subject.strays == {"one": "it is the only run of C"}


def test_three_arms_of_one_run_each_stay() -> None:
    subject = make_subject([run(name, label=name) for name in "ABC"])
    assert (subject.arms, subject.strays) == (("A", "B", "C"), {})


def test_all_runs_failed_stay_in_their_arms() -> None:
    subject = make_subject([run(name, label=name, status="failed") for name in "AB"])
    assert (subject.arms, subject.strays) == (("A", "B"), {})


def test_points_that_both_arms_ran_are_no_strays() -> None:
    def at(workers: int, count: int) -> list[Run]:
        rates = {"A": [2e9] * count, "B": [1e9] * count}
        settings = {"workload": {"workers": workers}}
        return session(rates, session=f"s{workers}", settings=settings, **REAL)

    subject = make_subject([*at(1, 6), *at(2, 1)])
    assert subject.strays == {}
    assert make_subject([*at(1, 6), *at(2, 1)[:1]]).strays


def test_no_number_of_a_search_for_accelerators_is_a_stray() -> None:
    searched = {"sweep": {"name": "accelerators"}}
    full = [
        run(f"{label}{n}", searched, label=label) for label in ("A-n1", "A-n2") for n in range(5)
    ]
    subject = make_subject([*full, run("one", searched, label="A-n4")])
    assert subject.arms == ("A-n1", "A-n2", "A-n4")


@pytest.mark.parametrize("change", [{"serial": "S9"}, {"host": "elsewhere"}])
def test_a_run_on_another_drive_or_host_is_left_out_and_named(change: dict[str, str]) -> None:
    odd = turn("A", 6, 2e9, **(REAL | {"serial": "SA"} | change))
    arms = [
        *session({"A": [2e9, 2.01e9, 1.99e9] * 2}, serial="SA", **REAL),
        *session({"B": [1e9, 1.01e9, 0.99e9] * 2}, serial="SB", **REAL),
    ]
    subject = make_subject([*arms, odd])
    assert list(subject.strays) == [odd.id]
    assert f"{change.get('serial', '') or change['host']}; it is" in subject.strays[odd.id]


def test_an_arm_of_failed_runs_with_other_settings_leaves_a_page_of_one() -> None:
    valid = run("valid", label="A", **REAL)
    failed = []
    for number, share in enumerate((0.7, 0.86)):
        each = run(f"failed-{number}", label="B", status="failed", **REAL)
        config = {**each.record.config, "load": {"name": "busy", "cpu_share": share}}
        record = each.record.model_copy(update={"config": config})
        failed.append(Run(record=record, traces=each.traces))
    screen = first_screen(make_subject([valid, *failed]))
    assert screen.rows
    assert len(screen.excluded) == len(failed)
