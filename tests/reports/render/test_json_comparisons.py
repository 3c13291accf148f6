"""The data of a report has everything behind a ratio, by the same rules as the page."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reports.parsing import Page
from tests.reports.sessions import against_itself, run, session
from wattload.reports.render.json_export import document
from wattload.reports.render.page import page_of
from wattload.reports.runs.load import Run
from wattload.reports.stats.comparison import compare, noise_floors
from wattload.reports.stats.intervals import sign_flip_p_value
from wattload.reports.stats.subject import Subject, make_subject

NEAR = [1.0, 1.004, 0.997, 1.002, 0.999, 1.001, 1.003, 0.998]


def arms(ahead: float = 1.1) -> list[Run]:
    return session({"A": [ahead * 1e9 * x for x in NEAR], "B": [1e9 * x for x in reversed(NEAR)]})


@pytest.fixture(scope="module")
def subject() -> Subject:
    halves = [1e9 * x for x in NEAR], [1e9 * x for x in reversed(NEAR)]
    return make_subject([*arms(), *against_itself("B", *halves)])


@pytest.fixture(scope="module")
def data(subject: Subject) -> dict[str, Any]:
    return document(subject, claims=True)


def test_published_figures_are_opt_in(subject: Subject) -> None:
    assert document(subject)["published"] is None


def test_an_effect_has_both_intervals_all_p_values_and_its_method(
    subject: Subject, data: dict[str, Any]
) -> None:
    (group,) = subject.groups
    (comparison,) = data["comparisons"]
    checked = 0
    for row, reported in zip(compare(subject, group), comparison["rows"], strict=True):
        effect, found = row.effect, reported["effect"]
        if effect is None:
            assert found is None
            continue
        assert (found["lower"], found["upper"]) == (effect.lower, effect.upper)
        assert effect.t is not None
        assert found["t"] == list(effect.t)
        assert found["bootstrap"] == (list(effect.bootstrap) if effect.bootstrap else None)
        assert (found["p_value"], found["floor"]) == (effect.p_value, effect.floor)
        if effect.demand is not None and effect.estimate is not None:
            holm = found["holm"]
            assert holm["family"] == effect.demand.family
            assert holm["p_value"] == effect.demand.p_value
            assert holm["confidence"] == effect.demand.confidence
            assert holm["intervals"] == [list(each) for each in effect.demanded]
            assert found["p_value_sign_flips"] == sign_flip_p_value(effect.estimate)
            assert "8 pairs, t on pairs" in found["method"]
            checked += 1
    assert checked > 0


def test_an_arm_has_the_gate_of_its_spread(data: dict[str, Any]) -> None:
    gates = {
        of_arm["gate"]
        for row in data["comparisons"][0]["rows"]
        for of_arm in row["arms"].values()
        if of_arm["n"]
    }
    assert "steady" in gates


def test_one_setting_against_itself_is_told_as_on_the_page(
    subject: Subject, data: dict[str, Any]
) -> None:
    floors = data["noise"]["floors"]
    assert floors
    for noise, reported in zip(noise_floors(subject), floors, strict=True):
        assert reported["quantity"] == noise.quantity.key
        assert reported["share"] == noise.share
        assert reported["effect"]["ratio"] == noise.effect.ratio
        assert (reported["effect"]["lower"], reported["effect"]["upper"]) == (
            noise.effect.lower,
            noise.effect.upper,
        )


def swept(workers: int, index: int) -> Run:
    return run(
        f"w{workers}-{index}",
        {"workload": {"workers": workers}},
        label="L",
        rate_bytes_per_s=(1.2e9 if workers == 8 else 1e9) * NEAR[index],
        order=2 * index + (workers == 8),
        seed=index + 2,
    )


def test_what_tells_the_arms_apart_sets_no_other_work() -> None:
    runs = [swept(workers, index) for workers in (1, 8) for index in range(6)]
    subject = make_subject(runs, "workload.workers")
    (comparison,) = document(subject)["comparisons"]
    reported = {each["condition"]: each["sets_the_work"] for each in comparison["differences"]}
    assert reported == {"config workload.workers": False}
    assert "defines the work" not in Page(page_of(subject)).text()
    assert document(make_subject(runs))["comparisons"][0]["differences"] == []


def test_other_work_is_told_as_such_by_page_and_data() -> None:
    runs = [
        run(f"{label}{index}", label=label, scale=scale, order=2 * index, seed=index + 2)
        for label, scale in (("A", "quick"), ("B", "demo"))
        for index in range(5)
    ]
    subject = make_subject(runs)
    (comparison,) = document(subject)["comparisons"]
    reported = {each["condition"]: each["sets_the_work"] for each in comparison["differences"]}
    assert reported["scale"] is True
    assert "defines the work: no verdict" in Page(page_of(subject)).text()


def test_a_sweep_has_the_median_of_its_points_and_the_ends() -> None:
    runs = [
        run(
            f"{label}{workers}-{index}",
            {"workload": {"workers": workers}},
            label=label,
            rate_bytes_per_s=rate * NEAR[index],
            order=2 * index,
            seed=index + 2,
        )
        for workers, ahead in ((1, 1.1), (2, 1.3), (4, 1.2))
        for label, rate in (("A", 1e9), ("B", ahead * 1e9))
        for index in range(5)
    ]
    (comparison,) = document(make_subject(runs))["comparisons"]
    sweep = next(
        each for each in comparison["sweeps"] if each["quantity"] == "throughput_bytes_per_s"
    )
    assert (sweep["axis"], sweep["points"]) == ("workers", 3)
    assert [sweep[end] for end in ("minimum", "median", "maximum")] == pytest.approx(
        [1.1, 1.2, 1.3], rel=0.02
    )


def test_published_figures_stand_beside_what_was_measured(data: dict[str, Any]) -> None:
    (first, *_) = data["published"]["beside"]
    claim = first["claims"][0]
    assert claim["read"] > 0
    assert claim["measured"][0]["ratio"] is not None or claim["measured"][0]["reason"]
    assert data["published"]["not_measured"]
