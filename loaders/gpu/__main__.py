"""The process that reads into GPU memory: JSON lines on its standard input and output.

``process.py`` starts it. The first line that it gets is ``{"probe": ...}`` or a specification (see
``process.specification``). It answers ``{"ready": ...}`` or ``{"error": ...}``, and reads when it
gets ``go``: first what is checked, then, when it gets ``start``, what is timed. Meanwhile it sends
``{"moved": [reads, bytes, ended, stage, start_ns, deadline_ns]}`` every 50 ms, and within 2 ms of a
new stage, and ``{"result": ...}`` at the end. It ends when its standard input ends, whatever it is
doing: it outlives nobody.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from wattload.loaders.gpu import native
from wattload.loaders.gpu.native import File, NativeError, Place, Reads, Result

PROGRESS_S = 0.05
EDGE_S = 0.002
"""How often the stage is read before and after the timed stretch."""
_ORPHANED = 3

Send = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Serve one specification or probe."""
    send = _take_output()
    request = json.loads(sys.stdin.buffer.readline() or "null")
    if request is None:
        return
    go, start = threading.Event(), threading.Event()
    threading.Thread(target=_watch_input, args=(go, start), daemon=True).start()
    try:
        if "probe" in request:
            _probe(request["probe"], send)
        else:
            _read(request, go, start, send)
    except NativeError as error:
        send({"error": _fields(error)})
    # Without the destructors of libraries, which may wait for threads that hang.
    sys.stdout.flush()
    os._exit(0)


def _take_output() -> Send:
    """Keep standard output for our lines: what libraries print goes to standard error."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=stream, flush=True)

    return send


def _watch_input(go: threading.Event, start: threading.Event) -> None:
    """End the process with its parent, or with the parent's interest."""
    events = {b"go\n": go, b"start\n": start}
    while line := sys.stdin.buffer.readline():
        if line in events:
            events[line].set()
    os._exit(_ORPHANED)


def _fields(error: NativeError) -> dict[str, Any]:
    return {
        "code": error.code,
        "detail": error.detail,
        "offset": error.offset,
        "path": error.path,
        "text": error.text,
    }


def _probe(what: str, send: Send) -> None:
    cuda, gpus = native.cuda_gpus()
    found: dict[str, Any] = {"cuda": cuda, "gpus": gpus, "cufile": None, "cufile_error": None}
    if what == "cufile":
        send({"version": native.cufile_version()})  # what comes next may not return
        found["cufile"], failed = native.try_cufile()
        found["cufile_error"] = None if failed is None else _fields(failed)
    send({"probe": found})


def _read(spec: Mapping[str, Any], go: threading.Event, start: threading.Event, send: Send) -> None:
    start_s = time.monotonic()
    # Ways that are not the engine's are in modules above this package, which their loaders name.
    open_reads = import_module(spec["module"]).open_reads if spec["module"] else Reads
    reads = open_reads(
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
    go.wait()
    result = _run(reads, start, send)
    send({"result": _figures(result, reads.file_operations())})
    reads.close()


def _run(reads: Reads, start: threading.Event, send: Send) -> Result:
    ended: list[Result | BaseException] = []

    def run() -> None:
        try:
            ended.append(reads.run())
        except NativeError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    stage, sent_s, started = native.READY, 0.0, False
    done = reads.progress()
    while thread.is_alive():
        left_s = done.deadline_ns / 1e9 - time.monotonic()
        thread.join(max(min(PROGRESS_S, left_s), EDGE_S) if stage == native.TIMED else EDGE_S)
        done, now_s = reads.progress(), time.monotonic()
        if done.stage != stage or now_s - sent_s >= PROGRESS_S:
            edges = [done.start_ns, done.deadline_ns]
            send({"moved": [done.reads, done.bytes, done.ended, done.stage, *edges]})
            sent_s = now_s
        stage = done.stage
        if stage == native.CHECKED and not started:
            start.wait()  # the run opens its timed phase meanwhile
            reads.start()
            started = True
    (outcome,) = ended
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _figures(result: Result, file_operations: list[int]) -> dict[str, Any]:
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
    main()
