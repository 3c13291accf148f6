"""The formula of a published figure: one arm's figure over the other's, or that of one arm alone.

Two forms are all there is, so that nothing in a file is ever executed::

    b.time / a.time
    a.iops
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from wattload.core.record.metric import Better
from wattload.core.units import Unit

Role = Literal["a", "b"]
"""An arm of a paper: ``a`` is what the paper puts forward, ``b`` what it is held against."""


class Kind(StrEnum):
    """What kind of figure a formula is over."""

    TIME = "time"
    RATE = "rate"
    ENERGY = "energy"
    RATE_PER_WATT = "rate_per_watt"
    LATENCY = "latency"
    OPERATIONS = "iops"


_UNITS: Mapping[Kind, Unit] = {
    Kind.TIME: Unit.SECONDS,
    Kind.RATE: Unit.BYTES_PER_SECOND,
    Kind.ENERGY: Unit.JOULES,
    Kind.RATE_PER_WATT: Unit.BYTES_PER_JOULE,
    Kind.LATENCY: Unit.SECONDS,
    Kind.OPERATIONS: Unit.SAMPLES_PER_SECOND,
}
_LOWER = frozenset({Kind.TIME, Kind.ENERGY, Kind.LATENCY})
_KINDS = "|".join(Kind)
_FIGURE = rf"(?P<{{arm}}>[ab])\.(?P<{{kind}}>{_KINDS})"
_FORM = re.compile(
    _FIGURE.format(arm="over", kind="kind")
    + rf"(?: / {_FIGURE.format(arm='under', kind='under_kind')})?"
)


@dataclass(frozen=True, slots=True)
class Formula:
    """One arm's figure, divided by the other's where ``under`` names one."""

    kind: Kind
    over: Role
    under: Role | None = None

    @property
    def better(self) -> Better:
        """Which way of the figure itself is the better one, whatever the ratio of it."""
        return "lower" if self.kind in _LOWER else "higher"

    @property
    def unit(self) -> Unit:
        """The unit that a run's figure of this kind is stored in."""
        return _UNITS[self.kind]

    def __str__(self) -> str:
        top = f"{self.over}.{self.kind}"
        return top if self.under is None else f"{top} / {self.under}.{self.kind}"


def parse_formula(text: str) -> Formula:
    """Return a formula from its text.

    Raises:
        ValueError: the text is neither of the two forms, or divides what can't be divided.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(
            "a formula is `b.time / a.time` or `a.iops`, over a or b and "
            f"one of {', '.join(Kind)}, got {text!r}"
        )
    over, under = match["over"], match["under"]
    if under is not None and (over == under or match["kind"] != match["under_kind"]):
        raise ValueError(f"a ratio is of one kind of figure in both arms, got {text!r}")
    return Formula(
        kind=Kind(match["kind"]),
        over="a" if over == "a" else "b",
        under=None if under is None else "a" if under == "a" else "b",
    )
