"""The process that reads into GPU memory, from the side of the run.

Every reader has a process of its own: CUDA and cuFile stay out of the run, their statistics are of
this reader alone, and a driver that hangs can be ended. It ends with the run, however the run ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from wattload.core.errors import RunError
from wattload.core.histogram import BUCKET_COUNT, Histogram
from wattload.core.host.topology import cpus_of_node, parse_cpus
from wattload.core.io import DataPath, PathCounts
from wattload.core.sysfs import LIVE, Roots, read_text
from wattload.loaders.gpu import failures, nvidia_fs
from wattload.loaders.gpu.native import CHECKED, OVER, NativeError
from wattload.loaders.gpu_reads import GpuReadPlan, GpuReadResult, ReadsWatch

MODULE = "wattload.loaders.gpu"
NAME = "the process that reads into GPU memory"

PREPARE_S = 120.0
"""Longer than the registration of thousands of buffers: 512 take 4 to 5 s."""

HANG_S = 60.0
"""Without the end of any read for so long, a read hangs. NVMe commands time out after 30 s."""

END_S = 5.0
_TAIL_BYTES = 2000

_NVIDIA_DRIVER = re.compile(r"Kernel Module\s+(?:for \S+\s+)?([0-9.]+)")


def specification(
    plan: GpuReadPlan, *, way: str, module: str = "", pollers: int = 1, roots: Roots = LIVE
) -> dict[str, Any]:
    """Return what the process is asked to do: the plan, with GPUs by number and CPUs by GPU."""
    nodes = {file.gpu: file.node for file in plan.files}
    gpus = list(nodes)
    return {
        "way": way,
        "module": module,
        "pollers": pollers,
        "threads": plan.threads,
        "block_bytes": plan.block_bytes,
        "checked_reads": plan.checked_reads,
        "duration_s": plan.duration_s,
        "seed": plan.seed,
        "files": [
            {
                "path": str(file.path),
                "size_bytes": file.size_bytes,
                "gpu": gpus.index(file.gpu),
                "nonce": file.stamps.nonce,
                "word": file.stamps.word,
                "first_block": file.stamps.first_block,
            }
            for file in plan.files
        ],
        "gpus": [
            {"address": gpu, "cpus": allowed_cpus(node, roots)} for gpu, node in nodes.items()
        ],
    }


def allowed_cpus(node: int | None, roots: Roots) -> list[int]:
    """Return the CPUs of a node that this process may use; empty for any CPU."""
    if node is None:
        return []
    try:
        return sorted(parse_cpus(cpus_of_node(node, roots)) & os.sched_getaffinity(0))
    except OSError:
        return []


class Child:
    """The process of a module and its two pipes. Lines are JSON; see ``serving.py``."""

    def __init__(
        self,
        request: Mapping[str, Any],
        environment: Mapping[str, str],
        *,
        module: str = MODULE,
        name: str = NAME,
    ) -> None:
        self._name = name
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the child
        self._buffer = b""
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-m", module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            bufsize=0,
        )
        self.send(json.dumps(request))

    def send(self, line: str) -> None:
        """Send a line; one that has ended is found out when its answer is missing."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
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
        message: dict[str, Any] = json.loads(line)
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
        return f"{self._name} {how}{self._last_words()}"

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
    """How a loader reads: the child's way, the path that a record names, and the child's variables.

    ``pins`` is whether the reader copies from pinned buffers of its own, ``library`` whether a
    library counts. ``module`` has ``open_reads``, which stands for ``native.Reads`` in ways that
    are not the engine's.
    """

    name: str
    module: str = ""
    path: DataPath
    pollers: int = 1
    pins: bool = False
    library: bool = False
    variables: Mapping[str, str]


class _Counted:
    """Reports the reads of the timed stretch to a watch, within its beginning and its end."""

    def __init__(self, watch: ReadsWatch, start: Callable[[], None]) -> None:
        self._watch, self._start = watch, start
        self._is_open = self._is_over = False
        self.reads = self.read_bytes = 0

    def now(self, reads: int, read_bytes: int, stage: int, edges_ns: tuple[int, int]) -> None:
        """Report what has been read so far; once the time is over, nothing is added."""
        if not self._is_open and stage >= CHECKED:
            self._watch.begin()
            self._is_open = True
            self._start()
        if not self._is_open or self._is_over:
            return
        if reads > self.reads or stage >= OVER:  # a count under way may lag behind one before it
            self._watch.moved(reads - self.reads, read_bytes - self.read_bytes)
            self.reads, self.read_bytes = reads, read_bytes
        if stage >= OVER:
            self._watch.end(*edges_ns)
            self._is_over = True


def follow(
    child: Child, watch: ReadsWatch, *, lost: Callable[[NativeError], Exception]
) -> dict[str, Any]:
    """Return the figures of the reads that a child makes, and report them to a watch meanwhile.

    ``lost`` makes the exception for an error that ended them.

    Raises:
        RunError: the process has ended, or no read ends any more.
    """
    counted = _Counted(watch, lambda: child.send("start"))
    seen: tuple[int, int] | None = None
    seen_s = time.monotonic()
    while True:
        message = child.receive(HANG_S)
        if message and "result" in message:
            result: dict[str, Any] = message["result"]
            edges_ns = (result["start_ns"], result["end_ns"])
            counted.now(result["operations"], result["bytes"], OVER, edges_ns)
            return result
        if message and "error" in message:
            raise lost(native_error(message["error"]))
        if message:
            reads, read_bytes, ended, stage, *edges = message["moved"]
            counted.now(reads, read_bytes, stage, (edges[0], edges[1]))
            if seen != (ended, stage):
                seen, seen_s = (ended, stage), time.monotonic()
        if time.monotonic() - seen_s >= HANG_S:
            raise RunError(
                f"reads hang: none has ended for {HANG_S:.0f} s, after {counted.reads} reads; "
                "check the drive and the GPU in the kernel log"
            )


class ProcessReader:
    """Readers in a process of their own; implements ``GpuReader``."""

    def __init__(self, plan: GpuReadPlan, way: Way) -> None:
        """Start the process and prepare it.

        Raises:
            ConfigError: the GPU or the library refuses.
            TargetError: cuFile or the file system refuses a file.
            OSError: a file can't be opened.
            RunError: the process ended, or did not answer.
        """
        self._plan, self._way = plan, way
        self._fs_reads = nvidia_fs.reads()
        self._child = Child(
            specification(plan, way=way.name, module=way.module, pollers=way.pollers),
            environment_of(**way.variables),
        )
        try:
            self._software = {**self._ready()["software"], **driver_versions()}
        except BaseException:
            self._child.close()
            raise

    def _ready(self) -> dict[str, Any]:
        message = self._child.receive(PREPARE_S)
        if message is None:
            raise RunError(
                f"{NAME} was not ready in {PREPARE_S:.0f} s, with "
                f"{self._plan.threads} threads; use fewer threads, and check the GPU with "
                "nvidia-smi"
            )
        if "error" in message:
            raise failures.preparation_error(native_error(message["error"]), self._plan)
        ready: dict[str, Any] = message["ready"]
        return ready

    def path(self) -> DataPath:
        """Return the requested path; ``counts`` come with the result."""
        return self._way.path

    def run(self, watch: ReadsWatch) -> GpuReadResult:
        """Read for the planned time; see ``GpuReader.run``."""
        self._child.send("go")
        figures = follow(self._child, watch, lost=failures.lost_error)
        self._child.close()  # cuFile's own driver counts are complete then
        result = self._result(figures)
        if not result.counts.reads and figures["failures"]:
            raise failures.failure_error(figures["failures"][0][0], self._plan)
        return result

    def _result(self, figures: Mapping[str, Any]) -> GpuReadResult:
        return GpuReadResult(
            operations=figures["operations"],
            moved_bytes=figures["bytes"],
            start_ns=figures["start_ns"],
            end_ns=figures["end_ns"],
            cpu_s=figures["cpu_ns"] / 1e9,
            latency=_histogram(figures),
            cut_s=figures["cut_ns"] / 1e9,
            counts=self._counts(figures),
            file_operations=tuple(figures["file_operations"]),
            failures={failures.failure_clause(code): count for code, count in figures["failures"]},
            compared_bytes=figures["compared_bytes"],
            bad_blocks=figures["bad_blocks"],
            software=self._software,
        )

    def _counts(self, figures: Mapping[str, Any]) -> PathCounts:
        own: dict[str, int | None] = {}
        if self._way.pins:
            own = {name: figures[name] for name in ("pinned_copies", "pinned_bytes")}
        if self._way.library:
            names = ("library_reads", "p2p_reads", "nvfs_reads", "posix_reads", "peer_reads")
            own |= dict(zip(names, figures["library"] or [None] * len(names), strict=True))
            now = nvidia_fs.reads()
            if now is not None and self._fs_reads is not None:
                own["nvidia_fs_reads"] = max(now - self._fs_reads, 0)
        return PathCounts(reads=figures["reads"], read_bytes=figures["read_bytes"], **own)

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._child.close()


def native_error(fields: Mapping[str, Any]) -> NativeError:
    return NativeError(**fields)


def _histogram(figures: Mapping[str, Any]) -> Histogram:
    counts = np.zeros(BUCKET_COUNT, dtype=np.uint64)
    for bucket, count in figures["latencies"]:
        counts[bucket] = count
    if not figures["operations"]:
        return Histogram(counts)
    return Histogram(counts, *figures["latency_ns"])


def driver_versions(roots: Roots = LIVE) -> dict[str, str]:
    """Return the versions of NVIDIA's driver and of nvidia-fs, by name, as far as there are any."""
    versions: dict[str, str] = {}
    with contextlib.suppress(OSError):
        found = _NVIDIA_DRIVER.search(read_text(roots.proc / "driver/nvidia/version"))
        if found:
            versions["nvidia_driver"] = found[1]
    module = nvidia_fs.version(roots)
    return versions if module is None else {**versions, "nvidia_fs": module}
