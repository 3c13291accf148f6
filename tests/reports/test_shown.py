"""What is shown of an effect covers the truth as often as it says, sensors and noise included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.units import Unit
from wattload.reports.figures import Quantity
from wattload.reports.holm import demands
from wattload.reports.pairing import Pairing
from wattload.reports.statistics import MARGIN, effect
from wattload.reports.verdicts import judge

figures = st.lists(st.floats(0.5, 2.0), min_size=5, max_size=9)


def test_the_interval_that_is_shown_holds_the_truth_as_often_as_it_says_at_ten_pairs() -> None:
    random = np.random.default_rng(23)
    draws, truth, held = 600, 1.1, 0
    for _ in range(draws):
        b = (truth * np.exp(random.normal(0, 0.05, 10))).tolist()
        found = effect([1.0] * 10, b, pairing=Pairing(tuple((1.0, each) for each in b)))
        assert found is not None
        assert found.lower is not None
        assert found.upper is not None
        held += found.lower <= truth <= found.upper
    assert held / draws >= 0.935  # BCa alone holds it in 0.90 of them


def test_the_interval_that_is_shown_reaches_to_the_farther_end_of_t_and_bootstrap() -> None:
    skewed = effect([1.0, 1.001] * 5, [1.0] * 9 + [1.6])
    assert skewed is not None
    assert skewed.t is not None
    assert skewed.bootstrap is not None
    assert skewed.lower == min(skewed.t.lower, skewed.bootstrap.lower)
    assert skewed.upper == max(skewed.t.upper, skewed.bootstrap.upper)


def test_what_sensors_may_be_off_by_widens_every_interval_and_the_p_value_alike() -> None:
    a = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0]
    b = [1.05 * each for each in reversed(a)]
    plain, off = effect(a, b), effect(a, b, accuracy=0.04)
    assert plain is not None
    assert off is not None
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
    found = effect(a, b, accuracy=accuracy)
    assert found is not None
    assert found.t is not None
    assert found.p_value is not None
    if abs(found.p_value - 0.05) > 1e-6 and found.least_p_value is None:
        assert (found.p_value < 0.05) == found.t.excludes_one()


def test_nothing_is_the_same_within_less_than_the_noise_floor() -> None:
    near = [1.0, 1.004, 0.997, 1.002, 0.999, 1.001]
    calm = effect(near, list(reversed(near)))
    loud = effect(near, list(reversed(near)), noise=MARGIN + 0.001)
    assert calm is not None
    assert loud is not None
    assert (calm.same, loud.same, loud.is_near) == (True, False, True)


def test_what_a_setting_shows_against_itself_may_hide_as_much() -> None:
    near = [1.0, 1.004, 0.997, 1.002, 0.999, 1.001]
    apart = [1.02 * each for each in reversed(near)]
    found = effect(near, apart, noise=0.025)
    assert found is not None
    assert (found.is_near, found.beats_floor, found.same) == (True, False, False)
    rate = Quantity(
        key="rate", label="rate", unit=Unit.BYTES_PER_SECOND, better="higher", headline=True
    )
    reason = judge(rate, found).reason
    assert "with the 2.5 % that may part equal arms it does not" in reason


def test_runs_without_spread_have_the_least_p_value_that_so_many_can_have() -> None:
    pairs = tuple((1.0, 1.1) for _ in range(6))
    six = effect([1.0] * 6, [1.1] * 6, pairing=Pairing(pairs))
    five = effect([1.0] * 5, [1.1] * 5)
    spreading = effect([1.0] * 5, [1.1] * 4 + [1.11])
    assert six is not None
    assert five is not None
    assert spreading is not None
    assert (six.p_value, six.least_p_value) == (2**-5, 2**-5)
    assert five.p_value == pytest.approx(2 / 252)
    assert spreading.least_p_value is None


def test_without_spread_several_calls_ask_for_more_pairs_than_six() -> None:
    pairs = tuple((1.0, 1.1) for _ in range(6))
    found = effect([1.0] * 6, [1.1] * 6, pairing=Pairing(pairs))
    equal = effect([1.0] * 6, [1.0] * 6, pairing=Pairing(tuple((1.0, 1.0) for _ in range(6))))
    assert found is not None
    assert equal is not None
    one, two = demands([2**-5]), demands([2**-5, 2**-5])
    assert replace(found, demand=one[0]).differs
    assert not replace(found, demand=two[0]).differs
    assert replace(equal, demand=one[0]).same
    assert not replace(equal, demand=two[0]).same
