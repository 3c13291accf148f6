from __future__ import annotations

import pytest

from wattload.core.units import Unit
from wattload.reports.claims.formula import (
    Formula,
    Kind,
    compute,
    names,
    parse_arithmetic,
    parse_formula,
    text_of,
)


def test_a_ratio_of_two_arms_is_parsed() -> None:
    found = parse_formula("b.time / a.time")
    assert found == Formula(Kind.TIME, "b", "a")
    assert (found.better, found.unit) == ("lower", Unit.SECONDS)


def test_the_figure_of_one_arm_is_parsed() -> None:
    assert parse_formula("a.iops") == Formula(Kind.OPERATIONS, "a")


@pytest.mark.parametrize("kind", list(Kind))
def test_a_formula_reads_as_it_was_written(kind: Kind) -> None:
    for text in (f"a.{kind} / b.{kind}", f"b.{kind}"):
        assert str(parse_formula(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "median(a.time)",
        "a.time / a.time",
        "a.time / b.rate",
        "c.time",
        "a.time * b.time",
        "a.time / 2",
        "a.weight",
        "a.time / b.time\n",
        "__import__('os').system('true')",
    ],
)
def test_anything_else_is_no_formula(text: str) -> None:
    with pytest.raises(ValueError, match=r"a formula must|a ratio must"):
        parse_formula(text)


def test_arithmetic_is_computed_by_hand_and_here_alike() -> None:
    term = parse_arithmetic("(total - part) / 2 * 10 + -0".replace("-0", "0"))
    assert names(term) == {"total", "part"}
    assert compute(term, {"total": 7.0, "part": 3.0}) == 20.0


def test_arithmetic_reads_with_every_inner_part_in_parentheses() -> None:
    assert text_of(parse_arithmetic("a_s - b / c * 2")) == "a_s − ((b ÷ c) × 2)"  # noqa: RUF001 - the sign is meant


@pytest.mark.parametrize(
    "text",
    [
        "", "a +", "a ** 2", "-a", "a if b else c", "f(a)", "a.b", "a[0]", "'a'", "True", "a < b",
        "lambda: a", "1e999", "(a := 2)", "__import__('os')", "1j", "(" * 3000 + "a" + ")" * 3000,
    ],
)  # fmt: skip
def test_nothing_but_names_numbers_and_four_signs_is_arithmetic(text: str) -> None:
    with pytest.raises(ValueError, match="and parentheses are allowed"):
        parse_arithmetic(text)


def test_a_name_that_no_figure_has_is_refused() -> None:
    with pytest.raises(ValueError, match="'wath' is no figure or claim of this paper; it has watt"):
        compute(parse_arithmetic("wath / 2"), {"watt": 1.0})


def test_a_division_by_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="1 ÷ a divides by zero"):
        compute(parse_arithmetic("1 / a"), {"a": 0.0})
