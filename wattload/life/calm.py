"""When the drives are back at idle after a run's last phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from wattload.core.power import Channel, Counter, SourceFacts
from wattload.core.units import NS_PER_S
from wattload.power.energy import integrate
from wattload.power.samples import read_samples
from wattload.power.tail import tail_end
from wattload.power.trace import Trace, TraceKey, traces

AROUND_NS = 3 * NS_PER_S
"""What of a trace is needed beyond a window: a mean of the last second comes late."""


class Calm:
    """Idle as it was before a run, and when each drive was back at it."""

    def __init__(
        self, samples: Path, sources: Sequence[SourceFacts], idle_window: tuple[int, int]
    ) -> None:
        """Read the idle power of each source in ``idle_window`` (start and end in ns)."""
        self._samples = samples
        self._idle_w: dict[TraceKey, float] = {}
        until_ns = idle_window[1] + AROUND_NS
        early = takewhile(
            lambda sample: sample.time_ns <= until_ns,
            read_samples(samples, since_ns=idle_window[0] - AROUND_NS),
        )
        by_key = traces(early)
        self._sources = {_key(source): source for source in sources}
        for key, source in self._sources.items():
            if key in by_key:
                idle = integrate(by_key[key], source.sensor, *idle_window, period_s=source.period_s)
                if idle.mean_w is not None:
                    self._idle_w[key] = idle.mean_w

    def since(self, start_ns: int) -> int | None:
        """Return when every measured drive was back at idle after ``start_ns``, ``None`` if not.

        A drive that several sources measure is back when the last of them says so; one whose idle
        power nobody knows never is.
        """
        if {source.device for source in self._sources.values()} != {
            key.device for key in self._idle_w
        }:
            return None
        by_key = traces(read_samples(self._samples, since_ns=start_ns - AROUND_NS))
        ends = [self._end_ns(by_key, key, start_ns) for key in self._idle_w]
        known = [end_ns for end_ns in ends if end_ns is not None]
        return max(known) if known and len(known) == len(ends) else None

    def _end_ns(self, by_key: Mapping[TraceKey, Trace], key: TraceKey, start_ns: int) -> int | None:
        if key not in by_key:
            return None
        source = self._sources[key]
        return tail_end(
            by_key[key],
            source.sensor,
            idle_w=self._idle_w[key],
            after_ns=start_ns,
            period_s=source.period_s,
        )


def _key(source: SourceFacts) -> TraceKey:
    """Return what the source's figure is read from: a count of joules, or watts."""
    counts = isinstance(source.sensor, Counter)
    channel = Channel.ENERGY_J if counts else Channel.POWER_W
    return TraceKey(source.name, source.device, channel)
