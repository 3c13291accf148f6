"""The side of a reader's process: JSON lines on its standard input and output.

``process.Child`` starts it. The first line that it gets is its request. It answers ``{"ready":
...}`` or ``{"error": ...}``, and reads when it gets ``go``: first what is checked, then, when it
gets ``start``, what is timed. Meanwhile it sends ``{"moved": [reads, bytes, ended, stage, start_ns,
deadline_ns]}`` every 50 ms, and within 2 ms of a new stage, and ``{"result": ...}`` at the end. It
ends when its standard input ends, whatever it is doing: it outlives nobody.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from wattload.loaders.gpu.native import CHECKED, READY, TIMED, NativeError

PROGRESS_S = 0.05
EDGE_S = 0.002
"""How often the stage is read before and after the timed stretch."""
ORPHAN_S = 1.0
"""How long reads that are being stopped may take to end before the process does."""
_ORPHANED = 3

Send = Callable[[Mapping[str, Any]], None]
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


@dataclass(slots=True)
class Commands:
    """What the parent has said. ``stop`` ends the reads early, once there are any to stop."""

    go: threading.Event = field(default_factory=threading.Event)
    start: threading.Event = field(default_factory=threading.Event)
    stop: Callable[[], None] | None = None


class Running(Protocol[R_co]):
    """Reads in stages; see ``native.Reads``."""

    def run(self) -> R_co:
        """Make all reads and return the result."""
        ...

    def start(self) -> None:
        """Let the timed stage begin; from any thread."""
        ...

    def progress(self) -> ctypes.Structure:
        """Return what has been done so far; from any thread."""
        ...


def serve(handle: Callable[[Mapping[str, Any], Commands, Send], None]) -> None:
    """Answer one request, and end the process.

    Ctrl-C reaches every process of a terminal: this one ends when its parent has ended the reads.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    send = _take_output()
    request = json.loads(sys.stdin.buffer.readline() or "null")
    if request is None:
        return
    commands = Commands()
    threading.Thread(target=_watch_input, args=(commands,), daemon=True).start()
    try:
        handle(request, commands, send)
    except NativeError as error:
        send({"error": error_fields(error)})
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
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


def _watch_input(commands: Commands) -> None:
    """End the process with its parent, or with the parent's interest."""
    events = {b"go\n": commands.go, b"start\n": commands.start}
    while line := sys.stdin.buffer.readline():
        if line in events:
            events[line].set()
    if commands.stop is not None:
        commands.stop()
        time.sleep(ORPHAN_S)
    os._exit(_ORPHANED)


def error_fields(error: NativeError) -> dict[str, Any]:
    return {
        "code": error.code,
        "detail": error.detail,
        "offset": error.offset,
        "path": error.path,
        "text": error.text,
    }


def followed(reads: Running[R], start: threading.Event, send: Send) -> R:
    """Run reads and return their result; send their progress meanwhile.

    Raises:
        NativeError: as ``run``.
    """
    ended: list[R] = []
    failed: list[NativeError] = []

    def run() -> None:
        try:
            ended.append(reads.run())
        except NativeError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    stage, sent_s, started = READY, 0.0, False
    done = reads.progress()
    while thread.is_alive():
        left_s = done.deadline_ns / 1e9 - time.monotonic()
        thread.join(max(min(PROGRESS_S, left_s), EDGE_S) if stage == TIMED else EDGE_S)
        done, now_s = reads.progress(), time.monotonic()
        if done.stage != stage or now_s - sent_s >= PROGRESS_S:
            edges = [done.start_ns, done.deadline_ns]
            send({"moved": [done.reads, done.bytes, done.ended, done.stage, *edges]})
            sent_s = now_s
        stage = done.stage
        if stage == CHECKED and not started:
            start.wait()  # the run opens its timed phase meanwhile
            reads.start()
            started = True
    if failed:
        raise failed[0]
    return ended[0]
