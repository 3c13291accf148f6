"""Alternating runs are compared in pairs; a setting against itself sets the noise floor."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tests.reports.sessions import (
    against_itself,
    effect_of,
    known,
    run,
    session,
    throughput,
    turn,
)
from tests.reports.stats.test_effects import made
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord, RunStart
from wattload.reports.render.json_export import document
from wattload.reports.render.text_export import ratios_report
from wattload.reports.runs.load import Run
from wattload.reports.sections.ratios import method, noise_section
from wattload.reports.stats.comparison import compare, noise_floors, unused_sessions
from wattload.reports.stats.effects import REACH, between, drift, first_arm
from wattload.reports.stats.pairs import one_after_the_other, value_pairs
from wattload.reports.stats.subject import make_subject

DRIFT = [1.0, 0.93, 0.86, 0.8, 0.74, 0.69]
"""What a host that warms up does to both arms alike."""

FAST = [1e9 * each for each in DRIFT]
SLOW = [0.94e9 * each * (1 + 0.001 * (at % 3)) for at, each in enumerate(DRIFT)]
FLAT = [1e9, 1.001e9, 0.999e9, 1.002e9, 1e9, 0.998e9]
FAILED = Check(name="cold", verdict="fail", sentence="The cache was warm.", mandatory=True)


def test_what_drifts_under_both_arms_cancels_in_pairs() -> None:
    row = throughput(session({"A": FAST, "B": SLOW}))
    assert effect_of(row).pairs == 6
    assert (row.call, row.words) == ("a", "A is better")
    assert effect_of(row).ratio == pytest.approx(0.94, abs=0.002)


def test_the_same_runs_in_no_pairs_show_nothing() -> None:
    row = throughput(session({"A": FAST, "B": SLOW}, interleave="none"))
    assert effect_of(row).pairs == 0
    assert (row.call, row.words) == ("none", "inconclusive")


def test_five_pairs_are_too_few_whatever_their_runs_would_say_by_themselves() -> None:
    row = throughput(session({"A": FAST[:5], "B": [each / 2 for each in SLOW[:5]]}))
    assert (effect_of(row).pairs, effect_of(row).interval) == (0, None)
    assert (row.call, row.words) == ("barred", "inconclusive")
    assert row.reason == "5 pairs; 6 needed"


def test_a_sixth_run_without_a_partner_makes_no_five_pairs_enough() -> None:
    runs = session({"A": FAST, "B": [each / 2 for each in SLOW[:5]]})
    assert throughput(runs).words == "inconclusive"


def test_four_interleaved_runs_are_told_by_the_floor_of_pairs() -> None:
    row = throughput(session({"A": FAST[:4], "B": SLOW[:4]}))
    assert "5 per arm" not in row.reason
    assert row.reason.startswith("4 pairs; 6 needed")


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
    assert (effect_of(row).pairs, effect_of(row).count_a) == (0, 7)
    assert row.call == "a"
    assert throughput([*few, *alone("A", 5), *alone("B", 4)]).words == "inconclusive"


def test_arms_of_two_sessions_took_no_turns_with_each_other() -> None:
    a = session({"A": FLAT[:5]}, session="s1")
    b = session({"B": [each * 0.9 for each in FLAT[:5]]}, session="s2")
    assert throughput([*a, *b]).call == "a"


def test_a_run_without_a_valid_partner_is_left_out_of_the_pairs() -> None:
    runs = session({"A": [*FAST, 0.6e9], "B": SLOW})
    row = throughput([*runs, turn("B", 6, 0.1e9, checks=(FAILED,))])
    assert (effect_of(row).count_a, effect_of(row).count_b, effect_of(row).pairs) == (7, 6, 6)
    assert effect_of(row).ratio == pytest.approx(0.94, abs=0.002)


def test_sessions_and_blocks_are_not_mixed_up() -> None:
    first = session({"A": FAST[:3], "B": SLOW[:3]})
    second = session({"A": FAST[3:], "B": SLOW[3:]}, session="s2")
    row = throughput([*second, *first])
    assert effect_of(row).pairs == 6
    assert effect_of(row).ratio == pytest.approx(0.94, abs=0.002)


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


def test_only_an_interruption_between_them_parts_two_runs_of_a_block_of_three() -> None:
    """B waits for cooling; C begins after an interruption, and hours after the end of A."""
    a = turn("A", 0, 1e9)
    (b,) = apart([turn("B", 0, 1e9, order=1)], 830.0, 800.0)
    late = turn("C", 0, 1e9, order=5000)
    for pause_s, of_a, of_b in ((30.0, 1, 1), (580.0, 0, 1), (700.0, 0, 0)):
        (c,) = apart([late], 30.0 + pause_s)
        assert len(value_pairs([(a, 1.0)], [(c, 1.0)]).pairs) == of_a
        assert len(value_pairs([(b, 1.0)], [(c, 1.0)]).pairs) == of_b
    assert len(value_pairs([(a, 1.0)], [(b, 1.0)]).pairs) == 1


@pytest.mark.parametrize(
    ("gap_s", "waited_s", "pairs"),
    [(600.0, 0.0, 6), (600.1, 0.0, 0), (1400.0, 800.0, 6), (604800.0, 900.0, 0)],
)
def test_runs_more_than_ten_minutes_apart_are_no_pair_but_for_the_wait_for_cooling(
    gap_s: float, waited_s: float, pairs: int
) -> None:
    row = throughput(apart(session({"A": FAST, "B": SLOW}), gap_s, waited_s))
    assert (effect_of(row).pairs, effect_of(row).parted) == (pairs, 0 if pairs else 6)


def test_parted_pairs_are_judged_by_welch_and_the_row_says_so() -> None:
    row = throughput(apart(session({"A": FLAT, "B": [each * 1.2 for each in FLAT]}), 1e6))
    assert row.call == "b"
    reported = "the runs of 6 pairs were more than 600 s apart and count as single runs"
    assert row.reason.endswith(reported)
    assert method(effect_of(row)) == "6 and 6 runs, Welch's t, 6 pairs too far apart in time"


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
    assert (effect_of(row).pairs, effect_of(row).parted) == (0, 6)


def test_warm_ups_make_no_arm_and_no_pair_and_stay_on_the_page() -> None:
    warm = [turn(arm, -1, 9e9, warm_up=True, name=f"w{arm}") for arm in ("A", "B", "C")]
    runs = [*warm, *session({"A": FAST, "B": SLOW})]
    subject = make_subject(runs)
    assert subject.arms == ("A", "B")
    assert len(subject.runs) == 15
    row = throughput(runs)
    assert known(row.spreads["A"]).maximum < 1.1e9


def test_forcing_lets_no_warm_up_in() -> None:
    warm = [turn("A", -1, 9e9, warm_up=True, name=f"w{index}") for index in range(6)]
    subject = make_subject(warm, forced=True)
    (group,) = subject.groups
    assert all(not figure.valid for row in compare(subject, group) for figure in row.figures["A"])


FIRST, SECOND = [0.0, 1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0, 9.0]
LEVEL = [1.0, 1.002, 0.999, 1.001, 1.0]


def test_one_late_run_makes_no_mixture_of_arms_that_ran_one_after_the_other() -> None:
    assert first_arm(FIRST, SECOND) == "A"
    assert first_arm(SECOND, FIRST) == "B"
    assert first_arm([*FIRST[:4], 99.0], SECOND) == "A"
    assert first_arm([0, 2, 4, 6, 8], [1, 3, 5, 7, 9]) == ""
    assert first_arm([0, 1, 2, 10, 11], [3, 4, 5, 6, 7]) == ""


def test_drift_within_the_arms_is_carried_on_to_the_time_of_the_other() -> None:
    steady = [1.01**at for at in range(10)]
    found = between(steady[:5], steady[5:], FIRST, SECOND)
    assert found.share == pytest.approx(1.01**5 - 1, rel=1e-6)  # the centres are 5 s apart
    assert found.words.startswith("the arms ran one after the other")


def test_a_level_that_few_runs_happened_to_keep_is_no_proof_of_calm() -> None:
    found = between(LEVEL, LEVEL, FIRST, SECOND)
    noisier = between([each**4 for each in LEVEL], [each**4 for each in LEVEL], FIRST, SECOND)
    assert 0.001 < found.share < 0.02
    assert noisier.share > 3 * found.share


def test_arms_that_mixed_have_no_drift_between_them() -> None:
    drifting = [1.01**at for at in range(10)]
    found = between(drifting[::2], drifting[1::2], [0, 2, 4, 6, 8], [1, 3, 5, 7, 9])
    assert (found.share, found.words) == (0.0, "")


def test_drift_is_carried_on_no_farther_than_anyone_can_know_and_that_is_said() -> None:
    drifting = [1.001**at for at in range(5)]
    day_later = [86400 + at for at in FIRST]
    found = between(drifting, drifting, FIRST, day_later)
    assert found.share == pytest.approx(1.001 ** (4 * REACH) - 1, rel=1e-3)
    assert "drift between them is unknown" in found.words


def test_what_no_times_tell_is_not_known() -> None:
    at_once = between(LEVEL, LEVEL, [0.0] * 5, [9.0] * 5)
    assert at_once.share == 0.0
    assert at_once.words == "the arms ran one after the other: drift between them is unknown"
    assert between(LEVEL, LEVEL, [0.0] * 5, [0.0] * 5) == at_once
    assert at_once.is_unknown


def test_what_drifts_may_bring_unlike_arms_together() -> None:
    """A true 4 % that a drift of -4 % from first to last nearly takes away is not "the same"."""
    random = np.random.default_rng(7)
    said = 0
    for _ in range(200):
        logs = np.linspace(0, -0.04, 10) + random.normal(0, 0.001, 10) + np.repeat([0.0, 0.04], 5)
        values = np.exp(logs).tolist()
        began = ([60.0 * at for at in range(5)], [300 + 60.0 * at for at in range(5)])
        found = made(values[:5], values[5:], began=began)
        said += found.same
    assert said == 0


def test_level_arms_in_sequence_may_still_be_the_same() -> None:
    still = [1.0, 1.0004, 0.9998, 1.0002, 0.9996]
    found = made(still, still, began=(FIRST, SECOND))
    assert found.between.share > 0
    assert found.same


def test_a_host_that_drifts_makes_no_arm_better_though_one_ran_after_the_other() -> None:
    random = np.random.default_rng(31)
    draws, total, called, blind = 300, 0.03, 0, 0
    for _ in range(draws):
        values = np.exp(np.linspace(0, total, 10) + random.normal(0, 0.005, 10)).tolist()
        reported = made(values[:5], values[5:], began=(FIRST, SECOND))
        untold = made(values[:5], values[5:])
        called, blind = called + reported.differs, blind + untold.differs
    assert called / draws <= 0.06
    assert blind / draws > 0.5  # without the times it would be called


def test_a_clear_difference_of_arms_in_sequence_is_still_called() -> None:
    found = made(LEVEL, [1.2 * each for each in LEVEL], began=(FIRST, SECOND))
    assert found.differs


def in_sequence(rates: Sequence[float], late: int = 0) -> list[Run]:
    """Return runs of these rates in order of time: of A, of B, and as many of A as are late."""
    half = len(rates) // 2
    early = half - late
    runs = session(
        {"A": [*rates[:early], *rates[early + half :]], "B": rates[early : early + half]},
        interleave="none",
    )
    ordered = [*runs[:early], *runs[half:], *runs[early:half]]
    return [started(run, f"2026-11-20T23:{5 * at:02}:00+00:00") for at, run in enumerate(ordered)]


def started(run: Run, when: str) -> Run:
    return replace(run, record=run.record.model_copy(update={"started_utc": when}))


DRIFTING = [1e9 * 1.006**at * noise for at, noise in enumerate([1.0, 1.001, 0.999, 1.0, 1.001] * 2)]


@pytest.mark.parametrize("late", [0, 1])
def test_a_drift_over_the_session_is_not_called_and_the_row_says_why(late: int) -> None:
    row = throughput(in_sequence(DRIFTING, late))
    assert (row.call, row.words) == ("none", "inconclusive")
    assert effect_of(row).between.share > 0.01
    assert row.reason.endswith(effect_of(row).between.words)


@pytest.mark.parametrize(("late", "share"), [(0, "all"), (1, "most")])
def test_one_late_run_does_not_silence_the_notice(late: int, share: str) -> None:
    subject = make_subject(in_sequence(DRIFTING, late))
    (group,) = subject.groups
    assert one_after_the_other(subject, group) == f"{share} runs of A began before those of B"


def test_json_and_csv_say_that_arms_ran_one_after_the_other() -> None:
    runs = in_sequence(DRIFTING)
    (comparison,) = document(make_subject(runs))["comparisons"]
    reported = next(each for each in comparison["rows"] if each["quantity"] == "read_bytes_per_s")
    between = reported["effect"]["between"]
    assert between["share"] == pytest.approx(0.03, abs=0.01)
    assert between["words"] in reported["reason"]
    ratios = csv.DictReader(io.StringIO(ratios_report(make_subject(runs))))
    found = next(each for each in ratios if each["quantity"] == "read_bytes_per_s")
    assert (found["words"], found["reason"]) == (reported["words"], reported["reason"])


@pytest.mark.parametrize("text", ["yesterday", "2026-11-20T23:00:05", "2026-13-20T23:00:05Z"])
def test_a_record_whose_time_tells_no_moment_is_refused(text: str) -> None:
    record = session({"A": [1e9]})[0].record
    with pytest.raises(ValidationError, match="started_utc"):
        RunRecord.model_validate(record.model_dump() | {"started_utc": text})


def test_drift_is_the_same_up_and_down_and_nothing_for_one_run() -> None:
    assert drift([1.0, 1.0, 2.0, 2.0]) == pytest.approx(drift([2.0, 2.0, 1.0, 1.0])) == 1.0
    assert drift([5.0]) == 0.0


WARMING = [each * (1 + 0.006 * at) for at, each in enumerate(FLAT)]


def floor(runs: list[Run]) -> float:
    return effect_of(throughput(runs)).floor


def noisy(share: float, **changes: Any) -> list[Run]:
    """Return a session of one setting whose second half is faster by a share."""
    return [
        turn("A", block, rate * (1 + share * half), session="aa", interleave="aa", half=half + 1,
             **changes)
        for half in (0, 1)
        for block, rate in enumerate(FLAT)
    ]  # fmt: skip


def test_a_setting_against_itself_sets_the_floor_and_makes_no_arm() -> None:
    better = [each * 1.03 for each in reversed(FLAT)]
    runs = session({"A": FLAT, "B": better})
    assert throughput(runs).call == "b"
    subject = make_subject([*runs, *noisy(0.04)])
    assert subject.arms == ("A", "B")
    row = throughput([*runs, *noisy(0.04)])
    assert effect_of(row).floor == pytest.approx(0.04, abs=1e-3)
    assert effect_of(row).count_a == 6
    assert row.call == "none"
    assert "the effect is below 4.0 % (A/A runs of one setting)" in row.reason


def test_the_floor_is_the_far_end_of_what_a_setting_showed() -> None:
    second = [each * (1.02 + 0.02 * (-1) ** at) for at, each in enumerate(FLAT)]
    subject = make_subject(against_itself("A", FLAT, second))
    (found,) = [each for each in noise_floors(subject) if each.quantity.key == "read_bytes_per_s"]
    assert found.effect.upper is not None
    assert found.share == pytest.approx(found.effect.upper - 1)
    assert found.share > found.effect.ratio - 1 + 0.01


def test_a_quiet_setting_takes_nothing_from_what_the_arms_themselves_drift_by() -> None:
    faster = [each * 1.2 for each in WARMING]
    runs = session({"A": WARMING, "B": faster}, interleave="none")
    assert floor(runs) > 0.01
    assert floor([*runs, *noisy(0.0)]) == floor(runs)


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"serial": "OTHER"}, "serial"),
        ({"model": "RIVAL"}, "drive"),
        ({"host": "otherbox"}, "host"),
        ({"loader": "torch"}, "loader and loader.name"),
        ({"scale": "full"}, "scale and scale.name"),
        ({"path": "/mnt/other"}, "target.path"),
        ({"settings": {"workload": {"workers": 8}}}, "workload.workers"),
        ({"state": 1, "power": "measured"}, "power state"),
    ],
)
def test_a_session_of_anything_else_raises_no_floor_and_is_listed(
    changes: dict[str, Any], reported: str
) -> None:
    common: dict[str, Any] = {"virtual": False, "power": "measured"}
    runs = session({"A": FLAT, "B": [each * 1.03 for each in FLAT]}, **common)
    own, other = noisy(0.2, **common), noisy(0.2, **(common | changes))
    assert floor([*runs, *own]) > 0.19
    assert floor([*runs, *other]) == floor(runs)
    subject = make_subject([*runs, *other])
    ((found, reason),) = unused_sessions(subject)
    assert found.session_id == "aa"
    assert reason == f"it differs from the compared runs in {reported}"
    section = noise_section(subject)
    assert section is not None
    assert f"unet3d, session aa: {reason}." in str(section.blocks[0])


def test_a_session_of_either_arm_is_heard() -> None:
    ours: dict[str, Any] = {"virtual": False, "power": "measured"}
    runs = [
        *session({"A": FLAT}, serial="SA", **ours),
        *session({"B": [each * 1.03 for each in FLAT]}, serial="SB", **ours),
    ]
    for serial in ("SA", "SB"):
        subject = make_subject([*runs, *noisy(0.2, serial=serial, **ours)])
        assert unused_sessions(subject) == ()
        assert floor(list(subject.runs)) > 0.19


def test_a_session_of_two_settings_speaks_for_none() -> None:
    runs = session({"A": FLAT, "B": FLAT}, virtual=False)
    halves = noisy(0.2, virtual=False)
    mixed = [*halves[:6], *noisy(0.2, virtual=False, serial="OTHER")[6:]]
    assert floor([*runs, *mixed]) == 0.01
    ((_, reason),) = unused_sessions(make_subject([*runs, *mixed]))
    assert reason == "its own runs differ in serial"


def test_a_session_of_another_point_says_nothing_of_this_one() -> None:
    def at(workers: int, faster: float) -> list[Run]:
        own = {"workload": {"workers": workers}}
        return [
            turn(label, block, rate * (faster if label == "B" else 1), settings=own,
                 session=f"s{workers}", name=f"{label}-{workers}-{block}")
            for label in "AB"
            for block, rate in enumerate(FLAT)
        ]  # fmt: skip

    loud = noisy(0.2, settings={"workload": {"workers": 8}})
    subject = make_subject([*at(1, 1.03), *at(8, 1.03), *loud])
    (group,) = subject.groups
    found = {
        row.at: row.effect.floor
        for row in compare(subject, group)
        if row.quantity.key == "read_bytes_per_s" and row.effect
    }
    assert found["1"] == 0.01
    assert found["8"] > 0.19


def test_fewer_than_six_pairs_of_a_setting_with_itself_are_no_floor() -> None:
    runs = [*session({"A": FLAT, "B": FLAT}), *against_itself("A", FLAT[:5], FLAT[:5])]
    subject = make_subject(runs)
    assert noise_floors(subject) == ()
    ((_, reason),) = unused_sessions(subject)
    assert reason == "it has fewer than 6 pairs"


def test_a_setting_against_itself_alone_is_one_arm_with_its_floor() -> None:
    subject = make_subject(against_itself("A", FLAT, [each * 1.02 for each in FLAT]))
    assert subject.arms == ("A",)
    (found,) = [each for each in noise_floors(subject) if each.quantity.key == "read_bytes_per_s"]
    assert found.share == pytest.approx(0.02, abs=1e-3)
    assert (found.workload, found.effect.pairs) == ("unet3d", 6)
    assert unused_sessions(subject) == ()
