"""nvidia-fs, the kernel module of GPUDirect Storage: its version and its count of reads."""

from __future__ import annotations

import re

from wattload.core.sysfs import LIVE, Roots, read_text

_STATS, _VERSION = "driver/nvidia-fs/stats", "driver/nvidia-fs/version"
_READS = re.compile(r"^Reads\s*:.*?\bok=(\d+)", re.MULTILINE)
"""``Reads : n=1279109 ok=1279109 err=0 readMiB=...`` (NVIDIA's GDS troubleshooting guide)."""
_ENABLED = "module/nvidia_fs/parameters/rw_stats_enabled"


def is_loaded(roots: Roots = LIVE) -> bool:
    return (roots.proc / _STATS).exists()


def is_counting(roots: Roots = LIVE) -> bool:
    """Return whether the module counts reads, by its parameter ``rw_stats_enabled``."""
    try:
        return read_text(roots.sys / _ENABLED) not in ("0", "N")
    except OSError:
        return False


def version(roots: Roots = LIVE) -> str | None:
    """Return the module's version, such as ``2.26``; ``None`` without it."""
    try:
        text = read_text(roots.proc / _VERSION)
    except OSError:
        return None
    found = re.search(r"\d+(\.\d+)+", text)
    return found[0] if found else None


def reads(roots: Roots = LIVE) -> int | None:
    """Return the reads that the module completed since it was loaded, for all processes.

    ``None`` where it is not loaded or does not count.
    """
    try:
        text = read_text(roots.proc / _STATS)
    except OSError:
        return None
    found = _READS.search(text)
    return int(found[1]) if found and is_counting(roots) else None
