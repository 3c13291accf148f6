"""What the summary says of arms whose runs scatter: no ratio is told without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.reports.blocks import Link, Words
from wattload.reports.compare import Row
from wattload.reports.quantity import listed, percent
from wattload.reports.sections.wording import anchor
from wattload.reports.statistics import Gate
from wattload.reports.subject import Group, lettered

_LOUD: tuple[Gate, ...] = ("unstable", "noisy")
"""The gates that a reader must know of with the first figures, the worst first."""


def spread_words(told: Sequence[tuple[Group, Sequence[Row]]]) -> Words:
    """Return which arms are noisy or unstable in how many figures; empty where none is.

    Args:
        told: groups with the rows of their headline figures.
    """
    links = [link for group, rows in told for link in _of_group(group, rows, is_one=len(told) == 1)]
    return [part for link in links for part in ("; ", link)]


def _of_group(group: Group, rows: Sequence[Row], *, is_one: bool) -> Iterator[Link]:
    where = "" if is_one else f" in {group.workload}"
    for letter, arm in zip(group.letters, group.arms, strict=True):
        spreads = [spread for row in rows if (spread := row.spreads.get(arm)) is not None]
        gates = [spread.gate for spread in spreads]
        said = [f"{gate} in {gates.count(gate)}" for gate in _LOUD if gate in gates]
        if said:
            who = f" of {lettered(letter, arm)}" if len(group.arms) > 1 else ""
            cv = percent(max(spread.cv or 0.0 for spread in spreads), 2)
            text = (
                f"the runs{who}{where} are {listed(said)} of {len(spreads)} figures (CV up to {cv})"
            )
            if len(spreads) == 1:
                text = f"the runs{who}{where} are {gates[0]} (CV {cv})"
            yield Link(text, anchor("compare", group.workload))
