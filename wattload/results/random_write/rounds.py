"""Random writes over time: a row per round of a minute, from the tables of a run.

Of a short run the rows are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattload.core.steady import WINDOW_ROUNDS
from wattload.core.units import NS_PER_S
from wattload.results.random_write.facts import PERCENTILES
from wattload.results.view import Columns

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The rounds of a run's random writes; arrays have shape (rounds,), edges (rounds + 1,).

    ``slowest`` and ``fastest`` are the least and the highest rate of the seconds in a round, in
    bytes per second. ``percentiles_s`` are NaN in a round without operations.
    """

    edges_ns: NDArray[np.int64]
    written_bytes: Array
    slowest: Array
    fastest: Array
    percentiles_s: Mapping[str, Array]
    are_seconds: bool

    @property
    def edges_s(self) -> Array:
        edges: Array = (self.edges_ns - self.edges_ns[0]) / NS_PER_S
        return edges

    @property
    def edges_bytes(self) -> Array:
        """The bytes written up to each edge."""
        return np.concatenate(([0.0], np.cumsum(self.written_bytes)))

    @property
    def rates(self) -> Array:
        rates: Array = self.written_bytes / np.diff(self.edges_s)
        return rates


def rounds_of(rounds: Columns, seconds: Columns) -> Rounds | None:
    """Return the rounds of two tables by column; of fewer than five rounds the seconds.

    ``None`` if nothing was written.
    """
    are_seconds = rounds["end_ns"].size < WINDOW_ROUNDS
    rows = seconds if are_seconds else rounds
    if not rows["end_ns"].size or not seconds["end_ns"].size:
        return None
    rates = seconds["written_bytes"] * NS_PER_S / (seconds["end_ns"] - seconds["start_ns"])
    slowest, fastest = _extremes(rates, seconds["end_ns"], rows["end_ns"])
    return Rounds(
        edges_ns=np.append(rows["start_ns"][:1], rows["end_ns"]),
        written_bytes=rows["written_bytes"],
        slowest=slowest,
        fastest=fastest,
        percentiles_s={name: rows[name] for name in PERCENTILES},
        are_seconds=are_seconds,
    )


def merged(rounds: Rounds, most: int) -> Rounds:
    """Return at most that many rounds, each of as many successive ones.

    The percentiles of several rounds are the highest of theirs: they can't be merged.
    """
    count = rounds.written_bytes.size
    first = np.arange(0, count, -(-count // most))
    return Rounds(
        edges_ns=np.append(rounds.edges_ns[first], rounds.edges_ns[-1]),
        written_bytes=np.add.reduceat(rounds.written_bytes, first),
        slowest=np.fmin.reduceat(rounds.slowest, first),
        fastest=np.fmax.reduceat(rounds.fastest, first),
        percentiles_s={
            name: np.fmax.reduceat(values, first) for name, values in rounds.percentiles_s.items()
        },
        are_seconds=rounds.are_seconds,
    )


def _extremes(
    rates: Array, second_ns: NDArray[np.int64], round_ns: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Return the least and the highest rate of the seconds that end in each round."""
    place = np.searchsorted(round_ns, second_ns)
    inside = place < round_ns.size
    low, high = np.full(round_ns.size, np.nan), np.full(round_ns.size, np.nan)
    np.fmin.at(low, place[inside], rates[inside])
    np.fmax.at(high, place[inside], rates[inside])
    return low, high
