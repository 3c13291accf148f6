"""Runs that took turns are compared in pairs, and a setting against itself gives the floor."""

from __future__ import annotations

import pytest

from tests.reports.sessions import against_itself, session, turn
from wattload.core.record.check import Check
from wattload.reports.compare import Row, compare, noise_floors
from wattload.reports.load import Run
from wattload.reports.pairs import value_pairs
from wattload.reports.subject import make_subject

DRIFT = [1.0, 0.93, 0.86, 0.8, 0.74, 0.69]
"""What a host that warms up does to both arms alike."""

FAST = [1e9 * each for each in DRIFT]
SLOW = [0.94e9 * each * (1 + 0.001 * (at % 3)) for at, each in enumerate(DRIFT)]
FAILED = Check(name="cold", verdict="fail", sentence="The cache was warm.", mandatory=True)


def throughput(runs: list[Run]) -> Row:
    subject = make_subject(runs)
    (group,) = subject.groups
    return next(row for row in compare(subject, group) if "throughput" in row.quantity.key)


def test_what_drifts_under_both_arms_cancels_in_pairs() -> None:
    row = throughput(session({"A": FAST, "B": SLOW}))
    assert row.effect is not None
    assert row.effect.pairs == 6
    assert (row.call, row.words) == ("a", "A is better")
    assert row.effect.ratio == pytest.approx(0.94, abs=0.002)


def test_the_same_runs_in_no_pairs_show_nothing() -> None:
    row = throughput(session({"A": FAST, "B": SLOW}, interleave="none"))
    assert row.effect is not None
    assert row.effect.pairs == 0
    assert (row.call, row.words) == ("none", "no difference shown")


def test_five_pairs_are_too_few_and_their_runs_stand_for_themselves() -> None:
    row = throughput(session({"A": FAST[:5], "B": SLOW[:5]}))
    assert row.effect is not None
    assert row.effect.pairs == 0
    assert row.call == "none"


def test_a_run_without_a_valid_partner_is_left_out_of_the_pairs() -> None:
    runs = session({"A": [*FAST, 0.6e9], "B": SLOW})
    row = throughput([*runs, turn("B", 6, 0.1e9, checks=(FAILED,))])
    assert row.effect is not None
    assert (row.effect.count_a, row.effect.count_b, row.effect.pairs) == (7, 6, 6)
    assert row.effect.ratio == pytest.approx(0.94, abs=0.002)


def test_sessions_and_blocks_are_not_mixed_up() -> None:
    first = session({"A": FAST[:3], "B": SLOW[:3]})
    second = session({"A": FAST[3:], "B": SLOW[3:]}, session="s2")
    row = throughput([*second, *first])
    assert row.effect is not None
    assert row.effect.pairs == 6
    assert row.effect.ratio == pytest.approx(0.94, abs=0.002)


def test_of_two_runs_of_a_block_the_last_counts() -> None:
    again = turn("A", 0, 3e9, name="again", order=5)
    assert value_pairs([(turn("A", 0, 1e9), 1.0), (again, 3.0)], [(turn("B", 0, 1e9), 2.0)]) == [
        (3.0, 2.0)
    ]


def test_warm_ups_make_no_arm_and_no_pair_and_stay_on_the_page() -> None:
    warm = [turn(arm, -1, 9e9, warm_up=True, name=f"w{arm}") for arm in ("A", "B", "C")]
    runs = [*warm, *session({"A": FAST, "B": SLOW})]
    subject = make_subject(runs)
    assert subject.arms == ("A", "B")
    assert len(subject.runs) == 15
    row = throughput(runs)
    assert row.spreads["A"] is not None
    assert row.spreads["A"].maximum < 1.1e9


def test_forcing_lets_no_warm_up_in() -> None:
    warm = [turn("A", -1, 9e9, warm_up=True, name=f"w{index}") for index in range(6)]
    subject = make_subject(warm, forced=True)
    (group,) = subject.groups
    assert all(not figure.valid for row in compare(subject, group) for figure in row.figures["A"])


FLAT = [1e9, 1.001e9, 0.999e9, 1.002e9, 1e9, 0.998e9]


def test_a_setting_against_itself_sets_the_floor_and_makes_no_arm() -> None:
    better = [each * 1.03 for each in FLAT]
    runs = session({"A": FLAT, "B": better})
    assert throughput(runs).call == "b"
    noisy = against_itself("A", FLAT, [each * 1.04 for each in FLAT])
    subject = make_subject([*runs, *noisy])
    assert subject.arms == ("A", "B")
    row = throughput([*runs, *noisy])
    assert row.effect is not None
    assert row.effect.floor == pytest.approx(0.04, abs=1e-3)
    assert row.effect.count_a == 6
    assert row.call == "none"
    assert "the effect is under 4.0 %" in row.reason


def test_a_quiet_setting_takes_the_place_of_what_halves_of_runs_drift() -> None:
    drifting = [each * (1 + 0.006 * at) for at, each in enumerate(FLAT)]
    runs = session({"A": drifting, "B": [each * 1.2 for each in drifting]}, interleave="none")
    loud = throughput(runs)
    quiet = throughput([*runs, *against_itself("A", FLAT, FLAT)])
    assert loud.effect is not None
    assert quiet.effect is not None
    assert loud.effect.floor > quiet.effect.floor == 0.01


def test_fewer_than_six_pairs_of_a_setting_with_itself_are_no_floor() -> None:
    runs = [*session({"A": FLAT, "B": FLAT}), *against_itself("A", FLAT[:5], FLAT[:5])]
    assert noise_floors(make_subject(runs)) == ()


def test_a_setting_against_itself_alone_is_one_arm_with_its_floor() -> None:
    subject = make_subject(against_itself("A", FLAT, [each * 1.02 for each in FLAT]))
    assert subject.arms == ("A",)
    (found,) = [each for each in noise_floors(subject) if "throughput" in each.quantity.key]
    assert found.share == pytest.approx(0.02, abs=1e-3)
    assert (found.workload, found.effect.pairs) == ("unet3d", 6)
