"""Random reads as recorded: who asked, what was read, what limited them, by target and GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from wattload.core.record.run import RunRecord
from wattload.core.units import GIB, Unit
from wattload.reports.runs.details import count_of, figure_of, rows_of, share_of
from wattload.reports.runs.gpu_reads import failure_reasons, path_words
from wattload.results.identity_cache import cache_by_identity
from wattload.results.quantity import (
    UNIT_SPACE,
    block_text,
    counted,
    listed,
    number,
    percent,
    percentages,
    quantity,
    whole,
)

RANDOM_READ = "gpu_random_read"
"""The name of the workload and of its only timed phase."""
READS_PER_S, CPU_PER_MILLION = "reads_per_s", "cpu_s_per_million_reads"
STORAGE, MEMORY, NULL = "storage", "memory", "null"
NOTHING_READ, NOT_PROVED = "no storage was read", "path not proved"
CACHED = "a cache in the GPU's memory saved reads"
PAGE_CACHE = "page_cache"
"""The requested path of reads of mapped files."""
PAGE_CACHE_MOST = 0.05
"""Reads of which the page cache served a larger share do not measure the path to a drive."""

_AT_CEILING = 0.995
"""A share of a ceiling that is 1.0 or more with the digits printed."""
_ENGINES: Mapping[str, str] = {
    NULL: f"{NOTHING_READ}: requests were answered at once",
    MEMORY: f"{NOTHING_READ}: blocks came from a table in host memory",
}
_UNQUEUED: Mapping[str, str] = {
    "o_direct": "asked by CPU threads, delivered in host memory",
    PAGE_CACHE: "page faults of CPU threads, delivered in host memory",
}
"""Who asks where there is no queue, by what the loader requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReads:
    """The reads of one target; ``path`` is the target's."""

    rank: int
    path: str
    gpu: str
    operations: float
    seconds: float
    p50_s: float | None
    p99_s: float | None

    @property
    def reads_per_s(self) -> float | None:
        return _divided(self.operations, self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReads:
    """The reads that one GPU asked for; ``address`` is its PCI address.

    ``delivered`` are the blocks that it got, those of its cache included.
    """

    rank: int
    address: str
    name: str
    node: int | None
    operations: float
    delivered: float
    seconds: float

    @property
    def reads_per_s(self) -> float | None:
        return _divided(self.operations, self.seconds)

    @property
    def deliveries_per_s(self) -> float | None:
        return _divided(self.delivered, self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedRequests:
    """What became of requests at a cache of ``cache_bytes`` in the memory of each GPU.

    Of all ``requests``, ``hits`` found their block in it. Those ``joined`` or ``coalesced`` shared
    the read of another request. Only the ``asked`` went to the drives.
    """

    cache_bytes: int
    requests: int
    hits: int
    joined: int
    coalesced: int
    asked: int
    delivered: int

    @property
    def hit_rate(self) -> float | None:
        """The share of the requests whose block was in the cache."""
        return _divided(self.hits, self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class PollerReads:
    """The reads that one poller answered, and how long it was at work."""

    rank: int
    answered: float
    busy_s: float | None
    seconds: float

    @property
    def reads_per_s(self) -> float | None:
        return _divided(self.answered, self.seconds)

    @property
    def busy(self) -> float | None:
        """The share of the time in which the poller was at work."""
        return _divided(self.busy_s, self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomReads:
    """What a run of random reads did.

    ``engine`` is ``storage``, or what answered in its place. ``cores`` are CPU seconds ÷ seconds:
    the cores that the reader kept at work. ``pull_per_s`` and ``queue_per_s`` are what the GPU
    pulls without a queue, and the queue does with nothing to deliver. ``operations`` are reads:
    with a ``cache``, fewer than the requests. ``outstanding_seen`` is the rate x the latency of the
    pollers: requests at pollers and drives. ``resident_fraction`` is the share of the pages that
    the page cache served; ``None`` for other paths. ``table_bytes`` is the size of the table that
    answers requests of the engine ``memory``. ``drive_count`` is the number of physical drives
    below the targets, and ``shared_drive_targets`` that of targets which share one. Counts are 0
    where the record has none.
    """

    block_bytes: int
    read_bytes: int
    queue_pairs: int
    queue_size: int
    requesters: int
    pattern: str
    engine: str
    requester: str
    operations: float
    seconds: float
    cpu_s: float | None
    pull_per_s: float | None
    queue_per_s: float | None
    outstanding_asked: int
    outstanding_seen: float | None
    resident_fraction: float | None
    table_bytes: int
    pollers: tuple[PollerReads, ...]
    bottleneck: str
    bottleneck_reason: str
    counts: Mapping[str, int]
    failures: Mapping[str, int]
    target_count: int
    drive_count: int
    shared_drive_targets: int
    files: tuple[TargetReads, ...]
    gpus: tuple[GpuReads, ...]
    cache: CachedRequests | None = None

    @property
    def reads_storage(self) -> bool:
        return self.engine == STORAGE

    @property
    def reads_per_s(self) -> float | None:
        """Reads in a second, over all targets: all blocks delivered, but for those of a cache."""
        return _divided(self.operations, self.seconds)

    @property
    def delivered_bytes_per_s(self) -> float | None:
        """Bytes delivered in a second; ``None`` where requests are answered without a block."""
        rate = self.deliveries_per_s
        return None if rate is None or self.engine == NULL else rate * self.block_bytes

    @property
    def deliveries_per_s(self) -> float | None:
        """Blocks delivered in a second: those read, and those that a cache had."""
        return (
            self.reads_per_s if self.cache is None else _divided(self.cache.delivered, self.seconds)
        )

    @property
    def cores(self) -> float | None:
        return None if self.cpu_s is None else _divided(self.cpu_s, self.seconds)

    @property
    def busiest(self) -> float | None:
        """The largest share of the time that a poller was at work."""
        return max((each.busy for each in self.pollers if each.busy is not None), default=None)

    @property
    def is_of_page_cache(self) -> bool:
        """Whether the page cache served more than a small share of the reads."""
        return self.resident_fraction is not None and self.resident_fraction > PAGE_CACHE_MOST

    @property
    def is_from_drives(self) -> bool:
        """Whether drives were read, and neither an engine nor the page cache took their place."""
        return self.reads_storage and not self.is_of_page_cache

    @property
    def has_shared_drive(self) -> bool:
        """Whether targets share a drive, so that they do not count as drives."""
        return self.shared_drive_targets > 1

    @property
    def drives_words(self) -> str:
        """Targets and drives where some share one: ``2 targets on 1 drive``; empty otherwise."""
        if not self.has_shared_drive:
            return ""
        return f"{counted(self.target_count, 'target')} on {counted(self.drive_count, 'drive')}"

    @property
    def amplification(self) -> float:
        return self.read_bytes / self.block_bytes if self.block_bytes and self.read_bytes else 1.0

    @property
    def load(self) -> Mapping[str, str]:
        """The load in a few words, by what they are about: ``512 B random reads`` of ``block``."""
        found = {"block": f"{block_text(self.block_bytes)} random reads"}
        if self.pattern and self.pattern != "uniform":
            found["pattern"] = self.pattern
        has_other_depth = self.outstanding_asked != self.requesters * len(self.files)
        if not self.counts and self.outstanding_asked and has_other_depth:
            found["in flight"] = f"{whole(self.outstanding_asked)} in flight"  # threads of mmap
        elif self.requesters:
            found["in flight"] = f"{whole(self.requesters)} in flight per target"
        if self.queue_pairs and self.counts:  # loaders without a queue have the settings too
            pairs = counted(self.queue_pairs, "queue pair")
            found["queue"] = f"{pairs} of {whole(self.queue_size)}"
        if self.amplification > 1:
            found["read"] = f"{number(self.amplification, 2)} bytes read for each delivered"
        return found


@cache_by_identity
def random_reads(record: RunRecord) -> RandomReads | None:
    """Return what a run of random reads did; ``None`` for another workload or without a block."""
    found = record.workload.details
    block_bytes = count_of(found.get("block_bytes"))
    if record.workload.name != RANDOM_READ or not block_bytes:
        return None
    names = {"requests": "asked", "taken": "taken", "answered": "answered"}
    counts = {
        words: count_of(found[name])
        for name, words in names.items()
        if isinstance(found.get(name), int)
    }
    cache = _cache(found)
    if cache is not None:
        counts["asked"] = cache.asked
    if counts and cache is not None:
        counts["read"] = count_of(found.get("operations"))
    elif counts and found.get("engine") != NULL:  # which delivers nothing
        counts["delivered"] = count_of(found.get("delivered"))
    targets = {target.facts.index: target.facts.path for target in record.targets}
    return RandomReads(
        block_bytes=block_bytes,
        read_bytes=count_of(found.get("read_bytes")),
        queue_pairs=count_of(found.get("queue_pairs")),
        queue_size=count_of(found.get("queue_size")),
        requesters=count_of(found.get("requesters")),
        pattern=str(found.get("pattern") or ""),
        engine=str(found.get("engine") or STORAGE),
        requester=str(found.get("requester") or ""),
        operations=figure_of(found.get("operations")) or 0.0,
        seconds=figure_of(found.get("seconds")) or 0.0,
        cpu_s=figure_of(found.get("cpu_s")),
        pull_per_s=figure_of(found.get("pull_per_s")),
        queue_per_s=figure_of(found.get("queue_per_s")),
        outstanding_asked=count_of(found.get("outstanding_asked")),
        outstanding_seen=figure_of(found.get("outstanding_seen")),
        resident_fraction=share_of(found.get("resident_fraction")),
        table_bytes=count_of(found.get("table_bytes")),
        pollers=tuple(map(_poller, rows_of(found.get("pollers")))),
        bottleneck=str(found.get("bottleneck") or ""),
        bottleneck_reason=str(found.get("bottleneck_reason") or ""),
        counts=counts,
        failures=failure_reasons(record),
        target_count=len(record.targets),
        drive_count=_drive_count(record),
        shared_drive_targets=count_of(found.get("one_drive_targets")),
        files=tuple(_file(each, targets) for each in rows_of(found.get("files"))),
        gpus=tuple(_gpu(each, is_cached=cache is not None) for each in rows_of(found.get("gpus"))),
        cache=cache,
    )


def reads_storage(record: RunRecord) -> bool:
    """Return whether a run read storage: random reads may be answered without any."""
    found = random_reads(record)
    return found is None or found.reads_storage


def cache_bytes_of(record: RunRecord) -> int:
    """Return the size of the cache that saved random reads; 0 without one."""
    found = random_reads(record)
    return found.cache.cache_bytes if found is not None and found.cache is not None else 0


def is_through_page_cache(record: RunRecord) -> bool:
    """Return whether the random reads of a run went through the page cache, and not O_DIRECT."""
    paths = record.workload.paths
    is_of_reads = random_reads(record) is not None
    return is_of_reads and any(path.path_requested == PAGE_CACHE for path in paths)


def is_of_page_cache(record: RunRecord) -> bool:
    """Return whether the page cache served more than a small share of a run's random reads."""
    found = random_reads(record)
    return found is not None and found.is_of_page_cache


def page_cache_words(records: Sequence[RunRecord]) -> str:
    """Return what share of the reads the page cache served, in the median; empty if unknown.

    For example ``the page cache served over 99.9 % of the pages``.
    """
    reads = [random_reads(record) for record in records]
    share = _median(each.resident_fraction for each in reads if each is not None)
    return "" if share is None else f"the page cache served {percentages(share)} of the pages"


def is_asked_by_gpu(record: RunRecord) -> bool:
    """Return whether counts prove that a GPU asked for every read of storage."""
    paths = record.workload.paths
    is_proved = bool(paths) and all(path.path_effective == "gpu_pull" for path in paths)
    return random_reads(record) is not None and reads_storage(record) and is_proved


def operations_of(record: RunRecord, phase: str) -> int | None:
    """Return the random reads of a phase, whose energy per read is of interest; else ``None``."""
    if record.workload.name != RANDOM_READ or phase != RANDOM_READ or not reads_storage(record):
        return None
    return sum(window.operations for window in record.windows if window.name == phase) or None


def asked_words(record: RunRecord) -> str:
    """Return who asked and where the bytes passed, or that nothing was read; empty if unknown.

    A GPU is named only beside a path that counts prove.
    """
    found = random_reads(record)
    if found is None:
        return ""
    if not found.reads_storage:
        words = _ENGINES.get(found.engine, f"{NOTHING_READ}: engine {found.engine}")
        is_table = found.engine == MEMORY and found.table_bytes
        return f"{words}, {quantity(found.table_bytes, Unit.BYTES, 3)}" if is_table else words
    asked = [
        path_words(path) if path.counts is not None else _UNQUEUED.get(path.path_requested, "")
        for path in record.workload.paths
    ]
    return listed([*dict.fromkeys(filter(None, asked))]) or NOT_PROVED


def load_words(shown: Sequence[RunRecord], every: Sequence[RunRecord]) -> str:
    """Return the load of the runs shown: ``512 B random reads, 512 in flight per target``.

    What differs between them is left out. Targets that share a drive in any of ``every`` run are
    named too.
    """
    texts: dict[str, dict[str, None]] = {}
    for found in filter(None, map(random_reads, shown)):
        for name, words in found.load.items():
            texts.setdefault(name, {})[words] = None
    parts = [next(iter(own)) for own in texts.values() if len(own) == 1]
    return ", ".join([*parts, *drives_words(every)])


def drives_words(records: Sequence[RunRecord]) -> list[str]:
    """Return the targets and drives of runs whose targets share one: ``2 targets on 1 drive``."""
    found = filter(None, map(random_reads, records))
    return list(dict.fromkeys(each.drives_words for each in found if each.has_shared_drive))


def counts_words(found: Sequence[RandomReads]) -> str:
    """Return the counts of runs, summed, that have to be equal; empty without a queue.

    For example ``asked, taken, answered and delivered: 1,000 each``.
    """
    sums: dict[str, int] = {}
    for each in found:
        for name, count in each.counts.items():
            sums[name] = sums.get(name, 0) + count
    if len(set(sums.values())) == 1:
        return f"{listed(list(sums))}: {whole(next(iter(sums.values())))} each"
    return ", ".join(f"{name} {whole(count)}" for name, count in sums.items())


def cache_words(found: RandomReads) -> str:
    """Return the hit rate of a run's cache and what else it did; empty without a cache.

    For example ``51 % of 12,000,000 requests hit in 16.8 MB of the GPU, 1.2 % joined, 0.31 %
    coalesced: 1.20 M/s delivered``.
    """
    cache = found.cache
    if cache is None or not cache.requests:
        return ""
    size = quantity(cache.cache_bytes, Unit.BYTES, 3)
    rate = quantity(found.deliveries_per_s, Unit.SAMPLES_PER_SECOND, 3)
    return (
        f"{percent(cache.hit_rate)} of {counted(cache.requests, 'request')} hit in {size} of the "
        f"GPU, {percent(cache.joined / cache.requests, 2)} joined, "
        f"{percent(cache.coalesced / cache.requests, 2)} coalesced: {rate} delivered"
    )


def cores_words(records: Sequence[RunRecord]) -> str:
    """Return how many CPU cores the reader kept at work, in the median: ``2.1 CPU cores``."""
    known = [cores for record in records if (cores := _cores(record)) is not None]
    if not known:
        return ""
    shown = number(median(known), 2)
    return f"{shown}{UNIT_SPACE}CPU core{'' if shown == '1.0' else 's'}"


def arms_asked(arms: Mapping[str, Sequence[RunRecord]]) -> str:
    """Return who asked in each arm, with the cores of each: ``A: asked by the GPU ...; B: ...``.

    Of reads through the page cache it says which share that served.
    """
    texts = []
    for name, records in arms.items():
        words = listed([*dict.fromkeys(filter(None, map(asked_words, records)))])
        text = ", ".join(filter(None, (words, page_cache_words(records), cores_words(records))))
        if text:
            texts.append(f"{name}: {text}" if len(arms) > 1 else text)
    return " · ".join(texts)


def bottleneck_words(records: Sequence[RunRecord]) -> str:
    """Return what limited runs, with the figure that shows it; empty without such a finding.

    For example ``the GPU's link, 0.97 of its pull ceiling``.
    """
    found = [each for record in records if (each := random_reads(record)) is not None]
    words = {each.bottleneck for each in found}
    if len(words) != 1 or not words & {"link", "pollers", "queue", STORAGE}:
        return ""
    word = words.pop()
    if word == STORAGE and not all(each.is_from_drives for each in found):
        return ""
    shares = {
        "link": _median(_divided(each.reads_per_s, each.pull_per_s) for each in found),
        "queue": _median(_divided(each.reads_per_s, each.queue_per_s) for each in found),
        "pollers": _median(each.busiest for each in found),
    }
    share = shares.get(word)
    if word == "link":
        name = "the links of the GPUs" if any(len(e.gpus) > 1 for e in found) else "the GPU's link"
        of = "their" if name.startswith("the links") else "its"
        return f"{name}, {_of_ceiling(share, of, 'pull ceiling')}" if share else name
    if word == "queue":
        return f"the queue, {_of_ceiling(share, 'its', 'ceiling')}" if share else "the queue"
    busy = shares["pollers"]
    if word == "pollers":
        return f"the pollers, {percent(busy, 2)} busy" if busy else "the pollers"
    rest = [f"link at {number(shares['link'], 2)} of its ceiling"] if shares["link"] else []
    rest += [f"pollers {percent(busy, 2)} busy"] if busy is not None else []
    return f"storage: {', '.join(rest)}" if rest else STORAGE


def _of_ceiling(share: float, of: str, ceiling: str) -> str:
    """Return a rate as a part of its ceiling, which may have been measured too low."""
    if share < _AT_CEILING:
        return f"{number(share, 2)} of {of} {ceiling}"
    return f"at {of} measured {ceiling}"


def no_bottleneck(records: Sequence[RunRecord]) -> str:
    """Return why random reads do not name what limited them; empty for other workloads."""
    found = [each for record in records if (each := random_reads(record)) is not None]
    if any(map(is_of_page_cache, records)):
        return page_cache_words(records)
    reasons = [each.bottleneck_reason for each in found if not each.bottleneck]
    return next(filter(None, reasons), "the runs name no common limit") if found else ""


def headroom(record: RunRecord) -> list[float]:
    """Return how far the pull without a queue, and the queue alone, are above a run's reads."""
    found = random_reads(record)
    if found is None:
        return []
    ceilings = (found.pull_per_s, found.queue_per_s)
    factors = (_divided(ceiling, found.reads_per_s) for ceiling in ceilings)
    return [factor for factor in factors if factor is not None]


def both_rates(bytes_per_s: float | None) -> str:
    """Return a rate in GB/s and GiB/s, as papers print either: ``49.2 GB/s (45.8 GiB/s)``."""
    if bytes_per_s is None:
        return quantity(None, Unit.BYTES_PER_SECOND)
    shown = quantity(bytes_per_s, Unit.BYTES_PER_SECOND, 3)
    return f"{shown} ({number(bytes_per_s / GIB, 3)}{UNIT_SPACE}GiB/s)"


def generation(speed_gt_per_s: float | None) -> str:
    """Return the PCIe generation of a link's speed: ``Gen5`` for 32 GT/s; empty if unknown."""
    speeds = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
    found = speeds.get(speed_gt_per_s or 0.0)
    return f"Gen{found}" if found else ""


def _cores(record: RunRecord) -> float | None:
    found = random_reads(record)
    return found.cores if found is not None else None


def _median(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _cache(found: Mapping[str, Any]) -> CachedRequests | None:
    cache_bytes = count_of(found.get("cache_bytes"))
    if not cache_bytes:
        return None
    return CachedRequests(
        cache_bytes=cache_bytes,
        requests=count_of(found.get("requests")),
        hits=count_of(found.get("hits")),
        joined=count_of(found.get("joined")),
        coalesced=count_of(found.get("coalesced")),
        asked=count_of(found.get("misses")) + count_of(found.get("passed")),
        delivered=count_of(found.get("delivered")),
    )


def _poller(row: Mapping[str, Any]) -> PollerReads:
    return PollerReads(
        rank=count_of(row.get("rank")),
        answered=figure_of(row.get("answered")) or 0.0,
        busy_s=figure_of(row.get("busy_s")),
        seconds=figure_of(row.get("seconds")) or 0.0,
    )


def _drive_count(record: RunRecord) -> int:
    """Return the number of physical drives below the targets; one of unknown ones for each."""
    drives = {
        (facts.host, name)
        for facts in (target.facts for target in record.targets)
        for name in facts.controllers or facts.devices or (f"target {facts.index}",)
    }
    return len(drives)


def _file(row: Mapping[str, Any], targets: Mapping[int, str | None]) -> TargetReads:
    index = count_of(row.get("target"))
    return TargetReads(
        rank=count_of(row.get("rank")),
        path=targets.get(index) or str(row.get("path") or f"target {index}"),
        gpu=str(row.get("gpu") or ""),
        operations=figure_of(row.get("operations")) or 0.0,
        seconds=figure_of(row.get("seconds")) or 0.0,
        p50_s=figure_of(row.get("p50_s")),
        p99_s=figure_of(row.get("p99_s")),
    )


def _gpu(row: Mapping[str, Any], *, is_cached: bool) -> GpuReads:
    node = row.get("node")
    operations = figure_of(row.get("operations")) or 0.0
    return GpuReads(
        rank=count_of(row.get("rank")),
        address=str(row.get("address") or "unknown"),
        name=str(row.get("name") or "GPU"),
        node=node if isinstance(node, int) and node >= 0 else None,
        operations=operations,
        delivered=(figure_of(row.get("delivered")) or 0.0) if is_cached else operations,
        seconds=figure_of(row.get("seconds")) or 0.0,
    )


def _divided(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
