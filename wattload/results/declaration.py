"""What a module of this package declares of its workload: one object, ``RESULTS``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic

from wattload.results.checks import CheckSource, Observed
from wattload.results.facts import F
from wattload.results.figures import FigureSource
from wattload.results.tables import TraceTable
from wattload.results.view import View


@dataclass(frozen=True, kw_only=True)
class Results(Generic[F]):
    """The results of a workload: facts, figures, checks, tables, and how they are shown.

    ``checks`` follow from the facts, ``observed`` are stored by the run.
    """

    name: str
    facts: type[F]
    figures: tuple[FigureSource[F], ...] = ()
    checks: tuple[CheckSource[F], ...] = ()
    observed: tuple[Observed[F], ...] = ()
    tables: tuple[TraceTable, ...] = ()
    view: View[F] = field(default_factory=View)
