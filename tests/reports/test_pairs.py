"""Runs that took turns are compared in pairs; what was no pair, or are too few, is not called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.reports.sessions import run, session, turn
from wattload.core.record.check import Check
from wattload.core.record.run import RunStart
from wattload.reports.compare import Row, compare
from wattload.reports.load import Run
from wattload.reports.pairs import value_pairs
from wattload.reports.sections.sureness import method
from wattload.reports.subject import make_subject

DRIFT = [1.0, 0.93, 0.86, 0.8, 0.74, 0.69]
"""What a host that warms up does to both arms alike."""

FAST = [1e9 * each for each in DRIFT]
SLOW = [0.94e9 * each * (1 + 0.001 * (at % 3)) for at, each in enumerate(DRIFT)]
FLAT = [1e9, 1.001e9, 0.999e9, 1.002e9, 1e9, 0.998e9]
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


def test_five_pairs_are_too_few_whatever_their_runs_would_say_by_themselves() -> None:
    row = throughput(session({"A": FAST[:5], "B": [each / 2 for each in SLOW[:5]]}))
    assert row.effect is not None
    assert (row.effect.pairs, row.effect.interval) == (0, None)
    assert (row.call, row.words) == ("barred", "too few pairs")
    assert row.reason == "too few pairs to call: 5 pairs of runs that took turns; 6 are the floor"


def test_a_sixth_run_without_a_partner_makes_no_five_pairs_enough() -> None:
    runs = session({"A": FAST, "B": [each / 2 for each in SLOW[:5]]})
    assert throughput(runs).words == "too few pairs"


def test_four_interleaved_runs_are_told_by_the_floor_of_pairs() -> None:
    row = throughput(session({"A": FAST[:4], "B": SLOW[:4]}))
    assert "5 per arm" not in row.reason
    assert row.reason.startswith("too few pairs to call: 4 pairs")


def alone(label: str, count: int) -> list[Run]:
    """Return runs of an arm that took no turns, beside a session."""
    rate = 1e9 if label == "A" else 0.9e9
    return [
        run(
            f"{label}-alone-{index}",
            label=label,
            rate_bytes_per_s=rate * (1 + 0.001 * (index % 3)),
            seconds=3e9 / rate / (1 + 0.001 * (index % 3)),
            order=20 + 2 * index + (label == "B"),
            seed=index + 40,
        )
        for index in range(count)
    ]


def test_five_runs_per_arm_that_took_no_turns_stand_for_themselves_beside_a_short_session() -> None:
    few = session({"A": FLAT[:2], "B": [each * 0.9 for each in FLAT[:2]]})
    row = throughput([*few, *alone("A", 5), *alone("B", 5)])
    assert row.effect is not None
    assert (row.effect.pairs, row.effect.count_a) == (0, 7)
    assert row.call == "a"
    assert throughput([*few, *alone("A", 5), *alone("B", 4)]).words == "too few pairs"


def test_arms_of_two_sessions_took_no_turns_with_each_other() -> None:
    a = session({"A": FLAT[:5]}, session="s1")
    b = session({"B": [each * 0.9 for each in FLAT[:5]]}, session="s2")
    assert throughput([*a, *b]).call == "a"


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
    found = value_pairs([(turn("A", 0, 1e9), 1.0), (again, 3.0)], [(turn("B", 0, 1e9), 2.0)])
    assert found.pairs == ((3.0, 2.0),)


def apart(runs: Sequence[Run], gap_s: float, waited_s: float = 0.0) -> list[Run]:
    """Return a session whose B runs say that they began so long after their partners ended."""
    start = RunStart(waited_s=waited_s, limit_s=900.0, allowed_k=3.0)
    update: dict[str, Any] = {"pair_gap_s": gap_s, "start": start}
    return [
        each
        if each.record.label == "A"
        else replace(
            each,
            record=each.record.model_copy(
                update={"comparison": each.record.comparison.model_copy(update=update)}
            ),
        )
        for each in runs
    ]


@pytest.mark.parametrize(
    ("gap_s", "waited_s", "pairs"),
    [(600.0, 0.0, 6), (600.1, 0.0, 0), (1400.0, 800.0, 6), (604800.0, 900.0, 0)],
)
def test_runs_more_than_ten_minutes_apart_are_no_pair_but_for_the_wait_for_cooling(
    gap_s: float, waited_s: float, pairs: int
) -> None:
    row = throughput(apart(session({"A": FAST, "B": SLOW}), gap_s, waited_s))
    assert row.effect is not None
    assert (row.effect.pairs, row.effect.parted) == (pairs, 0 if pairs else 6)


def test_parted_pairs_are_judged_by_welch_and_the_row_says_so() -> None:
    row = throughput(apart(session({"A": FLAT, "B": [each * 1.2 for each in FLAT]}), 1e6))
    assert row.effect is not None
    assert row.call == "b"
    told = "the runs of 6 pairs were more than 600 s apart and stand for themselves"
    assert row.reason.endswith(told)
    assert method(row.effect) == "6 and 6 runs, Welch's t, 6 pairs too far apart in time"


def test_what_drifted_in_the_week_between_the_runs_of_pairs_is_not_called_away() -> None:
    together = session({"A": FAST, "B": SLOW})
    assert throughput(together).call == "a"
    assert throughput(apart(together, 604800.0)).call == "none"


def test_where_no_run_tells_the_gap_the_clocks_do() -> None:
    late = [
        replace(
            each,
            record=each.record.model_copy(
                update={"started_utc": each.record.started_utc.replace("2026-11-20", "2026-11-27")}
            ),
        )
        if each.record.label == "B"
        else each
        for each in session({"A": FAST, "B": SLOW})
    ]
    row = throughput(late)
    assert row.effect is not None
    assert (row.effect.pairs, row.effect.parted) == (0, 6)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-20T23:00:05"])
def test_runs_that_tell_no_time_are_no_pair(text: str) -> None:
    odd = turn("B", 0, 1e9)
    odd = replace(odd, record=odd.record.model_copy(update={"started_utc": text}))
    assert value_pairs([(turn("A", 0, 1e9), 1.0)], [(odd, 2.0)]).parted == 1


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
