"""What was swept: a quantity of every arm at every point, for bars over the sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wattload.core.units import Unit
from wattload.reports.charts.arms import arm_bar, largest
from wattload.reports.charts.bars import Bar
from wattload.reports.compare import Quantity, Row, compare
from wattload.reports.energy import ALL_PHASES
from wattload.reports.points import Point
from wattload.reports.quantity import Scale, number, scale_for
from wattload.reports.subject import Group, Subject

_PANELS = 4


@dataclass(frozen=True, slots=True)
class Swept:
    """One quantity at every point: the bars of all arms by the point's value.

    ``places`` has the runs of each point.
    """

    quantity: Quantity
    rows: dict[str, Row]
    arms: Sequence[str]
    letters: Sequence[str]
    places: Mapping[str, Group]

    @property
    def scale(self) -> Scale:
        """The scale that suits all points."""
        ends = [end for entry in self.rows.values() if (end := largest(entry)) is not None]
        return scale_for(self.quantity.unit, max(ends, default=None))

    def bars(self, value: str) -> list[Bar]:
        """Return the bars of a point, one per arm, those without a figure among them."""
        entry = self.rows.get(value)
        runs = self.places[value].arms
        return [
            arm_bar(entry, letter, letter, arm, runs.get(arm, ()))
            for letter, arm in zip(self.letters, self.arms, strict=True)
        ]

    def ratio(self, value: str) -> str:
        """Return B/A at a point, where two arms have one."""
        entry = self.rows.get(value)
        return number(entry.effect.ratio, 3) if entry and entry.effect else ""


def swept_quantities(subject: Subject, found: Sequence[Point], group: Group) -> list[Swept]:
    """Return what is drawn as bars: times and energies, those of the whole job before its parts.

    They are the headline quantities that have a better direction. Rates over numbers are left to
    curves; of energies only the whole job's are kept where it has any.
    """
    by_key: dict[str, Swept] = {}
    places = {point.value: point.group for point in found}
    curved = all(point.number is not None for point in found)
    for point in found:
        for entry in compare(subject, point.group):
            quantity = entry.quantity
            if largest(entry) is None or not _is_drawn(quantity) or (_is_rate(quantity) and curved):
                continue
            bare = Swept(quantity, {}, list(group.arms), group.letters, places)
            each = by_key.setdefault(quantity.key, bare)
            each.rows[point.value] = entry
    every = list(by_key.values())
    if any(_is_whole(each) for each in every):
        every = [each for each in every if _is_whole(each) or not each.quantity.is_energy]
    return sorted(every, key=lambda each: bool(each.quantity.phase) and not _is_whole(each))[
        :_PANELS
    ]


def _is_drawn(quantity: Quantity) -> bool:
    return quantity.headline and quantity.better != "neither"


def _is_rate(quantity: Quantity) -> bool:
    return quantity.unit in (Unit.BYTES_PER_SECOND, Unit.SAMPLES_PER_SECOND)


def _is_whole(each: Swept) -> bool:
    return each.quantity.phase == ALL_PHASES
