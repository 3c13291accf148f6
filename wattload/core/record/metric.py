"""A metric: one figure of a run with its unit and the direction of better."""

from __future__ import annotations

from typing import Literal, Self

from wattload.core.record.base import Observed
from wattload.core.units import Unit

Better = Literal["higher", "lower", "neither"]
"""Which way of a figure is the better one."""
RateOf = Literal["", "read", "written", "moved"]
"""Which bytes of its phase a rate counts; empty for what is no such rate."""


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
    better: Better
    meaning: str
    phase: str = ""
    headline: bool = False
    part_of: str = ""
    rate_of: RateOf = ""

    @classmethod
    def of(
        cls,
        name: str,
        value: float | None,
        unit: Unit,
        better: Better,
        meaning: str,
        *,
        phase: str = "",
        headline: bool = False,
        part_of: str = "",
        rate_of: RateOf = "",
        reason: str = "",
    ) -> Self:
        """Return a metric; one without a value needs the ``reason`` why there is none."""
        return cls(
            name=name,
            value=value,
            unit=unit,
            better=better,
            meaning=meaning,
            phase=phase,
            headline=headline,
            part_of=part_of,
            rate_of=rate_of,
            missing={"value": reason} if value is None and reason else {},
        )
