"""Points of a sweep, whose runs alone are repeats, and curves over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.records import write_run
from tests.reports.conftest import arm
from tests.reports.sessions import run as made
from wattload.core.histogram import Histogram
from wattload.core.record.results import latencies_of
from wattload.core.units import Unit
from wattload.reports.blocks import Table
from wattload.reports.charts.sweeps import means_figure
from wattload.reports.render.json_export import document
from wattload.reports.render.text_export import markdown_report
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.sections.workload import workload_sections
from wattload.reports.stats.subject import Group, Subject, make_subject
from wattload.reports.stats.sweeps import Point, load_curves, points, scalings

DEPTHS = (1, 2, 8)


def _at(run: Run, key: str, value: object, latencies_ns: Sequence[int]) -> Run:
    """Return the run as if this loader setting had been swept, with these latencies."""
    record = run.record
    config = {**record.config, "loader": {**record.config["loader"], key: value}}
    rows = latencies_of(
        Histogram.of(latencies_ns), phase="read", kind="read", operation_bytes=1 << 20
    )
    changes = {"config": config, "latencies": rows, "command": (f"loader.{key}={value}",)}
    return replace(run, record=record.model_copy(update=changes))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two runs of each arm at each depth; B has half the rate, twice the latency."""
    folder = tmp_path_factory.mktemp("swept")
    runs = []
    for place, depth in enumerate(DEPTHS):
        for index in range(2):
            for name, factor in (("A", 1), ("B", 2)):
                made = arm(name, index, rate=1e9 * depth**0.5 / factor)
                scenario = replace(made, run_id=f"run-{name}-{depth}-{index}")
                (run,) = load_runs([write_run(folder, scenario)])
                latency_ns = factor * depth * 1_000_000 + place
                runs.append(_at(run, "depth", depth, [latency_ns] * 200))
    return runs


def _subject(runs: Sequence[Run]) -> Subject:
    return make_subject(runs)


def test_a_point_has_the_bytes_and_the_merged_histograms_of_its_runs(swept: list[Run]) -> None:
    subject = _subject(swept)
    (found,) = load_curves(subject, subject.groups[0])
    assert (found.phase, found.kind, found.axis) == ("read", "read", "depth")
    first = found.curves[0].points[0]
    assert (first.value, first.run_count, first.operation_count) == ("1", 2, 400)
    own = [run for run in swept if run.id in ("run-A-1-0", "run-A-1-1")]
    windows = [next(w for w in run.record.windows if w.name == "read") for run in own]
    expected = sum(w.read_bytes for w in windows) / sum(w.active_s for w in windows)
    assert first.rate == pytest.approx(expected)
    assert first.percentiles_s["p50"] == pytest.approx(1e-3, rel=1 / 64)


def test_each_arm_is_a_line_in_order_of_the_setting(swept: list[Run]) -> None:
    subject = _subject(list(reversed(swept)))
    (found,) = load_curves(subject, subject.groups[0])
    assert "<path" in means_figure("latency", "Reads", [found], {}).svg
    assert [[at.value for at in curve.points] for curve in found.curves] == [["1", "2", "8"]] * 2


def test_a_percentile_of_too_few_operations_is_none(swept: list[Run]) -> None:
    few = [_at(run, "depth", run.record.config["loader"]["depth"], [10**6] * 9) for run in swept]
    subject = _subject(few)
    (found,) = load_curves(subject, subject.groups[0])
    assert found.curves[0].points[0].percentiles_s == {
        "p50": pytest.approx(1e-3, rel=1 / 64),
        "p99": None,
        "p99.9": None,
    }


def test_points_without_an_order_are_not_connected(swept: list[Run]) -> None:
    flags = [
        _at(run, "registered", run.record.config["loader"]["depth"] > 1, [10**6] * 200)
        for run in swept
    ]
    for run in flags:
        run.record.config["loader"].pop("depth")
    subject = _subject(flags)
    assert [each.value for each in points(subject.groups[0])] == ["False", "True"]
    (found,) = load_curves(subject, subject.groups[0])
    assert not found.has_lines
    assert "<path" not in means_figure("latency", "Reads", [found], {}).svg
    assert scalings(subject, subject.groups[0]) == ()


def test_runs_without_latencies_draw_no_latency_and_no_operations(swept: list[Run]) -> None:
    bare = [replace(run, record=run.record.model_copy(update={"latencies": ()})) for run in swept]
    subject = _subject(bare)
    assert load_curves(subject, subject.groups[0]) == ()
    assert all("IOPS" not in each.label for each in scalings(subject, subject.groups[0]))


def test_an_invalid_run_is_in_no_curve(swept: list[Run]) -> None:
    failed = [
        replace(run, record=run.record.model_copy(update={"status": "failed"}))
        if run.id == "run-A-1-0"
        else run
        for run in swept
    ]
    subject = _subject(failed)
    (found,) = load_curves(subject, subject.groups[0])
    assert found.curves[0].points[0].run_count == 1
    points = scalings(subject, subject.groups[0])[0].curves[0].points
    assert [len(point.rates) for point in points] == [1, 2, 2]


def test_ideal_scaling_grows_in_proportion_from_the_first_point(swept: list[Run]) -> None:
    subject = _subject(swept)
    found = scalings(subject, subject.groups[0])
    assert all(each.is_count for each in found)
    curve = found[0].curves[0]
    assert curve.ideal(1.0) == curve.points[0].mean
    assert curve.ideal(8.0) == pytest.approx(8 * curve.points[0].mean)


def test_operations_per_second_are_those_that_were_timed(swept: list[Run]) -> None:
    subject = _subject(swept)
    found = next(e for e in scalings(subject, subject.groups[0]) if "IOPS" in e.label)
    assert found.unit is Unit.SAMPLES_PER_SECOND
    run = next(run for run in swept if run.id == "run-A-1-0")
    window = next(w for w in run.record.windows if w.name == "read")
    assert 200 / window.active_s in found.curves[0].points[0].rates


def test_a_size_has_no_ideal_scaling(swept: list[Run]) -> None:
    sized = [
        _at(run, "block_bytes", 4096 * run.record.config["loader"]["depth"], [10**6] * 200)
        for run in swept
    ]
    plain = [
        replace(
            run,
            record=run.record.model_copy(
                update={
                    "config": {
                        **run.record.config,
                        "loader": {**run.record.config["loader"], "depth": 8},
                    }
                }
            ),
        )
        for run in sized
    ]
    subject = _subject(plain)
    found = scalings(subject, subject.groups[0])
    assert found[0].axis == "block_bytes"
    assert not any(each.is_count for each in found)


def test_words_are_no_axis(swept: list[Run]) -> None:
    worded = [_at(run, "depth", f"d{run.id[6]}", [10**6] * 200) for run in swept]
    subject = _subject(worded)
    assert scalings(subject, subject.groups[0]) == ()
    assert load_curves(subject, subject.groups[0])[0].curves[0].points[0].value == "d1"


def test_several_targets_are_an_axis_by_how_many_there_are(swept: list[Run]) -> None:
    runs = []
    for run in swept:
        count = run.record.config["loader"]["depth"]
        config = {**run.record.config, "loader": {"name": "direct"}}
        config["target"] = {"path": [f"/mnt/{number}" for number in range(count)]}
        changes = {
            "config": config,
            "command": ("target.path=x",),
            "targets": run.record.targets * count,
        }
        runs.append(replace(run, record=run.record.model_copy(update=changes)))
    subject = _subject(runs)
    found = scalings(subject, subject.groups[0])
    assert (found[0].axis, found[0].is_count) == ("targets", True)
    assert [point.number for point in found[0].curves[0].points] == [1.0, 2.0, 8.0]


def _limited(run: Run, busy: float) -> Run:
    """Return the run with requests in flight at its drives for this share of its time."""
    active_s = sum(window.active_s for window in run.record.windows if window.name == "read")
    counters = tuple(
        counter.model_copy(update={"busy_s": busy * active_s if counter.phase == "read" else None})
        for counter in run.record.counters
    )
    return replace(run, record=run.record.model_copy(update={"counters": counters}))


@pytest.mark.parametrize(
    ("busy", "sentence"),
    [
        ((0.1, 0.95, 0.9), "The drive limits B from depth = 2 on."),
        ((0.95, 0.1, 0.9), "The drive limits B from depth = 8 on."),
        ((0.9, 0.95, 0.95), "The drive limits B at every point."),
        ((0.9, 0.95, 0.1), "The drive is not shown to limit A and B up to depth = 8."),
    ],
)
def test_a_sweep_names_the_point_from_which_on_the_drive_limits(
    swept: list[Run], busy: Sequence[float], sentence: str
) -> None:
    shares = dict(zip(DEPTHS, busy, strict=True))
    runs = [
        _limited(run, shares[run.record.config["loader"]["depth"]] if "-B-" in run.id else 0.1)
        for run in swept
    ]
    subject = _subject(runs)
    (section,) = workload_sections(subject)
    (table,) = (
        block
        for block in section.blocks
        if isinstance(block, Table) and block.caption.startswith("What limits each point")
    )
    other = "The drive is not shown to limit A up to depth = 8."
    if "A and B" in sentence:  # the same is true of both
        other = sentence
    printed = " ".join(dict.fromkeys([other, sentence]))
    assert table.caption == f"What limits each point: {printed}"
    assert printed in markdown_report(subject)
    (comparison,) = document(subject)["comparisons"]
    assert comparison["drive_limits"] == list(dict.fromkeys([other, sentence]))
    assert [cell.text for cell in table.rows[0][:2]] == ["1", "A"]
    limits = {(cells[0].text, cells[1].text): cells[3].text for cells in table.rows}
    assert limits["8", "B"].startswith("the drive") == (busy[-1] > 0.5)
    assert all(cells[4].text for cells in table.rows)


def over(key: str, *values: object, arms: str = "AB", each: int = 2) -> Group:
    """Return a group in which each arm ran each value several times."""
    group, _, name = key.partition(".")
    return Group(
        workload="dlrm",
        arms={
            arm: tuple(
                made(f"{arm}{value}-{index}", {group: {name: value}}, label=arm, seed=index + 1)
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
    group = over("workload.workers", 4)
    assert points(group) == (Point("", "", None, group),)


def test_seeds_and_labels_are_no_axis() -> None:
    runs = tuple(made(f"r{index}", {}, seed=index, label=f"L{index}") for index in range(3))
    (point,) = points(Group(workload="unet3d", arms={"drive": runs}))
    assert point.axis == ""


def test_runs_of_one_arm_that_were_swept_are_told_apart() -> None:
    found = points(over("workload.workers", 1, 24))
    assert shown(found) == [
        ("workers", "1", {"A": ["A1-0", "A1-1"], "B": ["B1-0", "B1-1"]}),
        ("workers", "24", {"A": ["A24-0", "A24-1"], "B": ["B24-0", "B24-1"]}),
    ]
    assert [point.number for point in found] == [1.0, 24.0]
    assert {point.group.workload for point in found} == {"dlrm"}


def test_points_stand_in_order_of_their_number_not_of_their_text() -> None:
    found = points(over("workload.workers", 16, 2, 1, 8))
    assert [point.value for point in found] == ["1", "2", "8", "16"]


def test_what_is_no_number_keeps_the_order_of_the_runs() -> None:
    found = points(over("workload.compression", "zstd", "none", "lz4"))
    assert [(point.value, point.number) for point in found] == [
        ("zstd", None),
        ("none", None),
        ("lz4", None),
    ]


@pytest.mark.parametrize("value", ["nan", "inf", "1e999"])
def test_a_text_that_only_reads_as_a_number_is_none(value: str) -> None:
    assert [point.number for point in points(over("workload.mode", value, "x"))] == [
        None,
        None,
    ]


def test_what_only_tells_the_arms_apart_is_no_axis() -> None:
    a, b = over("power.state", 0, arms="A"), over("power.state", 1, arms="B")
    assert [p.axis for p in points(Group(workload="dlrm", arms={**a.arms, **b.arms}))] == [""]


def test_an_arm_that_did_not_run_a_point_is_left_out_of_it() -> None:
    a, b = (
        over("workload.workers", 1, 2, arms="A"),
        over("workload.workers", 2, arms="B"),
    )
    found = points(Group(workload="dlrm", arms={**a.arms, **b.arms}))
    assert [(p.value, list(p.group.arms)) for p in found] == [("1", ["A"]), ("2", ["A", "B"])]


def test_two_swept_settings_make_one_joined_axis() -> None:
    runs = tuple(
        made(f"r{workers}-{depth}", {"workload": {"workers": workers}, "loader": {"depth": depth}})
        for workers in (8, 1)
        for depth in (32, 4)
    )
    found = points(Group(workload="dlrm", arms={"A": runs}))
    assert {point.axis for point in found} == {"workers, depth"}
    assert [point.value for point in found] == ["1, 4", "1, 32", "8, 4", "8, 32"]
    assert {point.number for point in found} == {None}


def test_settings_of_one_last_name_are_named_whole() -> None:
    runs = tuple(
        made(f"r{one}{two}", {"workload": {"workers": one}, "loader": {"workers": two}})
        for one in (1, 2)
        for two in (1, 2)
    )
    found = points(Group(workload="dlrm", arms={"A": runs}))
    assert {point.axis for point in found} == {"workload.workers, loader.workers"}


def test_of_settings_that_vary_together_the_one_a_command_names_stands_for_all() -> None:
    counts = {"demo": 4, "quick": 28}
    runs = tuple(
        made(
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
    loaders = tuple(made(name, {"loader": {"name": "x"}}, loader=name) for name in ("a", "b"))
    assert [p.axis for p in points(Group(workload="u", arms={"A": loaders}))] == ["loader"] * 2
    ranks = tuple(made(f"r{count}", {}, ranks=count) for count in (4, 2))
    found = points(Group(workload="u", arms={"A": ranks}))
    assert [(p.axis, p.number) for p in found] == [("processes", 2.0), ("processes", 4.0)]


def test_a_record_that_lacks_a_setting_is_no_point_of_its_own() -> None:
    old, new = made("old", {}), made("new", {"workload": {"rounds": 1}})
    (point,) = points(Group(workload="dlrm", arms={"A": (old, new)}))
    assert len(point.group.runs) == 2


def test_the_order_of_a_session_and_lifted_guards_are_no_axis() -> None:
    runs = (
        made("first", {"sweep": {"start": 1}, "target": {"max_write_bytes": None}}),
        made("second", {"sweep": {"start": 2}, "target": {"max_write_bytes": 10**13}}),
    )
    assert len(points(Group(workload="dlrm", arms={"A": runs}))) == 1


def test_every_run_stands_at_exactly_one_point() -> None:
    group = over("workload.workers", 1, 2, 4)
    found = points(group)
    assert sorted(r.id for p in found for r in p.group.runs) == sorted(r.id for r in group.runs)
    reversed_arms = {arm: tuple(reversed(runs)) for arm, runs in group.arms.items()}
    other = points(replace(group, arms=reversed_arms))
    assert [point.value for point in other] == [point.value for point in found]
