"""Bars of the first screen, and the ratios of several arms."""

from __future__ import annotations

import pytest

from tests.reports.sessions import turn
from wattload.reports.stats.bars import Bar, Bars, Mark, effects_to_best
from wattload.reports.stats.effects import effect


def test_ratios_of_three_arms_hold_for_all_pairs_at_once() -> None:
    def bar(arm: str, *values: float) -> Bar:
        return Bar(
            arm=arm, letter=arm, value=values[0], marks=tuple(Mark(each, alone) for each in values)
        )

    alone = turn("A", 0, 1e9, interleave="none")
    slow, fast = (1.0, 1.02, 0.98, 1.01, 0.99), (2.0, 2.04, 1.96, 2.02, 1.98)
    bars = Bars(
        title="GB/s",
        better="higher",
        bars=(bar("A", *slow), bar("B", *fast), bar("C", 1.5, 1.5, 1.5)),
    )
    found = effects_to_best(bars, ("B", "C", "A"))
    assert [*found] == ["C", "A"]
    assert not found["C"].demanded  # three runs have no interval
    ratio, (interval,) = found["A"].ratio, found["A"].demanded
    single = effect(fast, slow)
    assert single is not None
    assert single.interval is not None
    assert ratio == pytest.approx(0.5)
    assert interval.lower < single.interval.lower < ratio < single.interval.upper < interval.upper
    assert effects_to_best(bars, ()) == {}
