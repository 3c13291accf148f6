"""A metric: one figure of a run with its unit and the direction of better."""

from __future__ import annotations

from typing import Literal

from wattload.core.record.base import Observed
from wattload.core.units import Unit

RateOf = Literal["", "read", "written", "moved"]


class Metric(Observed):
    """One figure, in ``unit`` (SI base units); a ``None`` has its reason in ``missing``.

    ``name`` is stable (``throughput_bytes_per_s``); ``meaning`` is one sentence for the reader,
    ``phase`` the window it belongs to. ``headline`` metrics lead the page, in the order given.
    Those of a run that name the same whole in ``part_of`` add up to it, and are drawn stacked.
    ``rate_of`` says which of its phase's bytes a rate is of, over that phase's own time; it can be
    computed anew from them. Empty for every other metric.
    """

    name: str
    value: float | None
    unit: Unit
    better: Literal["higher", "lower", "neither"]
    meaning: str
    phase: str = ""
    headline: bool = False
    part_of: str = ""
    rate_of: RateOf = ""


def unknown(
    name: str,
    *,
    reason: str,
    unit: Unit,
    better: Literal["higher", "lower", "neither"],
    meaning: str,
    phase: str = "",
    headline: bool = False,
) -> Metric:
    """Return a metric without a value, and why it has none."""
    return Metric(
        name=name,
        value=None,
        unit=unit,
        better=better,
        meaning=meaning,
        phase=phase,
        headline=headline,
        missing={"value": reason},
    )
