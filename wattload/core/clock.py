"""Time: CLOCK_MONOTONIC for stored and compared times, the wall clock only for the reader."""

from __future__ import annotations

import ctypes
import os
import time
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSync:
    """How far the kernel holds the wall clock to be from UTC, in seconds (RFC 5905).

    ``offset_s`` is the correction that is still to be made, ``error_s`` the estimated error of the
    clock, ``max_error_s`` the bound for it.
    """

    offset_s: float
    error_s: float
    max_error_s: float


class _Timex(ctypes.Structure):
    """The beginning of ``struct timex`` (adjtimex(2)), and more room than its rest needs."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 40),
    )


_STA_UNSYNC, _STA_NANO = 0x0040, 0x2000


def clock_sync() -> ClockSync:
    """Return how well the wall clock is synchronised; it only reads and needs no privilege.

    Raises:
        OSError: the kernel does not answer.
        ValueError: no time service (NTP, PTP) keeps the clock synchronised.
    """
    found = _Timex()
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(found)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "adjtimex")
    if found.status & _STA_UNSYNC:
        raise ValueError("the kernel's clock is not synchronised (no NTP)")
    return ClockSync(
        offset_s=found.offset * (1e-9 if found.status & _STA_NANO else 1e-6),
        error_s=found.esterror * 1e-6,
        max_error_s=found.maxerror * 1e-6,
    )


def utc_text() -> str:
    """Return the wall clock as ISO 8601 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
