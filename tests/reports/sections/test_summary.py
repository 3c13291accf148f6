"""The summary is five sentences at most, its words follow the rows, and each leads to a place."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.reports.conftest import arm, one
from tests.reports.sessions import session
from wattload.core.record.results import Check
from wattload.reports.blocks import Arms, Link, Notice, Sentences, Words
from wattload.reports.runs.load import Run
from wattload.reports.sections.summary import summary_section
from wattload.reports.stats.subject import make_subject


def reported(
    runs: tuple[Run, ...] | list[Run], *, by: str = "label", forced: bool = False
) -> list[Words]:
    """Return the sentences of a page's summary."""
    (block,) = [
        block
        for block in summary_section(make_subject(runs, by, forced=forced)).blocks
        if isinstance(block, Sentences)
    ]
    assert 1 < len(block.sentences) <= 5
    return list(block.sentences)


def text(sentence: Words) -> str:
    words = "".join(part.text if isinstance(part, Link) else part for part in sentence)
    return words.replace("\u00a0", " ")


def links(sentence: Words) -> list[str]:
    return [part.anchor for part in sentence if isinstance(part, Link)]


def configured(run: Run, workers: int) -> Run:
    """Return a run with a number of workers in its configuration."""
    config = {**run.record.config, "workload": {"workers": workers}}
    return replace(run, record=run.record.model_copy(update={"config": config}))


def test_a_comparison_says_how_much_how_sure_and_who_is_better(arms: tuple[Run, ...]) -> None:
    what, speed, energy, calls, limits = reported(arms)
    assert text(what).startswith("10 runs of unet3d at scale quick")
    assert text(what).endswith("A and B are distinguished by label.")
    assert "A reaches 250 % of B's rate in train (B/A = 0.400), 95 % interval" in text(speed)
    assert text(speed).endswith(": A is better.")
    assert links(speed) == ["compare-unet3d-arms"]
    assert "A uses 40." in text(energy)
    assert text(energy).endswith(": A is better (measured by a meter or a rail sensor).")
    assert text(calls) == "Of 2 headline figures A is better in 2."
    assert "5 things not measured or not checked" in text(limits)
    assert "arms differ in drive and power state at once" in text(limits)
    assert links(limits) == ["comparison", "gaps", "warnings", "trust"]


def test_too_few_runs_are_called_so(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0, rate=0.6e9))]
    _, speed, energy, calls, _ = reported(runs)
    assert "inconclusive" in text(speed)
    assert "95 %" not in text(speed)
    assert "inconclusive" in text(energy)
    assert text(calls).startswith("None of 2 headline figures is called: 1 run each; 5 needed")


def test_bounds_are_told_with_their_signs_and_rank_nothing(tmp_path: Path) -> None:
    runs = [
        one(tmp_path, arm("A", 0, power="bounds")),
        one(tmp_path, arm("B", 0, power="upper", rate=0.6e9)),
    ]
    energy = text(reported(runs)[2])
    assert "A uses 0.00444 to 0.0222 Wh and B uses ≤ 0.0694 Wh" in energy
    assert "not comparable: bounds from power states, not measured" in energy
    assert "better" not in energy


def test_a_measured_energy_is_told_beside_an_arm_that_has_bounds_or_nothing(tmp_path: Path) -> None:
    measured = one(tmp_path, arm("A", 0))
    bounds = text(reported([measured, one(tmp_path, arm("B", 0, power="bounds"))])[2])
    assert "A uses 0.0157 Wh (measured by a meter or a rail sensor)" in bounds
    assert "A has none" not in bounds


def test_arms_that_differ_in_several_things_at_once_are_called_so() -> None:
    rates = [1e9, 1.01e9, 0.99e9, 1e9, 1.02e9]
    a = session({"A": rates}, interleave="none")
    loader = {"settings": {"loader": {"queue_depth": 1}}}
    alone = session({"B": rates}, interleave="none", **loader)
    assert "at once" not in text(reported([*a, *alone])[-1])
    both = session({"B": rates}, interleave="none", host="otherbox", **loader)
    said = text(reported([*a, *both])[-1])
    assert (
        "arms differ in host and loader at once, so no ratio shows the effect of one alone" in said
    )


RATES = [1e9, 1.01e9, 0.99e9, 1e9, 1.02e9]


def limits_of(a: dict[str, Any], b: dict[str, Any], by: str = "label") -> str:
    """Return what the summary says limits two arms that were made so."""
    runs = [
        *session({"A": RATES}, interleave="none", **a),
        *session({"B": RATES}, interleave="none", **b),
    ]
    return text(reported(runs, by=by)[-1])


def test_what_arms_are_told_apart_by_is_one_of_the_things_they_differ_in() -> None:
    one, eight = ({"settings": {"workload": {"workers": count}}} for count in (1, 8))
    by = "workload.workers"
    both = limits_of(one, {**eight, "loader": "torch"}, by)
    assert "arms differ in loader and workers at once" in both
    assert "at once" not in limits_of(one, eight, by)


@pytest.mark.parametrize(
    ("by", "changes"),
    [
        ("loader", {"loader": "torch"}),
        ("loader.queue_depth", {"settings": {"loader": {"queue_depth": 64}}}),
        ("target.path", {"path": "/mnt/other"}),
        ("target.path", {"path": "/mnt/other", "virtual": False, "serial": "OTHER"}),
        ("target", {"path": "/mnt/other"}),
        ("power.limit_w", {"settings": {"power": {"limit_w": 5}}}),
    ],
)
def test_what_arms_are_told_apart_by_is_no_second_thing_by_another_name(
    by: str, changes: dict[str, Any]
) -> None:
    said = limits_of({"virtual": changes.get("virtual", True)}, pathed(changes), by)
    assert "at once" not in said


def pathed(changes: dict[str, Any]) -> dict[str, Any]:
    """Return changes with the target's path among the settings, as a command puts it there."""
    if "path" not in changes:
        return changes
    return {**changes, "settings": {"target": {"path": changes["path"]}}}


def test_two_folders_of_one_drive_are_no_two_drives() -> None:
    other = pathed({"path": "/mnt/ssd/other", "loader": "torch"})
    here = {"virtual": False, "serial": "S1"}
    assert "at once" not in limits_of(here, {**other, **here})
    there = {"virtual": False, "serial": "S2"}
    assert "arms differ in drive and loader at once" in limits_of(here, {**other, **there})


def test_folders_stand_for_drives_whose_serial_is_not_known() -> None:
    other = pathed({"path": "/mnt/other", "loader": "torch"})
    assert "arms differ in drive and loader at once" in limits_of({}, other)


def test_two_folders_that_are_compared_are_called_what_they_are() -> None:
    here = {"virtual": False, "serial": "S1"}
    other = pathed({"path": "/mnt/ssd/other", "loader": "torch"})
    said = limits_of(here, {**other, **here}, "target.path")
    assert "arms differ in loader and path at once" in said


def test_what_force_lets_through_is_not_called_left_out() -> None:
    failed = Check(name="cold", verdict="fail", sentence="It was warm.", mandatory=True)
    runs = [
        *session({"A": [1e9] * 5}, interleave="none"),
        *session({"B": [5e8] * 5}, interleave="none", checks=(failed,)),
    ]
    said = text(reported(runs, forced=True)[-1])
    assert "5 of 10 runs included by force despite failed checks" in said
    assert "not compared as valid" not in said


def test_missing_energy_is_told_with_its_reason(virtual_runs: tuple[Run, ...]) -> None:
    energy = text(reported(virtual_runs)[2])
    assert energy.startswith("There is no figure of a drive's energy: no drive-scope power source")


def test_a_virtual_drive_is_called_one(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm(name, 0, model="wattload virtual drive")) for name in "AB"]
    assert "a drive here is a virtual drive, whose joules rank nothing" in text(reported(runs)[-1])


def test_over_a_sweep_the_median_point_is_told_with_the_ends(tmp_path: Path) -> None:
    runs = [
        configured(
            one(tmp_path, arm(name, at, run_id=f"{name}-{workers}-{at}", rate=rate)), workers
        )
        for workers, rates in ((1, (1e9, 1e9)), (4, (1e9, 2e9)), (8, (1e9, 4e9)))
        for name, rate in zip("AB", rates, strict=True)
        for at in range(5)
    ]
    speed = text(reported(runs)[1])
    assert "A reaches 50.0 % of B's rate in train (B/A = 2.00)" in speed
    assert "at the median of 3 points of workers, from 1.00 to 4.00" in speed
    assert "B is better at 2 points" in speed


def test_a_workload_that_one_arm_ran_is_told_so(tmp_path: Path) -> None:
    runs = [one(tmp_path, arm("A", 0)), one(tmp_path, arm("B", 0))]
    runs.append(one(tmp_path, arm("A", 1, workload="checkpoint")))
    assert "in checkpoint only A ran it" in text(reported(runs)[1])


def test_runs_that_do_not_count_are_told_first_and_never_folded(tmp_path: Path) -> None:
    failed = Check(name="delivered", verdict="fail", sentence="3 of 4 hashes differ.", figures={})
    runs = [one(tmp_path, arm("A", 0, checks=(failed,))), one(tmp_path, arm("B", 0))]
    assert "1 of 2 runs shown, but not compared as valid" in text(reported(runs)[-1])
    notices = [
        each for each in summary_section(make_subject(runs)).blocks if isinstance(each, Notice)
    ]
    assert notices[0].anchor == "broken"
    many = Notice("Bad", [str(at) for at in range(20)], "bad")
    assert len(many.first) == 20


def test_a_forced_comparison_says_so(arms: tuple[Run, ...]) -> None:
    assert "forced despite its exclusions" in text(reported(arms, forced=True)[-1])


def test_of_many_sentences_the_first_show_and_no_one_is_folded_alone() -> None:
    six = Notice("Six", [str(at) for at in range(6)])
    seven = Notice("Seven", [str(at) for at in range(7)])
    assert (len(six.first), len(six.others)) == (6, 0)
    assert (len(seven.first), len(seven.others)) == (5, 2)


def test_arms_say_what_they_are(arms: tuple[Run, ...]) -> None:
    (block,) = [
        each for each in summary_section(make_subject(arms)).blocks if isinstance(each, Arms)
    ]
    assert [each.letter for each in block.arms] == ["A", "B"]
    assert dict(block.arms[0].pairs)["power state"] == "PS1"
    assert dict(block.arms[1].pairs)["power state"] == "PS0"
    assert dict(block.arms[0].pairs)["runs"] == "5, all valid"


def test_the_ends_of_an_interval_read_apart() -> None:
    rates = [1e9 * (1 + 0.00001 * x) for x in range(8)]
    runs = session({"A": rates, "B": [1.2 * rate for rate in reversed(rates)]})
    speed = text(reported(runs)[1])
    found = re.search(r"95 % interval ([\d.]+) to ([\d.]+)", speed)
    assert found is not None, speed
    assert found[1] != found[2]


STEADY = (1e9, 1.005e9, 0.995e9, 1.001e9, 0.999e9, 1e9)
NOISY = (1e9, 1.1e9, 0.92e9, 1.06e9, 0.94e9, 1e9)
UNSTABLE = (1e9, 1.4e9, 0.7e9, 1.2e9, 0.8e9, 1e9)


def test_a_steady_comparison_says_nothing_of_spread() -> None:
    runs = session({"A": STEADY, "B": [2 * rate for rate in STEADY]})
    assert "CV" not in "".join(map(text, reported(runs)))


def test_an_arm_that_is_noisy_or_unstable_is_called_so_in_the_summary() -> None:
    calls = reported(session({"A": NOISY, "B": UNSTABLE}))[3]
    assert re.search(r"; the runs of A are noisy \(CV 6\.\d %\)", text(calls))
    assert re.search(r"; the runs of B are unstable \(CV", text(calls))
    assert links(calls).count("compare-unet3d") == 2


def test_too_few_runs_that_scatter_say_both() -> None:
    calls = text(reported(session({"A": UNSTABLE[:3], "B": STEADY[:3]}))[3])
    assert calls.startswith("None of")
    assert "the runs of A are unstable" in calls


def test_repeats_of_one_arm_that_scatter_are_called_so() -> None:
    alone = reported(session({"A": UNSTABLE}))[-2]
    assert "the runs are unstable in" in text(alone)


def test_the_spread_of_one_figure_alone_is_told_without_a_count() -> None:
    runs = session({"A": STEADY, "B": UNSTABLE})
    only = [
        replace(
            run,
            record=run.record.model_copy(
                update={
                    "metrics": tuple(
                        metric.model_copy(update={"headline": metric.name == first})
                        for metric in run.record.metrics
                        for first in [run.record.metrics[0].name]
                    )
                }
            ),
        )
        for run in runs
    ]
    assert re.search(r"; the runs of B are unstable \(CV \d+ %\)\.$", text(reported(only)[3]))
