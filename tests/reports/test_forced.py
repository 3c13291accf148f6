"""What bars a comparison bars it; what a user forces past that is said wherever it is told."""

from __future__ import annotations

import pytest

from tests.reports.parsing import Page
from tests.reports.sessions import session, turn
from wattload.core.record.check import Check
from wattload.reports.compare import Row, compare
from wattload.reports.load import Run
from wattload.reports.page import render_page
from wattload.reports.subject import make_subject

FAST, SLOW = [1e9, 1.01e9, 0.99e9, 1e9, 1.02e9], [5e8, 5.05e8, 4.95e8, 5e8, 5.1e8]
FAILED = Check(name="cold", verdict="fail", sentence="The cache was warm.", mandatory=True)


def runs(**changes: object) -> list[Run]:
    """Return five runs per arm, B's changed."""
    a = session({"A": FAST}, interleave="none")
    return [*a, *session({"B": SLOW}, interleave="none", **changes)]


def throughput(made: list[Run], *, forced: bool = False, by: str = "label") -> Row:
    subject = make_subject(made, by, forced=forced)
    (group,) = subject.groups
    return next(row for row in compare(subject, group) if "throughput" in row.quantity.key)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scale": "full"}, "not the same work: scale differ"),
        (
            {"settings": {"workload": {"file_count": 9}}},
            "not the same work: config workload.file_count differ",
        ),
        ({"ranks": 2}, "not the same work: processes differ"),
        (
            {"settings": {"accelerator": {"count": 3}}},
            "not the same work: config accelerator.count differ",
        ),
    ],
)
def test_other_work_is_refused_unless_forced(changes: dict[str, object], reason: str) -> None:
    refused = throughput(runs(**changes))
    assert (refused.call, refused.words, refused.reason) == ("barred", "not called", reason)
    let_through = throughput(runs(**changes), forced=True)
    assert let_through.call == "a"
    assert let_through.forced == refused.reason


def test_another_data_set_is_refused() -> None:
    made = runs()
    data = made[-1].record.workload.data
    assert data is not None
    other = [
        Run(
            record=run.record.model_copy(
                update={
                    "workload": run.record.workload.model_copy(
                        update={"data": data.model_copy(update={"key": "unet3d-other"})}
                    )
                }
            ),
            traces=run.traces,
        )
        if run.record.label == "B"
        else run
        for run in made
    ]
    assert throughput(other).reason == "not the same work: data set differ"
    assert throughput(other, forced=True).call == "a"


def test_runs_with_a_failed_check_count_only_where_forced() -> None:
    made = runs(checks=(FAILED,))
    refused = throughput(made)
    assert (refused.words, refused.effect) == ("too few runs", None)
    let_through = throughput(made, forced=True)
    assert let_through.call == "a"
    assert let_through.forced == "5 runs that checks bar"


def test_a_run_that_did_not_finish_counts_under_no_force() -> None:
    made = [*runs(), turn("B", 9, 5e8, status="aborted", interleave="none")]
    row = throughput(made, forced=True)
    assert row.effect is not None
    assert row.effect.count_b == 5
    assert row.forced == ""


def test_forcing_what_nothing_bars_changes_no_word() -> None:
    plain, forced = throughput(runs()), throughput(runs(), forced=True)
    assert forced.forced == ""
    assert (plain.call, plain.reason) == (forced.call, forced.reason)


def test_force_makes_no_evidence_and_no_runs() -> None:
    few = [run for run in runs(scale="full") if run.id[-1] in "012"]
    row = throughput(few, forced=True)
    assert (row.call, row.words) == ("barred", "too few runs")


def test_what_was_forced_stands_beside_every_call_it_lets_through() -> None:
    text = Page(render_page(runs(scale="full"), forced=True)).text().replace("\u00a0", " ")
    assert "Forced comparison" in text
    assert "Let through: not the same work" in text
    subject = make_subject(runs(scale="full"), forced=True)
    (group,) = subject.groups
    called = [row for row in compare(subject, group) if row.call != "barred"]
    assert called
    assert text.count("; forced: not the same work") >= len(called)
    assert "sets the work: forced" in text
    assert "Forced comparison" not in Page(render_page(runs(), forced=True)).text()


def test_what_arms_are_told_apart_by_is_what_is_compared_and_no_other_work() -> None:
    made = [
        *session({"x": FAST}, interleave="none", settings={"workload": {"workers": 1}}),
        *session({"y": SLOW}, interleave="none", settings={"workload": {"workers": 8}}),
    ]
    assert "config workload.workers differ" in throughput(made).reason
    assert throughput(made, by="workload.workers").call == "a"
