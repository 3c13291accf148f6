"""When the drives are back at idle after a run's last phase."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wattload.core.power import Channel, SourceFacts
from wattload.power.energy import integrate
from wattload.power.samples import read_samples
from wattload.power.tail import tail_end
from wattload.power.trace import TraceKey, traces


def calm_since(
    samples: Path, sources: Sequence[SourceFacts], idle_window: tuple[int, int], start_ns: int
) -> int | None:
    """Return when every measured drive was back at idle after ``start_ns``, ``None`` while not.

    Idle is the mean of the drive's own trace in ``idle_window`` (start and end in ns).
    """
    by_key = traces(read_samples(samples))
    ends: list[int] = []
    for source in sources:
        trace = by_key.get(TraceKey(source.name, source.device, Channel.POWER_W))
        if trace is None:
            return None
        idle = integrate(trace, source.sensor, *idle_window, period_s=source.period_s)
        if idle.mean_w is None:
            return None
        end_ns = tail_end(
            trace,
            source.sensor,
            idle_w=idle.mean_w,
            after_ns=start_ns,
            period_s=source.period_s,
        )
        if end_ns is None:
            return None
        ends.append(end_ns)
    return max(ends, default=None)
