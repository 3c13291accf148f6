from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.reports.sessions import known
from wattload.core.units import Unit
from wattload.reports.stats.effects import (
    FLOOR,
    MARGIN,
    MINIMUM_RUNS,
    Effect,
    Pairing,
    drift,
    effect,
    spread,
)
from wattload.reports.stats.figures import Quantity
from wattload.reports.stats.intervals import demands
from wattload.reports.stats.verdicts import judge

SHARE = Quantity(key="share", label="share", unit=Unit.FRACTION, better="higher", headline=True)
figures = st.lists(st.floats(0.5, 2.0), min_size=5, max_size=9)


def made(a: Sequence[float], b: Sequence[float], **keys: Any) -> Effect:
    """Return the effect of two arms that have one."""
    return known(effect(a, b, **keys))


def test_spread_by_hand() -> None:
    found = known(spread([2.0, 4.0, 4.0, 5.0]))
    assert (found.count, found.median, found.minimum, found.maximum) == (4, 4.0, 2.0, 5.0)
    # mean 3.75, squares 3.0625 + 0.0625 + 0.0625 + 1.5625 = 4.75, over 3, root 1.25831
    assert found.cv == pytest.approx(1.2583057 / 3.75)


def test_one_run_has_no_coefficient_of_variation() -> None:
    found = known(spread([3.0]))
    assert found.cv is None
    assert spread([]) is None


@given(figures, figures)
def test_the_interval_is_welchs_as_scipy_has_it(a: list[float], b: list[float]) -> None:
    found = made(a, b)
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
    found = made([math.exp(hours) for hours in first], [math.exp(hours) for hours in second])
    assert found.t is not None
    assert math.log(found.t.lower) == pytest.approx(-0.2054832, abs=1e-7)
    assert math.log(found.t.upper) == pytest.approx(3.3654832, abs=1e-7)
    assert not found.differs


def test_the_ratio_is_that_of_the_interval_and_the_medians_stand_beside_it() -> None:
    found = made([1.0, 2.0, 30.0], [5.0, 4.0, 6.0])
    assert found.ratio == pytest.approx((120 / 60) ** (1 / 3))
    assert found.medians == 2.5


@pytest.mark.parametrize("count", range(1, MINIMUM_RUNS))
def test_too_few_runs_have_no_interval_and_differ_in_nothing(count: int) -> None:
    found = made([1.0] * count, [9.0] * 9)
    assert (found.lower, found.upper) == (None, None)
    assert not found.enough
    assert not found.differs


def test_five_clear_runs_differ() -> None:
    found = made([1.0, 1.01, 0.99, 1.0, 1.02], [2.5, 2.51, 2.49, 2.52, 2.5])
    assert found.enough
    assert found.differs


def test_an_effect_under_one_percent_is_not_called_however_sure() -> None:
    a = [100.0, 100.01, 99.99, 100.0, 100.01]
    found = made(a, [value * 1.008 for value in a])
    assert found.lower is not None
    assert found.lower > 1
    assert found.floor == FLOOR
    assert not found.differs


def test_an_effect_smaller_than_an_arms_own_drift_is_not_called() -> None:
    drifting = [1.00, 1.001, 1.02, 1.05, 1.052]
    found = made(drifting, [value * 1.045 for value in [1.0, 1.0001, 1.0, 1.0001, 1.0]])
    assert found.floor == pytest.approx(1.051 / 1.0005 - 1)
    assert not found.differs


def test_an_interval_that_holds_one_is_no_difference() -> None:
    found = made([1.0, 1.2, 0.9, 1.1, 1.0], [1.1, 0.9, 1.2, 1.0, 1.1])
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower < 1 < found.upper
    assert not found.differs


def test_equal_runs_have_an_interval_without_width() -> None:
    found = made([2.0] * 5, [3.0] * 5)
    assert found.lower == found.upper == pytest.approx(1.5)
    assert found.differs


@pytest.mark.parametrize(
    ("a", "b"), [([], [1.0]), ([1.0], []), ([1.0, 0.0], [1.0]), ([1.0], [-2.0])]
)
def test_no_ratio_without_positive_figures_in_both_arms(a: list[float], b: list[float]) -> None:
    assert effect(a, b) is None


@given(figures)
def test_an_arm_never_differs_from_itself(a: list[float]) -> None:
    found = made(a, a)
    assert found.ratio == 1.0
    assert not found.differs


@pytest.mark.parametrize(
    ("cv", "gate"), [(0.02, "steady"), (0.021, "noted"), (0.051, "noisy"), (0.11, "unstable")]
)
def test_the_spread_of_an_arm_is_told_in_words(cv: float, gate: str) -> None:
    # Three values of mean 1, the outer ones d from it, have the sample standard deviation d.
    found = known(spread([1 - cv * (1 - 1e-9), 1.0, 1 + cv * (1 - 1e-9)]))
    assert found.gate == gate


def test_arms_within_three_percent_are_the_same_and_wider_ones_only_show_no_difference() -> None:
    near = [1.0, 1.004, 0.997, 1.002, 0.999]
    same = made(near, [each * 1.004 for each in reversed(near)])
    assert same.same
    wide = made([1.0, 1.05, 0.96, 1.02, 0.98], [1.01, 0.97, 1.04, 0.99, 1.02])
    assert not wide.same
    assert not wide.differs


def test_a_sure_small_effect_is_a_difference_and_not_the_same() -> None:
    near = [1.0, 1.001, 0.999, 1.0005, 0.9995]
    found = made(near, [each * 1.02 for each in near])
    assert found.differs
    assert not found.same


def test_one_odd_run_decides_nothing_that_the_medians_deny() -> None:
    a = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01]
    b = [0.995, 0.996, 0.994, 0.995, 0.996, 9.0, 9.0]
    found = made(a, b)
    assert found.ratio > 1 > found.medians
    assert not found.differs


def test_the_floor_is_the_largest_of_all_that_an_effect_may_be_without_a_cause() -> None:
    drifting = [1.00, 1.001, 1.02, 1.05, 1.052]
    own = drift(drifting)
    calm = made(drifting, drifting, noise=0.002)
    assert calm.floor == calm.drift == own
    assert calm.floor_of == "drift from earlier to later runs"
    loud = made(drifting, drifting, noise=0.08, accuracy=0.02)
    assert (loud.floor, loud.floor_of) == (0.08, "A/A runs of one setting")
    rough = made(drifting, drifting, noise=0.08, accuracy=0.2)
    assert (rough.floor, rough.floor_of) == (0.2, "stated uncertainty of both energies")
    still = made([1.0] * 5, [1.0] * 5)
    assert (still.floor, still.floor_of) == (FLOOR, "")


def test_no_more_runs_make_sensors_agree_that_may_be_apart() -> None:
    many = [1.0, 1.001, 0.999] * 20
    found = made(many, [each * 1.05 for each in many], accuracy=0.06)
    exact = made(many, [each * 1.05 for each in many])
    assert exact.differs
    assert not found.differs
    same = made(many, list(reversed(many)), accuracy=0.06)
    assert not same.same


def test_pairs_are_used_from_six_on() -> None:
    a, b = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.1, 2.2, 3.3, 4.4, 5.5, 6.7]
    pairs = tuple(zip(a, b, strict=True))
    found, five = made(a, b, pairing=Pairing(pairs)), made(a, b, pairing=Pairing(pairs[:5]))
    assert (found.pairs, five.pairs) == (6, 0)
    assert found.differs
    assert not five.differs
    assert found.median_ratio == pytest.approx(1.1)
    assert found.medians == pytest.approx(3.85 / 3.5)


def test_from_ten_runs_on_a_call_needs_t_and_bootstrap() -> None:
    random = np.random.default_rng(4)
    a = np.exp(random.normal(0, 0.02, 10)).tolist()
    b = np.exp(random.normal(0.02, 0.02, 10)).tolist()
    found = made(a, b)
    assert found.bootstrap is not None
    assert found.t is not None
    assert found.t.lower < found.bootstrap.lower
    assert found.bootstrap.upper < found.t.upper
    assert found.interval == found.t
    assert len(found.demanded) == 2
    assert found.excludes_one == all(each.excludes_one() for each in found.demanded)


def test_intervals_of_one_word_that_nearly_meet_agree_and_others_are_shown_both() -> None:
    steady = [1.0, 1.001, 0.999] * 20
    clear = made(steady, [each * 2 for each in steady])
    assert not clear.disagrees
    skewed = [1.0] * 9 + [1.6]
    odd = made([1.0, 1.001] * 5, skewed)
    assert odd.disagrees


@settings(deadline=None, max_examples=50)
@given(figures, figures)
def test_swapped_arms_are_called_alike(a: list[float], b: list[float]) -> None:
    there, back = made(a, b), made(b, a)
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.differs == back.differs
    assert there.same == back.same


@settings(deadline=None, max_examples=50)
@given(figures, figures, st.sampled_from([1e-9, 1 / 3.6e3, 1e9]))
def test_the_unit_decides_no_call(a: list[float], b: list[float], unit: float) -> None:
    own = made(a, b)
    other = made([each * unit for each in a], [each * unit for each in b])
    assert other.ratio == pytest.approx(own.ratio)
    assert other.floor == pytest.approx(own.floor)


def test_of_equal_arms_no_more_than_one_family_in_twenty_has_a_false_call() -> None:
    random = np.random.default_rng(11)
    families, false_calls = 400, 0
    for _ in range(families):
        drawn = np.exp(random.normal(0, 0.02, (8, 2, 6)))
        found = [made(a.tolist(), b.tolist(), noise=0.0) for a, b in drawn]
        requested = demands([each.p_value or 0.0 for each in found])
        judged = [
            replace(each, demand=demand) for each, demand in zip(found, requested, strict=True)
        ]
        false_calls += any(each.excludes_one for each in judged)
    assert false_calls / families <= 0.07


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_finite_number_forms_no_ratio(value: float) -> None:
    assert effect([1.0] * 5, [1.0, 1.0, 1.0, 1.0, value]) is None


def test_runs_that_took_turns_and_are_too_few_have_no_interval() -> None:
    a, b = [1.0, 1.01, 0.99, 1.0, 1.01], [2.0, 2.01, 1.99, 2.0, 2.01]
    pairs = tuple(zip(a, b, strict=True))
    short = made(a, b, pairing=Pairing(pairs, in_turns=True))
    assert (short.interval, short.enough, short.differs) == (None, False, False)
    parted = made(a, b, pairing=Pairing(pairs[:3], parted=3, in_turns=True))
    assert (parted.pairs, parted.parted) == (0, 3)
    assert parted.differs


def test_an_interval_that_no_float_holds_is_cut() -> None:
    found = made([1.0] * 4 + [1e30], [1e-30] * 4 + [1e30])
    assert found.t is not None
    assert 0 < found.t.lower < 1 < found.t.upper < math.inf
    assert found.demanded


def test_the_interval_that_is_shown_holds_the_truth_as_often_as_it_says_at_ten_pairs() -> None:
    random = np.random.default_rng(23)
    draws, truth, held = 600, 1.1, 0
    for _ in range(draws):
        b = (truth * np.exp(random.normal(0, 0.05, 10))).tolist()
        found = made([1.0] * 10, b, pairing=Pairing(tuple((1.0, each) for each in b)))
        assert found.lower is not None
        assert found.upper is not None
        held += found.lower <= truth <= found.upper
    assert held / draws >= 0.935  # BCa alone holds it in 0.90 of them


def test_the_interval_that_is_shown_reaches_to_the_farther_end_of_t_and_bootstrap() -> None:
    skewed = made([1.0, 1.001] * 5, [1.0] * 9 + [1.6])
    assert skewed.t is not None
    assert skewed.bootstrap is not None
    assert skewed.lower == min(skewed.t.lower, skewed.bootstrap.lower)
    assert skewed.upper == max(skewed.t.upper, skewed.bootstrap.upper)


def test_what_sensors_may_be_off_by_widens_every_interval_and_the_p_value_alike() -> None:
    a = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0]
    b = [1.05 * each for each in reversed(a)]
    plain, off = made(a, b), made(a, b, accuracy=0.04)
    assert plain.lower is not None
    assert off.lower == pytest.approx(plain.lower / 1.04)
    assert off.demanded == (off.interval,)
    assert off.ratio - 1 > off.accuracy  # the effect alone exceeds it, the interval does not
    assert (plain.differs, off.differs) == (True, False)
    assert off.p_value is not None
    assert off.p_value > 0.05


@settings(deadline=None, max_examples=50)
@given(figures, figures, st.sampled_from([0.0, 0.02, 0.2]))
def test_p_is_under_five_percent_exactly_where_ts_interval_excludes_1(
    a: list[float], b: list[float], accuracy: float
) -> None:
    found = made(a, b, accuracy=accuracy)
    assert found.t is not None
    assert found.p_value is not None
    if abs(found.p_value - 0.05) > 1e-6 and found.least_p_value is None:
        assert (found.p_value < 0.05) == found.t.excludes_one()


def test_nothing_is_the_same_within_less_than_the_noise_floor() -> None:
    near = [1.0, 1.004, 0.997, 1.002, 0.999, 1.001]
    calm = made(near, list(reversed(near)))
    loud = made(near, list(reversed(near)), noise=MARGIN + 0.001)
    assert (calm.same, loud.same, loud.is_near) == (True, False, True)


def test_what_a_setting_shows_against_itself_may_hide_as_much() -> None:
    near = [1.0, 1.004, 0.997, 1.002, 0.999, 1.001]
    apart = [1.02 * each for each in reversed(near)]
    found = made(near, apart, noise=0.025)
    assert (found.is_near, found.beats_floor, found.same) == (True, False, False)
    rate = Quantity(
        key="rate", label="rate", unit=Unit.BYTES_PER_SECOND, better="higher", headline=True
    )
    reason = judge(rate, found).reason
    assert "but not after widening by 2.5 % of drift or noise" in reason


def share_reason(a: Sequence[float], b: Sequence[float], noise: float) -> str:
    """Return the reason of a verdict on shares that differ from themselves by ``noise``."""
    own = ([SHARE.scaled(value) for value in of_arm] for of_arm in (a, b))
    return judge(SHARE, made(*own, noise=SHARE.scaled(noise) - 1)).reason


def test_floor_drift_and_margin_of_a_share_are_differences_in_points() -> None:
    near = [0.5, 0.504, 0.497, 0.502, 0.499, 0.501]
    far = [value + 0.3 for value in reversed(near)]
    assert "the effect exceeds 20 points (A/A runs" in share_reason(near, far, 0.2)
    equal = share_reason(near, list(reversed(near)), 0.2)
    assert "below 20 points (A/A runs of one setting)" in equal
    assert "the whole interval is within 3 points of 0" in equal
    apart = share_reason(near, [value + 0.02 for value in reversed(near)], 0.025)
    assert "but not after widening by 2.5 points of drift or noise" in apart


def test_a_share_is_the_same_within_points() -> None:
    near = [0.5, 0.504, 0.497, 0.502, 0.499, 0.501]
    own = [SHARE.scaled(value) for value in near]
    assert judge(SHARE, made(own, own[::-1])).words == "same within 3 points"


def test_runs_without_spread_have_the_least_p_value_that_so_many_can_have() -> None:
    pairs = tuple((1.0, 1.1) for _ in range(6))
    six = made([1.0] * 6, [1.1] * 6, pairing=Pairing(pairs))
    five = made([1.0] * 5, [1.1] * 5)
    spreading = made([1.0] * 5, [1.1] * 4 + [1.11])
    assert (six.p_value, six.least_p_value) == (2**-5, 2**-5)
    assert five.p_value == pytest.approx(2 / 252)
    assert spreading.least_p_value is None


def test_without_spread_several_calls_ask_for_more_pairs_than_six() -> None:
    pairs = tuple((1.0, 1.1) for _ in range(6))
    found = made([1.0] * 6, [1.1] * 6, pairing=Pairing(pairs))
    equal = made([1.0] * 6, [1.0] * 6, pairing=Pairing(tuple((1.0, 1.0) for _ in range(6))))
    one, two = demands([2**-5]), demands([2**-5, 2**-5])
    assert replace(found, demand=one[0]).differs
    assert not replace(found, demand=two[0]).differs
    assert replace(equal, demand=one[0]).same
    assert not replace(equal, demand=two[0]).same
