"""The process of the queue: its pollers, and the requesters of a GPU or of the CPU.

Its request is a specification (see ``reader.specification``), or ``{"probe": SPECIFICATION}`` to
compile the kernels and, with a cache, to find out whether the GPU has room for it.
``loaders/gpu/serving.py`` has what it says and hears. What an error of this package means is sent
as ``{"refused": ...}``, and a missing extra as ``{"missing": ...}``.
"""

from __future__ import annotations

import base64
import ctypes
from collections.abc import Mapping
from typing import Any

from wattload.core.errors import MissingExtraError, WattloadError
from wattload.loaders.engine.targets import Target
from wattload.loaders.gpu.native import cuda_gpus
from wattload.loaders.gpu.serving import Commands, Send, followed, serve
from wattload.loaders.gpu_queue import native
from wattload.loaders.gpu_queue.native import Queue

TRACED_ROWS = 16_384
"""Most traced reads that a record keeps."""


def _handle(request: Mapping[str, Any], commands: Commands, send: Send) -> None:
    try:
        if "probe" in request:
            send({"probe": _probed(request["probe"])})
            return
        queue, software = _open(request)
    except WattloadError as error:
        kind = "missing" if isinstance(error, MissingExtraError) else "refused"
        send({kind: str(error)})
        return
    commands.stop = queue.stop
    send({"ready": {"software": software}})
    commands.go.wait()
    each_bytes = request["setup"]["read_bytes"] if request["setup"]["engine"] == "storage" else 0
    result = followed(_Run(queue, each_bytes), commands.start, send)
    send({"result": _figures(request, queue, result, each_bytes)})
    # The end of the process releases the queue: a stop may come until then.


def _compiled(gpu: str) -> tuple[bytes, dict[str, str]]:
    """Return the kernels for a GPU, and the versions of what runs them."""
    from wattload.loaders.gpu_queue import kernels

    version = cuda_gpus()[0]
    return kernels.compiled(native.architecture(gpu)), {"cuda": version}


def _probed(spec: Mapping[str, Any]) -> dict[str, str]:
    if not spec["setup"]["cache_bytes"]:
        return _compiled(spec["gpu"])[1]
    # The files need not exist yet.
    queue, software = _open({**spec, "setup": {**spec["setup"], "engine": "memory"}})
    queue.close()
    return software


def _open(spec: Mapping[str, Any]) -> tuple[Queue, dict[str, str]]:
    image, software = _compiled(spec["gpu"]) if spec["gpu"] is not None else (None, {})
    targets = [Target(**each) for each in spec["targets"]]
    return Queue(**spec["setup"], targets=targets, gpu=spec["gpu"], image=image), software


class _Run:
    """The queue's stages as ``followed`` runs them; each read moves ``each_bytes`` of a drive."""

    def __init__(self, queue: Queue, each_bytes: int) -> None:
        self._queue, self._each_bytes = queue, each_bytes

    def start(self) -> None:
        self._queue.start()

    def progress(self) -> ctypes.Structure:
        """Return what has been answered so far, with its bytes."""
        progress = self._queue.progress()
        progress.bytes = progress.reads * self._each_bytes
        return progress

    def run(self) -> ctypes.Structure:
        """Run all stages; an error ends them, also that of a drive that hangs."""
        result, error = self._queue.run()
        if error is not None:
            raise error
        return result


def _figures(
    spec: Mapping[str, Any], queue: Queue, result: ctypes.Structure, each_bytes: int
) -> dict[str, Any]:
    targets = [queue.target(number) for number in range(len(spec["targets"]))]
    pollers = [queue.poller(number) for number in range(spec["setup"]["pollers"])]
    trace = queue.trace()
    kept = trace[:: -(-len(trace) // TRACED_ROWS) or 1]
    return {
        "start_ns": result.start_ns,
        "end_ns": result.end_ns,
        "cpu_ns": result.cpu_ns,
        "operations": result.operations,
        "bytes": result.operations * each_bytes,
        "requests": result.requests,
        "asked": result.asked,
        "taken": result.taken,
        "answered": result.answered,
        "delivered": result.delivered,
        "wrong": result.wrong,
        "first_wrong": [result.wrong_target, result.wrong_offset] if result.wrong else None,
        "cache": _cache_counts(result) if spec["setup"]["cache_bytes"] else None,
        "compared_bytes": result.compared_bytes,
        "bad_blocks": result.bad_blocks,
        "pull": [result.pull_requests, result.pull_ns],
        "null": [result.null_requests, result.null_ns],
        "failures": [
            [each.target, each.code, each.offset, each.count]
            for each in result.failures
            if each.count
        ],
        "clock_step_ns": result.clock_step_ns,
        "latencies": _buckets(result.counts),
        "targets": [
            {
                "operations": each.operations,
                "latency_ns": [each.latency_sum_ns, each.latency_min_ns, each.latency_max_ns],
                "latencies": _buckets(each.counts),
            }
            for each in targets
        ],
        "pollers": [[each.answered, each.busy_ns] for each in pollers],
        "trace": base64.b64encode(kept.tobytes()).decode(),
    }


def _cache_counts(result: ctypes.Structure) -> dict[str, int]:
    return {
        "coalesced": result.coalesced,
        "hits": result.hits,
        "joined": result.joined,
        "misses": result.asked - result.passed,
        "passed": result.passed,
    }


def _buckets(counts: Any) -> list[list[int]]:  # noqa: ANN401 - an array of ctypes
    return [[bucket, count] for bucket, count in enumerate(counts) if count]


if __name__ == "__main__":
    serve(_handle)
