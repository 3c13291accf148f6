"""The training loop: load, sleep for the step time, barrier; and its times."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from wattload.core.io import Batch, Loader
from wattload.core.units import NS_PER_S
from wattload.workloads.unet3d.accounting import EpochTimes


@dataclass(frozen=True, slots=True)
class Delivered:
    """A hashed sample as it was handed over; digests are SHA-256 in hex.

    ``payload_digest`` is what the loader made of the whole decoded payload, ``None`` if it made
    none; ``row_digest`` is made here, of the row of the batch that stands in the sample's place.
    """

    index: int
    payload_digest: str | None
    row_digest: str


@dataclass(slots=True)
class _Tally:
    """What the batches of one epoch add up to; ``order`` says which sample each row must be."""

    order: Sequence[int]
    hashed: frozenset[int]
    payload_bytes: int = 0
    read_bytes: int = 0
    worker_cpu_s: float = 0.0
    hash_cpu_s: float = 0.0
    delivered: list[Delivered] = field(default_factory=list)
    _rows: int = 0

    def add(self, batch: Batch) -> None:
        """Count a batch."""
        self.payload_bytes += batch.payload_bytes
        self.read_bytes += batch.read_bytes
        self.worker_cpu_s += batch.worker_cpu_s
        self.hash_cpu_s += batch.hash_cpu_s
        first, self._rows = self._rows, self._rows + len(batch.tensor)
        for row, index in zip(batch.tensor, self.order[first : self._rows], strict=True):
            if index in self.hashed:
                start_s = time.thread_time()
                digest = hashlib.sha256(np.ascontiguousarray(row).data).hexdigest()
                self.hash_cpu_s += time.thread_time() - start_s
                self.delivered.append(Delivered(index, batch.digests.get(index), digest))


@dataclass(slots=True)
class _StepClock:
    """The three moments of each step, in the places where DLIO takes them."""

    loads_s: list[float] = field(default_factory=list)
    computes_s: list[float] = field(default_factory=list)
    processed_s: list[float] = field(default_factory=list)
    _loading_ns: int = 0
    _loaded_ns: int = 0

    def loading(self) -> None:
        """Begin a step."""
        self._loading_ns = time.monotonic_ns()

    def loaded(self) -> None:
        """The batch is there."""
        self._loaded_ns = time.monotonic_ns()
        self.loads_s.append((self._loaded_ns - self._loading_ns) / NS_PER_S)

    def computed(self) -> None:
        """The computation is over; the barrier comes after."""
        now_ns = time.monotonic_ns()
        self.computes_s.append((now_ns - self._loaded_ns) / NS_PER_S)
        self.processed_s.append((now_ns - self._loading_ns) / NS_PER_S)


def run_epoch(
    loader: Loader,
    order: Sequence[int],
    *,
    steps: int,
    per_rank: int,
    step_s: float,
    barrier: Callable[[], None],
    hashed: frozenset[int] = frozenset(),
) -> tuple[EpochTimes, list[Delivered]]:
    """Run one epoch and return its times and the digests of the samples that were hashed.

    In each step the rank takes a batch for each of its ``per_rank`` accelerators, which then
    compute at the same time (one sleep), and waits for the other ranks. That lasts as long as if
    each had its own rank: the barrier holds them in step anyway. The rows of the samples in
    ``hashed`` are hashed as they lie in the batch, which counts as waiting for it.
    """
    tally, clock = _Tally(order, hashed), _StepClock()
    cpu_s = time.process_time()
    start_ns = time.monotonic_ns()
    batches = loader.epoch(order)
    for _ in range(steps):
        clock.loading()
        for _ in range(per_rank):
            tally.add(next(batches))
        clock.loaded()
        if step_s:
            time.sleep(step_s)
        clock.computed()
        barrier()
    end_ns = time.monotonic_ns()
    times = EpochTimes(
        duration_s=(end_ns - start_ns) / NS_PER_S,
        load_s=tuple(clock.loads_s),
        compute_s=tuple(clock.computes_s),
        processed_s=tuple(clock.processed_s),
        payload_bytes=tally.payload_bytes,
        read_bytes=tally.read_bytes,
        cpu_s=time.process_time() - cpu_s + tally.worker_cpu_s,
        hash_cpu_s=tally.hash_cpu_s,
    )
    return times, tally.delivered
