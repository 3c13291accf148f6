"""The data of a report has everything behind a ratio, by the same rules as the page."""

from __future__ import annotations

from dataclasses import asdict
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


def test_an_effect_has_both_intervals_and_all_p_values(
    subject: Subject, data: dict[str, Any]
) -> None:
    (group,) = subject.groups
    (comparison,) = data["comparisons"]
    checked = 0
    for row, reported in zip(compare(subject, group), comparison["rows"], strict=True):
        effect, found = row.effect, reported.get("effect")
        if effect is None:
            assert found is None
            continue
        assert (found["lower"], found["upper"]) == (effect.lower, effect.upper)
        assert effect.t is not None
        assert found["t"] == list(effect.t)
        assert found["bootstrap"] == (list(effect.bootstrap) if effect.bootstrap else None)
        assert (found["p_value"], found["floor"]) == (effect.p_value, effect.floor)
        if effect.demand is not None and effect.estimate is not None:
            assert found["demand"] == asdict(effect.demand)
            assert found["demanded"] == [list(each) for each in effect.demanded]
            assert found["p_value_sign_flips"] == sign_flip_p_value(effect.estimate)
            checked += 1
    assert checked > 0
    assert [each["share"] for each in data["noise"]] == [n.share for n in noise_floors(subject)]


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
    assert [each["name"] for each in comparison["differences"]] == ["config workload.workers"]
    assert comparison["excluding"] == []
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
    assert "scale" in comparison["excluding"]
    assert "defines the work: no verdict" in Page(page_of(subject)).text()


def test_published_figures_stand_beside_what_was_measured(data: dict[str, Any]) -> None:
    (first, *_) = data["published"]["beside"]
    claim, measured = first["claims"][0]
    assert claim["printed"]["read"] > 0
    assert measured[0].get("ratio") is not None or measured[0]["reason"]
    assert data["published"]["not_measured"]
