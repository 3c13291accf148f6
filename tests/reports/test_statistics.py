from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from wattload.reports.statistics import FLOOR, MINIMUM_RUNS, drift, effect, spread

figures = st.lists(st.floats(0.5, 2.0), min_size=5, max_size=9)


def test_spread_by_hand() -> None:
    found = spread([2.0, 4.0, 4.0, 5.0])
    assert found is not None
    assert (found.count, found.median, found.minimum, found.maximum) == (4, 4.0, 2.0, 5.0)
    # mean 3.75, squares 3.0625 + 0.0625 + 0.0625 + 1.5625 = 4.75, over 3, root 1.25831
    assert found.cv == pytest.approx(1.2583057 / 3.75)


def test_one_run_has_no_coefficient_of_variation() -> None:
    found = spread([3.0])
    assert found is not None
    assert found.cv is None
    assert spread([]) is None


@given(figures, figures)
def test_the_interval_is_welchs_as_scipy_has_it(a: list[float], b: list[float]) -> None:
    found = effect(a, b)
    assert found is not None
    assert found.lower is not None
    assert found.upper is not None
    log_a, log_b = [math.log(value) for value in a], [math.log(value) for value in b]
    if len(set(log_a)) < 3 or len(set(log_b)) < 3:
        return  # scipy warns of lost precision where all values are nearly one
    expected = stats.ttest_ind(log_b, log_a, equal_var=False).confidence_interval(0.95)
    assert math.log(found.lower) == pytest.approx(expected.low, rel=1e-6, abs=1e-9)
    assert math.log(found.upper) == pytest.approx(expected.high, rel=1e-6, abs=1e-9)


def test_the_interval_of_a_published_case() -> None:
    # Student's sleep data (1908). R's own documentation prints of t.test(extra ~ group): Welch,
    # df = 17.776, 95 percent confidence interval -3.3654832 to 0.2054832 for first minus second.
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = effect([math.exp(hours) for hours in first], [math.exp(hours) for hours in second])
    assert found is not None
    assert found.t is not None
    assert math.log(found.t.lower) == pytest.approx(-0.2054832, abs=1e-7)
    assert math.log(found.t.upper) == pytest.approx(3.3654832, abs=1e-7)
    assert not found.differs


def test_the_ratio_is_that_of_the_interval_and_the_medians_stand_beside_it() -> None:
    found = effect([1.0, 2.0, 30.0], [5.0, 4.0, 6.0])
    assert found is not None
    assert found.ratio == pytest.approx((120 / 60) ** (1 / 3))
    assert found.medians == 2.5


@pytest.mark.parametrize("count", range(1, MINIMUM_RUNS))
def test_too_few_runs_have_no_interval_and_differ_in_nothing(count: int) -> None:
    found = effect([1.0] * count, [9.0] * 9)
    assert found is not None
    assert (found.lower, found.upper) == (None, None)
    assert not found.enough
    assert not found.differs


def test_five_clear_runs_differ() -> None:
    found = effect([1.0, 1.01, 0.99, 1.0, 1.02], [2.5, 2.51, 2.49, 2.52, 2.5])
    assert found is not None
    assert found.enough
    assert found.differs


def test_an_effect_under_one_percent_is_not_called_however_sure() -> None:
    a = [100.0, 100.01, 99.99, 100.0, 100.01]
    found = effect(a, [value * 1.008 for value in a])
    assert found is not None
    assert found.lower is not None
    assert found.lower > 1
    assert found.floor == FLOOR
    assert not found.differs


def test_an_effect_smaller_than_an_arms_own_drift_is_not_called() -> None:
    drifting = [1.00, 1.001, 1.02, 1.05, 1.052]
    found = effect(drifting, [value * 1.045 for value in [1.0, 1.0001, 1.0, 1.0001, 1.0]])
    assert found is not None
    assert found.floor == pytest.approx(1.051 / 1.0005 - 1)
    assert not found.differs


def test_an_interval_that_holds_one_is_no_difference() -> None:
    found = effect([1.0, 1.2, 0.9, 1.1, 1.0], [1.1, 0.9, 1.2, 1.0, 1.1])
    assert found is not None
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower < 1 < found.upper
    assert not found.differs


def test_equal_runs_have_an_interval_without_width() -> None:
    found = effect([2.0] * 5, [3.0] * 5)
    assert found is not None
    assert found.lower == found.upper == pytest.approx(1.5)
    assert found.differs


@pytest.mark.parametrize(
    ("a", "b"), [([], [1.0]), ([1.0], []), ([1.0, 0.0], [1.0]), ([1.0], [-2.0])]
)
def test_no_ratio_without_positive_figures_in_both_arms(a: list[float], b: list[float]) -> None:
    assert effect(a, b) is None


def test_drift_is_the_same_up_and_down_and_nothing_for_one_run() -> None:
    assert drift([1.0, 1.0, 2.0, 2.0]) == pytest.approx(drift([2.0, 2.0, 1.0, 1.0])) == 1.0
    assert drift([5.0]) == 0.0


@given(figures)
def test_an_arm_never_differs_from_itself(a: list[float]) -> None:
    found = effect(a, a)
    assert found is not None
    assert found.ratio == 1.0
    assert not found.differs
