"""Figures: what follows from the facts of a run, each declared once with its formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic

from wattload.core.record.results import Better, Metric
from wattload.core.units import Unit
from wattload.results.facts import F, Run


@dataclass(frozen=True, kw_only=True)
class Figure(Generic[F]):
    """One figure: its formula, and what a reader has to know of it.

    ``of`` is a pure function of a run; if it returns ``None``, ``reason`` says why. ``name`` is
    stable and ends in the unit, ``label`` is the figure in words, by default those of its name.
    ``meaning``, ``headline`` and ``part_of`` are those of ``Metric``.
    """

    name: str
    of: Callable[[Run[F]], float | None]
    unit: Unit
    better: Better
    meaning: str
    phase: str = ""
    label: str = ""
    headline: bool = False
    part_of: str = ""
    reason: str | Callable[[Run[F]], str] = "a fact that it follows from is missing"

    def evaluated(self, run: Run[F]) -> Metric:
        value = self.of(run)
        return Metric.of(
            self.name,
            value,
            self.unit,
            self.better,
            self.meaning,
            phase=self.phase,
            headline=self.headline,
            part_of=self.part_of,
            reason=self.reason if isinstance(self.reason, str) else self.reason(run),
        )


FigureSource = Figure[F] | Callable[[Run[F]], Sequence[Figure[F]]]
"""A figure that every run has, or a function that returns those of a run: one for each pass."""


def evaluated(sources: Sequence[FigureSource[F]], run: Run[F]) -> Iterator[Metric]:
    """Yield the figures of a run, in their order."""
    for source in sources:
        for figure in (source,) if isinstance(source, Figure) else source(run):
            yield figure.evaluated(run)
