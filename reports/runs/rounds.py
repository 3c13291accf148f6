"""Random writes over time: a row per round of a minute, from the tables of a run.

Of a short run the rows are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.steady import WINDOW_ROUNDS
from wattload.core.units import NS_PER_S

PERCENTILES = ("p50_s", "p99_s", "p9999_s")
COLUMNS = ("start_ns", "end_ns", "written_bytes", *PERCENTILES)
"""The columns that both tables must have."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The rounds of a run's random writes; all arrays have shape (rounds,).

    Times are on CLOCK_MONOTONIC of the run's host. ``slowest`` and ``fastest`` are the least and
    the highest rate of the seconds in a round, in bytes per second. ``percentiles_s`` are NaN in a
    round without operations.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    written_bytes: NDArray[np.int64]
    slowest: Array
    fastest: Array
    percentiles_s: Mapping[str, Array]
    are_seconds: bool

    @property
    def seconds(self) -> Array:
        return (self.end_ns - self.start_ns) / NS_PER_S

    @property
    def edges_s(self) -> Array:
        """The start of the first round and the end of each, since that start: (rounds + 1,)."""
        return np.concatenate(([0.0], (self.end_ns - self.start_ns[0]) / NS_PER_S))

    @property
    def edges_bytes(self) -> NDArray[np.int64]:
        """The bytes written up to each edge: (rounds + 1,)."""
        return np.concatenate(([0], np.cumsum(self.written_bytes)))


def rounds_of(
    rounds: Mapping[str, NDArray[Any]], seconds: Mapping[str, NDArray[Any]]
) -> Rounds | None:
    """Return the rounds of two tables by column; of fewer than five rounds the seconds.

    ``None`` if nothing was written.

    Raises:
        ValueError: the rows of a table do not follow each other in time.
    """
    for rows in (rounds, seconds):
        if (rows["end_ns"] <= rows["start_ns"]).any() or (
            rows["start_ns"][1:] != rows["end_ns"][:-1]
        ).any():
            raise ValueError("its rows do not follow each other in time")
    are_seconds = rounds["end_ns"].size < WINDOW_ROUNDS
    rows = seconds if are_seconds else rounds
    if not rows["end_ns"].size or not seconds["end_ns"].size:
        return None
    rates = seconds["written_bytes"] * NS_PER_S / (seconds["end_ns"] - seconds["start_ns"])
    slowest, fastest = _ends(rates, seconds["end_ns"], rows["end_ns"])
    return Rounds(
        start_ns=rows["start_ns"].astype(np.int64),
        end_ns=rows["end_ns"].astype(np.int64),
        written_bytes=rows["written_bytes"].astype(np.int64),
        slowest=slowest,
        fastest=fastest,
        percentiles_s={name: rows[name].astype(np.float64) for name in PERCENTILES},
        are_seconds=are_seconds,
    )


def merged(rounds: Rounds, most: int) -> Rounds:
    """Return at most that many rounds, each of as many successive ones.

    The percentiles of several rounds are the highest of theirs: they can't be merged.
    """
    count = rounds.end_ns.size
    each = -(-count // most)
    if each <= 1:
        return rounds
    first = np.arange(0, count, each)
    last = np.append(first[1:], count) - 1
    return Rounds(
        start_ns=rounds.start_ns[first],
        end_ns=rounds.end_ns[last],
        written_bytes=np.add.reduceat(rounds.written_bytes, first),
        slowest=np.fmin.reduceat(rounds.slowest, first),
        fastest=np.fmax.reduceat(rounds.fastest, first),
        percentiles_s={
            name: np.fmax.reduceat(values, first) for name, values in rounds.percentiles_s.items()
        },
        are_seconds=rounds.are_seconds,
    )


def _ends(
    rates: Array, second_ns: NDArray[np.int64], round_ns: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Return the least and the highest rate of the seconds that end in each round."""
    place = np.searchsorted(round_ns, second_ns)
    inside = place < round_ns.size
    low, high = np.full(round_ns.size, np.nan), np.full(round_ns.size, np.nan)
    np.fmin.at(low, place[inside], rates[inside])
    np.fmax.at(high, place[inside], rates[inside])
    return low, high
