"""Which counts are tried: from a first one in doublings until one fails, then between the two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

Measure = Callable[[int, int], bool]
"""Runs a count for the given time (0 is its first) and returns whether it held."""


class Trials:
    """The runs that were made, each once: count to what each of its runs showed, in order."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self.held: dict[int, list[bool]] = {}

    def holds(self, count: int, repetition: int = 0) -> bool:
        """Return whether a run of a count held; runs of a count are made in their order."""
        runs = self.held.setdefault(count, [])
        while len(runs) <= repetition:
            runs.append(self._measure(count, len(runs)))
        return runs[repetition]

    def all_hold(self, count: int, runs: int) -> bool:
        """Return whether that many runs of a count all held; the first that fails is the last."""
        return all(self.holds(count, repetition) for repetition in range(runs))


def largest_held(trials: Trials, *, start: int, maximum: int, confirmations: int = 1) -> int:
    """Return the largest count whose runs all held, 0 if not even 1 does.

    A count holds if its first run and ``confirmations`` more all do; one run that fails is enough
    against it. So a count on the edge does not hold, and the next smaller is confirmed instead. The
    count above the result is run as often, for a reader to see how far from holding it is.

    Args:
        trials: what makes the runs; it keeps them.
        start: the first count, 1 or more.
        maximum: the largest that is tried.
        confirmations: further runs of the result and of the count above it.
    """
    low, high = _bracket(trials, start, maximum)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if trials.holds(middle) else (low, middle)
    runs = 1 + confirmations
    while low and not trials.all_hold(low, runs):
        low -= 1
    if low < maximum:
        for repetition in range(runs):
            trials.holds(low + 1, repetition)
    return low


def _bracket(trials: Trials, start: int, maximum: int) -> tuple[int, int]:
    """Return a count that held (0: none did) and one that failed (beyond the maximum: none did)."""
    low, count = 0, start
    while trials.holds(count):
        if count == maximum:
            return maximum, maximum + 1
        low, count = count, min(2 * count, maximum)
    return low, count


def doubts(held: Mapping[int, list[bool]], unit: str) -> Iterator[str]:
    """Yield a sentence on each thing that a falling curve without noise would not show.

    Args:
        held: count to what each of its runs showed.
        unit: what is counted, in the plural.
    """
    for count in sorted(held):
        runs = held[count]
        if len(set(runs)) > 1:
            yield (
                f"The runs with {count} {unit} disagree: {sum(runs)} of {len(runs)} held, so that "
                "it is on the edge and does not count."
            )
    for smaller in sorted(held):
        larger = max((count for count in held if count > smaller and all(held[count])), default=0)
        if larger and not all(held[smaller]):
            yield (
                f"Not monotone: {smaller} {unit} failed although {larger} held; the result is the "
                "largest number that was confirmed below the first that failed on the way up."
            )
