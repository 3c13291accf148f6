"""The process that reads into GPU memory; see ``serving.py`` for what it says and hears.

Its request is ``{"probe": ...}`` or a specification (see ``process.specification``).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from wattload.loaders.gpu import native
from wattload.loaders.gpu.native import File, Place, Reads
from wattload.loaders.gpu.serving import Commands, Send, error_fields, followed, serve


def _handle(request: Mapping[str, Any], commands: Commands, send: Send) -> None:
    if "probe" in request:
        _probe(request["probe"], send)
    else:
        _read(request, commands, send)


def _probe(what: str, send: Send) -> None:
    cuda, gpus = native.cuda_gpus()
    found: dict[str, Any] = {"cuda": cuda, "gpus": gpus, "cufile": None, "cufile_error": None}
    if what == "cufile":
        send({"version": native.cufile_version()})  # what comes next may not return
        found["cufile"], failed = native.try_cufile()
        found["cufile_error"] = None if failed is None else error_fields(failed)
    send({"probe": found})


def _read(spec: Mapping[str, Any], commands: Commands, send: Send) -> None:
    start_s = time.monotonic()
    # Ways that are not the engine's are in modules above this package, which their loaders name.
    open_reads = import_module(spec["module"]).open_reads if spec["module"] else Reads
    reads: Reads = open_reads(
        way=spec["way"],
        readers=spec["threads"],
        pollers=spec["pollers"],
        block_bytes=spec["block_bytes"],
        checked_reads=spec["checked_reads"],
        duration_s=spec["duration_s"],
        seed=spec["seed"],
        files=[File(**each) for each in spec["files"]],
        gpus=[Place(each["address"], tuple(each["cpus"])) for each in spec["gpus"]],
    )
    software = {"cuda": native.cuda_gpus()[0], **reads.software()}
    send({"ready": {"prepared_s": time.monotonic() - start_s, "software": software}})
    commands.go.wait()
    result = followed(reads, commands.start, send)
    send({"result": _figures(result, reads.file_operations())})
    reads.close()


def _figures(result: ctypes.Structure, file_operations: list[int]) -> dict[str, Any]:
    library = result.library
    return {
        "start_ns": result.start_ns,
        "end_ns": result.end_ns,
        "cpu_ns": result.cpu_ns,
        "operations": result.operations,
        "bytes": result.bytes,
        "reads": result.reads,
        "read_bytes": result.read_bytes,
        "pinned_copies": result.pinned_copies,
        "pinned_bytes": result.pinned_bytes,
        "compared_bytes": result.compared_bytes,
        "bad_blocks": result.bad_blocks,
        "latency_ns": [result.latency_sum_ns, result.latency_min_ns, result.latency_max_ns],
        "cut_ns": result.cut_ns,
        "latencies": [[i, count] for i, count in enumerate(result.counts) if count],
        "library": [library.total, library.p2p, library.nvfs, library.posix, library.peer]
        if result.has_library
        else None,
        "failures": [[each.code, each.count] for each in result.failures if each.count],
        "file_operations": file_operations,
    }


if __name__ == "__main__":
    serve(_handle)
