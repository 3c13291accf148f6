"""How published results of one kind are shown, with runs of ours next to them.

Both are facts of one type, and each figure is a function of them. A published run has no power, no
checks and another machine: it enters no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

from wattload.core.mlperf.formulas import Value
from wattload.core.mlperf.published import Kind
from wattload.core.units import Unit
from wattload.results.facts import F, Run

Figure = tuple[Unit, Callable[[Any, str], Value]]
"""A unit, and the figure of a run's facts by an edition's formulas."""


@dataclass(frozen=True, kw_only=True)
class PublishedView(Generic[F]):
    """How published runs of a kind are shown.

    ``own`` returns a run of ours as such facts, ``rows`` the table, a name if a run has several
    rows there, and the facts of each row. ``figures`` are the columns; rows are sorted by the
    first. ``data_from`` names the rawest data, ``conditions`` are what the work was, in words.
    Energy is that of ``phases``, also per ``unit``, of which a run has ``count``. ``other_work`` is
    why runs of ours match no edition, if none ever does.
    """

    kind: Kind
    own: Callable[[Run[F]], Any]
    rows: Callable[[Any], Iterable[tuple[str, str, Any]]]
    figures: Mapping[str, Figure]
    data_from: Callable[[Any], str]
    conditions: Callable[[Any], Mapping[str, str]]
    phases: frozenset[str]
    unit: str
    count: Callable[[Run[F]], float | None]
    other_work: str = ""


def summarised(value: float | None) -> Value:
    """Return a figure that a summary may print."""
    return Value(value, "no summary has it" if value is None else "")
