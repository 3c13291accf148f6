"""From each rank's latencies to the run's: one row per phase, kind and size, and the ranks' own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from wattload.core.histogram import Histogram
from wattload.core.record.latency import Latency, latencies_of


def of_rank(rows: Sequence[Latency], *, host: str, rank: int) -> list[Latency]:
    """Return a rank's rows with its host and number in them."""
    return [row.model_copy(update={"hosts": (host,), "ranks": (rank,)}) for row in rows]


def merged(by_rank: Sequence[Sequence[Latency]]) -> tuple[Latency, ...]:
    """Return the rows of a run from those of its ranks, merged exactly from their histograms.

    Where several ranks have a row for the same phase, kind and size, theirs follow the merged one,
    without buckets: what differs between ranks is seen, what merges is kept once.
    """
    groups: dict[tuple[str, str, int], list[Latency]] = {}
    for rows in by_rank:
        for row in rows:
            groups.setdefault((row.phase, row.kind, row.operation_bytes), []).append(row)
    found: list[Latency] = []
    for rows in groups.values():
        found += rows if len(rows) == 1 else [_sum(rows), *map(_slim, rows)]
    return tuple(found)


def _sum(rows: Sequence[Latency]) -> Latency:
    whole = reduce(Histogram.merged, (row.histogram() for row in rows))
    first = rows[0]
    (row,) = latencies_of(
        whole, phase=first.phase, kind=first.kind, operation_bytes=first.operation_bytes
    )
    hosts = tuple(dict.fromkeys(host for row in rows for host in row.hosts))
    ranks = tuple(rank for row in rows for rank in row.ranks)
    return row.model_copy(update={"hosts": hosts, "ranks": ranks})


def _slim(row: Latency) -> Latency:
    return row.model_copy(update={"buckets": ()})
