"""Which marks are drawn where an arm has more runs than can be told apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Mark = TypeVar("Mark")

MARKS = 60
"""So many runs of an arm are drawn one by one; the table under a chart lists all."""


def drawn(marks: Sequence[Mark], value: Callable[[Mark], float]) -> list[Mark]:
    """Return the marks to draw: all where they are few, else evenly by rank, both ends included."""
    if len(marks) <= MARKS:
        return list(marks)
    ranked = sorted(marks, key=value)
    last = len(ranked) - 1
    return [ranked[round(index * last / (MARKS - 1))] for index in range(MARKS)]
