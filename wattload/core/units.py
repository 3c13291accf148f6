"""Units: decimal prefixes for people, binary ones written out; records use SI base units."""

from __future__ import annotations

from enum import StrEnum

KB = 1000
MB = 1000**2
GB = 1000**3
TB = 1000**4
KIB = 1024
MIB = 1024**2
GIB = 1024**3

MICRO = 1e-6
MILLI = 1e-3
NS_PER_S = 1_000_000_000
J_PER_WH = 3600.0


class Unit(StrEnum):
    """The units of metrics; reports scale them for reading, records never do."""

    BYTES = "B"
    BYTES_PER_SECOND = "B/s"
    SECONDS = "s"
    JOULES = "J"
    WATTS = "W"
    BYTES_PER_JOULE = "B/J"
    JOULES_PER_BYTE = "J/B"
    SECONDS_PER_BYTE = "s/B"
    PER_JOULE = "1/J"
    SAMPLES_PER_SECOND = "1/s"
    FRACTION = "1"
    COUNT = "count"


def format_bytes(count: float) -> str:
    """Return a byte count for people, in decimal units: ``1.50 GB``."""
    for unit, name in ((TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "kB")):
        if abs(count) >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count:.0f} B"


def compared_bytes(*counts: float) -> list[str]:
    """Return byte counts that a sentence compares, as ``format_bytes`` writes them.

    If different counts would read the same, all are whole bytes instead: ``67,108,864 B``.
    """
    texts = [format_bytes(count) for count in counts]
    if len(set(texts)) < len(set(counts)):
        return [f"{count:,.0f} B" for count in counts]
    return texts


def format_rate(bytes_per_s: float) -> str:
    """Return a rate for people, in decimal units: ``1.50 GB/s``."""
    return f"{format_bytes(bytes_per_s)}/s"


def format_percent(share: float, decimals: int = 0) -> str:
    return f"{share * 100:.{decimals}f} %"


def format_seconds(seconds: float) -> str:
    """Return a duration for people: ``0.32 s``, ``95 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if seconds < 10:  # noqa: PLR2004 - two decimals below ten seconds
        return f"{seconds:.2f} s"
    if seconds < 120:  # noqa: PLR2004 - seconds up to two minutes
        return f"{seconds:.0f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004 - minutes up to an hour
        return f"{minutes} min {rest_s:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
