"""Metrics of the timed phase, each made of a value or of the reason why there is none."""

from __future__ import annotations

from functools import partial

from wattload.core.record.metric import Better, Metric
from wattload.core.units import Unit

PHASE = "read"

figure = partial(Metric.of, phase=PHASE)
"""Make a metric of the phase; see ``Metric.of``."""


def seconds(
    name: str, value: float | None, meaning: str, *, reason: str = "", part_of: str = ""
) -> Metric:
    """Return a metric in seconds, of which fewer are better."""
    return figure(name, value, Unit.SECONDS, "lower", meaning, reason=reason, part_of=part_of)


def fraction(
    name: str,
    value: float | None,
    reason: str,
    meaning: str,
    *,
    better: Better = "higher",
    headline: bool = False,
) -> Metric:
    """Return a metric in [0, 1]."""
    return figure(name, value, Unit.FRACTION, better, meaning, headline=headline, reason=reason)
