"""The loads that keep a host busy, and their settings: ``none``, ``busy``, ``stressapptest``.

``busy`` is a load of wattload's own, settled to shares of CPU time and memory traffic.
``stressapptest`` is the user's program, as it is, with its level measured.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from wattload.core.errors import ConfigError
from wattload.core.host.cgroups import usable_cpus
from wattload.core.host.facts import nodes_of
from wattload.core.host.memory_traffic import memory_rate
from wattload.core.settings import check_settings, setting
from wattload.core.sysfs import LIVE, Roots, read_meminfo
from wattload.core.units import GIB, MIB, compared_bytes, format_bytes


@dataclass(slots=True, kw_only=True)
class NoLoad:
    """No load."""

    name: str = setting("none", "Selected by load=NAME.", choices=("none",))

    @property
    def expected_s(self) -> float:
        return 0.0

    def check(self) -> None:
        """Accept everything."""

    def require_possible(self, other_bytes: int) -> None:
        """Accept every host."""


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
class Busy:
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


LONGEST_S = 30 * 86_400
"""What it is started for; it is ended with the run."""


@dataclass(slots=True, kw_only=True)
class Stressapptest:
    """Its only control are counts of threads: the shares that it reaches are measured."""

    name: str = setting("stressapptest", "Selected by load=NAME.", choices=("stressapptest",))
    binary: str = setting("stressapptest", "The program, by name or path.")
    copy_threads: int | None = setting(
        None, "Threads that copy memory (-m).", least=1, most=65536, unset="one per CPU"
    )
    cpu_threads: int = setting(0, "Threads that compute (-C).", least=0, most=65536)
    memory_bytes: int = setting(
        1024 * MIB, "Memory that it copies within (-M).", least=64 * MIB, multiple=MIB
    )
    warm_up_s: float = setting(
        5.0, "Time until its memory is filled, before its level is measured.", least=0, most=3600
    )
    alone_s: float = setting(
        10.0,
        "How long its level is measured without the workload, before and after it; under 10 s the "
        "run gets a warning.",
        least=1,
        most=3600,
    )

    @property
    def expected_s(self) -> float:
        return self.warm_up_s + 2 * self.alone_s

    def check(self) -> None:
        check_settings(self, "load")

    def require_possible(self, other_bytes: int) -> None:
        """Raise ``ConfigError`` if the program is missing, or its memory beside the run's."""
        if shutil.which(self.binary) is None:
            raise ConfigError(
                f"load=stressapptest needs the program {self.binary}, which is not installed; "
                "install it (e.g. apt-get install stressapptest) or set load.binary=PATH"
            )
        available = read_meminfo(LIVE.proc / "meminfo")["MemAvailable"] - other_bytes
        if self.memory_bytes > available:
            wanted, free = compared_bytes(self.memory_bytes, max(available, 0))
            raise ConfigError(
                f"load.memory_bytes is {wanted}, but only {free} of memory are available"
            )

    @property
    def thread_count(self) -> int:
        return self._copy_count + self.cpu_threads

    @property
    def _copy_count(self) -> int:
        return self.copy_threads or usable_cpus()

    def program(self) -> list[str]:
        """Return the command line, without a shell."""
        copies = self._copy_count
        memory = self.memory_bytes // MIB
        words = [self.binary, "-s", LONGEST_S, "-M", memory, "-m", copies, "-C", self.cpu_threads]
        return [str(word) for word in words]


LOADS: Mapping[str, type] = {"none": NoLoad, "busy": Busy, "stressapptest": Stressapptest}
"""The settings of each option of the group ``load``."""
