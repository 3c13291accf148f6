"""The shapes that a view is made of: notices, tables and charts as plain data.

A chart is named by its shape and has a table of its data. How it is drawn is up to
``wattload.reports``. Texts are plain; numbers are in SI base units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from wattload.core.units import Unit
from wattload.results.quantity import MISSING, quantity

Array = NDArray[np.float64]
Tone = Literal["", "good", "warn", "bad", "quiet", "open"]

CEILING_ERROR = 1.05
"""A rate above this many times its ceiling shows that the ceiling was measured too low."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """Sentences that a reader has to know, in a box."""

    title: str
    sentences: Sequence[str]
    tone: Literal["", "warn", "bad"] = ""


@dataclass(frozen=True)
class Title:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph; ``quiet`` is of less importance."""

    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Word:
    """A cell with a tone, and a remark in small print."""

    text: str
    tone: Tone = ""
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table; a title of a column that begins with ``#`` is of figures."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Word]]
    caption: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Facts of each arm: a row for each, or of many arms a column."""

    caption: str
    arms: Sequence[str]
    facts: Sequence[tuple[str, Sequence[str]]]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Shapes that are folded under a title."""

    title: str
    shapes: Sequence[Shape]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What every chart has: a stable name, a title and a caption. Its table follows from it."""

    name: str
    title: str
    caption: str


@dataclass(frozen=True)
class Part:
    """A part of a bar."""

    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class PartBar:
    """A bar of parts. ``whole`` is what they are parts of: the rest is drawn as ``other``.

    Parts of ``overlaps`` are longer than the whole, which is a line across the bar.
    """

    label: str
    parts: Sequence[Part]
    whole: float | None = None
    overlaps: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class PartBars(Chart):
    """Bars of parts of one quantity, such as the stages of a step.

    ``names`` are those of all parts, in order, each of them a ``kind``. ``what`` is what a bar is
    of, ``whole`` the name of what its parts add up to. Bars that are much shorter than others are
    drawn once more. Without a whole, parts are printed as shares of their sum.
    """

    what: str
    unit: Unit
    kind: str
    names: Sequence[str]
    bars: Sequence[PartBar]
    whole: str = ""


@dataclass(frozen=True, kw_only=True)
class ValueBar:
    """A bar of one value, with the other cells of its row in the chart's table."""

    letter: str
    label: str
    value: float
    cells: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ValueBars(Chart):
    """Bars of ``what``, one for each row of a table of ``columns``."""

    what: str
    unit: Unit
    columns: Sequence[str]
    bars: Sequence[ValueBar]


@dataclass(frozen=True, kw_only=True)
class Offsets(Chart):
    """Traced operations of one run of each arm: the offset in their file over time."""


@dataclass(frozen=True, kw_only=True)
class CeilingBar:
    """A rate of an arm beside a ceiling that is called ``ceiling_name``; ``reason`` if unknown."""

    letter: str
    label: str
    value: float | None
    ceiling: float | None
    ceiling_name: str
    reason: str = ""

    @property
    def exceeds(self) -> bool:
        """Whether the rate shows that its ceiling was measured too low."""
        is_known = self.value is not None and self.ceiling is not None
        return is_known and (self.value or 0.0) > (self.ceiling or 0.0) * CEILING_ERROR


@dataclass(frozen=True, kw_only=True)
class CeilingBars(Chart):
    """Panels of rates by arm, each with a line for its ceiling; all in one scale.

    Panels have a title and a bar for each arm, in the same order.
    """

    unit: Unit
    panels: Sequence[tuple[str, Sequence[CeilingBar]]]


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A value between edges of time in seconds: ``edges_s`` (n + 1,), ``values`` (n,)."""

    letter: str
    title: str
    what: str
    edges_s: Array
    values: Array
    unit: Unit


@dataclass(frozen=True, kw_only=True)
class StepPanels(Chart):
    """Values over time, a panel each; those of equal ``what`` share a scale."""

    panels: Sequence[Steps]


@dataclass(frozen=True, kw_only=True)
class StepLine:
    """Values of an arm between edges, (n + 1,); NaN where there is none.

    ``low`` and ``high`` are ends of a band around each value. ``marked`` is a part of the axis that
    has a bar. ``name`` tells lines of one arm apart, which differ in ``dash``.
    """

    letter: str
    title: str
    edges: Array
    values: Array
    low: Array | None = None
    high: Array | None = None
    marked: tuple[float, float] | None = None
    name: str = ""
    dash: str = ""


@dataclass(frozen=True, kw_only=True)
class StepLines(Chart):
    """Lines of steps of all arms on one pair of axes.

    ``what`` is the quantity, in ``unit``; a text is a unit that has no prefixes. The lower axis is
    time in seconds, or ``over`` with the title ``over_title``. Values are on a logarithmic axis if
    ``is_log``; else the axis begins at 0, or with a ``least_span`` below the lowest value: it is at
    least so long. Lines of a small chart are not labelled.
    """

    what: str
    unit: Unit | str
    lines: Sequence[StepLine]
    over: str = "time"
    over_title: str = ""
    is_log: bool = False
    least_span: float = 0.0
    is_small: bool = False


@dataclass(frozen=True)
class Row:
    """Charts side by side."""

    charts: Sequence[Chart]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line over numbered steps."""

    letter: str
    title: str
    values: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Curves(Chart):
    """Lines over numbered steps; ``what`` is the quantity, ``over`` what is numbered.

    Equal lines are drawn as one; ``same`` is what that shows.
    """

    what: str
    over: str
    curves: Sequence[Curve]
    same: str = ""


@dataclass(frozen=True)
class PointLine:
    """Points from left to right, (n,) each; ``None`` where there is no value.

    Lines of one arm, or of none, have titles that tell them apart.
    """

    letter: str
    title: str
    xs: Sequence[float]
    ys: Sequence[float | None]


@dataclass(frozen=True, kw_only=True)
class PointLines(Chart):
    """Measured points of all arms on one pair of axes, which lines connect.

    ``what`` is the quantity, over ``over`` in ``over_unit``. ``limit`` is a value that is drawn
    across. Points without a value are hollow marks at the top, called ``gap``. The lower axis is
    logarithmic if its ends are far apart.
    """

    what: str
    unit: Unit
    over: str
    over_unit: Unit
    lines: Sequence[PointLine]
    limit: float | None = None
    gap: str = ""


@dataclass(frozen=True, kw_only=True)
class Supply:
    """Bytes per second of a drive between edges, (n + 1,) in ns on the run's monotonic clock."""

    track: int
    edges_ns: NDArray[np.int64]
    bytes_per_s: Array


@dataclass(frozen=True, kw_only=True)
class SupplyPanels(Chart):
    """Bandwidth of the drive and its power on one axis of time, a panel for each run.

    ``span`` is the time that it covers.
    """

    span: str
    panels: Sequence[Supply]


Shape = (
    Note | Title | Text | Grid | Sheet | Group | PartBars | ValueBars | Offsets | CeilingBars
    | StepPanels | Curves | SupplyPanels | StepLines | PointLines | Row
)  # fmt: skip

Arm = TypeVar("Arm")
Fact = tuple[str, Callable[[Arm], str]]
"""The name of a fact, and its text for an arm."""


def sheet(
    caption: str, arms: Sequence[Arm], titles: Sequence[str], facts: Sequence[Fact[Arm]],
    note: str = "",
) -> Sheet:  # fmt: skip
    """Return the facts that some arm has, by arm; no bytes are not a fact."""
    nothing = (MISSING, quantity(0, Unit.BYTES))
    made = [(name, [text(arm) for arm in arms]) for name, text in facts]
    known = [(name, texts) for name, texts in made if any(text not in nothing for text in texts)]
    return Sheet(caption=caption, arms=titles, facts=known, note=note)


def unique(texts: Any) -> list[str]:  # noqa: ANN401 - any iterable of texts
    """Return texts without empty ones, each once, in order."""
    return list(dict.fromkeys(filter(None, texts)))
