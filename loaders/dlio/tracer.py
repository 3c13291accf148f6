"""Stands in for DLIO's tracer inside its processes, and tells the conductor what they do.

DLIO decorates its functions with the tracer's ``log`` and its batches with ``iter``. This one
leaves them all as they are but three: ``DLIOBenchmark._train``, one epoch, is announced before it
begins, which waits for leave, and after it has ended; and so is every batch of it; and a DataLoader
worker, as it begins, is made to end with the process that started it.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self, TypeVar

from wattload.loaders.dlio.errand import Errand
from wattload.loaders.dlio.usage import peak_memory_bytes, usage

Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")

EPOCH = "DLIOBenchmark._train"
"""The function that runs one epoch, ``_train(self, epoch)``, in dlio-benchmark 2.0.0."""

WORKER = "TorchDataset.worker_init"
"""The function that a DataLoader worker begins with, ``worker_init(self, worker_id)``, there."""


class Announcer:
    """This process's line to the conductor; without one it says nothing and waits for nobody."""

    def __init__(self, errand: Errand | None) -> None:
        self._errand = errand
        self._line: socket.socket | None = None
        self._place: dict[str, int] | None = None

    def run_epoch(self, benchmark: Any, epoch: int, run: Callable[[], T]) -> T:  # noqa: ANN401
        """Run one epoch when the conductor gives leave; tell when it is over and what it took."""
        if self._errand is None:
            return run()
        if self._line is None:
            self._line = _connected(self._errand.socket)
        self._place = {"rank": int(benchmark.my_rank), "epoch": epoch}
        before = usage()
        self._say("ready")
        if not self._line.recv(1):
            os._exit(1)  # the run that started this program has ended
        begin_ns = time.monotonic_ns()
        result = run()
        self._say("done", begin_ns=begin_ns, end_ns=time.monotonic_ns())
        spent = usage().since(before)
        self._say("spent", **asdict(spent), peak_bytes=peak_memory_bytes())
        self._place = None
        return result

    def batches(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, and tell of each that has come."""
        for batch in batches:
            self._say("batch")
            yield batch

    def _say(self, event: str, **fields: object) -> None:
        if self._line is not None and self._place is not None:
            message = {"event": event, **self._place, **fields}
            self._line.sendall(json.dumps(message).encode() + b"\n")


def _connected(address: str) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect(address)
    _end_with(line.fileno())
    return line


def _end_with_parent() -> None:
    """End this worker when the process that started it does, however that comes about.

    PyTorch's own watch compares parents, and never sees one that had ended before it first looked:
    such a worker would wait for ever, and mpirun for the output that the worker holds open.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        _end_with(parent.sentinel)


def _end_with(other: int) -> None:
    """End this process when the other end of a socket or pipe has gone."""
    threading.Thread(target=_end_after, args=(other,), name="end-with-run", daemon=True).start()


def _end_after(other: int) -> None:
    poll = select.poll()
    poll.register(other, select.POLLHUP)
    poll.poll()
    os._exit(1)


_announcer = Announcer(Errand.given())


class Tracer:
    """What DLIO calls ``dft_fn``: decorators, a context manager and marks, all without effect."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def log(self, function: Function) -> Function:
        """Return the function, and those of ``EPOCH`` and ``WORKER`` with ours around them."""
        name = getattr(function, "__qualname__", "")

        @functools.wraps(function)
        def announced(benchmark: Any, epoch: int) -> Any:  # noqa: ANN401 - DLIO's own types
            return _announcer.run_epoch(benchmark, epoch, lambda: function(benchmark, epoch))

        @functools.wraps(function)
        def bound(data_set: Any, number: int) -> Any:  # noqa: ANN401 - DLIO's own types
            _end_with_parent()
            return function(data_set, number)

        ours = {EPOCH: announced, WORKER: bound}
        return ours.get(name, function)  # type: ignore[return-value]  # the same calls

    log_init = log_static = log

    def iter(self, batches: Iterable[T], *_: object, **__: object) -> Iterator[T]:
        """Return the batches, each announced as it comes."""
        return _announcer.batches(batches)

    def update(self, *_: object, **__: object) -> Self:
        """Note nothing."""
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
