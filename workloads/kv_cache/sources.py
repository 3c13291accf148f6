"""Where requests come from, and what caches of several sizes would do with them."""

from __future__ import annotations

import heapq
import itertools
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from wattload.results.kv_cache.facts import LruPoint, Source, SourceReport
from wattload.workloads.kv_cache.config import Config
from wattload.workloads.kv_cache.requests import Request, Requests
from wattload.workloads.kv_cache.traces import Trace
from wattload.workloads.kv_cache.users import Users

MOST_REQUESTS = 12_000
MOST_REFERENCES = 700_000
"""A report is of so many requests, or of those that have so many blocks: seconds of one core."""


def source_of(config: Config, *, seed: int) -> Requests:
    """Return the source of requests that the settings name, at its beginning.

    Raises:
        ConfigError: the trace is not a file.
    """
    if config.requests is Source.trace and config.trace is not None:
        return Trace(
            Path(config.trace),
            block_tokens=config.block_tokens,
            speed=config.speed,
            jitter=config.jitter,
        )
    return Users(config, seed=seed)


def report_of(config: Config, *, seed: int, capacity_blocks: int) -> SourceReport:
    """Return the report on a fresh source, for an eighth to eight times a capacity.

    Raises:
        ConfigError: the trace is not a file.
        DataError: a line of the trace is wrong.
    """
    capacities = {max(1, capacity_blocks * eighths // 8) for eighths in (1, 2, 4, 8, 16, 32, 64)}
    return source_report(source_of(config, seed=seed), sorted(capacities))


def source_report(source: Requests, capacities: Sequence[int]) -> SourceReport:
    """Return what caches of ``capacities`` blocks, rising, and an infinite one would do.

    In a closed loop requests take no time here, only pauses do, so its times are virtual.
    """
    caches = [_Lru(capacity) for capacity in (*capacities, None)]
    last_used_s: dict[int, float] = {}
    gaps_s: list[float] = []
    requests = references = input_tokens = most_blocks = 0
    begin_s = end_s = 0.0
    for request in itertools.islice(in_order(source), MOST_REQUESTS):
        if references > MOST_REFERENCES:
            break
        end_s = request.arrival_s
        begin_s = end_s if not requests else begin_s
        requests += 1
        references += len(request.blocks)
        input_tokens += request.input_tokens
        most_blocks = max(most_blocks, len(request.blocks))
        for cache in caches:
            cache.use(request.blocks)
        gaps_s += [end_s - last_used_s[each] for each in request.blocks if each in last_used_s]
        last_used_s.update(dict.fromkeys(request.blocks, end_s))
    p50, p90, p99 = np.percentile(gaps_s, (50, 90, 99)).tolist() if gaps_s else (None,) * 3
    return SourceReport(
        requests=requests,
        span_s=end_s - begin_s,
        references=references,
        input_tokens=input_tokens,
        most_blocks=most_blocks,
        lru=tuple(cache.point() for cache in caches),
        gap_p50_s=p50,
        gap_p90_s=p90,
        gap_p99_s=p99,
    )


def in_order(source: Requests) -> Iterator[Request]:
    """Yield requests by arrival, as if each were done when it arrives."""
    numbers = itertools.count()
    waiting = [(each.arrival_s, next(numbers), each) for each in source.first()]
    heapq.heapify(waiting)
    while waiting:
        arrival_s, _, request = heapq.heappop(waiting)
        yield request
        following = source.following(request, arrival_s)
        if following is not None:
            heapq.heappush(waiting, (following.arrival_s, next(numbers), following))


class _Lru:
    """A cache that stores all it misses and evicts what was used longest ago.

    A request uses its blocks tail first and head last. So a block is never evicted before those
    that follow it in a prompt, and hits are always the beginning of a request.
    """

    def __init__(self, capacity: int | None) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._hits = self._stored = 0

    def use(self, blocks: Sequence[int]) -> None:
        held = self._blocks
        hits = next((n for n, each in enumerate(blocks) if each not in held), len(blocks))
        missed = blocks[hits : self._capacity]
        for each in reversed(missed):
            held[each] = None
        for each in reversed(blocks[:hits]):
            held.move_to_end(each)
        for _ in range(len(held) - (self._capacity or sys.maxsize)):
            held.popitem(last=False)
        self._hits += hits
        self._stored += len(missed)

    def point(self) -> LruPoint:
        return LruPoint(blocks=self._capacity, hit_blocks=self._hits, stored_blocks=self._stored)
