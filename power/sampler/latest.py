"""The latest readings of a run under way, from the end of its samples file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattload.core.power import EVIDENCE_RANK, Channel, Sample, SourceFacts
from wattload.core.units import NS_PER_S
from wattload.power.sampler.samples import last_samples

FRESH_S, FRESH_PERIODS = 5.0, 3.0
"""Older readings, and those from before so many periods of a slow sensor, are not current."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The current power of all drives, and the highest temperature; ``None`` if unknown."""

    power_w: float | None
    temperature_k: float | None


class LatestReadings:
    """Reads the power of drives while a run is under way; the sampler writes the samples."""

    def __init__(self, find: Callable[[], Path | None], sources: Sequence[SourceFacts]) -> None:
        """Prepare to read.

        Args:
            find: returns the samples file, ``None`` before the sampler has created it.
            sources: the sources that measure drives; of those of one drive, the best is shown.
        """
        self._find = find
        self._path: Path | None = None
        best_last = sorted(sources, key=lambda facts: -EVIDENCE_RANK[facts.evidence])
        self._sources = {facts.device: facts for facts in best_last}

    def read(self) -> Reading:
        """Return the current readings; a file that can't be read has none."""
        self._path = self._path or self._find()
        samples = last_samples(self._path) if self._path is not None else []
        watts = [_power_w(facts, _current(facts, samples)) for facts in self._sources.values()]
        known = [each for each in watts if each is not None]
        kelvins = {
            each.device: each.value
            for facts in self._sources.values()
            for each in _current(facts, samples)
            if each.channel is Channel.TEMPERATURE_K and each.value is not None
        }
        is_whole = bool(known) and len(known) == len(watts)
        return Reading(sum(known) if is_whole else None, max(kelvins.values(), default=None))


def _current(facts: SourceFacts, samples: Sequence[Sample]) -> list[Sample]:
    """Return the recent samples of a source's drive."""
    fresh_s = max(FRESH_S, FRESH_PERIODS * facts.period_s)
    since_ns = time.monotonic_ns() - round(fresh_s * NS_PER_S)
    return [each for each in samples if each.device == facts.device and each.time_ns >= since_ns]


def _power_w(facts: SourceFacts, samples: Sequence[Sample]) -> float | None:
    """Return the last power of a source; of an energy counter, that over the last seconds."""
    own = [
        (each.time_ns, each.value)
        for each in samples
        if (each.source, each.channel) == (facts.name, facts.figure_channel)
        if each.value is not None
    ]
    if not own:
        return None
    (first_ns, first), (last_ns, last) = own[0], own[-1]
    if facts.figure_channel is Channel.POWER_W:
        return last
    return (last - first) * NS_PER_S / (last_ns - first_ns) if last_ns > first_ns else None
