"""Intervals and p values against published cases, and the coverage of intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from wattload.reports.stats.intervals import (
    BOOTSTRAP_RUNS,
    CONFIDENCE,
    SIGN_FLIP_PAIRS,
    Estimate,
    Interval,
    bca_ends,
    bootstrap_interval,
    demands,
    paired,
    sign_flip_p_value,
    t_interval,
    t_p_value,
    unpaired,
)

runs = st.lists(st.floats(0.5, 2.0), min_size=5, max_size=14)
SLEEP_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SLEEP_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
"""Student (1908): hours of sleep that ten patients gained by two drugs."""

MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
"""Darwin's maize, crossed less self-fertilised, in eighths of an inch (Fisher 1935, section 17)."""


def exps(values: Sequence[float]) -> list[float]:
    return [math.exp(value) for value in values]


def of_differences(values: Sequence[float]) -> Estimate:
    return paired([(1.0, math.exp(value)) for value in values])


def logs(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return math.log(interval.lower), math.log(interval.upper)


@pytest.mark.parametrize(
    ("a", "b", "freedom", "p_value"),
    [
        (
            "27.5 21.0 19.0 23.6 17.0 17.9 16.9 20.1 21.9 22.6 23.1 19.6 19.0 21.7 21.4",
            "27.1 22.0 20.8 23.4 23.4 23.5 25.8 22.0 24.8 20.2 21.9 22.1 22.9 20.5 24.4",
            25.0,
            0.021,
        ),
        (
            "17.2 20.9 22.6 18.1 21.7 21.4 23.5 24.2 14.7 21.8",
            "21.5 22.8 21.0 23.0 21.6 23.6 22.5 20.7 23.4 21.8 20.7 21.7 21.5 22.5 23.6 21.5 22.5 "
            "23.5 21.5 21.8",
            9.9,
            0.149,
        ),
    ],
)
def test_welch_on_the_worked_examples(a: str, b: str, freedom: float, p_value: float) -> None:
    # The usual worked examples of Welch's test: equal counts, and unequal counts and variances.
    found = unpaired(*(exps([float(word) / 10 for word in words.split()]) for words in (a, b)))
    assert found.freedom == pytest.approx(freedom, abs=0.05)
    assert t_p_value(found) == pytest.approx(p_value, abs=0.0006)


def test_pairs_on_a_published_case() -> None:
    # R's documentation of t.test on Student's sleep data, paired: p-value = 0.002833,
    # 95 percent confidence interval -2.4598858 to -0.7001142 for first minus second.
    found = paired(list(zip(exps(SLEEP_1), exps(SLEEP_2), strict=True)))
    assert found.freedom == 9
    assert logs(t_interval(found, 0.95)) == pytest.approx((0.7001142, 2.4598858), abs=1e-7)
    assert t_p_value(found) == pytest.approx(0.002833, abs=1e-6)


def test_sign_flips_on_fishers_maize() -> None:
    # Fisher counted 1,726 of the 32,768 sign patterns to be as extreme: 5.267 %.
    found = of_differences([each / 100 for each in MAIZE])
    assert sign_flip_p_value(found) == pytest.approx(1726 / 32768)
    assert t_p_value(found) == pytest.approx(0.0497, abs=5e-5)


@pytest.mark.parametrize(("pairs", "p_value"), [(5, 0.0625), (6, 0.03125), (8, 0.0078125)])
def test_pairs_that_all_agree_have_the_least_p_value_there_is(pairs: int, p_value: float) -> None:
    found = of_differences([0.1 + 0.01 * index for index in range(pairs)])
    assert sign_flip_p_value(found) == p_value


def test_sign_flips_of_equal_pairs_show_nothing() -> None:
    assert sign_flip_p_value(of_differences([0.0] * 6)) == 1.0


def test_sign_flips_are_counted_for_pairs_alone_and_not_for_too_many() -> None:
    assert sign_flip_p_value(unpaired([1.0, 2.0], [1.0, 3.0])) is None
    assert sign_flip_p_value(of_differences([0.1] * SIGN_FLIP_PAIRS)) is not None
    assert sign_flip_p_value(of_differences([0.1] * (SIGN_FLIP_PAIRS + 1))) is None


def _efron(values: Sequence[float], resamples: int) -> tuple[float, float]:
    """Return the 95 % BCa interval of a mean by Efron and Tibshirani (1993), 14.9 to 14.15."""
    data = np.array(values)
    random = np.random.default_rng(7)
    means = data[random.integers(0, len(data), (resamples, len(data)))].mean(axis=1)
    bias = stats.norm.ppf((means < data.mean()).mean())
    left_out = (data.sum() - data) / (len(data) - 1)
    apart = left_out.mean() - left_out
    acceleration = (apart**3).sum() / (6 * (apart**2).sum() ** 1.5)
    ends = []
    for z in stats.norm.ppf([0.025, 0.975]):
        share = stats.norm.cdf(bias + (bias + z) / (1 - acceleration * (bias + z)))
        ends.append(float(np.quantile(means, share)))
    return ends[0], ends[1]


def test_bca_is_what_efrons_formulas_give() -> None:
    values = [each / 100 for each in MAIZE]
    expected = _efron(values, 200_000)
    width = expected[1] - expected[0]
    assert logs(bootstrap_interval(of_differences(values), 0.95)) == pytest.approx(
        expected, abs=0.03 * width
    )
    # Skewed as the differences are, BCa lies left of the symmetric t interval at both ends.
    low, high = logs(t_interval(of_differences(values), 0.95))
    assert expected[0] < low + 0.1 * width
    assert expected[1] < high


def test_bca_is_the_same_each_time() -> None:
    found = unpaired(exps(SLEEP_1), exps(SLEEP_2))
    first = bootstrap_interval(found, 0.95)
    bootstrap_interval.cache_clear()
    assert bootstrap_interval(found, 0.95) == first


def test_too_few_runs_and_runs_without_spread_have_no_bootstrap() -> None:
    few = BOOTSTRAP_RUNS - 1
    values = [1.0 + 0.01 * index for index in range(BOOTSTRAP_RUNS)]
    assert bootstrap_interval(unpaired(values, values[:few]), 0.95) is None
    assert bootstrap_interval(paired([(1.0, each) for each in values[:few]]), 0.95) is None
    assert bootstrap_interval(unpaired([1.0] * 10, [2.0] * 10), 0.95) is None
    assert bootstrap_interval(unpaired([1.0] * 10, values), 0.95) is not None


def test_runs_without_any_spread_have_an_interval_without_width() -> None:
    found = unpaired([2.0] * 5, [3.0] * 5)
    assert t_interval(found, 0.95) == pytest.approx((1.5, 1.5))
    assert t_p_value(found) == pytest.approx(2 / 252)  # 5 and 5 runs can be dealt out in 252 ways
    assert t_p_value(unpaired([2.0] * 5, [2.0] * 6)) == 1.0


@settings(deadline=None, max_examples=20)
@given(runs, runs)
def test_arms_that_are_swapped_have_the_inverse_interval(a: list[float], b: list[float]) -> None:
    assume(a != b)  # the resamples of equal arms lie to one side by chance, either way round
    there, back = unpaired(a, b), unpaired(b, a)
    for make in (t_interval, bootstrap_interval):
        one, other = make(there, 0.95), make(back, 0.95)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one == pytest.approx((1 / other.upper, 1 / other.lower), rel=1e-9)
    assert t_p_value(there) == pytest.approx(t_p_value(back), abs=1e-12)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.floats(0.5, 2.0), st.floats(0.5, 2.0)), min_size=6, max_size=12))
def test_pairs_that_are_swapped_have_the_inverse_interval(pairs: list[tuple[float, float]]) -> None:
    there, back = paired(pairs), paired([(b, a) for a, b in pairs])
    for make in (t_interval, bootstrap_interval):
        one, other = make(there, 0.95), make(back, 0.95)
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one == pytest.approx((1 / other.upper, 1 / other.lower), rel=1e-9)
    assert sign_flip_p_value(there) == sign_flip_p_value(back)


@settings(deadline=None, max_examples=20)
@given(runs, runs, st.sampled_from([1e-6, 3.6, 1e9]))
def test_the_unit_of_the_figures_does_not_matter(
    a: list[float], b: list[float], unit: float
) -> None:
    own = unpaired(a, b)
    scaled = unpaired([each * unit for each in a], [each * unit for each in b])
    assert t_interval(scaled, 0.95) == pytest.approx(t_interval(own, 0.95), rel=1e-6)


@pytest.mark.parametrize(
    ("runs_a", "runs_b", "spread_b"), [(5, 5, 0.02), (5, 8, 0.10), (6, 6, 0.3)]
)
def test_welchs_interval_holds_the_truth_as_often_as_it_says(
    runs_a: int, runs_b: int, spread_b: float
) -> None:
    random = np.random.default_rng(20)
    draws, truth = 2000, 1.25
    held = 0
    for _ in range(draws):
        a = np.exp(random.normal(0.0, 0.02, runs_a)).tolist()
        b = (truth * np.exp(random.normal(0.0, spread_b, runs_b))).tolist()
        interval = t_interval(unpaired(a, b), 0.95)
        held += interval.lower <= truth <= interval.upper
    assert 0.935 <= held / draws <= 0.975


def test_the_interval_of_pairs_holds_the_truth_whatever_drifts_under_both_arms() -> None:
    random = np.random.default_rng(21)
    draws, truth = 2000, 0.4
    held = 0
    for _ in range(draws):
        drift = np.exp(np.cumsum(random.normal(0.0, 0.05, 6)))
        a = drift * np.exp(random.normal(0.0, 0.01, 6))
        b = truth * drift * np.exp(random.normal(0.0, 0.01, 6))
        interval = t_interval(paired(list(zip(a.tolist(), b.tolist(), strict=True))), 0.95)
        held += interval.lower <= truth <= interval.upper
    assert 0.94 <= held / draws <= 0.96


def test_the_bootstrap_alone_covers_too_little_at_ten_runs_and_not_beside_t() -> None:
    random = np.random.default_rng(22)
    draws, alone, both = 400, 0, 0
    for _ in range(draws):
        found = unpaired(*np.exp(random.normal(0.0, 0.03, (2, BOOTSTRAP_RUNS))).tolist())
        bootstrap, by_t = bootstrap_interval(found, 0.95), t_interval(found, 0.95)
        assert bootstrap is not None
        alone += not bootstrap.excludes_one()
        both += not (bootstrap.excludes_one() and by_t.excludes_one())
    assert 0.88 <= alone / draws <= 0.955
    assert both / draws >= 0.93
    assert both >= alone


p_values = st.lists(st.floats(0, 1), max_size=12)


def test_a_worked_case() -> None:
    # Four hypotheses with p = 0.01, 0.04, 0.03 and 0.005 at 0.05: 0.005 < 0.05/4 and 0.01 < 0.05/3
    # are rejected, 0.03 > 0.05/2 is not, and with it neither is 0.04.
    found = demands([0.01, 0.04, 0.03, 0.005])
    assert [each.p_value for each in found] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    levels = [1 - 0.05 / 3, 1 - 0.05 / 2, 1 - 0.05 / 2, 1 - 0.05 / 4]
    assert [each.confidence for each in found] == pytest.approx(levels)
    assert {each.family for each in found} == {4}


def test_adjusted_p_values_are_those_of_r() -> None:
    # p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm") in R: 0.05 0.08 0.09 0.09 0.09
    found = demands([0.01, 0.02, 0.03, 0.04, 0.05])
    assert [each.p_value for each in found] == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])


def test_one_comparison_is_not_adjusted() -> None:
    (found,) = demands([0.03])
    assert (found.p_value, found.family) == (0.03, 1)
    assert found.confidence == pytest.approx(CONFIDENCE)
    assert demands([]) == ()


def test_a_ninth_comparison_never_makes_a_call_easier() -> None:
    eight = [0.001, 0.004, 0.006, 0.02, 0.2, 0.3, 0.6, 0.9]
    few, many = demands(eight), demands([*eight, 0.5])
    assert all(b.p_value >= a.p_value for a, b in zip(few, many, strict=False))


@given(p_values)
def test_what_is_rejected_is_what_the_confidence_says(values: list[float]) -> None:
    for value, found in zip(values, demands(values), strict=True):
        by_level = value < (1 - found.confidence) * (1 - 1e-9)
        by_p = found.p_value < 0.05 * (1 - 1e-9)
        assert by_level == by_p or found.p_value == pytest.approx(0.05)
        assert CONFIDENCE <= found.confidence <= 1 - 0.05 / len(values) + 1e-12


@given(p_values)
def test_the_order_in_which_comparisons_are_given_does_not_matter(values: list[float]) -> None:
    found, turned = demands(values), demands(list(reversed(values)))
    assert [each.p_value for each in found] == [each.p_value for each in reversed(turned)]


def test_one_sample_that_does_not_vary_is_no_error() -> None:
    varied = tuple(np.random.default_rng(3).lognormal(0, 0.1, 10).tolist())
    low, high = bca_ends(((1.0,) * 10, varied), 0.95)
    assert low < high
