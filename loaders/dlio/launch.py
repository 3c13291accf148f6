"""Starts dlio-benchmark without two packages that unet3d does not need, and reports from it.

``python -m wattload.loaders.dlio.launch`` takes the program's own (Hydra's) arguments. Release
2.0.0 imports pydftracer (``dftracer.logger``), and fails without it, because its own fallback takes
no arguments. It also imports TensorFlow, for a profiler that is off.

DLIO decorates its functions with the tracer's ``log`` and its batches with ``iter``. Our
replacement leaves all of them unchanged, with three exceptions. ``DLIOBenchmark._train``, one
epoch, is reported before it begins, where it waits for permission, and after it has ended. Every
batch of it is reported. A DataLoader worker is set up, as it begins, to end with the process that
started it.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import resource
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, Self, TypeVar

from wattload.core.mpich import unlink_shared_memory, wait_for_reader
from wattload.loaders.dlio.config import ChildSettings

_CPU_CLOCK = 2
"""``CPUCLOCK_SCHED`` of ``linux/posix-timers.h``: the scheduler's count of a process, in ns."""


Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")

EPOCH_FUNCTION = "DLIOBenchmark._train"
"""The function that runs one epoch, ``_train(self, epoch)``, in dlio-benchmark 2.0.0."""

WORKER_FUNCTION = "TorchDataset.worker_init"
"""The function that a DataLoader worker begins with, ``worker_init(self, worker_id)``, there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU seconds, and bytes read as ``proc(5)`` counts them in ``/proc/PID/io``.

    ``called_bytes`` is ``rchar``, the bytes that read calls returned from any source.
    ``storage_bytes`` is ``read_bytes``, the bytes fetched from storage. ``None`` where the kernel
    does not report them.
    """

    cpu_s: float
    called_bytes: int | None
    storage_bytes: int | None

    def since(self, earlier: Usage) -> Usage:
        return Usage(
            cpu_s=self.cpu_s - earlier.cpu_s,
            called_bytes=_difference(self.called_bytes, earlier.called_bytes),
            storage_bytes=_difference(self.storage_bytes, earlier.storage_bytes),
        )


def usage() -> Usage:
    """Return the usage of this process and its descendants so far, exited ones included."""
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    members = list(_members(os.getpid()))
    counts = [_io_counts(pid) for pid in members]
    return Usage(
        cpu_s=reaped.ru_utime + reaped.ru_stime + sum(_cpu_s(pid) for pid in members),
        called_bytes=_total(counts, "rchar"),
        storage_bytes=_total(counts, "read_bytes"),
    )


def peak_memory_bytes() -> int | None:
    """Return the most memory of this process and its living descendants, each at its own peak.

    Pages that they share are divided among them (PSS). What a process has released since its peak
    (VmHWM less VmRSS) counts as its own. ``None`` where the kernel does not report it. It takes
    milliseconds: the kernel walks their pages.
    """
    found = [_peak_bytes(pid) for pid in _members(os.getpid())]
    known = [size for size in found if size is not None]
    return sum(known) if known and len(known) == len(found) else None


def _members(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [word for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return  # it ended meanwhile
    for child in children:
        yield from _members(int(child))


def _cpu_s(pid: int) -> float:
    """Return a process's CPU seconds from its clock, to the nanosecond; 0 once it has ended.

    The clock's id is that of ``clock_getcpuclockid(3)``: the pid's complement, shifted by 3.
    """
    try:
        return time.clock_gettime(~pid << 3 | _CPU_CLOCK)
    except OSError:
        return 0.0


def _io_counts(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/io").read_text("ascii").splitlines()
    except OSError:
        return {}
    return {name: int(count) for name, _, count in (line.partition(": ") for line in lines)}


def _peak_bytes(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
        text += Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = dict(line.partition(":")[::2] for line in text.splitlines())
    try:
        pss, peak, now = (int(fields[name].split()[0]) for name in ("Pss", "VmHWM", "VmRSS"))
    except (KeyError, IndexError):
        return None  # a kernel without the field, or a zombie
    return (pss + peak - now) * 1024


def _total(counts: list[dict[str, int]], name: str) -> int | None:
    known = [count[name] for count in counts if name in count]
    return sum(known) if known else None


def _difference(later: int | None, earlier: int | None) -> int | None:
    return None if later is None or earlier is None else later - earlier


class EpochClient:
    """This process's connection to the epoch server; without one it reports nothing."""

    def __init__(self, settings: ChildSettings | None) -> None:
        self._settings = settings
        self._socket: socket.socket | None = None
        self._place: dict[str, int] | None = None

    def run_epoch(
        self,
        benchmark: Any,  # noqa: ANN401 - DLIO's own type
        epoch: int,
        run: Callable[[], T],
    ) -> T:
        """Run one epoch when the server permits it; report its end and its usage."""
        if self._settings is None:
            return run()
        if self._socket is None:
            self._socket = _connected(self._settings.socket)
        self._place = {"rank": int(benchmark.my_rank), "epoch": epoch}
        before = usage()
        self._send("ready")
        if not self._socket.recv(1):
            os._exit(1)  # the run that started this program has ended
        begin_ns = time.monotonic_ns()
        result = run()
        self._send("done", begin_ns=begin_ns, end_ns=time.monotonic_ns())
        spent = usage().since(before)
        self._send("spent", **asdict(spent), peak_bytes=peak_memory_bytes())
        self._place = None
        return result

    def batches(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, and report each one."""
        for batch in batches:
            self._send("batch")
            yield batch

    def _send(self, event: str, **fields: object) -> None:
        if self._socket is not None and self._place is not None:
            message = {"event": event, **self._place, **fields}
            self._socket.sendall(json.dumps(message).encode() + b"\n")


def _connected(address: str) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect(address)
    _end_with(line.fileno())
    return line


def _end_with_parent() -> None:
    """End this worker when the process that started it ends, for any reason.

    PyTorch's own check compares parents, and misses a parent that had ended before the first check.
    Such a worker would wait forever, and mpirun for the output that the worker holds open.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        _end_with(parent.sentinel)


def _end_with(other: int) -> None:
    """End this process when the other end of a socket or pipe is closed."""
    threading.Thread(target=_end_after, args=(other,), name="end-with-run", daemon=True).start()


def _end_after(other: int) -> None:
    poll = select.poll()
    poll.register(other, select.POLLHUP)
    poll.poll()
    os._exit(1)


_epoch_client = EpochClient(ChildSettings.from_environment())


class Tracer:
    """What DLIO calls ``dft_fn``: decorators, a context manager and marks, without effect."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def log(self, function: Function) -> Function:
        """Return the function; those that run an epoch or start a worker are wrapped."""
        name = getattr(function, "__qualname__", "")

        @functools.wraps(function)
        def announced(benchmark: object, epoch: int) -> object:
            return _epoch_client.run_epoch(benchmark, epoch, lambda: function(benchmark, epoch))

        @functools.wraps(function)
        def bound(data_set: object, number: int) -> object:
            _end_with_parent()
            return function(data_set, number)

        ours = {EPOCH_FUNCTION: announced, WORKER_FUNCTION: bound}
        return ours.get(name, function)  # type: ignore[return-value]  # the same calls

    log_init = log_static = log

    def iter(self, batches: Iterable[T], *_: object, **__: object) -> Iterator[T]:
        """Return the batches; each is reported as it arrives."""
        return _epoch_client.batches(batches)

    def update(self, *_: object, **__: object) -> Self:
        return self

    def flush(self) -> None:
        """Write nothing."""

    def reset(self) -> None:
        """Forget nothing."""


class TraceLog:
    """What DLIO calls ``dftracer``: the log of a tracer that is off."""

    def initialize_log(self, *_: object, **__: object) -> None:
        """Open no log."""

    def finalize(self, *_: object, **__: object) -> None:
        """Close none."""


class NoTensorFlowProfiler:
    """Replaces ``TFProfiler``, which only ``profiling.profiler=tensorboard`` needs."""

    @staticmethod
    def get_instance() -> NoReturn:
        """Raise an error that names what is missing."""
        raise RuntimeError("dlio-benchmark's TensorFlow profiler needs TensorFlow")


def install_stubs() -> None:
    logger = _module("dftracer.logger", dftracer=TraceLog(), dft_fn=Tracer, DFTRACER_ENABLE=False)
    _module("dftracer", logger=logger)
    _module("dlio_benchmark.profiler.tf_profiler", TFProfiler=NoTensorFlowProfiler)


def main() -> None:
    """Run the program; if it fails on one rank, end the others too, which would wait for it."""
    # By default Hydra shortens the program's own error to its last line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        from dlio_benchmark.main import main as benchmark

        _connect_ranks()
        benchmark()
    except BaseException:
        traceback.print_exc()
        wait_for_reader()
        _end_all_ranks()
        raise SystemExit(1) from None


def _connect_ranks() -> None:
    """Initialize MPI, as the program would, and leave no shared memory if the job is ended."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    unlink_shared_memory()


def _end_all_ranks() -> None:
    from mpi4py import MPI

    if MPI.Is_initialized() and MPI.COMM_WORLD.Get_size() > 1:
        MPI.COMM_WORLD.Abort(1)


def _module(name: str, **contents: object) -> ModuleType:
    module = ModuleType(name, "Replaces the package of this name.")
    module.__dict__.update(contents)
    sys.modules[name] = module
    return module


if __name__ in {"__main__", "__mp_main__"}:  # a DataLoader worker that is spawned imports it too
    install_stubs()
if __name__ == "__main__":
    main()
