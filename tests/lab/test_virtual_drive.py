"""Real runs on a drive that knows its true energy, in the guest of `make lab-all`: the judge.

The two measurands are judged apart: energy in the window, and the tail in the rest behind it.
Windows of 10 s or more are judged by their error, shorter ones by the uncertainty that they state.
Log 25h over five minutes is judged by `make lab-truth`, and on a clock of its own in `tests/power`.
"""

from __future__ import annotations

import shutil

import pytest

from tests.lab import truth_table
from tests.lab.truth_table import Line
from tests.lab.virtual_runs import (
    CALIBRATING,
    CHECKPOINT,
    INTERVAL_POWER,
    OUT,
    POWER,
    SERIAL,
    UNET3D,
    VIRTUAL,
    Ran,
    mount,
    prepare,
    run,
    wattload,
)
from wattload.core.record.energy import WHOLE_RUN

pytestmark = [
    pytest.mark.lab,
    pytest.mark.lab_long,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab-all`"),
]

OWN_MEASUREMENT = "nvme_25h"
WITHIN = 0.005
"""The largest error of interval power, of what it measures."""
HELD_WITHIN = 0.01
"""The same for a mean that is held for a second and not calibrated: read twice in that time, it
shows only to half a second where work ends and other work begins."""
Judged = dict[tuple[str, int], tuple[Ran, str]]
"""By workload and power state: the run, and how the drive's interval power was updated."""


def _headline(ran: Ran, updates: str) -> Line:
    """Return what interval power says of a run's first timed phase."""
    phase = next(each.name for each in ran.record.windows if each.timed)
    found = truth_table.lines(ran, updates)
    return next(each for each in found if (each.source, each.phase) == (INTERVAL_POWER, phase))


def _lines(judged: Judged) -> list[Line]:
    return [line for ran, updates in judged.values() for line in truth_table.lines(ran, updates)]


@pytest.fixture(scope="module")
def judged() -> Judged:
    """Each workload in PS0 and PS1; each way of updating meets both workloads and both states.

    The meters of the runs that read data are calibrated, those of the others as declared.
    """
    prepare(*UNET3D)
    ran: Judged = {}
    for name, workload, power, orders in (
        ("unet3d", UNET3D, CALIBRATING, ("sliding", "tumbling")),
        ("checkpoint", CHECKPOINT, POWER, ("tumbling", "sliding")),
    ):
        for state, updates in enumerate(orders):
            found = run(*workload, state=state, label=f"PS{state}", updates=updates, power=power)
            ran[name, state] = (found, updates)
            truth_table.write(OUT / "truth-table-runs.csv", _lines(ran))
            shutil.copytree(found.folder, OUT / "runs" / f"{name}-ps{state}", dirs_exist_ok=True)
    return ran


@pytest.fixture(scope="module")
def table(judged: Judged) -> list[Line]:
    """Return the truth table, which is written for people after each run."""
    return _lines(judged)


def test_runs_are_complete_in_the_state_asked_for(judged: Judged) -> None:
    for (name, state), (ran, _) in judged.items():
        assert ran.record.status == "complete", name
        (reported,) = [each for each in ran.record.power.states if each.serial == SERIAL]
        assert (reported.requested, reported.verified, reported.after, reported.restored) == (
            state,
            state,
            state,
            0,
        )


def test_interval_power_is_calibrated_by_a_known_load(judged: Judged) -> None:
    """A mean of a second is half a second late."""
    ran, _ = judged["unet3d", 0]
    sensor = ran.sensor(INTERVAL_POWER)
    assert sensor.basis == "calibrated", sensor.reason
    assert sensor.tau_s == pytest.approx(0.5, abs=max(0.03, sensor.tau_uncertainty_s))
    assert ran.verdict(f"sensor_calibrated_{SERIAL}_{INTERVAL_POWER}") == "pass"
    assert {each.source for each in ran.record.power.calibrations} >= {INTERVAL_POWER}
    declared, _ = judged["checkpoint", 0]
    assert declared.sensor(INTERVAL_POWER).basis == "declared"


def test_mean_that_is_held_for_a_second_is_a_second_late(judged: Judged) -> None:
    """It is calibrated if enough of its updates are seen, and else taken as its readings show."""
    for key in (("unet3d", 1), ("checkpoint", 0)):
        sensor = judged[key][0].sensor(INTERVAL_POWER)
        assert sensor.tau_s == pytest.approx(1.0, abs=max(0.03, sensor.tau_uncertainty_s))


def test_interval_power_is_within_half_a_percent_of_the_truth(table: list[Line]) -> None:
    phases = [line for line in table if line.source == INTERVAL_POWER and line.phase != WHOLE_RUN]
    long = [line for line in phases if line.is_long]
    assert {(line.workload, line.state, line.updates) for line in long} >= {
        ("unet3d", 0, "sliding"),
        ("unet3d", 1, "tumbling"),
        ("checkpoint", 0, "tumbling"),
        ("checkpoint", 1, "sliding"),
    }
    for line in long:
        is_held = (line.workload, line.updates) == ("checkpoint", "tumbling")
        assert line.error == pytest.approx(0, abs=HELD_WITHIN if is_held else WITHIN), line


def test_tail_is_the_true_one_within_what_it_states(table: list[Line]) -> None:
    tails = [line for line in table if None not in (line.tail_error_j, line.tail_uncertainty_j)]
    assert {(line.workload, line.state) for line in tails if line.source == INTERVAL_POWER} == {
        ("unet3d", 0),
        ("unet3d", 1),
        ("checkpoint", 0),
        ("checkpoint", 1),
    }
    for line in tails:
        assert abs(line.tail_error_j or 0.0) <= (line.tail_uncertainty_j or 0.0), line


def test_energy_for_the_work_is_the_true_one_within_what_it_states(table: list[Line]) -> None:
    for line in table:
        if line.energy_j is not None and line.work_uncertainty_j is not None:
            error_j = line.energy_j - line.truth_j + (line.tail_error_j or 0.0)
            assert abs(error_j) <= line.work_uncertainty_j + truth_table.edge_j(line), line


def test_log_25h_is_off_by_no_more_than_it_states(table: list[Line]) -> None:
    own = [line for line in table if line.source == OWN_MEASUREMENT]
    assert [(line.workload, line.state, line.phase) for line in own] == [
        ("unet3d", 0, WHOLE_RUN),
        ("unet3d", 1, WHOLE_RUN),
        ("checkpoint", 0, WHOLE_RUN),
        ("checkpoint", 1, WHOLE_RUN),
    ]
    for line in own:
        assert line.energy_j is not None, line
        assert line.uncertainty_j is not None, line
        assert abs(line.energy_j - line.truth_j) <= line.uncertainty_j, line


def test_bounds_always_hold_the_truth(table: list[Line]) -> None:
    bounded = [line for line in table if line.upper_j is not None]
    assert bounded
    for line in bounded:
        assert line.lower_j is not None
        assert line.upper_j is not None
        assert line.lower_j <= line.truth_j <= line.upper_j, line


def test_stated_uncertainty_holds_the_truth(table: list[Line]) -> None:
    for line in table:
        if line.energy_j is not None and line.uncertainty_j is not None:
            assert abs(line.energy_j - line.truth_j) <= line.uncertainty_j + truth_table.edge_j(
                line
            ), line


def test_uncertainty_holds_the_truth_without_an_error_that_the_drive_only_states(
    table: list[Line],
) -> None:
    for line in table:
        if line.energy_j is not None and line.source in (INTERVAL_POWER, OWN_MEASUREMENT):
            assert abs(line.energy_j - line.truth_j) <= line.without_gain_j + truth_table.edge_j(
                line
            ), line


def test_whole_run_by_interval_power_agrees_closely_with_the_truth(table: list[Line]) -> None:
    """A mean that is held for a second and read twice in it is as close as its noise allows."""
    whole = [line for line in table if line.phase == WHOLE_RUN and line.source == INTERVAL_POWER]
    assert len(whole) == 4
    for line in whole:
        close = 0.002 if line.updates == "sliding" else WITHIN
        assert line.error == pytest.approx(0, abs=close), line


@pytest.mark.parametrize("workload", ["unet3d", "checkpoint"])
def test_state_1_is_slower_and_needs_less_power(judged: Judged, workload: str) -> None:
    windows = [
        next(each for each in judged[workload, state][0].record.windows if each.timed)
        for state in (0, 1)
    ]
    assert windows[1].active_s > 1.3 * windows[0].active_s
    first, second = (_headline(*judged[workload, state]) for state in (0, 1))
    assert second.truth_j / second.seconds < 0.8 * first.truth_j / first.seconds


def test_page_says_what_state_1_costs_and_that_the_drive_is_virtual(judged: Judged) -> None:
    page = OUT / "ps0-ps1.html"
    folders = [str(ran.folder) for ran, _ in judged.values()]
    wattload("report", *folders, "--by", "power_state", "-o", str(page))
    text = page.read_text()
    assert "virtual drive" in text
    assert "simulated readings" in text
    assert "Highest temperature of the drive in timed phases" in text
    assert "Energy of the whole run by source" in text
    assert "own count" in text


def test_devices_names_the_virtual_drive_and_its_states() -> None:
    reported = wattload("devices", str(mount()))
    (OUT / "devices.txt").write_text(reported)
    assert "virtual drive" in reported
    assert "PS3" in reported
