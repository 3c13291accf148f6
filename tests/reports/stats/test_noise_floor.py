"""The noise floor from A/A sessions: only for runs of that setting, drive and host."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reports.sessions import against_itself, session, turn
from wattload.reports.runs.load import Run
from wattload.reports.sections.ratios import noise_section
from wattload.reports.stats.comparison import Row, compare, noise_floors, unused_sessions
from wattload.reports.stats.subject import make_subject

FLAT = [1e9, 1.001e9, 0.999e9, 1.002e9, 1e9, 0.998e9]
DRIFTING = [each * (1 + 0.006 * at) for at, each in enumerate(FLAT)]


def throughput(runs: list[Run]) -> Row:
    subject = make_subject(runs)
    (group,) = subject.groups
    return next(row for row in compare(subject, group) if "throughput" in row.quantity.key)


def floor(runs: list[Run]) -> float:
    row = throughput(runs)
    assert row.effect is not None
    return row.effect.floor


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
    assert row.effect is not None
    assert row.effect.floor == pytest.approx(0.04, abs=1e-3)
    assert row.effect.count_a == 6
    assert row.call == "none"
    assert "the effect is below 4.0 % (A/A runs of one setting)" in row.reason


def test_the_floor_is_the_far_end_of_what_a_setting_showed() -> None:
    second = [each * (1.02 + 0.02 * (-1) ** at) for at, each in enumerate(FLAT)]
    subject = make_subject(against_itself("A", FLAT, second))
    (found,) = [each for each in noise_floors(subject) if "throughput" in each.quantity.key]
    assert found.effect.upper is not None
    assert found.share == pytest.approx(found.effect.upper - 1)
    assert found.share > found.effect.ratio - 1 + 0.01


def test_a_quiet_setting_takes_nothing_from_what_the_arms_themselves_drift_by() -> None:
    faster = [each * 1.2 for each in DRIFTING]
    runs = session({"A": DRIFTING, "B": faster}, interleave="none")
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
        if "throughput" in row.quantity.key and row.effect
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
    (found,) = [each for each in noise_floors(subject) if "throughput" in each.quantity.key]
    assert found.share == pytest.approx(0.02, abs=1e-3)
    assert (found.workload, found.effect.pairs) == ("unet3d", 6)
    assert unused_sessions(subject) == ()
