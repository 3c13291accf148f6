"""The process of the queue, from the side of the run; see ``loaders/gpu/process.py``."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattload.core.errors import ConfigError, MissingExtraError, RunError
from wattload.core.histogram import BUCKET_COUNT, Histogram, lower_end_ns, upper_end_ns
from wattload.core.io import TRACE_DTYPE, DataPath, PathCounts
from wattload.core.sysfs import LIVE, Roots
from wattload.loaders.gpu.process import (
    PREPARE_S,
    Child,
    allowed_cpus,
    driver_versions,
    environment_of,
    follow,
    native_error,
)
from wattload.loaders.gpu_queue.failures import failure_reason, lost_error, preparation_error
from wattload.loaders.gpu_reads import ReadsWatch
from wattload.loaders.random_reads import (
    LEAST_CLOCK_STEPS,
    CacheCounts,
    PollerShare,
    RandomReadPlan,
    RandomReadResult,
    ReadFailure,
)

MODULE = "wattload.loaders.gpu_queue"
NAME = "the process of the queue"
CEILING_S = 0.3
"""How long each ceiling is measured before the timed reads."""
HANG_S = 10.0
"""Without any answer for so long, a drive or a poller hangs."""
SAMPLE_EVERY = 64
"""One request in so many is timed until its block is delivered."""
TRACE_EVERY = 1024
PROBE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSetup:
    """How a queue is run; ``fault`` is what its pollers do wrong in tests (``native.FAULTS``)."""

    engine: str
    pollers: int
    requester_threads: int
    table_bytes: int
    cache_bytes: int = 0
    fault: str = "none"
    hang_s: float = HANG_S


def specification(plan: RandomReadPlan, setup: QueueSetup, roots: Roots = LIVE) -> dict[str, Any]:
    """Return what the process is asked to do; see ``native.Queue``."""
    return {
        "gpu": plan.gpu,
        "targets": [
            {
                "path": str(file.path),
                "size_bytes": file.size_bytes,
                "nonce": file.stamps.nonce,
                "word": file.stamps.word,
                "first_block": file.stamps.first_block,
            }
            for file in plan.files
        ],
        "setup": {
            "engine": setup.engine,
            "block_bytes": plan.block_bytes,
            "read_bytes": max(file.read_bytes for file in plan.files),
            "requesters": plan.requesters,
            "queue_pairs": plan.queue_pairs,
            "queue_size": plan.queue_size,
            "pollers": setup.pollers,
            "pattern": plan.pattern.value,
            "requester_threads": setup.requester_threads,
            "sample_every": SAMPLE_EVERY,
            "trace_every": TRACE_EVERY,
            "fault": setup.fault,
            "hang_s": setup.hang_s,
            "table_bytes": setup.table_bytes,
            "cache_bytes": setup.cache_bytes,
            "duration_s": plan.duration_s,
            "ceiling_s": CEILING_S,
            "seed": plan.seed,
            "cpus": allowed_cpus(plan.node, roots),
        },
    }


def probe(plan: RandomReadPlan, setup: QueueSetup) -> None:
    """Compile the kernels for the GPU of a plan, and find room for a cache, in its own process.

    Raises:
        ConfigError: CUDA does not show the GPU, the driver is too old, or the GPU's memory is too
            small for the cache.
        MissingExtraError: the compiler of CUDA's runtime is not installed.
        RunError: the process ended, or did not answer.
    """
    request = {"probe": specification(plan, setup)}
    child = Child(request, environment_of(), module=MODULE, name=NAME)
    try:
        message = child.receive(PROBE_S)
    finally:
        child.close()
    _require_ready(message, {}, PROBE_S)


def _require_ready(
    message: Mapping[str, Any] | None, planned: Mapping[str, int], waited_s: float
) -> None:
    """Raise unless the process has answered that it is ready."""
    if message is None:
        raise RunError(
            f"{NAME} was not ready in {waited_s:.0f} s; check the GPU with nvidia-smi and the "
            "kernel log"
        )
    if "missing" in message:
        raise MissingExtraError(message["missing"])
    if "refused" in message:
        raise ConfigError(message["refused"])
    if "error" in message:
        raise preparation_error(native_error(message["error"]), planned)


class QueueReader:
    """The queue in a process of its own; implements ``RandomReader``."""

    def __init__(self, plan: RandomReadPlan, setup: QueueSetup) -> None:
        """Start the process, and let it open and register everything.

        Raises:
            ConfigError: the GPU or the kernel refuses.
            MissingExtraError: the compiler of CUDA's runtime is not installed.
            OSError: a file can't be opened.
            RunError: the process ended, or did not answer.
            TargetError: a file is shorter than planned, or its file system has no O_DIRECT.
        """
        self._plan, self._setup = plan, setup
        self._counts: PathCounts | None = None
        self._spec = specification(plan, setup)
        self._child = Child(self._spec, environment_of(), module=MODULE, name=NAME)
        try:
            message = self._child.receive(PREPARE_S)
            planned = {str(file.path): file.size_bytes for file in plan.files}
            _require_ready(message, planned, PREPARE_S)
            assert message is not None
            self._software = dict(message["ready"]["software"])
        except BaseException:
            self._child.close()
            raise
        if plan.gpu is not None:
            self._software |= driver_versions()

    def path(self) -> DataPath:
        """Return the path; after ``run`` with the counts that prove it, if storage was read."""
        plan, setup = self._plan, self._setup
        threads = _counted(setup.requester_threads, "CPU thread")
        who = f"GPU {plan.gpu}" if plan.gpu else threads
        if setup.cache_bytes:
            who += f" with a cache of {setup.cache_bytes} bytes"
        pollers = _counted(setup.pollers, "poller")
        source = {
            "storage": f"{pollers} with io_uring and O_DIRECT",
            "memory": f"{pollers}, blocks of a table of {setup.table_bytes} bytes",
            "null": f"{pollers}, nothing delivered",
        }
        return DataPath(
            data_path="host_memory" if setup.engine == "storage" else "no_storage",
            path_requested="gpu_pull" if plan.gpu else "cpu_queue",
            engine=f"{plan.outstanding} requests in flight by {who}, {source[setup.engine]}",
            counts=self._counts,
            remarks=tuple(self._remarks()),
        )

    def _remarks(self) -> Iterator[str]:
        asking = 0 if self._plan.gpu else self._setup.requester_threads
        spinning = self._setup.pollers + asking
        cpu_count = len(self._spec["setup"]["cpus"] or os.sched_getaffinity(0))
        if spinning > cpu_count:
            yield (
                f"{spinning} threads spin on {_counted(cpu_count, 'CPU')}: rates and ceilings are "
                "those of threads that wait for a CPU. Use fewer loader.pollers or "
                "loader.requester_threads, or more CPUs."
            )
        if self._plan.gpu is None:
            yield ("Requests came from threads of the CPU (loader.requester=cpu), not of a GPU.")
        if self._setup.engine != "storage":
            yield (
                f"No storage was read (loader.engine={self._setup.engine}): rates are those of "
                "the queue and the link, not of a drive."
            )

    def run(self, watch: ReadsWatch) -> RandomReadResult:
        """Make requests for the planned time; see ``RandomReader.run``."""
        self._child.send("go")
        hang_s = self._setup.hang_s
        figures = follow(self._child, watch, lost=lambda error: lost_error(error, hang_s))
        self._child.close()
        if self._setup.engine == "storage":
            cache = figures["cache"]
            self._counts = PathCounts(
                requester="gpu" if self._plan.gpu else "cpu",
                reads=figures["operations"],
                read_bytes=figures["bytes"],
                asked=figures["asked"],
                taken=figures["taken"],
                answered=figures["answered"],
                delivered=figures["delivered"],
                requests=figures["requests"] if cache else None,
                **cache or {},
            )
        return _result(figures, self._spec["setup"]["engine"], self._software)

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._child.close()


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _result(
    figures: Mapping[str, Any], engine: str, software: Mapping[str, str]
) -> RandomReadResult:
    targets = figures["targets"]
    step_ns = figures["clock_step_ns"] or None
    latency, missing = _sampled(_counts(figures["latencies"]), step_ns)
    rows = base64.b64decode(figures["trace"])
    first = figures["first_wrong"]
    return RandomReadResult(
        operations=figures["operations"],
        file_operations=tuple(each["operations"] for each in targets),
        start_ns=figures["start_ns"],
        end_ns=figures["end_ns"],
        cpu_s=figures["cpu_ns"] / 1e9,
        latency=latency,
        file_latencies=tuple(
            Histogram(_counts(each["latencies"]), *each["latency_ns"])
            if each["operations"]
            else Histogram(_counts([]))
            for each in targets
        )
        if engine == "storage"
        else None,
        pollers=tuple(
            PollerShare(answered=answered, busy_s=busy_ns / 1e9)
            for answered, busy_ns in figures["pollers"]
        ),
        pull_per_s=_rate(figures["pull"]),
        queue_per_s=_rate(figures["null"]),
        failures=tuple(
            ReadFailure(file=target, reason=failure_reason(code), offset_bytes=offset, count=count)
            for target, code, offset, count in figures["failures"]
        ),
        wrong_blocks=figures["wrong"],
        first_wrong=None if first is None else (first[0], first[1]),
        compared_bytes=figures["compared_bytes"],
        bad_blocks=figures["bad_blocks"],
        trace=np.frombuffer(rows, dtype=TRACE_DTYPE),
        software=software,
        requests=figures["requests"],
        taken=figures["taken"],
        answered=figures["answered"],
        delivered=figures["delivered"],
        cache=CacheCounts(**figures["cache"]) if figures["cache"] else None,
        clock_step_ns=step_ns,
        latency_missing=missing,
    )


def _sampled(counts: np.ndarray, step_ns: int | None) -> tuple[Histogram | None, str]:
    """Return the latencies of sampled requests, or why they are not known."""
    if not counts.any():
        return None, ""
    histogram = _from_buckets(counts)
    median_ns = histogram.quantile_ns(0.5) or 0
    if step_ns is not None and median_ns < LEAST_CLOCK_STEPS * step_ns:
        return None, (
            f"half of the requests took at most {median_ns} ns, and the GPU's clock has steps of "
            f"{step_ns} ns: fewer than {LEAST_CLOCK_STEPS}"
        )
    return histogram, ""


def _rate(counted: tuple[int, int]) -> float | None:
    """Return requests per second; ``None`` for what was not measured."""
    requests, ns = counted
    return requests * 1e9 / ns if ns else None


def _counts(buckets: Any) -> np.ndarray:  # noqa: ANN401 - pairs, from JSON
    counts = np.zeros(BUCKET_COUNT, dtype=np.uint64)
    for bucket, count in buckets:
        counts[bucket] = count
    return counts


def _from_buckets(counts: np.ndarray) -> Histogram:
    """Return a histogram of which only the counts are known.

    Each value stands in the middle of its bucket, so the mean is at most 1/128 off.
    """
    used = [int(bucket) for bucket in counts.nonzero()[0]]
    ends = [(lower_end_ns(bucket), upper_end_ns(bucket)) for bucket in used]
    sum_ns = sum(
        int(counts[bucket]) * (low + high) for bucket, (low, high) in zip(used, ends, strict=True)
    )
    return Histogram(counts, sum_ns // 2, ends[0][0], ends[-1][1])
