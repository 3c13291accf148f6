from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattload.reports.holm import CONFIDENCE, demands

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
