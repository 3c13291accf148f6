"""The search on curves of every shape: what it finds, what it runs, and what it says of noise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.session.curves import Curve, drive, result_of, trials
from wattload.session.accelerator_search import largest_held
from wattload.session.search_result import doubts


def found(curve: Curve, *, start: int = 1, maximum: int = 64, confirmations: int = 1) -> int:
    return result_of(
        largest_held(trials(curve), start=start, maximum=maximum, confirmations=confirmations)
    )


@pytest.mark.parametrize("start", [1, 3, 8, 64])
@pytest.mark.parametrize("answer", [1, 2, 3, 7, 8, 31, 63])
def test_a_falling_curve_is_solved_from_any_start(answer: int, start: int) -> None:
    curve = drive(0.9 * answer + 0.01)
    assert found(curve, start=start) == answer


def test_a_cliff_is_found() -> None:
    assert found(lambda count, _: 1.0 if count <= 13 else 0.0) == 13


def test_a_curve_that_fails_at_one_gives_none() -> None:
    made = trials(drive(0.5))
    assert result_of(largest_held(made, start=4, maximum=64)) == 0
    assert set(made.held) == {4, 2, 1}
    assert made.held[1] == [False, False]


def test_a_curve_that_never_fails_gives_the_maximum() -> None:
    made = trials(drive(1e9))
    assert result_of(largest_held(made, start=1, maximum=24)) == 24
    assert list(made.held) == [1, 2, 4, 8, 16, 24]
    assert made.held[24] == [True, True]


def test_the_result_and_the_next_count_are_confirmed() -> None:
    made = trials(drive(5.0))
    assert result_of(largest_held(made, start=1, maximum=64, confirmations=2)) == 5
    assert made.held[5] == [True] * 3
    assert made.held[6] == [False] * 3
    assert {count: len(runs) for count, runs in made.held.items() if count not in {5, 6}} == {
        1: 1,
        2: 1,
        4: 1,
        8: 1,
    }
    assert not list(doubts(made.held))


def test_without_confirmations_each_count_is_run_once() -> None:
    made = trials(drive(5.0))
    assert result_of(largest_held(made, start=1, maximum=64, confirmations=0)) == 5
    assert {len(runs) for runs in made.held.values()} == {1}


def test_a_count_that_holds_once_and_fails_once_does_not_count() -> None:
    def edge(count: int, repetition: int) -> float:
        return 0.95 if count < 6 or (count == 6 and repetition == 0) else 0.5

    made = trials(edge)
    assert result_of(largest_held(made, start=1, maximum=64)) == 5
    (said,) = doubts(made.held)
    assert "with 6 accelerators disagree: 1 of 2 held" in said


def test_a_failed_count_that_holds_when_run_again_does_not_count_and_is_reported() -> None:
    made = trials(lambda count, repetition: 0.95 if count < 6 or repetition else 0.5)
    assert result_of(largest_held(made, start=1, maximum=64)) == 5
    assert made.held[6] == [False, True]
    (said,) = doubts(made.held)
    assert "6 accelerators disagree" in said


def test_a_smaller_count_that_fails_below_a_larger_one_is_reported() -> None:
    def dip(count: int, repetition: int) -> float:
        if count == 7:
            return 0.95 if repetition == 0 else 0.5
        return 0.5 if count == 5 or count > 7 else 0.95

    made = trials(dip)
    assert result_of(largest_held(made, start=6, maximum=64)) == 6
    result_of(made.holds(5))
    said = list(doubts(made.held))
    assert any("7 accelerators disagree" in text for text in said)
    assert any("Not monotone: 5 accelerators failed although 6 held" in text for text in said)


@given(
    answers=st.lists(st.booleans(), min_size=64, max_size=64),
    start=st.integers(1, 32),
    confirmations=st.integers(0, 3),
)
def test_on_any_noise_it_ends_and_every_run_of_the_result_held(
    answers: list[bool], start: int, confirmations: int
) -> None:
    def noise(count: int, repetition: int) -> float:
        return float(answers[(count * 7 + repetition * 13) % 64])

    made = trials(noise)
    result = result_of(largest_held(made, start=start, maximum=32, confirmations=confirmations))
    assert 0 <= result <= 32
    if result:
        assert made.held[result][: 1 + confirmations] == [True] * (1 + confirmations)
    if result < 32:
        assert not all(made.held[result + 1])
    assert all(1 <= count <= 32 for count in made.held)


@given(limit=st.floats(0.01, 200.0), start=st.integers(1, 64))
def test_on_any_falling_curve_the_result_is_exact(limit: float, start: int) -> None:
    curve = drive(limit)
    exact = max((n for n in range(1, 65) if curve(n, 0) >= 0.9), default=0)
    assert found(curve, start=start) == exact
