"""Swept runs of one arm form points, and only the runs of one point are repeats."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.reports.sessions import run
from wattload.reports.stats.subject import Group
from wattload.reports.stats.sweeps import Point, points


def swept(key: str, *values: object, arms: str = "AB", each: int = 2) -> Group:
    """Return a group in which each arm ran each value several times."""
    group, _, name = key.partition(".")
    return Group(
        workload="dlrm",
        arms={
            arm: tuple(
                run(f"{arm}{value}-{index}", {group: {name: value}}, label=arm, seed=index + 1)
                for value in values
                for index in range(each)
            )
            for arm in arms
        },
    )


def shown(found: tuple[Point, ...]) -> list[tuple[str, str, dict[str, list[str]]]]:
    return [
        (point.axis, point.value, {arm: [r.id for r in of] for arm, of in point.group.arms.items()})
        for point in found
    ]


def test_a_group_that_was_not_swept_is_one_point_without_axis() -> None:
    group = swept("workload.workers", 4)
    assert points(group) == (Point("", "", None, group),)


def test_seeds_and_labels_are_no_axis() -> None:
    runs = tuple(run(f"r{index}", {}, seed=index, label=f"L{index}") for index in range(3))
    (point,) = points(Group(workload="unet3d", arms={"drive": runs}))
    assert point.axis == ""


def test_runs_of_one_arm_that_were_swept_are_told_apart() -> None:
    found = points(swept("workload.workers", 1, 24))
    assert shown(found) == [
        ("workers", "1", {"A": ["A1-0", "A1-1"], "B": ["B1-0", "B1-1"]}),
        ("workers", "24", {"A": ["A24-0", "A24-1"], "B": ["B24-0", "B24-1"]}),
    ]
    assert [point.number for point in found] == [1.0, 24.0]
    assert {point.group.workload for point in found} == {"dlrm"}


def test_points_stand_in_order_of_their_number_not_of_their_text() -> None:
    found = points(swept("workload.workers", 16, 2, 1, 8))
    assert [point.value for point in found] == ["1", "2", "8", "16"]


def test_what_is_no_number_keeps_the_order_of_the_runs() -> None:
    found = points(swept("workload.compression", "zstd", "none", "lz4"))
    assert [(point.value, point.number) for point in found] == [
        ("zstd", None),
        ("none", None),
        ("lz4", None),
    ]


@pytest.mark.parametrize("value", ["nan", "inf", "1e999"])
def test_a_text_that_only_reads_as_a_number_is_none(value: str) -> None:
    assert [point.number for point in points(swept("workload.mode", value, "x"))] == [None, None]


def test_what_only_tells_the_arms_apart_is_no_axis() -> None:
    a, b = swept("power.state", 0, arms="A"), swept("power.state", 1, arms="B")
    assert [p.axis for p in points(Group(workload="dlrm", arms={**a.arms, **b.arms}))] == [""]


def test_an_arm_that_did_not_run_a_point_is_left_out_of_it() -> None:
    a, b = swept("workload.workers", 1, 2, arms="A"), swept("workload.workers", 2, arms="B")
    found = points(Group(workload="dlrm", arms={**a.arms, **b.arms}))
    assert [(p.value, list(p.group.arms)) for p in found] == [("1", ["A"]), ("2", ["A", "B"])]


def test_two_swept_settings_make_one_joined_axis() -> None:
    runs = tuple(
        run(f"r{workers}-{depth}", {"workload": {"workers": workers}, "loader": {"depth": depth}})
        for workers in (8, 1)
        for depth in (32, 4)
    )
    found = points(Group(workload="dlrm", arms={"A": runs}))
    assert {point.axis for point in found} == {"workers, depth"}
    assert [point.value for point in found] == ["1, 4", "1, 32", "8, 4", "8, 32"]
    assert {point.number for point in found} == {None}


def test_settings_of_one_last_name_are_named_whole() -> None:
    runs = tuple(
        run(f"r{one}{two}", {"workload": {"workers": one}, "loader": {"workers": two}})
        for one in (1, 2)
        for two in (1, 2)
    )
    found = points(Group(workload="dlrm", arms={"A": runs}))
    assert {point.axis for point in found} == {"workload.workers, loader.workers"}


def test_of_settings_that_vary_together_the_one_a_command_names_stands_for_all() -> None:
    counts = {"demo": 4, "quick": 28}
    runs = tuple(
        run(
            scale,
            {"workload": {"file_count": count}, "scale": {"name": scale}},
            command=(f"scale={scale}",),
            scale=scale,
        )
        for scale, count in counts.items()
    )
    found = points(Group(workload="unet3d", arms={"A": runs}))
    assert [(point.axis, point.value) for point in found] == [("scale", "demo"), ("scale", "quick")]


def test_loaders_and_process_counts_are_axes_too() -> None:
    loaders = tuple(run(name, {"loader": {"name": "x"}}, loader=name) for name in ("a", "b"))
    assert [p.axis for p in points(Group(workload="u", arms={"A": loaders}))] == ["loader"] * 2
    ranks = tuple(run(f"r{count}", {}, ranks=count) for count in (4, 2))
    found = points(Group(workload="u", arms={"A": ranks}))
    assert [(p.axis, p.number) for p in found] == [("processes", 2.0), ("processes", 4.0)]


def test_a_record_that_lacks_a_setting_is_no_point_of_its_own() -> None:
    old, new = run("old", {}), run("new", {"workload": {"rounds": 1}})
    (point,) = points(Group(workload="dlrm", arms={"A": (old, new)}))
    assert len(point.group.runs) == 2


def test_the_order_of_a_session_and_lifted_guards_are_no_axis() -> None:
    runs = (
        run("first", {"sweep": {"start": 1}, "target": {"max_write_bytes": None}}),
        run("second", {"sweep": {"start": 2}, "target": {"max_write_bytes": 10**13}}),
    )
    assert len(points(Group(workload="dlrm", arms={"A": runs}))) == 1


def test_every_run_stands_at_exactly_one_point() -> None:
    group = swept("workload.workers", 1, 2, 4)
    found = points(group)
    assert sorted(r.id for p in found for r in p.group.runs) == sorted(r.id for r in group.runs)
    reversed_arms = {arm: tuple(reversed(runs)) for arm, runs in group.arms.items()}
    other = points(replace(group, arms=reversed_arms))
    assert [point.value for point in other] == [point.value for point in found]
