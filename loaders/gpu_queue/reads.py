"""Reads through the queue: in their process, and from the side of the run (``queue_way``).

Requesters are threads of a GPU or of the CPU; see ``loaders/gpu/process.py`` for the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wattload.core.errors import RunError
from wattload.core.histogram import Histogram, lower_end_ns, upper_end_ns
from wattload.core.io import DataPath, PathCounts
from wattload.core.units import NS_PER_S
from wattload.loaders.block_reads import (
    LEAST_CLOCK_STEPS,
    PollerShare,
    ReadPlan,
    ReadResult,
)
from wattload.loaders.engine import library
from wattload.loaders.gpu.native import Progress, allowed_cpus, cuda_gpus, failures_of
from wattload.loaders.gpu.process import NAME, Child, Request, Way, environment_of, opened_error
from wattload.loaders.gpu_queue import native
from wattload.loaders.gpu_queue.native import HANG_S, Queue

STORAGE, MEMORY, NULL = "storage", "memory", "null"
CEILING_S = 0.3
"""How long each ceiling is measured before the timed reads."""
SAMPLE_EVERY = 64
"""One request in so many is timed until its block is delivered."""
TRACE_EVERY = 1024
TRACED_ROWS = 16_384
"""Most traced reads that a record keeps."""
QUEUE_COUNTS = ("asked", "taken", "answered", "delivered")
CACHE_COUNTS = ("requests", "coalesced", "hits", "merged", "bypassed")
MODULE = "wattload.loaders.gpu_queue.reads"
PROBE_S = 60.0
LESS = (
    "use fewer workload.requesters, or a smaller workload.block_bytes, loader.table_bytes or "
    "loader.cache_bytes"
)


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


class QueueReads:
    """Queue pairs with their pollers and requesters, ready to read."""

    def __init__(self, plan: ReadPlan, setup: QueueSetup) -> None:
        """Open and register everything, and start the pollers.

        Raises:
            ConfigError: the kernels can't be compiled for the GPU.
            MissingExtraError: the compiler of CUDA's runtime is not installed.
            NativeError: the GPU, a file or the kernel refuses.
        """
        self._plan, self._setup = plan, setup
        self._each_bytes = plan.read_bytes if setup.engine == STORAGE else 0
        gpu = next(iter(plan.gpus), None)
        self._gpu = gpu
        self._queue = Queue(
            engine=setup.engine,
            files=plan.files,
            block_bytes=plan.block_bytes,
            read_bytes=plan.read_bytes,
            requesters=plan.per_file,
            queue_pairs=plan.queue_pairs,
            queue_size=plan.queue_size,
            pollers=setup.pollers,
            pattern=plan.pattern.value,
            requester_threads=setup.requester_threads,
            sample_every=SAMPLE_EVERY,
            trace_every=TRACE_EVERY,
            fault=setup.fault,
            hang_s=setup.hang_s,
            table_bytes=setup.table_bytes,
            cache_bytes=setup.cache_bytes,
            duration_s=plan.duration_s,
            ceiling_s=CEILING_S,
            seed=plan.seed,
            cpus=allowed_cpus(plan.files[0].node),
            gpu=gpu,
            image=None if gpu is None else compiled(gpu),
        )

    def software(self) -> dict[str, str]:
        """Return the version of CUDA that runs the kernels, by name; none on a CPU."""
        return {} if self._gpu is None else {"cuda": cuda_gpus()[0]}

    def start(self) -> None:
        self._queue.start()

    def stop(self) -> None:
        self._queue.stop()

    def progress(self) -> Progress:
        return Progress.of(self._queue.progress(self._each_bytes))

    def close(self) -> None:
        self._queue.close()

    def run(self) -> ReadResult:
        """Run all stages; an error ends them, also that of a drive that hangs."""
        found, error = self._queue.run()
        if error is not None:
            raise error
        plan, is_from_drives = self._plan, self._setup.engine == STORAGE
        targets = [self._queue.target(number) for number in range(len(plan.files))]
        trace = self._queue.trace()
        step_ns = found.clock_step_ns or None
        latency, missing = _sampled(found, step_ns)
        return ReadResult(
            operations=found.operations,
            file_operations=tuple(each.operations for each in targets),
            start_ns=found.start_ns,
            end_ns=found.end_ns,
            cpu_s=found.cpu_ns / NS_PER_S,
            latency=latency,
            latency_missing=missing,
            file_latencies=tuple(library.histogram_of(each.latencies) for each in targets)
            if is_from_drives
            else None,
            counts=path_counts(
                self._gpu,
                {name: getattr(found, name) for name in (*QUEUE_COUNTS, *CACHE_COUNTS)}
                | {"reads": found.operations, "read_bytes": found.operations * self._each_bytes},
                has_cache=bool(self._setup.cache_bytes),
            ),
            drive_bytes=None if is_from_drives else 0,
            failures=failures_of(found),
            compared_bytes=found.compared_bytes,
            bad_blocks=found.bad_blocks,
            wrong_blocks=found.wrong,
            first_wrong=(found.wrong_target, found.wrong_offset) if found.wrong else None,
            trace=trace[:: -(-len(trace) // TRACED_ROWS) or 1],
            pollers=tuple(map(self._poller, range(self._setup.pollers))),
            pull_per_s=_rate(found.pull_requests, found.pull_ns),
            queue_per_s=_rate(found.null_requests, found.null_ns),
            clock_step_ns=step_ns,
        )

    def _poller(self, number: int) -> PollerShare:
        found = self._queue.poller(number)
        return PollerShare(answered=found.answered, busy_s=found.busy_ns / NS_PER_S)


open_reads = QueueReads
"""What the reader's process opens."""


def probe(plan: ReadPlan, setup: QueueSetup, *, say: Callable[[str, object], None]) -> None:
    """Compile the kernels for the GPU of a plan; with a cache, find room for it.

    The files need not exist yet.
    """
    if setup.cache_bytes:
        QueueReads(plan, setup).close()
    else:
        compiled(next(iter(plan.gpus)))


def path_counts(gpu: str | None, counts: Mapping[str, int], *, has_cache: bool) -> PathCounts:
    """Return the proof of a queue's path from its counts by their names."""
    names = ("reads", "read_bytes", *QUEUE_COUNTS, *(CACHE_COUNTS if has_cache else ()))
    return PathCounts(
        requester="gpu" if gpu else "cpu",
        misses=counts["asked"] - counts["bypassed"] if has_cache else None,
        **{name: counts[name] for name in names},
    )


def compiled(gpu: str) -> bytes:
    from wattload.loaders.gpu_queue import kernels

    return kernels.compiled(native.architecture(gpu))


def _sampled(found: Any, step_ns: int | None) -> tuple[Histogram | None, str]:  # noqa: ANN401 - a C type
    """Return the latencies of sampled requests, or why they are not known."""
    counts = np.array(found.counts, dtype=np.uint64)
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


def _rate(requests: int, ns: int) -> float | None:
    """Return requests per second; ``None`` for what was not measured."""
    return requests * NS_PER_S / ns if ns else None


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


def check_gpu(plan: ReadPlan, setup: QueueSetup) -> None:
    """Compile the kernels for the GPU of a plan, and find room for a cache, in its own process.

    Raises:
        ConfigError: CUDA does not show the GPU, the driver is too old, or the GPU's memory is too
            small for the cache.
        MissingExtraError: the compiler of CUDA's runtime is not installed.
        RunError: the process ended, or did not answer.
    """
    without_files = replace(setup, engine=MEMORY)
    child = Child(Request(MODULE, (plan, without_files), is_probe=True), environment_of())
    try:
        message = child.receive(PROBE_S)
    finally:
        child.close()
    if message is None:
        raise RunError(
            f"{NAME} did not answer in {PROBE_S:.0f} s; check the GPU with nvidia-smi and the "
            "kernel log"
        )
    if message.kind == "error":
        raise opened_error(message.value, plan, LESS)


def queue_way(plan: ReadPlan, setup: QueueSetup) -> Way:
    """Return how a queue reads, for ``ProcessReader``."""
    gpu = next(iter(plan.gpus), None)
    who = f"GPU {gpu}" if gpu else counted(setup.requester_threads, "CPU thread")
    if setup.cache_bytes:
        who += f" with a cache of {setup.cache_bytes} bytes"
    pollers = counted(setup.pollers, "poller")
    source = {
        "storage": f"{pollers} with io_uring and O_DIRECT",
        "memory": f"{pollers}, blocks of a table of {setup.table_bytes} bytes",
        "null": f"{pollers}, nothing delivered",
    }
    path = DataPath(
        data_path="host_memory" if setup.engine == STORAGE else "no_storage",
        path_requested="gpu_pull" if gpu else "cpu_queue",
        engine=f"{plan.in_flight} requests in flight by {who}, {source[setup.engine]}",
        remarks=tuple(_remarks(plan, setup)),
    )
    return Way(module=MODULE, arguments=(setup,), path=path, less=LESS, hang_s=setup.hang_s)


def _remarks(plan: ReadPlan, setup: QueueSetup) -> Iterator[str]:
    spinning = setup.pollers + (0 if plan.gpus else setup.requester_threads)
    cpu_count = len(allowed_cpus(plan.files[0].node) or os.sched_getaffinity(0))
    if spinning > cpu_count:
        yield (
            f"{spinning} threads spin on {counted(cpu_count, 'CPU')}: rates and ceilings are "
            "those of threads that wait for a CPU. Use fewer loader.pollers or "
            "loader.requester_threads, or more CPUs."
        )
    if not plan.gpus:
        yield "Requests came from threads of the CPU (loader.requester=cpu), not of a GPU."
    if setup.engine != STORAGE:
        yield (
            f"No storage was read (loader.engine={setup.engine}): rates are those of the queue "
            "and the link, not of a drive."
        )


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
