"""Amounts of memory as the kernel prints them, in bytes."""

from __future__ import annotations

from pathlib import Path

from wattload.core.sysfs import read_text

_UNIT_BYTES = {"kB": 1024, "": 1}


def read_meminfo(path: Path) -> dict[str, int]:
    """Return name to bytes from ``/proc/meminfo`` or a NUMA node's; what it calls kB is KiB.

    Raises:
        OSError: the file can't be read.
        ValueError: a line has another form.
    """
    amounts: dict[str, int] = {}
    for line in read_text(path).splitlines():
        name, _, rest = line.partition(":")
        value, _, unit = rest.strip().partition(" ")
        amounts[name.split()[-1]] = int(value) * _UNIT_BYTES[unit.strip()]  # "Node 0 MemTotal"
    return amounts
