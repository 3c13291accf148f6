"""Time: CLOCK_MONOTONIC for stored and compared times, the wall clock only for the reader."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from wattload.core.base_models import Frozen


class ClockAnchor(Frozen):
    """One moment on the clocks of a host: aligns the traces of several hosts, checks the clocks.

    ``monotonic_ns`` counts from an arbitrary start, per host; ``realtime_ns`` from 1970-01-01 UTC.
    ``raw_ns`` (CLOCK_MONOTONIC_RAW) is not adjusted by NTP, ``boottime_ns`` (CLOCK_BOOTTIME) goes
    on while the host is suspended; older records have neither.
    """

    monotonic_ns: int
    realtime_ns: int
    raw_ns: int | None = None
    boottime_ns: int | None = None


_CLOCKS = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC_RAW, time.CLOCK_BOOTTIME)
_TRIES = 5


def anchor() -> ClockAnchor:
    """Return this moment on all clocks; of a few tries the one that was interrupted least."""
    reads = []
    for _ in range(_TRIES):
        start_ns = time.monotonic_ns()
        clocks = [time.clock_gettime_ns(clock) for clock in _CLOCKS]
        end_ns = time.monotonic_ns()
        reads.append((end_ns - start_ns, (start_ns + end_ns) // 2, *clocks))
    _, monotonic_ns, realtime_ns, raw_ns, boottime_ns = min(reads)
    return ClockAnchor(
        monotonic_ns=monotonic_ns,
        realtime_ns=realtime_ns,
        raw_ns=raw_ns,
        boottime_ns=boottime_ns,
    )


def utc_text() -> str:
    """Return the wall clock as ISO 8601 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def boot_id() -> str:
    """Return the kernel's identifier of this boot; empty if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
