"""The settings of the kv_cache_mlperf workload, and the options of MLPerf's closed division."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from wattload.core.settings import check_settings, setting

MOST_USERS = 1000
"""MLPerf's benchmark remembers 1,000 conversations, and a user needs one."""


class Option(NamedTuple):
    """An option: ``allocations`` is how many entries may be made and written at once."""

    model: str
    users: int
    memory_bytes: int
    allocations: int


OPTIONS: Mapping[int, Option] = {
    1: Option("llama3.1-8b", users=200, memory_bytes=0, allocations=16),
    2: Option("llama3.1-8b", users=100, memory_bytes=4 << 30, allocations=16),
    3: Option("llama3.1-70b", users=70, memory_bytes=0, allocations=4),
}
"""Rules.md section 6.3, table KVCache-1."""


@dataclass(slots=True, kw_only=True)
class Scale:
    """Users, lengths, capacity and time at one scale."""

    users: int | None = None
    length_divisor: int = 1
    capacity_bytes: int | None = None
    most_written_bytes: int = 4 * 10**12
    duration_s: float = 300.0


@dataclass(slots=True, kw_only=True)
class Config:
    """MLPerf Storage v3.0's loop of requests to a cache of keys and values, for comparison only."""

    _target_: str = "wattload.workloads.kv_cache_mlperf.workload.KvCacheMlperf"
    option: int = setting(1, "MLPerf's option: model, users and cache in memory.", least=1, most=3)
    users: int | None = setting(
        None, "Users of each process.", least=1, most=MOST_USERS, unset="those of the option"
    )
    length_divisor: int = setting(
        1, "How many times shorter entries are than MLPerf's.", least=1, most=512
    )
    capacity_bytes: int | None = setting(
        None,
        "Size of the cache on a target, over all processes.",
        least=1,
        unset="all but 5 % of the file system",
    )
    most_written_bytes: int = setting(
        4 * 10**12, "Bytes that a process may write; the loop ends early at that.", least=1
    )
    duration_s: float = setting(
        300.0, "Time in which users ask; requests in progress are then finished.", above=0
    )
    scales: dict[str, Scale] = setting(dict, "Users, lengths, capacity and time by scale.")

    def check(self, scale: str) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "workload")
