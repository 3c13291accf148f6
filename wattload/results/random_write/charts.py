"""Charts of random writes: the rates of all arms on one axis, and what drives did by round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattload.core.power import Channel
from wattload.core.units import NS_PER_S, Unit
from wattload.results.quantity import listed
from wattload.results.random_write.facts import ROUNDS, SECONDS, STEADY, WriteFacts
from wattload.results.random_write.rounds import Rounds, merged, rounds_of
from wattload.results.shapes import StepLine, StepLines, unique
from wattload.results.view import Shown, TracedRun

Array = NDArray[np.float64]
Traced = TracedRun[WriteFacts]

_MOST_ROUNDS = 600
"""More would not be seen."""
_PERCENTILES = (("p50_s", "p50", ""), ("p99_s", "p99", "6 3"), ("p9999_s", "p99.99", "2 2"))
"""Percentiles of a round: the column, its name and its dashes."""
_READINGS = 3
"""So many readings of a drive's counts per round are needed at least."""
_LEAST_SPAN_C = 20.0
_ZERO_C_K = 273.15


@dataclass(frozen=True)
class Drawn:
    """A run whose rounds were kept."""

    traced: Traced
    rounds: Rounds

    @property
    def steady_s(self) -> tuple[float, float] | None:
        """The steady window, in seconds since the first round began; ``None`` without one."""
        start_ns = self.rounds.edges_ns[0]
        for window in self.traced.run.windows(STEADY):
            first, last = window.start_ns - start_ns, window.end_ns - start_ns
            return float(first) / NS_PER_S, float(last) / NS_PER_S
        return None

    def line(self, edges: Array, values: Array, **shape: Any) -> StepLine:
        return StepLine(
            letter=self.traced.letter, title=self.traced.title, edges=edges, values=values, **shape
        )


def drawn_runs(shown: Shown[WriteFacts]) -> list[Drawn]:
    """Return the runs whose rounds were kept, with at most as many as can be seen."""
    found = []
    for traced in shown.traced:
        rounds, seconds = traced.tables.get(ROUNDS.name), traced.tables.get(SECONDS.name)
        if rounds is None or seconds is None:
            continue
        if (own := rounds_of(rounds, seconds)) is not None:
            found.append(Drawn(traced, merged(own, _MOST_ROUNDS)))
    return found


def rate_charts(shown: Shown[WriteFacts]) -> list[StepLines]:
    """Return the rate of all arms over time and over drive writes; nothing without rounds."""
    if not (drawn := drawn_runs(shown)):
        return []
    has_bands = not any(each.rounds.are_seconds for each in drawn)
    parts = ["Rates of seconds"]
    if has_bands:
        parts = ["Rounds of a minute; bands are their slowest to fastest second"]
    if any(each.steady_s is not None for each in drawn):
        parts.append("Bars on the axis: the steady window")

    def line(each: Drawn, edges: Array, marked: tuple[float, float] | None) -> StepLine:
        rounds = each.rounds
        bands = {"low": rounds.slowest, "high": rounds.fastest} if has_bands else {}
        return each.line(edges, rounds.rates, marked=marked, **bands)

    return [
        StepLines(
            name="time",
            title="rate over time",
            caption=". ".join([*parts, ""]).rstrip(),
            what="rate",
            unit=Unit.BYTES_PER_SECOND,
            lines=[line(each, each.rounds.edges_s, each.steady_s) for each in drawn],
        ),
        StepLines(
            name="writes",
            title="rate over drive writes",
            caption="",
            what="rate",
            unit=Unit.BYTES_PER_SECOND,
            lines=[line(each, drive_writes(each), steady_writes(each)) for each in drawn],
            over="drive writes",
            over_title="drive writes: bytes written ÷ bytes of the range",
        ),
    ]


def drive_writes(drawn: Drawn) -> Array:
    """Return the drive writes up to each edge of a round."""
    writes: Array = drawn.rounds.edges_bytes / drawn.traced.run.facts.range_bytes
    return writes


def steady_writes(drawn: Drawn) -> tuple[float, float] | None:
    if drawn.steady_s is None:
        return None
    first, last = np.interp(drawn.steady_s, drawn.rounds.edges_s, drive_writes(drawn))
    return float(first), float(last)


def round_charts(drawn: Sequence[Drawn]) -> Iterator[StepLines]:
    """Yield what was measured by round: amplification, latency, power and temperature."""
    powers = [reading for each in drawn for reading in each.traced.readings(Channel.POWER_W)]
    yield StepLines(
        name="amplification",
        title="write amplification by round",
        caption="Media bytes ÷ host bytes, by the drive's own counts.",
        what="write amplification",
        is_small=True,
        unit=Unit.COUNT,
        lines=[
            each.line(each.rounds.edges_s, values)
            for each in drawn
            if (values := amplification(each)) is not None
        ],
    )
    yield StepLines(
        name="percentiles",
        title="latency of writes by round",
        caption="Solid p50, dashed p99, dotted p99.99; logarithmic axis.",
        what="latency",
        is_small=True,
        unit=Unit.SECONDS,
        is_log=True,
        lines=[
            each.line(each.rounds.edges_s, each.rounds.percentiles_s[column], name=name, dash=dash)
            for each in drawn
            for column, name, dash in _PERCENTILES
        ],
    )
    yield StepLines(
        name="power",
        title="power by round",
        caption=f"Mean drive power: {listed(unique(each.evidence for each in powers))}.",
        what="power",
        is_small=True,
        unit=Unit.WATTS,
        lines=[
            each.line(each.rounds.edges_s, np.sum(watts, axis=0))
            for each in drawn
            if (watts := means(each, Channel.POWER_W))
        ],
    )
    yield StepLines(
        name="temperature",
        title="temperature by round",
        caption="The drive's own sensor.",
        what="temperature",
        is_small=True,
        unit="°C",
        least_span=_LEAST_SPAN_C,
        lines=[
            each.line(each.rounds.edges_s, np.fmax.reduce(kelvin) - _ZERO_C_K)
            for each in drawn
            if (kelvin := means(each, Channel.TEMPERATURE_K))
        ],
    )


def amplification(drawn: Drawn) -> Array | None:
    """Return the write amplification of each round; ``None`` if the drive's counts lack it."""
    host = _counted(drawn, Channel.HOST_WRITTEN_BYTES)
    media = _counted(drawn, Channel.MEDIA_WRITTEN_BYTES)
    if host is None or media is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.where((host > 0) & (media >= 0), media / host, np.nan)
    return found


def _counted(drawn: Drawn, channel: Channel) -> Array | None:
    """Return what the drives counted in each round; ``None`` if one was read too seldom.

    Counts are interpolated at the edges of rounds, which must have several readings each.
    """
    edges_ns = drawn.rounds.edges_ns
    most_ns = float(np.median(np.diff(edges_ns))) / _READINGS
    counts = []
    for readings in drawn.traced.readings(channel):
        known = np.isfinite(readings.value)
        time_ns, value = readings.time_ns[known], readings.value[known]
        if time_ns.size < _READINGS or float(np.median(np.diff(time_ns))) > most_ns:
            return None
        counts.append(np.diff(np.interp(edges_ns, time_ns, value, left=np.nan, right=np.nan)))
    found: Array | None = np.sum(counts, axis=0) if counts else None
    return found


def means(drawn: Drawn, channel: Channel) -> list[Array]:
    """Return the mean of each device's values in each round; NaN where there is none."""
    edges_ns = drawn.rounds.edges_ns
    count = edges_ns.size - 1
    found = []
    for readings in drawn.traced.readings(channel):
        known = np.isfinite(readings.value)
        place = np.searchsorted(edges_ns, readings.time_ns[known], side="right") - 1
        inside = (place >= 0) & (place < count)
        counts = np.bincount(place[inside], minlength=count)
        sums = np.bincount(place[inside], readings.value[known][inside], minlength=count)
        found.append(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
    return found
