"""The side of a reader's process: messages on its standard input and output.

``process.Child`` starts it. The first line that it gets is its ``Request``. Readers answer
``ready``, and read when they get ``go``: first what is checked, then, when they get ``start``, what
is timed. Meanwhile a ``Progress`` goes out every 50 ms, and within 2 ms of a new stage, and the
result at the end. The process ends when its standard input ends, whatever it is doing: it outlives
nobody.
"""

from __future__ import annotations

import base64
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from wattload.core.errors import WattloadError
from wattload.loaders.block_reads import ReadResult
from wattload.loaders.gpu.native import CHECKED, READY, TIMED, NativeError, Progress

PROGRESS_S = 0.05
EDGE_S = 0.002
"""How often the stage is read before and after the timed window."""
ORPHAN_S = 1.0
"""How long reads that are being stopped may take to end before the process does."""
_ORPHANED = 3


@dataclass(frozen=True, slots=True)
class Request:
    """What the process does: ``open_reads`` of a module with these arguments, or its ``probe``."""

    module: str
    arguments: tuple[Any, ...]
    is_probe: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """What the process says: a kind, such as ``ready``, and its value."""

    kind: str
    value: Any


Send = Callable[[Message], None]


def packed(message: object) -> bytes:
    """Return an object as a line; it goes between a process and its own child alone."""
    return base64.b64encode(pickle.dumps(message)) + b"\n"


def unpacked(line: bytes) -> Any:  # noqa: ANN401 - what ``packed`` got
    return pickle.loads(base64.b64decode(line))


class Reads(Protocol):
    """Reads in stages, as ``open_reads`` of a module returns them; see ``native.Reads``."""

    def software(self) -> Mapping[str, str]:
        """Return the versions of the libraries that read, by name."""
        ...

    def run(self) -> ReadResult:
        """Make all reads, once; between the checked and the timed ones it waits for ``start``."""
        ...

    def start(self) -> None:
        """Let the timed stage begin; from any thread."""
        ...

    def stop(self) -> None:
        """End the reads early, as far as that is possible; from any thread."""
        ...

    def progress(self) -> Progress:
        """Return what has been done so far; from any thread."""
        ...


@dataclass(slots=True)
class _Commands:
    """What the parent has said; ``reads`` are to be stopped when it ends."""

    go: threading.Event = field(default_factory=threading.Event)
    start: threading.Event = field(default_factory=threading.Event)
    reads: Reads | None = None


def serve() -> None:
    """Answer one request, and end the process.

    Ctrl-C reaches every process of a terminal: this one ends when its parent has ended the reads.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    send = _take_output()
    line = sys.stdin.buffer.readline()
    if not line:
        return
    commands = _Commands()
    threading.Thread(target=_watch_input, args=(commands,), daemon=True).start()
    try:
        _answer(unpacked(line), commands, send)
    except (NativeError, WattloadError) as error:
        send(Message("error", error))
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    # Without the destructors of libraries, which may wait for threads that hang.
    sys.stdout.flush()
    os._exit(0)


def _answer(request: Request, commands: _Commands, send: Send) -> None:
    # Loaders are above this package: they name the module that reads.
    module = import_module(request.module)
    if request.is_probe:
        found = module.probe(*request.arguments, say=lambda *each: send(Message(*each)))
        send(Message("probed", found))
        return
    reads: Reads = module.open_reads(*request.arguments)
    commands.reads = reads
    send(Message("ready", reads.software()))
    commands.go.wait()
    send(Message("result", _followed(reads, commands.start, send)))


def _take_output() -> Send:
    """Keep standard output for our lines: what libraries print goes to standard error."""
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send(message: Message) -> None:
        stream.write(packed(message))
        stream.flush()

    return send


def _watch_input(commands: _Commands) -> None:
    """End the process with its parent, or with the parent's interest."""
    events = {b"go\n": commands.go, b"start\n": commands.start}
    while line := sys.stdin.buffer.readline():
        if line in events:
            events[line].set()
    if commands.reads is not None:
        commands.reads.stop()
        time.sleep(ORPHAN_S)
    os._exit(_ORPHANED)


def _followed(reads: Reads, start: threading.Event, send: Send) -> ReadResult:
    """Run reads and return their result; send their progress meanwhile.

    Raises:
        NativeError: as ``run``.
    """
    ended: list[ReadResult] = []
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
        left_s = done.end_ns / 1e9 - time.monotonic()
        thread.join(max(min(PROGRESS_S, left_s), EDGE_S) if stage == TIMED else EDGE_S)
        done, now_s = reads.progress(), time.monotonic()
        if done.stage != stage or now_s - sent_s >= PROGRESS_S:
            send(Message("moved", done))
            sent_s = now_s
        stage = done.stage
        if stage == CHECKED and not started:
            start.wait()  # the run opens its timed phase meanwhile
            reads.start()
            started = True
    if failed:
        raise failed[0]
    return ended[0]
