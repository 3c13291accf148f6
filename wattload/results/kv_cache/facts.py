"""The facts of a cache of keys and values on a drive: requests, blocks and times by phase."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from wattload.core.base_models import Frozen
from wattload.core.record.results import Latency
from wattload.results.facts import Facts, Settings, fact
from wattload.results.facts import Run as AnyRun

FILL, STEADY, RESTORE, STORE = "fill", "steady", "restore", "store"
"""The timed phases: fill until blocks are evicted, the mix of requests, and each kind alone."""

OLD_S = 10.0
"""Reuse: a block was stored at least this long before it is restored."""


class Layout(Enum):
    """How blocks are laid out in files."""

    block_file = "block_file"
    """A file for each block and rank, written under a temporary name and renamed."""
    layer = "layer"
    """A preallocated file for keys or values of each layer and rank; a block is a piece of each."""


class Arrivals(Enum):
    """When requests arrive."""

    closed = "closed"
    """Each user asks again some time after the previous request is done."""
    open = "open"
    """At the requested rate, whatever happened to earlier requests."""


class Source(Enum):
    """Where requests come from."""

    users = "users"
    trace = "trace"


class Admission(Enum):
    """Which blocks are stored."""

    all = "all"
    second_use = "second_use"
    """Those that were missed before, as far as the cache remembers: as many as it has blocks."""
    none = "none"


class KvSettings(Settings):
    """The settings of the workload that are read here."""

    model: str
    bytes_per_token: int | None
    block_tokens: int
    tp: int
    layout: Layout
    requests: Source
    request_rate: float | None
    speed: float
    memory_tier_bytes: int
    target_p99_ms: float | None
    prefill_j_per_token: float | None
    prefill_j_source: str


class Counts(Frozen):
    """What one phase did; each block counts once a request, whatever its shards and layers.

    The full blocks of the input of a request are ``memory_blocks`` (hits of the memory tier),
    ``drive_blocks`` (hits of the drive), ``pending_blocks`` (missed, as their store or that of a
    block before them was not finished) or ``missed_blocks``. Missed blocks are stored, or not:
    ``unadmitted_blocks`` were refused by the admission policy, ``no_room_blocks`` found nothing
    that may be evicted.
    """

    requests: int = fact("requests that were done", ge=0)
    cut_requests: int = fact("requests that the end of the phase cut off", ge=0)
    input_tokens: int = fact("tokens of their inputs", ge=0)
    output_tokens: int = fact("tokens of their outputs", ge=0)
    memory_blocks: int = fact("hits of the memory tier", ge=0)
    drive_blocks: int = fact("hits of the drive when requests were admitted", ge=0)
    pending_blocks: int = fact("misses of blocks whose store was not finished", ge=0)
    missed_blocks: int = fact("other misses", ge=0)
    restored_blocks: int = fact("blocks whose bytes were read from the drive and delivered", ge=0)
    old_blocks: int = fact(
        "of these, stored by another request at least 10 s before the request arrived", ge=0
    )
    stored_blocks: int = fact("blocks whose files were durable and renamed", ge=0)
    unadmitted_blocks: int = fact("misses that the admission policy did not store", ge=0)
    no_room_blocks: int = fact("misses for which no block could be evicted", ge=0)
    evicted_blocks: int = fact("blocks evicted for others", ge=0)
    full_disk_evictions: int = fact("of these, because the file system was full", ge=0)
    synced_files: int = fact("files that the loader made durable", ge=0)
    renamed_files: int = fact("files that got their final name", ge=0)
    compared_bytes: int = fact("bytes compared with what was written", "B", ge=0)
    bad_blocks: int = fact("units of 4096 bytes of these that were wrong", ge=0)


class Times(Frozen):
    """What the drive adds to the time to first token, for requests with restored blocks.

    Prefixes have ``from_tokens`` to ``below_tokens`` restored tokens, ``None`` for no limit.
    ``response`` is from the (scheduled) arrival until the last block is there, ``service`` from the
    first read that is issued; ``first_layer`` as ``response``, until the first layer is there.
    ``storing`` is about those during which stores were under way, else ``None`` for all requests.
    """

    from_tokens: int = fact("least restored tokens", ge=0)
    below_tokens: int | None = fact("restored tokens are fewer than this")
    storing: bool | None = fact("with stores under way, without, or None: all")
    response: Latency = fact("from the arrival")
    service: Latency = fact("from the first read issued")
    first_layer: Latency | None = fact("from the arrival to the first layer; None without layers")


class Loop(Frozen):
    """How requests flowed through the server in the steady phase.

    A request is in the system from its arrival until its output is decoded and its blocks are
    stored. Times are those within the phase. ``in_system_s`` adds up the number of requests in the
    system over time; ``residence_s`` and ``think_s`` are sums over the times of single requests and
    of pauses, counted apart.
    """

    users: int | None = fact("users of a closed loop; None in an open one")
    seconds: float = fact("length of the mix; the phase has its last fsync, too", "s", ge=0)
    arrived: int = fact("requests that arrived", ge=0)
    residence_s: float = fact("sum over requests, in the system", "s", ge=0)
    think_s: float = fact("sum over pauses of users; 0 in an open loop", "s", ge=0)
    in_system_s: float = fact("integral of the requests in the system", "s", ge=0)
    backlog_start: int = fact("requests in the system at its start", ge=0)
    backlog_end: int = fact("requests in the system at its end", ge=0)
    ended_early: bool = fact("whether workload.max_backlog ended the phase")
    latest_s: float = fact("longest time from a scheduled arrival to its admission", "s", ge=0)
    schedule_s: float = fact(
        "sum of the arrivals that latencies count from, since the start of the source", "s"
    )
    planned_s: float | None = fact(
        "the same sum of as many requests of a fresh source; None in a closed loop", "s"
    )


class LruPoint(Frozen):
    """What a cache of so many blocks would do with the requests of the source."""

    blocks: int | None = fact("capacity; None: infinite")
    hit_blocks: int = fact("hits of full blocks", ge=0)
    stored_blocks: int = fact("stores, at admission of all", ge=0)


class SourceReport(Frozen):
    """What the source says of its own requests, the first ``requests`` of them."""

    requests: int = fact("requests", ge=1)
    span_s: float = fact(
        "from the first arrival to the last; in a closed loop as if requests took no time", "s"
    )
    references: int = fact("full blocks of their inputs", ge=0)
    input_tokens: int = fact("tokens of their inputs", ge=0)
    most_blocks: int = fact("full blocks of the longest input", ge=0)
    lru: tuple[LruPoint, ...] = fact("by capacity, rising, the infinite one last")
    gap_p50_s: float | None = fact(
        "time between uses of a block, median; in a closed loop as if service took none", "s"
    )
    gap_p90_s: float | None = fact("90th percentile", "s")
    gap_p99_s: float | None = fact("99th percentile", "s")


class KvFacts(Facts):
    """The facts of one run."""

    settings: KvSettings = fact("of the workload", exclude=True)
    bytes_per_token: int = fact("keys and values of a token, over all ranks' distinct parts", "B")
    block_bytes: int = fact("a block over all files, without padding", "B", ge=1)
    moved_block_bytes: int = fact("a block over all files, as moved", "B", ge=1)
    pieces: int = fact("extents of a block", ge=1)
    mla: str = fact("empty, or how ranks hold the latent vector: replicated or once")
    capacity_blocks: int = fact("blocks that the drive tier holds", ge=1)
    reads_directly: bool = fact("whether reads bypass the page cache")
    counts: dict[str, Counts] = fact("by phase")
    times: tuple[Times, ...] = fact("of the steady phase; the first row is of all requests")
    hit_shares: tuple[int, ...] = fact(
        "requests by the share of their input that was hit: none, then tenths", min_length=11
    )
    loop: Loop
    source: SourceReport
    drive_ceiling_bytes_per_s: float | None = fact(
        "random reads of the same size and depth from the same files; None if not measured", "B/s"
    )
    harness_ceiling_bytes_per_s: float | None = fact(
        "the same restores alone, by the same loader without a drive", "B/s"
    )

    @property
    def by_prefix(self) -> Sequence[Times]:
        """The rows by length of the restored prefix."""
        return [each for each in self.times[1:] if each.storing is None]


Run = AnyRun[KvFacts]
