"""The training loop: load, copy to the device, sleep for the step time, barrier."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wattload.core.io import Batch, Loader
from wattload.core.units import NS_PER_S
from wattload.loaders.devicecopy import Arrived, DeviceCopier
from wattload.workloads.unet3d.accounting import EpochTimes
from wattload.workloads.unet3d.stepclock import Part, StepClock


@dataclass(frozen=True, slots=True)
class Delivered:
    """A hashed sample as it was handed over; digests are SHA-256 in hex.

    ``payload_digest`` is what the loader made of the whole decoded payload, ``None`` if it made
    none; ``row_digest`` is made here, of the row of the batch that stands in the sample's place;
    ``device_digest`` of that row as it came back from the device, ``None`` if none did.
    """

    index: int
    payload_digest: str | None
    row_digest: str
    device_digest: str | None = None


@dataclass(slots=True)
class _Tally:
    """What the batches of one epoch add up to; ``order`` says which sample each row must be."""

    order: Sequence[int]
    hashed: Collection[int]
    payload_bytes: int = 0
    read_bytes: int = 0
    worker_cpu_s: float = 0.0
    hash_cpu_s: float = 0.0
    decode_s: list[float | None] = field(default_factory=list)
    copied_bytes: int = 0
    device_copy_s: float = 0.0
    _rows: int = 0
    _payloads: list[tuple[int, str | None, str]] = field(default_factory=list)
    _returned: dict[int, str] = field(default_factory=dict)

    def add(self, batch: Batch) -> Mapping[int, int]:
        """Count a batch and hash its chosen rows; returns those: the place of each in the epoch."""
        self.payload_bytes += batch.payload_bytes
        self.read_bytes += batch.read_bytes
        self.worker_cpu_s += batch.worker_cpu_s
        self.hash_cpu_s += batch.hash_cpu_s
        self.decode_s.append(batch.decode_s)
        first, self._rows = self._rows, self._rows + len(batch.tensor)
        chosen = {}
        indices = self.order[first : self._rows]
        for number, (row, index) in enumerate(zip(batch.tensor, indices, strict=True)):
            if index in self.hashed:
                chosen[number] = len(self._payloads)
                self._payloads.append((index, batch.digests.get(index), self._hash(row)))
        return chosen

    def arrived(self, copies: Sequence[Arrived]) -> None:
        """Count batches that are on the device."""
        for copy in copies:
            self.copied_bytes += copy.copied_bytes
            self.device_copy_s += copy.device_s
            self._returned |= {place: self._hash(row) for place, row in copy.rows.items()}

    def delivered(self) -> list[Delivered]:
        """Return the hashed samples in the order in which they came."""
        return [
            Delivered(*parts, device_digest=self._returned.get(place))
            for place, parts in enumerate(self._payloads)
        ]

    def _hash(self, row: NDArray[np.uint8]) -> str:
        start_s = time.thread_time()
        digest = hashlib.sha256(np.ascontiguousarray(row).data).hexdigest()
        self.hash_cpu_s += time.thread_time() - start_s
        return digest


def run_epoch(
    loader: Loader,
    order: Sequence[int],
    *,
    steps: int,
    per_rank: int,
    step_s: float,
    barrier: Callable[[], None],
    hashed: Collection[int] = (),
    copier: DeviceCopier | None = None,
) -> tuple[EpochTimes, list[Delivered]]:
    """Run one epoch and return its times and the digests of the samples that were hashed.

    In each step the rank takes a batch for each of its ``per_rank`` accelerators, which then
    compute at the same time (one sleep), and waits for the other ranks. That lasts as long as if
    each had its own rank: the barrier holds them in step anyway. The rows of the samples in
    ``hashed`` are hashed as they lie in the batch; that is the ``rest`` of a step.

    A ``copier`` begins to bring each batch to the device, which goes on under the computation and
    the next wait. All have arrived when the epoch ends.
    """
    tally, clock = _Tally(order, hashed), StepClock()
    cpu_s = time.process_time()
    clock.start()
    batches = loader.epoch(order)
    for step in range(steps):
        for _ in range(per_rank):
            batch = next(batches)
            clock.lap(Part.LOAD)
            chosen = tally.add(batch)
            clock.lap(Part.REST)
            if copier is not None:
                _send(copier, batch, chosen, tally, clock)
        if step_s:
            time.sleep(step_s)
        clock.lap(Part.COMPUTE)
        if copier is not None and step == steps - 1:
            _receive(copier.finish(), tally, clock)
        barrier()
        clock.lap(Part.BARRIER)
        clock.end_step()
    cpu_s = time.process_time() - cpu_s + tally.worker_cpu_s
    return _times(clock, tally, cpu_s=cpu_s, has_device=copier is not None), tally.delivered()


def _send(
    copier: DeviceCopier,
    batch: Batch,
    chosen: Mapping[int, int],
    tally: _Tally,
    clock: StepClock,
) -> None:
    """Begin to copy a batch, with the chosen rows brought back, and take in an earlier one."""
    _receive(copier.make_room(), tally, clock)
    copier.copy(batch.tensor, chosen)
    clock.lap(Part.COPY)


def _receive(arrived: Sequence[Arrived], tally: _Tally, clock: StepClock) -> None:
    clock.lap(Part.COPY)
    tally.arrived(arrived)
    clock.lap(Part.REST)


def _times(clock: StepClock, tally: _Tally, *, cpu_s: float, has_device: bool) -> EpochTimes:
    decode_s = [seconds for seconds in tally.decode_s if seconds is not None]
    return EpochTimes(
        duration_s=clock.duration_ns / NS_PER_S,
        load_s=clock.seconds(Part.LOAD),
        copy_s=clock.seconds(Part.COPY) if has_device else None,
        compute_s=clock.seconds(Part.COMPUTE),
        processed_s=clock.processed_s(),
        barrier_s=clock.seconds(Part.BARRIER),
        rest_s=clock.seconds(Part.REST),
        step_s=clock.steps_s(),
        decode_s=tuple(decode_s) if len(decode_s) == len(tally.decode_s) else None,
        payload_bytes=tally.payload_bytes,
        read_bytes=tally.read_bytes,
        cpu_s=cpu_s,
        hash_cpu_s=tally.hash_cpu_s,
        copied_bytes=tally.copied_bytes,
        device_copy_s=tally.device_copy_s,
    )
