"""The queue in the process that reads, from the side of the run; see ``loaders/gpu/process.py``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from wattload.core.errors import RunError
from wattload.core.io import DataPath
from wattload.loaders.block_reads import ReadPlan
from wattload.loaders.gpu.native import allowed_cpus
from wattload.loaders.gpu.process import NAME, Child, Way, environment_of, opened_error
from wattload.loaders.gpu.serving import Request
from wattload.loaders.gpu_queue.reads import MEMORY, STORAGE, QueueSetup

MODULE = "wattload.loaders.gpu_queue.reads"
PROBE_S = 60.0
LESS = (
    "use fewer workload.requesters, or a smaller workload.block_bytes, loader.table_bytes or "
    "loader.cache_bytes"
)


def probe(plan: ReadPlan, setup: QueueSetup) -> None:
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
