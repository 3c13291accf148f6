"""Pairs of figures, one of A and one of B, and how many of them a call needs."""

from __future__ import annotations

from dataclasses import dataclass

MINIMUM_PAIRS = 6
"""Fewer pairs decide nothing: 5 that all agree have p = 0.0625 by sign flips, 6 have 0.031."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """The figures of runs of A and B that took turns, in order of their blocks.

    ``parted`` counts the pairs whose runs were too far apart in time to be judged as such, which
    ``pairs`` leaves out, and ``undated`` those among them whose times can't be read. ``in_turns``
    says that the runs are those of a session that took turns.
    """

    pairs: tuple[tuple[float, float], ...] = ()
    parted: int = 0
    undated: int = 0
    in_turns: bool = False

    @property
    def count(self) -> int:
        """How many pairs there are, those that were parted too."""
        return len(self.pairs) + self.parted

    @property
    def enough(self) -> bool:
        """Whether there are the pairs that a call needs, side by side."""
        return len(self.pairs) >= MINIMUM_PAIRS

    @property
    def few(self) -> bool:
        """Whether runs that took turns are too few for a call; as single runs they are no more."""
        return self.in_turns and self.count < MINIMUM_PAIRS
