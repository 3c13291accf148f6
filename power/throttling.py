"""What a drive counted of its own throttling in each timed phase, by samples of its SMART log.

The counters before and after a whole run also hold the heat of what is not timed: generating data,
verifying it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from wattload.core.power import Channel, Sample
from wattload.core.record.energy import ThrottlingRecord
from wattload.core.record.phase import PhaseWindow
from wattload.power.intervals import active_intervals
from wattload.power.trace import Trace, traces

_CHANNELS = {
    "transition_count": Channel.THERMAL_TRANSITIONS,
    "throttled_s": Channel.THROTTLED_S,
}


def throttling_records(
    samples: Iterable[Sample], windows: Sequence[PhaseWindow], *, host: str
) -> tuple[ThrottlingRecord, ...]:
    """Return the growth of each drive's counters in each timed phase of ``host``.

    A drive whose counters were not sampled has no record.
    """
    by_key = traces(sample for sample in samples if sample.channel in _CHANNELS.values())
    counted = {(key.device, key.channel): trace for key, trace in by_key.items()}
    devices = sorted({device for device, _ in counted})
    return tuple(
        _record(
            {name: counted.get((device, channel)) for name, channel in _CHANNELS.items()},
            window,
            host=host,
            device=device,
        )
        for window in windows
        if window.timed and window.host == host
        for device in devices
    )


def _record(
    counters: dict[str, Trace | None], window: PhaseWindow, *, host: str, device: str
) -> ThrottlingRecord:
    grown = {name: _growth(trace, window) for name, trace in counters.items()}
    return ThrottlingRecord(
        host=host,
        device=device,
        phase=window.name,
        missing={name: reason for name, (value, reason) in grown.items() if value is None},
        **{name: value for name, (value, _) in grown.items()},
    )


def _growth(trace: Trace | None, window: PhaseWindow) -> tuple[int | None, str]:
    """Return what a counter grew by, over all active intervals of the phase.

    Each is counted from the last read before it to the first after it: a little more than it, but
    nothing of it is left out, and what grew between two reads is counted once.
    """
    if trace is None:
        return None, "it was not read"
    known = ~np.isnan(trace.value)
    read_ns, count = trace.time_ns[known], trace.value[known]
    stretches: list[tuple[int, int]] = []
    for start_ns, end_ns in active_intervals(window):
        first = int(np.searchsorted(read_ns, start_ns, "right")) - 1
        last = int(np.searchsorted(read_ns, end_ns, "left"))
        if first < 0 or last == read_ns.size:
            return None, "it was not read both before and after the phase"
        if stretches and first < stretches[-1][1]:
            first = stretches.pop()[0]
        stretches.append((first, last))
    if any(np.any(np.diff(count[first : last + 1]) < 0) for first, last in stretches):
        return None, "it fell, so it was reset"
    return sum(round(float(count[last] - count[first])) for first, last in stretches), ""
