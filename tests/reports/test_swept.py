"""A sweep is compared point by point; the median over its points stands before any of them."""

from __future__ import annotations

import statistics

from tests.reports.parsing import Page
from tests.reports.sessions import session
from wattload.reports.blocks import Notice
from wattload.reports.compare import Row, compare
from wattload.reports.load import Run
from wattload.reports.page import render_page
from wattload.reports.points import points
from wattload.reports.sections.figuretables import points_table
from wattload.reports.sections.sayings import sayings
from wattload.reports.subject import Group, make_subject

AB = Group(workload="unet3d", arms={"A": (), "B": ()})
RATIOS = {1: 1.0, 8: 1.1, 24: 2.0}
NEAR = [1.0, 1.001, 0.999, 1.002, 1.0, 0.998]


def swept(ratios: dict[int, float] | None = None, runs: int = 6) -> list[Run]:
    """Return runs of A and B at several numbers of workers, B so many times as fast as A."""
    return [
        run
        for workers, ratio in (ratios or RATIOS).items()
        for run in session(
            {
                "A": [workers * 1e8 * each for each in NEAR[:runs]],
                "B": [workers * 1e8 * ratio * each for each in NEAR[:runs]],
            },
            interleave="none",
            session=f"s{workers}",
            settings={"workload": {"workers": workers}},
        )
    ]


def throughputs(runs: list[Run]) -> list[Row]:
    subject = make_subject(runs)
    (group,) = subject.groups
    return [row for row in compare(subject, group) if "throughput" in row.quantity.key]


def test_points_are_not_pooled() -> None:
    rows = throughputs(swept())
    assert [(row.axis, row.at) for row in rows] == [("workers", str(at)) for at in RATIOS]
    for row, (workers, ratio) in zip(rows, RATIOS.items(), strict=True):
        assert row.effect is not None
        assert abs(row.effect.ratio - ratio) < 1e-6
        assert row.spreads["A"] is not None
        assert row.spreads["A"].count == 6
        assert abs(row.spreads["A"].median - workers * 1e8) < 1e6
    assert [row.call for row in rows] == ["none", "b", "b"]


def test_a_point_is_judged_alike_whether_it_is_asked_for_alone_or_with_the_others() -> None:
    subject = make_subject(swept())
    (group,) = subject.groups
    alone = [row for point in points(group) for row in compare(subject, point.group)]
    together = list(compare(subject, group))
    assert sorted(map(repr, alone)) == sorted(map(repr, together))
    assert {row.effect.demand.family for row in together if row.effect and row.effect.demand} == {6}


def test_the_more_points_are_called_the_surer_each_has_to_be() -> None:
    wide = [1.0, 1.05, 0.97, 1.03, 0.99]

    def runs(points: int) -> list[Run]:
        return [
            run
            for workers in range(1, points + 1)
            for run in session(
                {
                    "A": [1e9 * each for each in wide],
                    "B": [1.075e9 * each for each in wide],
                },
                interleave="none",
                session=f"s{workers}",
                settings={"workload": {"workers": workers}},
            )
        ]

    (one,) = throughputs(runs(1))
    many = throughputs(runs(9))
    assert one.effect is not None
    assert one.effect.t is not None
    assert one.effect.t.excludes_one()
    assert one.call == "b"
    assert {row.call for row in many} == {"none"}
    assert "(Holm, one of 18 calls) holds 1" in many[0].reason


def test_a_point_that_one_arm_ran_is_shown_and_not_called() -> None:
    runs = [run for run in swept() if run.id.split("-")[:2] != ["s8", "B"]]
    rows = throughputs(runs)
    assert [row.reason == "one arm only" for row in rows] == [False, True, False]
    assert {len(row.spreads) for row in rows} == {1, 2}


def test_the_median_over_the_points_is_said_before_the_largest_of_them() -> None:
    rows = throughputs(swept())
    (notice,) = [each for each in sayings(rows, AB) if isinstance(each, Notice)]
    said = str(notice.sentences[0])
    middle = "B/A = 1.10, the median of 3 points of workers"
    assert f"{middle}; 1.00 at workers = 1 to 2.00 at workers = 24)" in said
    assert said.endswith(": same within 3 % at 1 point and B is better at 2 points.")
    first = points_table(rows, AB).rows[0]
    assert first[0].text == "median of 3 points"
    assert float(first[3].text) == round(statistics.median(RATIOS.values()), 2)
    assert first[3].remark == "points: 1.00 to 2.00"


def test_a_swept_page_has_a_table_per_figure_and_pools_nothing() -> None:
    text = Page(render_page(swept())).text()
    assert "throughput by workers (GB/s, higher is better)" in text
    assert "median of 3 points" in text
    assert "n = 18" not in text
    assert "n = 6" in text
