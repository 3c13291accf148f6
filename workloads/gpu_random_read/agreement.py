"""What the details of random reads say twice: each figure must be that of another part of a record.

Figures that stand nowhere else can't be compared: what the GPU pulls without a queue
(``pull_per_s``), what the queue does with nothing to deliver (``queue_per_s``), and how long a
poller worked (``busy_s``). CPU time is compared with the phase's own, of all processes of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from math import isclose
from typing import Any

from wattload.core.checks.figures import apart, unlike_buckets
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.results import NO_STORAGE, Check, Latency, amount
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.loaders.random_reads import LEAST_CLOCK_STEPS, CacheCounts, resident_fraction
from wattload.workloads.gpu_random_read.metrics import PHASE
from wattload.workloads.gpu_random_read.reads import bottleneck_of

QUEUE = "gpu_queue"
STORAGE = "storage"
CACHE_COUNTS = tuple(each.name for each in fields(CacheCounts))

_SETTINGS = (
    "block_bytes",
    "requesters",
    "queue_pairs",
    "queue_size",
    "pattern",
    "duration_s",
)
_LOADER_SETTINGS = ("engine", "requester", "table_bytes", "cache_bytes")
_PATHS = {"direct": ("o_direct", "o_direct"), "mmap": ("page_cache", "page_cache")}
"""The path that a loader without a queue requests, and its ``data_path``."""
_PERCENTILES = ("p50_s", "p99_s")
_OTHER_CPU = 0.05
"""Of the phase's CPU time so much of a CPU may be that of the rest of the run, for each process."""
_COARSE_CPU_S = 0.05
"""A process's CPU time is counted in ticks, and its phase is a little longer than its reads."""
_LEAST_CPU_SHARE = 0.5
"""The reader's own CPU time is at least this share of the phase's."""


def contradictions(record: RunRecord) -> Iterator[str]:
    """Yield in words each figure of the details that is not that of another part of the record.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: the details lack a figure, or it is not
            of its kind.
    """
    for rule in _RULES:
        yield from rule(record)


def _settings(record: RunRecord) -> Iterator[str]:
    configured, loader = record.config["workload"], record.config["loader"]
    expected: dict[str, Any] = {name: configured[name] for name in _SETTINGS}
    if record.workload.loader == QUEUE:
        expected |= {name: loader[name] or None for name in _LOADER_SETTINGS}
    else:
        expected |= {**dict.fromkeys(_LOADER_SETTINGS), "engine": STORAGE, "requester": "cpu"}
    details = record.workload.details
    yield from apart(details, expected, "by the settings")
    amplification = details["read_bytes"] / details["block_bytes"]
    yield from apart(
        details, {"read_amplification": amplification}, "by the bytes read for a block"
    )
    if record.workload.loader == QUEUE:
        asked = details["requesters"] * len(details["files"])
        yield from apart(details, {"outstanding_asked": asked}, "by the settings")


def _operations(record: RunRecord) -> Iterator[str]:
    """Compare the reads of files, GPUs and pollers with those of the phase, by process."""
    details, spans = record.workload.details, _spans(record)
    total = sum(window.operations for window in record.windows if window.name == PHASE)
    yield from apart(details, {"operations": total}, "in the phase")
    is_by_gpu = details["requester"] == "gpu"
    ranks = set(spans)
    for name in ("files", "gpus"):
        rows = details[name]
        if name == "gpus" and not is_by_gpu:
            if rows:
                yield "there are GPUs in the details, and CPU threads asked"
            continue
        if {row["rank"] for row in rows} != ranks:
            yield f"the {name} in the details are not those of the processes"
            continue
        for rank, span in spans.items():
            counted = sum(row["operations"] for row in rows if row["rank"] == rank)
            if counted != span.operations:
                yield (
                    f"the {name} of process {rank} have {counted} reads in the details and "
                    f"{span.operations} in its phase"
                )
    addresses = {row["rank"]: row["address"] for row in details["gpus"]}
    targets = [row["target"] for row in details["files"]]
    of_others = any(row["gpu"] != addresses.get(row["rank"]) for row in details["files"])
    is_dealt = all(row["rank"] == row["target"] % len(ranks) for row in details["files"])
    if of_others or not is_dealt or sorted(targets) != list(range(len(record.targets))):
        yield "the files in the details have other targets, processes or GPUs than the run"
    if is_by_gpu and sum(row["delivered"] for row in details["gpus"]) != details["delivered"]:
        yield "the blocks delivered to the GPUs are not those of the details"


def _bytes(record: RunRecord) -> Iterator[str]:
    """Compare the bytes that drives read with those of the phase."""
    details = record.workload.details
    if details["engine"] != STORAGE:
        moved = 0
    elif details["drive_bytes"] is None:
        moved = details["operations"] * details["read_bytes"]
    else:
        moved = details["drive_bytes"]
    counted = record.moved_bytes(PHASE, "read")
    if counted != moved:
        yield f"the drives read {moved} bytes by the details and {counted} by the phase"
    if (details["drive_bytes"] is not None) != (record.workload.loader == "mmap"):
        yield "drive_bytes in the details is that of another loader"
    resident = None
    for check in record.checks:
        if check.name == "page_faults":
            touched, waited = (
                round(amount(check.figures, name)) for name in ("touched_pages", "major_faults")
            )
            resident = resident_fraction(touched, waited)
    if resident is not None or details["drive_bytes"] is None:
        yield from apart(details, {"resident_fraction": resident}, "by the page faults")


def _times(record: RunRecord) -> Iterator[str]:
    """Compare seconds and CPU seconds with those of the phase."""
    details, spans = record.workload.details, _spans(record)
    windows = [window for window in record.windows if window.name == PHASE]
    whole_s = max(window.end_ns - window.start_ns for window in windows) / NS_PER_S
    yield from apart(details, {"seconds": whole_s}, "in the phase")
    for row in (*details["files"], *details["gpus"], *details["pollers"]):
        span = spans[row["rank"]]
        own_s = (span.end_ns - span.start_ns) / NS_PER_S
        if not isclose(row["seconds"], own_s):
            yield f"process {row['rank']} read for {row['seconds']} s by the details and {own_s} s"
    for row in details["pollers"]:
        if not 0 <= row["busy_s"] <= row["seconds"] * (1 + _OTHER_CPU) + _COARSE_CPU_S:
            yield f"a poller worked for {row['busy_s']} of {row['seconds']} s"
    phase_s = sum(window.cpu_s for window in windows)
    spare_s = sum(_OTHER_CPU * window.seconds * window.rank_count for window in windows)
    spare_s += _COARSE_CPU_S * len(spans)
    if not _LEAST_CPU_SHARE * phase_s - spare_s <= details["cpu_s"] <= phase_s + spare_s:
        yield f"cpu_s is {details['cpu_s']:.6g} in the details and {phase_s:.6g} in the phase"


def _queue(record: RunRecord) -> Iterator[str]:
    """Compare the counts of requests with those of pollers and of the path."""
    details, is_queue = record.workload.details, record.workload.loader == QUEUE
    if is_queue:
        answered = sum(row["answered"] for row in details["pollers"])
        yield from apart(details, {"answered": answered}, "by the pollers")
        if {row["rank"] for row in details["pollers"]} != set(_spans(record)):
            yield "the pollers in the details are not those of the processes"
    else:
        counts = ("requests", "taken", "answered", "delivered", "queue_per_s")
        yield from apart(details, dict.fromkeys(counts), "without a queue")
        if details["pollers"]:
            yield "there are pollers in the details without a queue"
    if not is_queue or details["requester"] != "gpu":
        yield from apart(details, {"pull_per_s": None}, "without a GPU")
    if details["cache_bytes"] is None:
        yield from apart(details, dict.fromkeys(CACHE_COUNTS), "without a cache")


def _path(record: RunRecord) -> Iterator[str]:
    """Compare the path and its counts with who asked, and with what was counted."""
    details, [path] = record.workload.details, record.workload.paths
    is_counted = record.workload.loader == QUEUE and details["engine"] == STORAGE
    if record.workload.loader == QUEUE:
        asked = "gpu_pull" if details["requester"] == "gpu" else "cpu_queue"
        expected = (asked, "host_memory" if is_counted else "no_storage")
    else:
        expected = _PATHS[record.workload.loader]
    if (path.path_requested, path.data_path) != expected:
        yield f"the path is {path.path_requested} ({path.data_path}) and not {expected[0]}"
    if (path.counts is not None) != is_counted:
        yield f"the path has {'counts' if path.counts else 'no counts'}"
    if path.counts is None or not is_counted:
        return
    cached = details["cache_bytes"] is not None
    own = {
        "requester": details["requester"],
        "reads": details["operations"],
        "read_bytes": details["operations"] * details["read_bytes"],
        "asked": details["misses"] + details["passed"] if cached else details["requests"],
        "taken": details["taken"],
        "answered": details["answered"],
        "delivered": details["delivered"],
        "requests": details["requests"] if cached else None,
        **{name: details[name] for name in CACHE_COUNTS},
    }
    yield from apart(path.counts.model_dump(), own, "in the details", of="the path")


def _checks(record: RunRecord) -> Iterator[str]:
    """Compare the figures of the checks with those of the details."""
    details = record.workload.details
    failed = sum(row["count"] for row in details["failures"])
    paths = {row["path"] for row in details["files"]}
    if not all(row["file"] in paths for row in details["failures"]):
        yield "reads failed of files that were not read"
    figures = {
        "delivered_bytes": {
            "engine": details["engine"],
            "requests": details["requests"],
            "delivered_blocks": details["delivered"],
            "failed_reads": failed,
            **{name: details[name] for name in ("wrong_blocks", "compared_bytes", "bad_blocks")},
        },
        "queue_counts": {
            "failed_reads": failed,
            **{name: details[name] for name in ("requests", "taken", "answered", "operations")},
            **{name: details[name] for name in CACHE_COUNTS if details["cache_bytes"] is not None},
        },
        "failed_reads": {"failed_reads": failed, "operations": details["operations"]},
        "page_faults": {"drive_bytes": details["drive_bytes"]},
    }
    for check in record.checks:
        yield from apart(
            check.figures, figures.get(check.name, {}), "in the details", of=check.name
        )
        if details["engine"] == STORAGE:
            yield from _unread(check)


def _unread(check: Check) -> Iterator[str]:
    """Find a check of storage that is stored as not made where storage was read."""
    if check.cause == NO_STORAGE:
        yield f"{check.name} says that no storage was read"
    elif check.name == "cold_cache" and check.verdict == "not_checked" and not check.mandatory:
        yield "cold_cache is not mandatory"


def _latencies(record: RunRecord) -> Iterator[str]:
    """Compare the latencies of files with those of all reads, and these with their buckets."""
    details = record.workload.details
    for each in record.latencies:
        if each.phase == PHASE and each.buckets:
            yield from unlike_buckets(each)
    has_reads = details["engine"] == STORAGE and record.workload.loader != "mmap"
    row = _longest(record, "read")
    if (row is not None) != has_reads or (row is not None and row.count != details["operations"]):
        yield "the latencies of reads are not those of all reads"
    for name in _PERCENTILES:
        found = [file[name] for file in details["files"]]
        whole = None if row is None else getattr(row, name)
        known = [value for value in found if value is not None]
        if whole is None or row is None:
            is_right = not known
        elif len(found) == 1:
            is_right = found == [whole]
        else:
            # A percentile of all is between those of its parts; a small part may have none.
            is_within = all(row.min_s <= value <= row.max_s for value in known)
            is_between = len(known) < len(found) or min(known) <= whole <= max(known)
            is_right = is_within and is_between
        if not is_right:
            yield f"{name} of the files in the details is not that of the reads' latencies"


def _limit(record: RunRecord) -> Iterator[str]:
    """Find again how many reads were in flight and what limited the rate."""
    details = record.workload.details
    step_s = details["clock_step_s"]
    if step_s is not None:
        row = _longest(record, "request")
        if details["requester"] != "gpu":
            yield "clock_step_s in the details is that of a GPU, and CPU threads asked"
        if row is not None and (row.p50_s or 0.0) < LEAST_CLOCK_STEPS * step_s:
            yield "the latencies of requests are of too few steps of the GPU's clock"
    seen = _in_flight(record)
    yield from apart(details, {"outstanding_seen": seen}, "by rate and latency")
    busy = [row["busy_s"] / row["seconds"] for row in details["pollers"]]
    word, reason = bottleneck_of(
        details["engine"],
        rate=details["operations"] / details["seconds"],
        pull_per_s=details["pull_per_s"],
        queue_per_s=details["queue_per_s"],
        busiest=max(busy, default=None),
        in_flight=details["outstanding_seen"],
        outstanding=details["outstanding_asked"],
    )
    expected = {"bottleneck": word, "bottleneck_reason": reason}
    yield from apart(details, expected, "by the figures that it follows from")


def _in_flight(record: RunRecord) -> float | None:
    """Return the reads in flight by Little's law, process by process; see ``Reads.in_flight``."""
    spans, parts = _spans(record), []
    rows = [row for row in record.latencies if (row.phase, row.kind) == (PHASE, "read")]
    for rank, span in spans.items():
        own = [row for row in rows if row.ranks == (rank,)]
        if not own:
            return None
        seconds = (span.end_ns - span.start_ns) / NS_PER_S
        parts.append(span.operations / seconds * own[0].mean_s)
    return sum(parts)


def _longest(record: RunRecord, kind: str) -> Latency | None:
    rows = [row for row in record.latencies if (row.phase, row.kind) == (PHASE, kind)]
    return max(rows, key=lambda row: row.count, default=None)


def _spans(record: RunRecord) -> Mapping[int, PhaseSpan]:
    return {span.rank: span for span in record.spans if span.name == PHASE}


_RULES: Sequence[Callable[[RunRecord], Iterator[str]]] = (
    _settings,
    _operations,
    _bytes,
    _times,
    _queue,
    _path,
    _checks,
    _latencies,
    _limit,
)
