"""Steady state: the rule against a second implementation, and the judge on readings of a drive."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from wattload.core.steady import (
    DRIVE_ROUND_SHARE,
    LARGEST_SPARE_SHARE,
    SteadyJudge,
    SteadyVerdict,
    measurement_window,
)

CAPACITY = 1_000_000_000
RATE = 1_000_000
"""A capacity of 1,000 s; a twentieth of it takes 50 s, so that rounds are of a minute."""
Rate = Callable[[float], float]


def is_steady_by_lstsq(rounds: Iterable[float]) -> bool:
    """Judge five rounds by numpy's general least squares and the wording of the PTS."""
    y = np.array(list(rounds))
    line, *_ = np.linalg.lstsq(np.vstack([np.arange(5), np.ones(5)]).T, y, rcond=None)
    fitted = line[0] * np.arange(5) + line[1]
    mean = y.sum() / 5
    return bool(
        mean > 0 and y.max() - y.min() <= 0.20 * mean and fitted.max() - fitted.min() <= 0.10 * mean
    )


def first_steady(rounds: Iterable[float]) -> int | None:
    values = list(rounds)
    starts = range(len(values) - 4)
    return next((at for at in starts if is_steady_by_lstsq(values[at : at + 5])), None)


def random_series(count: int) -> list[list[float]]:
    """Draw levels with noise, trends, steps, spikes and stalls: some steady, some not."""
    random = np.random.default_rng(14)
    found = []
    for _ in range(count):
        length = int(random.integers(5, 15))
        series = random.uniform(1, 1e10) * (
            1
            + random.choice([0.02, 0.08, 0.2]) * random.uniform(-1, 1, length)
            + random.choice([0, 0.02, 0.03, -0.1]) * np.arange(length)
        )
        if random.random() < 0.3:
            series[random.integers(length) :] *= random.uniform(0, 1)
        if random.random() < 0.2:
            series[random.integers(length)] = 0
        found.append(np.maximum(series, 0).tolist())
    return found


def judged(
    rate: Rate, seconds: int, judge: SteadyJudge | None = None, step_s: float = 1.0
) -> SteadyJudge:
    """Read a drive that writes at a rate of the time, for so many seconds."""
    judge = judge or SteadyJudge(CAPACITY)
    written = 0.0
    for at in range(round(seconds / step_s) + 1):
        judge.read(at * step_s, int(written))
        written += rate(at * step_s) * step_s
    return judge


def steady_rate(_: float) -> float:
    return RATE


def window_of(verdict: SteadyVerdict) -> tuple[float, float]:
    assert verdict.window is not None, verdict.reason
    return verdict.window.start_s, verdict.window.end_s


def test_rule_agrees_with_a_second_implementation_on_10_000_series() -> None:
    steady = 0
    for rounds in random_series(10_000):
        window = measurement_window(rounds)
        assert window is not None
        expected = first_steady(rounds)
        assert (window.first if window.is_steady else None) == expected, rounds
        steady += expected is not None
    assert 2_000 < steady < 8_000


def test_judge_agrees_with_the_second_implementation_on_both_verdicts() -> None:
    for rounds in random_series(300):
        judge = SteadyJudge(1, already_random_bytes=1, rest_s=0)
        written = np.cumsum([0, *(int(each) + 1 for each in rounds)]) * 60
        for at, total in enumerate(written.tolist()):
            judge.read(60.0 * at, total)
        expected = first_steady(np.diff(written) / 60)
        for verdict in (judge.five_minutes, judge.drive):
            found = verdict.window.spread.first if verdict.window else None
            assert found == expected, verdict.reason


@pytest.mark.parametrize("scale", [1.0, 1e9 / 60, 7e9 / 61])
@pytest.mark.parametrize(
    "rounds",
    [
        (90, 110, 100, 90, 110),  # range 20 % of 100
        (95, 97.5, 100, 102.5, 105),  # the line covers 10 % of 100
    ],
)
def test_limits_are_inclusive_however_rates_are_rounded(
    rounds: tuple[float, ...], scale: float
) -> None:
    window = measurement_window([each * scale for each in rounds])
    assert window is not None
    assert window.is_steady


@pytest.mark.parametrize(
    "rounds",
    [(90, 110.01, 100, 90, 110), (95, 97.5, 100, 102.5, 105.01), (0, 0, 0, 0, 0)],
)
def test_beyond_the_limits_is_not_steady(rounds: tuple[float, ...]) -> None:
    window = measurement_window(rounds)
    assert window is not None
    assert not window.is_steady


def test_drive_s_rounds_begin_after_one_capacity_of_random_bytes() -> None:
    judge = judged(steady_rate, 1299)
    assert window_of(judge.five_minutes) == (0, 300)
    assert judge.drive.reason == "4 of 5 rounds are complete"
    assert window_of(judged(steady_rate, 1300).drive) == (1000, 1300)


def test_reason_before_that_says_how_much_is_written() -> None:
    reason = judged(steady_rate, 400).drive.reason
    assert reason == "400.00 MB of 1.00 GB of random bytes written since sequential preconditioning"


def test_bytes_of_an_earlier_run_count() -> None:
    judge = SteadyJudge(CAPACITY, already_random_bytes=700_000_000, rest_s=10)
    assert window_of(judged(steady_rate, 600, judge).drive) == (300, 600)


@pytest.mark.parametrize("rest_s", [60.5, None])
def test_after_a_rest_the_spare_area_is_rewritten_first(rest_s: float | None) -> None:
    judge = SteadyJudge(CAPACITY, already_random_bytes=3 * CAPACITY, rest_s=rest_s)
    judged(steady_rate, 200, judge)
    expected = "200.00 MB of 280.00 MB of the spare area rewritten after a rest"
    assert judge.drive.reason == expected
    judge = SteadyJudge(CAPACITY, already_random_bytes=3 * CAPACITY, rest_s=rest_s)
    assert window_of(judged(steady_rate, 600, judge).drive) == (280, 580)


def test_known_spare_area_replaces_the_largest() -> None:
    judge = SteadyJudge(CAPACITY, already_random_bytes=CAPACITY, spare_share=0.07)
    assert window_of(judged(steady_rate, 600, judge).drive) == (70, 370)


def test_rest_of_a_minute_is_none() -> None:
    judge = SteadyJudge(CAPACITY, already_random_bytes=CAPACITY, rest_s=60)
    assert window_of(judged(steady_rate, 600, judge).drive) == (0, 300)


def test_rest_in_a_run_ends_the_sequence_of_rounds() -> None:
    def rested(time_s: float) -> float:
        return 0 if 1150 <= time_s < 1211 else RATE

    judge = judged(rested, 1211 + 279)
    assert "of the spare area" in judge.drive.reason
    judge = judged(rested, 1900)
    assert window_of(judge.drive) == (1491, 1791)


def test_stall_of_less_than_a_minute_counts_as_slow() -> None:
    def stalled(time_s: float) -> float:
        return 0 if 1100 <= time_s < 1159 else RATE

    judge = judged(stalled, 1399)
    assert judge.drive.window is None
    assert judge.drive.reason.startswith("the last 5 rounds range over ")
    assert judge.drive.reason.endswith("and drift by 24.3 % (at most 10 %)")


def test_drive_s_rounds_hold_a_twentieth_of_the_capacity() -> None:
    judge = SteadyJudge(CAPACITY, already_random_bytes=CAPACITY, rest_s=0)
    judged(lambda _: RATE / 10, 2600, judge)
    assert window_of(judge.drive) == (0, 2500)
    assert judge.drive.window is not None
    rounds = judge.drive.window.rounds
    assert [each.end_s - each.start_s for each in rounds] == [500] * 5
    assert {each.end_bytes - each.start_bytes for each in rounds} == {DRIVE_ROUND_SHARE * CAPACITY}
    assert judge.drive.window.bytes_per_s == RATE / 10


def test_rates_are_bytes_by_the_time_of_the_round_at_any_pace_of_readings() -> None:
    judge = SteadyJudge(CAPACITY, already_random_bytes=CAPACITY, rest_s=0)
    judged(steady_rate, 700, judge, step_s=7.0)
    window = judge.five_minutes.window
    assert window is not None
    assert [each.end_s for each in window.rounds] == [63, 126, 189, 252, 315]
    assert {each.bytes_per_s for each in window.rounds} == {RATE}


def test_headline_needs_five_minutes_among_the_rounds_that_count() -> None:
    """Rounds of 500 s are steady; minutes alternate between 0.5 and 1.5 times the rate."""

    def alternating(time_s: float) -> float:
        return RATE / 10 * (0.5 if time_s > 2500 and time_s % 120 < 60 else 1.0)

    judge = SteadyJudge(2 * CAPACITY, already_random_bytes=2 * CAPACITY - RATE * 250, rest_s=0)
    judged(alternating, 10_000, judge)
    assert judge.five_minutes.is_steady
    assert judge.drive.is_steady
    assert not judge.headline.is_steady
    assert judge.headline.reason.startswith("rounds of a minute: the last 5 rounds range over")


def test_headline_is_the_drive_s_window() -> None:
    judge = judged(steady_rate, 1400)
    assert judge.headline == judge.drive
    assert judge.headline.is_steady


def test_stalled_drive_is_not_steady() -> None:
    judge = SteadyJudge(CAPACITY, already_random_bytes=CAPACITY, rest_s=0)
    judged(lambda _: 0, 1000, judge)
    assert judge.five_minutes.reason == "nothing was written in the last 5 rounds"
    assert not judge.drive.is_steady


def test_first_verdict_stays() -> None:
    judge = judged(lambda time_s: RATE * (1 if time_s < 1400 else 0.1), 4000)
    assert window_of(judge.drive) == (1000, 1300)


@pytest.mark.parametrize("second", [(0.5, 100), (2.0, 99)])
def test_falling_readings_are_an_error(second: tuple[float, int]) -> None:
    judge = SteadyJudge(CAPACITY)
    judge.read(1.0, 100)
    with pytest.raises(ValueError, match="readings must not fall"):
        judge.read(*second)


def test_arguments_out_of_range_are_errors() -> None:
    with pytest.raises(ValueError, match="capacity_bytes must be at least 1, got 0"):
        SteadyJudge(0)
    with pytest.raises(ValueError, match="already_random_bytes must be at least 0, got -1"):
        SteadyJudge(1, already_random_bytes=-1)
    with pytest.raises(ValueError, match="spare_share must be more than 0, got 0"):
        SteadyJudge(1, spare_share=0)


def test_49_hours_of_readings_need_little_memory() -> None:
    capacity = 30_720_000_000_000
    judge = SteadyJudge(capacity, spare_share=LARGEST_SPARE_SHARE)
    tracemalloc.start()
    for second in range(49 * 3600):
        judge.read(float(second), second * 1_000_000_000)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert judge.headline.is_steady
    assert peak_bytes < 5_000_000
