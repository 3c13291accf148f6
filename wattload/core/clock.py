"""Time: CLOCK_MONOTONIC for stored and compared times, the wall clock only for the reader."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from wattload.core.base_models import Frozen


class ClockAnchor(Frozen):
    """One moment on both clocks of a host, to align the traces of several hosts.

    ``monotonic_ns`` counts from an arbitrary start, per host; ``realtime_ns`` from 1970-01-01 UTC.
    """

    monotonic_ns: int
    realtime_ns: int


def anchor() -> ClockAnchor:
    """Return this moment on both clocks; the two reads are less than a microsecond apart."""
    return ClockAnchor(monotonic_ns=time.monotonic_ns(), realtime_ns=time.time_ns())


def utc_text() -> str:
    """Return the wall clock as ISO 8601 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
