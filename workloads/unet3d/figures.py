"""Metrics of the timed phase, each made of a value or of the reason why there is none."""

from __future__ import annotations

from typing import Literal

from wattload.core.record.metric import Metric, RateOf, unknown
from wattload.core.units import Unit

PHASE = "read"


def seconds(name: str, value: float | None, meaning: str, *, reason: str = "") -> Metric:
    """Return a metric in seconds, of which fewer are better."""
    return figure(name, value, Unit.SECONDS, meaning, better="lower", reason=reason)


def fraction(
    name: str,
    value: float | None,
    reason: str,
    meaning: str,
    *,
    better: Literal["higher", "lower", "neither"] = "higher",
    headline: bool = False,
) -> Metric:
    """Return a metric in [0, 1]."""
    return figure(
        name, value, Unit.FRACTION, meaning, better=better, headline=headline, reason=reason
    )


def figure(
    name: str,
    value: float | None,
    unit: Unit,
    meaning: str,
    *,
    better: Literal["higher", "lower", "neither"],
    headline: bool = False,
    phase: str = PHASE,
    reason: str = "",
    rate_of: RateOf = "",
) -> Metric:
    """Return a metric; without a value, ``reason`` says why."""
    if value is None:
        return unknown(
            name,
            reason=reason,
            unit=unit,
            better=better,
            meaning=meaning,
            phase=phase,
            headline=headline,
        )
    return Metric(
        name=name,
        value=value,
        unit=unit,
        better=better,
        meaning=meaning,
        phase=phase,
        headline=headline,
        rate_of=rate_of,
    )
