"""The facts of a run: what its readers counted and timed, and how they were set up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from wattload.core.base_models import Frozen
from wattload.workloads.gpu_read.checks import CACHE_COUNTS
from wattload.workloads.gpu_read.reads import Reads, failure_rows, file_rows, gpu_rows, poller_rows


class ReadFacts(Frozen):
    """What reads by threads and by requesters have in common, and what either has beside it.

    Sizes are in bytes, times in seconds. ``engine`` is ``storage``, ``memory`` or ``null``,
    ``requester`` who asked through a queue or without. Rows are dictionaries: ``files`` by target,
    ``gpus`` and ``pollers`` by rank, ``failures`` by file and reason.
    """

    block_bytes: int
    read_bytes: int
    drive_bytes: int | None
    duration_s: float
    operations: int
    seconds: float
    cpu_s: float
    engine: str
    outstanding_asked: int
    compared_bytes: int
    bad_blocks: int
    wrong_blocks: int
    files: tuple[Mapping[str, Any], ...]
    failures: tuple[Mapping[str, Any], ...]
    software: Mapping[str, str]

    threads: int | None = None
    file_bytes: int | None = None
    reported_mean_latency_s: float | None = None
    reported: Mapping[str, Any] = Field(default_factory=dict)
    topology: tuple[Mapping[str, Any], ...] = ()
    must_be_direct: bool = False

    requester: str | None = None
    requesters: int | None = None
    queue_pairs: int | None = None
    queue_size: int | None = None
    pattern: str | None = None
    table_bytes: int | None = None
    cache_bytes: int | None = None
    pollers: tuple[Mapping[str, Any], ...] = ()
    gpus: tuple[Mapping[str, Any], ...] = ()
    pull_per_s: float | None = None
    queue_per_s: float | None = None
    clock_step_s: float | None = None
    requests: int | None = None
    taken: int | None = None
    answered: int | None = None
    delivered: int | None = None
    coalesced: int | None = None
    hits: int | None = None
    joined: int | None = None
    misses: int | None = None
    passed: int | None = None
    one_drive_targets: int = 0


def shared_facts(reads: Reads) -> dict[str, Any]:
    """Return the facts that follow from what the ranks counted."""
    counts = reads.counts
    facts = {
        "block_bytes": reads.block_bytes,
        "drive_bytes": reads.total("drive_bytes"),
        "operations": reads.operations,
        "seconds": reads.seconds,
        "cpu_s": reads.cpu_s,
        "engine": reads.engine,
        "outstanding_asked": reads.in_flight,
        "compared_bytes": reads.total("compared_bytes") or 0,
        "bad_blocks": reads.total("bad_blocks") or 0,
        "wrong_blocks": reads.total("wrong_blocks") or 0,
        "files": tuple(file_rows(reads)),
        "failures": tuple(failure_rows(reads)),
        "pollers": tuple(poller_rows(reads)),
        "gpus": tuple(gpu_rows(reads)),
        "pull_per_s": reads.ceiling("pull_per_s"),
        "queue_per_s": reads.ceiling("queue_per_s"),
        "clock_step_s": reads.clock_step_s,
        "software": dict(reads.results[0].software),
        "reported_mean_latency_s": reads.results[0].mean_latency_s,
        "reported": dict(reads.results[0].reported),
    }
    if counts is not None and reads.has_queue:
        names = ("taken", "answered", "delivered", *(CACHE_COUNTS if reads.has_cache else ()))
        facts |= {"requests": reads.requests, **{name: getattr(counts, name) for name in names}}
    return facts


def derived(reads: Reads, read_bytes: int) -> dict[str, Any]:
    """Return the figures that pages take from the details although they follow from facts."""
    bottleneck, reason = reads.bottleneck()
    return {
        "read_amplification": read_bytes / reads.block_bytes,
        "resident_fraction": reads.resident_fraction,
        "outstanding_seen": reads.in_flight_seen,
        "bottleneck": bottleneck,
        "bottleneck_reason": reason,
        "failed_reads": reads.failed,
    }
