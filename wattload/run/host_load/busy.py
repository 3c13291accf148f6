"""``load=busy``: a load of wattload's own, settled to shares of CPU time and memory traffic."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from wattload.core.errors import ConfigError
from wattload.core.host.memory_modules import memory_rate
from wattload.core.host.topology import nodes_of
from wattload.core.settings import check_settings, setting
from wattload.core.sysfs import LIVE, Roots, read_meminfo
from wattload.core.units import GIB, MIB, format_bytes

CACHE_MULTIPLE = 4
"""Buffers are at least so many times the L3 caches, so that copies reach memory."""

NODE_BYTES = 1 * GIB
"""Of buffers on each node where memory allows it: a guest may see smaller caches than there are."""
UNKNOWN_L3_BYTES = 64 * MIB
MEMORY_SHARE = 0.25
"""More than the least is taken up to this share of the available memory, and the least up to
``MOST_SHARE`` of it."""
MOST_SHARE = 0.5
THREAD_BYTES = 4 * MIB
"""The least of one thread: several times its L2 cache."""

PREPARING_S = 10.0
"""Peak, calibration and first adjustments take about so long on an idle host."""


@dataclass(slots=True, kw_only=True)
class Config:
    """Shares of the whole host, measured without the workload: its reads come on top."""

    name: str = setting("busy", "Selected by load=NAME.", choices=("busy",))
    cpu_share: float = setting(
        0.86, "Share of CPU time to be busy, of all CPUs that the run may use.", above=0, most=0.98
    )
    memory_share: float = setting(
        0.50, "Share of the peak of memory traffic, reads and writes.", least=0, most=0.95
    )
    memory_of: str = setting(
        "measured",
        "What memory_share is a part of: the peak measured while all CPUs copy, or the memory "
        "channels times their configured rate.",
        choices=("measured", "theoretical"),
    )
    settle_max_s: float = setting(
        120.0, "Longest time to settle to both shares.", least=1, most=3600
    )
    alone_s: float = setting(
        10.0,
        "How long both shares must hold without the workload, before and after it; under 10 s the "
        "run gets a warning.",
        least=1,
        most=3600,
    )

    @property
    def expected_s(self) -> float:
        """The seconds that it adds to a run on an idle host."""
        return PREPARING_S + 2 * self.alone_s

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "load")

    def require_possible(self, other_bytes: int) -> None:
        """Raise ``ConfigError`` if the buffers do not fit beside ``other_bytes`` of the run."""
        thread_bytes(os.sched_getaffinity(0), other_bytes=other_bytes)
        if self.memory_of == "theoretical":
            rate, reason = memory_rate()
            if rate is None:
                raise ConfigError(
                    f"load.memory_of=theoretical is not available: {reason}; use "
                    "load.memory_of=measured"
                )


def thread_bytes(cpus: Collection[int], *, other_bytes: int = 0, roots: Roots = LIVE) -> int:
    """Return the bytes of each thread's buffers, a thread on each of the CPUs.

    On every node they are at least ``CACHE_MULTIPLE`` times its L3 caches together.

    Raises:
        ConfigError: so much memory is not available beside ``other_bytes``.
    """
    nodes = nodes_of(cpus, roots)
    least = wanted = THREAD_BYTES
    for node in nodes:
        caches = CACHE_MULTIPLE * (node.l3_bytes or UNKNOWN_L3_BYTES)
        least = max(least, caches // len(node.cpus))
        wanted = max(wanted, max(caches, NODE_BYTES) // len(node.cpus))
    available = read_meminfo(roots.proc / "meminfo")["MemAvailable"] - other_bytes
    if least * len(cpus) > MOST_SHARE * available:
        raise ConfigError(
            f"load=busy needs {format_bytes(least * len(cpus))} of buffers, {CACHE_MULTIPLE} "
            f"times the L3 caches, but {format_bytes(max(available, 0))} of memory are available "
            "and half must stay free; use fewer CPUs (taskset) or load=none"
        )
    return max(least, min(wanted, int(MEMORY_SHARE * available) // len(cpus)))
