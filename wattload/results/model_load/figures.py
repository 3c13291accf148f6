"""The figures of model loading."""

from __future__ import annotations

from wattload.results.figures import FigureSource
from wattload.results.model_load.facts import LoadFacts

FIGURES: tuple[FigureSource[LoadFacts], ...] = ()
