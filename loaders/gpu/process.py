"""The process that reads blocks: its own side, and that of the run.

Every reader has a process of its own: CUDA and cuFile stay out of the run, their statistics are of
this reader alone, and a driver that hangs can be ended. It ends with the run, however the run ends.

``Child`` starts it. The first line on its standard input is its ``Request``. Readers answer
``ready``, and read when they get ``go``: first what is checked, then, when they get ``start``, what
is timed. Meanwhile a ``Progress`` goes out every 50 ms, and within 2 ms of a new stage, and the
result at the end. The process ends when its standard input ends, whatever it is doing: it outlives
nobody.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import IO, Any, Protocol

from wattload.core.errors import RunError, WattloadError
from wattload.core.io import DataPath, PathCounts
from wattload.core.sysfs import LIVE, Roots, read_text
from wattload.loaders.block_reads import ReadPlan, ReadResult, ReadsWatch
from wattload.loaders.gpu import failures
from wattload.loaders.gpu.cufile_paths import nvidia_fs_reads, nvidia_fs_version
from wattload.loaders.gpu.failures import NativeError
from wattload.loaders.gpu.native import CHECKED, OVER, READY, TIMED, Progress

MODULE = "wattload.loaders.gpu"
NAME = "the process that reads"

ENGINE = "wattload.loaders.gpu.native"
"""What reads by the engine's ways; its ``open_reads`` takes a way and its pollers."""

PREPARE_S = 120.0
"""Longer than the registration of thousands of buffers: 512 take 4 to 5 s."""

HANG_S = 60.0
"""Without the end of any read for so long, a read hangs. NVMe commands time out after 30 s."""

END_S = 5.0
_TAIL_BYTES = 2000

_NVIDIA_DRIVER = re.compile(r"Kernel Module\s+(?:for \S+\s+)?([0-9.]+)")
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


class Child:
    """The process and its two pipes."""

    def __init__(self, request: Request, environment: Mapping[str, str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the child
        self._buffer = b""
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-m", MODULE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            bufsize=0,
        )
        self.send(packed(request))

    def send(self, line: bytes) -> None:
        """Send a line; one that has ended is found out when its answer is missing."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line)

    def receive(self, timeout_s: float) -> Message | None:
        """Return the next message, ``None`` if none came in time.

        Raises:
            RunError: the process has ended.
        """
        assert self._process.stdout is not None
        end_s = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left_s = end_s - time.monotonic()
            ready, _, _ = select.select([self._process.stdout], [], [], max(left_s, 0))
            if not ready:
                return None
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                raise RunError(self._how_it_ended())
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: Message = unpacked(line)
        return message

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            code = None
        how = (
            "closed its output"
            if code is None
            else f"was ended by signal {-code}"
            if code < 0
            else f"exited with status {code}"
        )
        return f"{NAME} {how}{self._last_words()}"

    def _last_words(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        self._errors.seek(max(size - _TAIL_BYTES, 0))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def close(self) -> None:
        """End the process: by the end of its input, or by SIGKILL after 5 s. Safe to call twice."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            # A read that hangs in the kernel keeps even a killed process.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        process.stdout.close()
        self._errors.close()


def environment_of(**variables: str) -> dict[str, str]:
    """Return this process's environment for the child: its own settings of cuFile, and no others.

    GPUs have the numbers of nvidia-smi.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CUFILE_")}
    return {**kept, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "OPENBLAS_NUM_THREADS": "1", **variables}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a loader reads: its module's ``open_reads``, and that one's arguments after the plan.

    ``path`` is that of the record, ``variables`` are the child's own. ``less`` is what takes less
    memory and fewer threads, for messages. A queue waits ``hang_s`` for answers.
    """

    module: str
    arguments: tuple[Any, ...]
    path: DataPath
    variables: Mapping[str, str] = field(default_factory=dict)
    less: str = "use fewer threads or smaller blocks"
    hang_s: float = 0.0


class _Counted:
    """Reports the reads of the timed window to a watch, within its beginning and its end."""

    def __init__(self, watch: ReadsWatch, start: Callable[[], None]) -> None:
        self._watch, self._start = watch, start
        self._is_open = self._is_over = False
        self.reads = self.read_bytes = 0

    def now(self, done: Progress) -> None:
        """Report what has been read so far; once the time is over, nothing is added."""
        if not self._is_open and done.stage >= CHECKED:
            self._watch.begin()
            self._is_open = True
            self._start()
        if not self._is_open or self._is_over:
            return
        # A count under way may lag behind one before it.
        if done.reads > self.reads or done.stage >= OVER:
            self._watch.moved(done.reads - self.reads, done.read_bytes - self.read_bytes)
            self.reads, self.read_bytes = done.reads, done.read_bytes
        if done.stage >= OVER:
            self._watch.end(done.start_ns, done.end_ns)
            self._is_over = True


class ProcessReader:
    """Reads in a process of their own; implements ``BlockReader``."""

    def __init__(self, plan: ReadPlan, way: Way) -> None:
        """Start the process, and let it open and register everything; see ``block_reader``."""
        self._plan, self._way = plan, way
        self._fs_reads = nvidia_fs_reads()
        request = Request(way.module, (plan, *way.arguments))
        self._child = Child(request, environment_of(**way.variables))
        try:
            self._software = self._ready()
        except BaseException:
            self._child.close()
            raise
        if plan.gpus:
            self._software |= driver_versions()

    def _ready(self) -> dict[str, str]:
        message = self._child.receive(PREPARE_S)
        if message is None:
            raise RunError(
                f"{NAME} was not ready in {PREPARE_S:.0f} s, with {self._plan.in_flight} reads in "
                f"flight; {self._way.less}, and check the GPU with nvidia-smi and the kernel log"
            )
        if message.kind == "error":
            raise opened_error(message.value, self._plan, self._way.less)
        return dict(message.value)

    def path(self) -> DataPath:
        return self._way.path

    def run(self, watch: ReadsWatch) -> ReadResult:
        """Read for the planned time; see ``BlockReader.run``."""
        self._child.send(b"go\n")
        result = self._follow(watch)
        self._child.close()  # cuFile's own driver counts are complete then
        counts = result.counts
        if counts is not None and self._plan.gpus and counts.requester is None:
            counts = counts.model_copy(update={"nvidia_fs_reads": self._driver_reads(counts)})
        return replace(result, software=self._software, counts=counts)

    def _follow(self, watch: ReadsWatch) -> ReadResult:
        """Return the result of the child, and report its reads to a watch meanwhile."""
        counted = _Counted(watch, lambda: self._child.send(b"start\n"))
        seen: tuple[int, int] | None = None
        seen_s = time.monotonic()
        while True:
            message = self._child.receive(HANG_S)
            if message and message.kind == "result":
                result: ReadResult = message.value
                counted.now(self._end_of(result))
                return result
            if message and message.kind == "error":
                raise failures.lost_error(message.value, self._way.hang_s)
            if message:
                done: Progress = message.value
                counted.now(done)
                if seen != (done.ended, done.stage):
                    seen, seen_s = (done.ended, done.stage), time.monotonic()
            if time.monotonic() - seen_s >= HANG_S:
                raise RunError(
                    f"reads hang: none has ended for {HANG_S:.0f} s, after {counted.reads} reads; "
                    "check the drive and the GPU in the kernel log"
                )

    def _end_of(self, result: ReadResult) -> Progress:
        by_plan = result.operations * self._plan.read_bytes
        return Progress(
            reads=result.operations,
            read_bytes=by_plan if result.drive_bytes is None else result.drive_bytes,
            ended=result.operations,
            stage=OVER,
            start_ns=result.start_ns,
            end_ns=result.end_ns,
        )

    def _driver_reads(self, counts: PathCounts) -> int | None:
        """Return the reads that nvidia-fs has counted since; none of reads through our buffers."""
        now = nvidia_fs_reads()
        if counts.pinned_copies is not None or now is None or self._fs_reads is None:
            return None
        return max(now - self._fs_reads, 0)

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._child.close()


def opened_error(error: Exception, plan: ReadPlan, less: str) -> Exception:
    """Return the exception for an error of a process that opens what a plan reads."""
    if not isinstance(error, NativeError):
        return error
    sizes = {str(file.path): file.size_bytes for file in plan.files}
    return failures.opening_error(error, sizes, less)


def driver_versions(roots: Roots = LIVE) -> dict[str, str]:
    """Return the versions of NVIDIA's driver and of nvidia-fs, by name, as far as there are any."""
    versions: dict[str, str] = {}
    with contextlib.suppress(OSError):
        found = _NVIDIA_DRIVER.search(read_text(roots.proc / "driver/nvidia/version"))
        if found:
            versions["nvidia_driver"] = found[1]
    module = nvidia_fs_version(roots)
    return versions if module is None else {**versions, "nvidia_fs": module}
