"""Counts and times of a phase, while it lasts."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import partial

import numpy as np

from wattload.core.histogram import Histogram
from wattload.core.record.results import latencies_of
from wattload.core.units import NS_PER_S
from wattload.results.kv_cache.facts import STEADY, Counts, Loop, Times

PREFIX_ENDS = (1024, 4096, 16384, 65536)
"""Restored tokens at which the rows of times by prefix begin."""
HIT_BINS = 11
_KEPT = 4096


@dataclass(slots=True)
class Tally:
    """The counts of ``Counts``, as they grow."""

    requests: int = 0
    cut_requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    memory_blocks: int = 0
    drive_blocks: int = 0
    pending_blocks: int = 0
    missed_blocks: int = 0
    restored_blocks: int = 0
    old_blocks: int = 0
    stored_blocks: int = 0
    unadmitted_blocks: int = 0
    no_room_blocks: int = 0
    evicted_blocks: int = 0
    full_disk_evictions: int = 0
    synced_files: int = 0
    renamed_files: int = 0
    compared_bytes: int = 0
    bad_blocks: int = 0
    hit_shares: list[int] = field(default_factory=lambda: [0] * HIT_BINS)

    def counts(self) -> Counts:
        return Counts(**{name: getattr(self, name) for name in Counts.model_fields})

    def hit(self, hits: int, blocks: int) -> None:
        """Count a request by the share of its blocks that were hits: none, then tenths."""
        self.hit_shares[-(-10 * hits // blocks) if blocks else 0] += 1


@dataclass(slots=True)
class LoopTally:
    """The times of ``Loop``. ``first`` is the number of its first request in the source."""

    start_s: float
    first: int = 0
    arrived: int = 0
    residence_s: float = 0.0
    think_s: float = 0.0
    in_system_s: float = 0.0
    latest_s: float = 0.0
    schedule_s: float = 0.0
    backlog_start: int = 0
    in_system: int = 0
    changed_s: float = 0.0
    ended_early: bool = False

    def change(self, time_s: float, by: int) -> None:
        """Add to the requests in the system, and to the integral until now."""
        self.in_system_s += self.in_system * (time_s - self.changed_s)
        self.in_system, self.changed_s = self.in_system + by, time_s

    def since_start_s(self, start_s: float, end_s: float) -> float:
        """Return how much of an interval that ends in the phase is within it."""
        return max(end_s - max(start_s, self.start_s), 0.0)

    def loop(self, users: int | None, planned_s: float | None) -> Loop:
        own = {each.name for each in fields(self)} & Loop.model_fields.keys()
        return Loop(
            users=users,
            planned_s=planned_s,
            seconds=self.changed_s - self.start_s,
            backlog_end=self.in_system,
            **{name: getattr(self, name) for name in own},
        )


class _Values:
    """Latencies in ns of one row and one column."""

    def __init__(self) -> None:
        self._kept = array("q")
        self._histogram = Histogram.of(())

    def add(self, seconds: float) -> None:
        self._kept.append(max(round(seconds * NS_PER_S), 0))
        if len(self._kept) == _KEPT:
            self._merge()

    def histogram(self) -> Histogram:
        self._merge()
        return self._histogram

    def _merge(self) -> None:
        self._histogram = self._histogram.merged(Histogram.of(self._kept))
        del self._kept[:]


Row = tuple[int, bool | None]
"""The bucket of the prefix, -1 for all, and whether stores were under way, ``None`` for both."""


class TimesTally:
    """Response, service, and the first layer of requests with restored blocks."""

    def __init__(self) -> None:
        self._rows: dict[Row, tuple[_Values, _Values, _Values]] = {}

    def add(
        self,
        tokens: int,
        *,
        response_s: float,
        service_s: float,
        first_layer_s: float | None,
        storing: bool,
    ) -> None:
        bucket = int(np.searchsorted(PREFIX_ENDS, tokens, side="right"))
        for row in ((-1, None), (-1, storing), (bucket, None)):
            values = self._rows.setdefault(row, (_Values(), _Values(), _Values()))
            values[0].add(response_s)
            values[1].add(service_s)
            if first_layer_s is not None:
                values[2].add(first_layer_s)

    def times(self, operation_bytes: int) -> Iterator[Times]:
        """Yield a row of all requests, then with and without stores, then by prefix."""
        ends = (0, *PREFIX_ENDS, None)
        of = partial(latencies_of, phase=STEADY, kind="request", operation_bytes=operation_bytes)
        for row in sorted(self._rows, key=lambda row: (row[0], row[1] is not None, row[1])):
            bucket, storing = row
            (response,), (service,), layer = (of(each.histogram()) for each in self._rows[row])
            yield Times(
                from_tokens=0 if bucket < 0 else ends[bucket] or 0,
                below_tokens=None if bucket < 0 else ends[bucket + 1],
                storing=storing,
                response=response,
                service=service,
                first_layer=layer[0] if layer else None,
            )
