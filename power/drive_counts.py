"""What drives count themselves in each timed phase: written bytes, and thermal throttling.

Counts are sampled, because those before and after a whole run include phases that are not timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wattload.core.base_models import fields_of
from wattload.core.power import WRITTEN_STEP_BYTES, Channel
from wattload.core.record.energy import ThrottlingRecord, WrittenRecord
from wattload.core.record.phase import PhaseWindow
from wattload.core.units import NS_PER_S
from wattload.power.energy.trace import Times, Trace, TraceKey, Values

NEAR_NS = 60 * NS_PER_S
"""The nearest reading may be this far from an edge."""

STEP_SHARE = 0.01
"""The step of a count may be this share of a phase's bytes."""

EDGE_SHARE = 0.05
"""What may belong before or after a phase may be this share of its bytes.

The count at an edge is that of a moment between two readings. All that was written between them may
have been written on one side of the edge, so this is rather a matter of the phase's length: with
readings 10 s apart, an even load needs some 5 minutes.
"""

_WRITTEN = (Channel.HOST_WRITTEN_BYTES, Channel.MEDIA_WRITTEN_BYTES)
_THERMAL = {
    "transition_count": Channel.THERMAL_TRANSITIONS,
    "throttled_s": Channel.THROTTLED_S,
}

_Growth = tuple[int | None, str]
"""How much a count grew, and the reason if that is unknown."""


def written_records(
    by_key: Mapping[TraceKey, Trace], windows: Sequence[PhaseWindow], *, host: str
) -> tuple[WrittenRecord, ...]:
    """Return the bytes written in each timed phase of ``host``, by each drive with a count.

    Drives are asked every few seconds, so the count at an edge of a phase is interpolated.
    """
    counts = {
        (key.device, key.channel): trace
        for key, trace in by_key.items()
        if key.channel in _WRITTEN and key.source in WRITTEN_STEP_BYTES
    }
    return tuple(
        WrittenRecord(
            host=host,
            device=device,
            phase=window.name,
            **_written(window, *(counts.get((device, channel)) for channel in _WRITTEN)),
        )
        for window, device in _phases(windows, host, counts)
    )


def throttling_records(
    by_key: Mapping[TraceKey, Trace], windows: Sequence[PhaseWindow], *, host: str
) -> tuple[ThrottlingRecord, ...]:
    """Return the growth of each drive's thermal counters in each timed phase of ``host``.

    A drive whose counters were not sampled has no record.
    """
    counts = {
        (key.device, key.channel): trace
        for key, trace in by_key.items()
        if key.channel in _THERMAL.values()
    }
    return tuple(
        ThrottlingRecord(
            host=host,
            device=device,
            phase=window.name,
            **fields_of(
                {
                    name: _thermal_growth(counts.get((device, channel)), window)
                    for name, channel in _THERMAL.items()
                }
            ),
        )
        for window, device in _phases(windows, host, counts)
    )


def _phases(
    windows: Sequence[PhaseWindow], host: str, counts: Mapping[tuple[str, Channel], Trace]
) -> Iterator[tuple[PhaseWindow, str]]:
    """Yield each timed phase of the host with each drive that has a count."""
    devices = sorted({device for device, _ in counts})
    for window in windows:
        if window.timed and window.host == host:
            yield from ((window, device) for device in devices)


def _written(
    window: PhaseWindow, host_count: Trace | None, media_count: Trace | None
) -> Mapping[str, Any]:
    host_bytes, no_host = _written_growth(host_count, window)
    media_bytes, no_media = _written_growth(media_count, window)
    amplification = media_bytes / host_bytes if host_bytes and media_bytes is not None else None
    source = None if media_count is None else media_count.key.source
    return fields_of(
        {
            "host_written_bytes": (host_bytes, no_host),
            "media_written_bytes": (media_bytes, no_media),
            "write_amplification": (amplification, no_host or no_media),
            "media_source": (source, "the drive reports no count of media bytes"),
        }
    )


def _written_growth(trace: Trace | None, window: PhaseWindow) -> _Growth:
    """Return the growth of a count of bytes over the active intervals of a phase."""
    if trace is None:
        return None, "the drive reports no count of media bytes"
    known = ~np.isnan(trace.value)
    read_ns, count = trace.time_ns[known], trace.value[known]
    total = error = 0.0
    for start_ns, end_ns in window.intervals:
        grown, possible_error, reason = _between(read_ns, count, start_ns, end_ns)
        if reason:
            return None, reason
        total, error = total + grown, error + possible_error
    step_bytes = WRITTEN_STEP_BYTES[trace.key.source]
    if step_bytes > STEP_SHARE * total:
        return None, (
            f"it grew by {total:.0f} B, and counts in steps of {step_bytes} B: under "
            f"{1 / STEP_SHARE:.0f} steps"
        )
    if error > EDGE_SHARE * total:
        return None, (
            f"up to {error / total:.0%} of it may have been written before or after the phase, "
            f"between two readings of the count; at most {EDGE_SHARE:.0%} is allowed"
        )
    return round(total), ""


def _between(read_ns: Times, count: Values, start_ns: int, end_ns: int) -> tuple[float, float, str]:
    """Return the growth from start to end, its largest possible error, and why there is none."""
    first = int(np.searchsorted(read_ns, start_ns, "right")) - 1
    last = int(np.searchsorted(read_ns, end_ns, "left"))
    if first < 0 or last == read_ns.size:
        return 0.0, 0.0, "it was not read both before and after the phase"
    for edge_ns in (start_ns, end_ns):
        if np.abs(read_ns[first : last + 1] - edge_ns).min() > NEAR_NS:
            return 0.0, 0.0, f"it was not read within {NEAR_NS // NS_PER_S} s of an edge"
    inside = count[first : last + 1]
    falls = np.flatnonzero(np.diff(inside) < 0)
    if falls.size:
        before, after = inside[falls[0]], inside[falls[0] + 1]
        return 0.0, 0.0, f"it fell from {before:.0f} to {after:.0f} B"
    edges, error = [], 0.0
    for edge_ns, low in ((start_ns, first), (end_ns, last - 1)):
        span_ns = read_ns[low + 1] - read_ns[low] if low + 1 < read_ns.size else 0
        share = (edge_ns - read_ns[low]) / span_ns if span_ns else 0.0
        growth = count[low + 1] - count[low] if span_ns else 0.0
        edges.append(count[low] + share * growth)
        error += max(share, 1 - share) * growth if 0 < share < 1 else 0.0
    return float(edges[1] - edges[0]), float(error), ""


def _thermal_growth(trace: Trace | None, window: PhaseWindow) -> _Growth:
    """Return the growth of a counter over all active intervals of the phase.

    Each interval is counted from the last read before it to the first read after it. That is a
    little more than the interval but misses nothing. Growth between two reads is counted once.
    """
    if trace is None:
        return None, "it was not read"
    known = ~np.isnan(trace.value)
    read_ns, count = trace.time_ns[known], trace.value[known]
    intervals: list[tuple[int, int]] = []
    for start_ns, end_ns in window.intervals:
        first = int(np.searchsorted(read_ns, start_ns, "right")) - 1
        last = int(np.searchsorted(read_ns, end_ns, "left"))
        if first < 0 or last == read_ns.size:
            return None, "it was not read both before and after the phase"
        if intervals and first < intervals[-1][1]:
            first = intervals.pop()[0]
        intervals.append((first, last))
    if any(np.any(np.diff(count[first : last + 1]) < 0) for first, last in intervals):
        return None, "it decreased, so it was reset"
    return sum(round(float(count[last] - count[first])) for first, last in intervals), ""
