"""What an interval of energy or power stands for, in words that its evidence allows."""

from __future__ import annotations

from collections.abc import Iterable

from wattload.core.power import Evidence
from wattload.reports.energy import WORDS

_SAID = {
    Evidence.BOUNDS: "what the drive's own power states allow",
    Evidence.DECLARED: "what declared watts give, which nobody measured and which may be wrong",
}


def is_declared(evidence: str) -> bool:
    """Return whether a figure is declared, by how it is known in words."""
    return evidence.startswith(WORDS[Evidence.DECLARED])


def intervals_caption(evidence: Iterable[str]) -> str:
    """Return what the lines with caps of a chart are; empty where it has none.

    Args:
        evidence: how each interval of the chart is known, in words.
    """
    known = list(evidence)
    if not known:
        return ""
    said = [
        words
        for kind, words in _SAID.items()
        if any(each.startswith(WORDS[kind]) for each in known)
    ]
    of_what = f": {' or '.join(said)}" if said else ""
    return f"A line with caps is an interval{of_what}; a dotted one with ≤ is an upper end alone."
