"""The training loop: load, copy to the device, sleep for the step time, barrier.

The same loop from memory measures the ceiling of the harness. All time of a step belongs to one of
five parts, those of ``wattload.results.training``.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import WattloadError
from wattload.core.io import Batch, Loader, VerifiedSamples
from wattload.core.units import NS_PER_S
from wattload.core.workload import Communicator, Device
from wattload.loaders.device_copy import Arrived, DeviceCopier, cuda_copier, require_cuda
from wattload.loaders.samples import SampleLoaderConfig, SampleSet
from wattload.results.training.facts import BARRIER, COMPUTE, COPY, LOAD, PARTS, REST, Epoch

CEILING_S = 3.0
CEILING_BATCHES_MIN = 8
CEILING_BATCHES_MAX = 512
NO_DEVICE = "accelerator.device is none, so batches stay in host memory"


def run_epoch(
    loader: Loader,
    order: Sequence[int],
    *,
    steps: int,
    per_rank: int,
    step_s: float,
    barrier: Callable[[], None],
    drawn: Collection[int] = (),
    copier: DeviceCopier | None = None,
) -> tuple[EpochTimes, Delivered]:
    """Run one epoch and return its times and what was verified of its samples.

    In each step the rank takes a batch for each of its ``per_rank`` accelerators. They compute at
    the same time (one sleep), then the rank waits for the other ranks. This takes as long as with
    one rank per accelerator, because the barrier keeps them in step anyway. The rows of the samples
    in ``drawn`` are hashed in place; this is the ``rest`` of a step.

    A ``copier`` starts to copy each batch to the device while computation and the next wait go on.
    All copies have finished when the epoch ends.
    """
    tally, clock = _Tally(order, drawn), StepClock()
    cpu_s = time.process_time()
    clock.start()
    batches = loader.epoch(order)
    for step in range(steps):
        for _ in range(per_rank):
            batch = next(batches)
            clock.lap(LOAD)
            hashed_rows = tally.add(batch)
            clock.lap(REST)
            if copier is not None:
                _send(copier, batch, hashed_rows, tally, clock)
        if step_s:
            time.sleep(step_s)
        clock.lap(COMPUTE)
        if copier is not None and step == steps - 1:
            _receive(copier.finish(), tally, clock)
        barrier()
        clock.lap(BARRIER)
        clock.end_step()
    cpu_s = time.process_time() - cpu_s + tally.worker_cpu_s
    return _times(clock, tally, cpu_s=cpu_s, has_device=copier is not None), tally.delivered()


def _send(
    copier: DeviceCopier,
    batch: Batch,
    hashed_rows: Mapping[int, int],
    tally: _Tally,
    clock: StepClock,
) -> None:
    """Start to copy a batch and read its hashed rows back; receive earlier copies."""
    _receive(copier.make_room(), tally, clock)
    copier.copy(batch.tensor, hashed_rows)
    clock.lap(COPY)


def _receive(arrived: Sequence[Arrived], tally: _Tally, clock: StepClock) -> None:
    clock.lap(COPY)
    tally.arrived(arrived)
    clock.lap(REST)


def _times(clock: StepClock, tally: _Tally, *, cpu_s: float, has_device: bool) -> EpochTimes:
    timed = [part for part in PARTS if part != COPY or has_device]
    return EpochTimes(
        duration_s=clock.duration_ns / NS_PER_S,
        parts_s={part: clock.seconds(part) for part in timed},
        processed_s=clock.processed_s(),
        step_s=clock.steps_s(),
        decode_s=_all_known(tally.decode_s),
        open_s=_all_known(tally.open_s),
        read_bytes=tally.read_bytes,
        cpu_s=cpu_s,
        hash_cpu_s=tally.hash_cpu_s,
        copied_bytes=tally.copied_bytes,
        device_copy_s=tally.device_copy_s,
    )


def _all_known(seconds: Sequence[float | None]) -> tuple[float, ...] | None:
    known = tuple(each for each in seconds if each is not None)
    return known if len(known) == len(seconds) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTimes:
    """One epoch on one rank; times in seconds, one entry per step.

    ``parts_s`` are those that were timed, in results' names. ``step_s`` is the whole step by a
    separate clock (CLOCK_MONOTONIC_RAW). ``processed_s`` is DLIO's: the step up to the end of the
    computation, without the barrier. ``decode_s`` has an entry per batch: the time that the
    loader's workers spent on decoding it; ``open_s`` likewise for opening and closing its files.
    ``None`` means not measured.

    ``duration_s`` is the whole epoch including barriers. ``cpu_s`` includes the loader's own
    processes. ``copied_bytes`` arrived on the device, in ``device_copy_s`` seconds of its clock.
    """

    duration_s: float
    parts_s: Mapping[str, tuple[float, ...]]
    processed_s: tuple[float, ...]
    read_bytes: int
    cpu_s: float
    hash_cpu_s: float | None = None
    step_s: tuple[float, ...] | None = None
    decode_s: tuple[float, ...] | None = None
    open_s: tuple[float, ...] | None = None
    copied_bytes: int = 0
    device_copy_s: float = 0.0

    def summed(self) -> Epoch:
        """Return the facts of the epoch."""
        return Epoch(
            duration_s=self.duration_s,
            first_step_s=self.processed_s[0],
            first_compute_s=self.parts_s[COMPUTE][0],
            parts_s={part: sum(seconds) for part, seconds in self.parts_s.items()},
            steps_s=None if self.step_s is None else sum(self.step_s),
            decode_s=None if self.decode_s is None else sum(self.decode_s),
            open_s=None if self.open_s is None else sum(self.open_s),
            read_bytes=self.read_bytes,
            cpu_s=self.cpu_s,
            hash_cpu_s=self.hash_cpu_s,
            copied_bytes=self.copied_bytes,
            device_copy_s=self.device_copy_s,
        )


class StepClock:
    """Times the parts of each step by CLOCK_MONOTONIC, and whole steps by CLOCK_MONOTONIC_RAW.

    Raw time comes from the same counter but is not adjusted by NTP, which changes CLOCK_MONOTONIC
    by at most 500 ppm (adjtimex(2)). The two totals of an epoch have to agree within that.
    """

    def __init__(self) -> None:
        self._steps: list[dict[str, int]] = []
        self._raw_ns: list[int] = []
        self._step: dict[str, int] = dict.fromkeys(PARTS, 0)
        self._start_ns = self._mark_ns = self._raw_mark_ns = 0

    def start(self) -> None:
        """Start the epoch and its first step."""
        self._raw_mark_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        self._start_ns = self._mark_ns = time.monotonic_ns()

    def lap(self, part: str) -> None:
        """Attribute the time since the last lap to a part."""
        now_ns = time.monotonic_ns()
        self._step[part] += now_ns - self._mark_ns
        self._mark_ns = now_ns

    def end_step(self) -> None:
        raw_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        self._raw_ns.append(raw_ns - self._raw_mark_ns)
        self._raw_mark_ns = raw_ns
        self._steps.append(self._step)
        self._step = dict.fromkeys(PARTS, 0)

    @property
    def duration_ns(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC from the start to the last lap."""
        return self._mark_ns - self._start_ns

    def seconds(self, part: str) -> tuple[float, ...]:
        """Return the seconds of one part, per step."""
        return tuple(step[part] / NS_PER_S for step in self._steps)

    def processed_s(self) -> tuple[float, ...]:
        """Return what DLIO calls processing, per step: everything except the barrier."""
        return tuple((sum(step.values()) - step[BARRIER]) / NS_PER_S for step in self._steps)

    def steps_s(self) -> tuple[float, ...]:
        """Return the seconds of each step by CLOCK_MONOTONIC_RAW."""
        return tuple(raw_ns / NS_PER_S for raw_ns in self._raw_ns)


@dataclass(frozen=True, slots=True)
class DeliveredRow:
    """The digests of a delivered row of a batch, SHA-256 in hex.

    ``row_digest`` is of the sample's row in the batch. ``device_digest`` is of that row as read
    back from the device, ``None`` if it was not.
    """

    index: int
    row_digest: str
    device_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """What was verified of an epoch's samples: by the loader, and of the drawn rows."""

    read_bytes: int
    verified: VerifiedSamples
    rows: Sequence[DeliveredRow]


@dataclass(slots=True)
class _Tally:
    """The totals of one epoch's batches; ``order`` is the expected sample of each row."""

    order: Sequence[int]
    drawn: Collection[int]
    read_bytes: int = 0
    worker_cpu_s: float = 0.0
    hash_cpu_s: float = 0.0
    decode_s: list[float | None] = field(default_factory=list)
    open_s: list[float | None] = field(default_factory=list)
    copied_bytes: int = 0
    device_copy_s: float = 0.0
    _row_count: int = 0
    _verified: VerifiedSamples = field(default_factory=VerifiedSamples)
    _rows: list[tuple[int, str]] = field(default_factory=list)
    _returned: dict[int, str] = field(default_factory=dict)

    def add(self, batch: Batch) -> Mapping[int, int]:
        """Count a batch and hash its selected rows; return the position of each in the epoch."""
        self.read_bytes += batch.read_bytes
        self.worker_cpu_s += batch.worker_cpu_s
        self.hash_cpu_s += batch.verified.cpu_s
        self._verified.add(batch.verified)
        self.decode_s.append(batch.decode_s)
        self.open_s.append(batch.open_s)
        first, self._row_count = self._row_count, self._row_count + len(batch.tensor)
        hashed_rows = {}
        indices = self.order[first : self._row_count]
        for number, index in enumerate(indices):
            if index in self.drawn:
                hashed_rows[number] = len(self._rows)
                self._rows.append((index, self._hash(batch.tensor[number])))
        return hashed_rows

    def arrived(self, copies: Sequence[Arrived]) -> None:
        for copy in copies:
            self.copied_bytes += copy.copied_bytes
            self.device_copy_s += copy.device_s
            self._returned |= {place: self._hash(row) for place, row in copy.rows.items()}

    def delivered(self) -> Delivered:
        """Return what was verified, the rows in order of arrival."""
        rows = [
            DeliveredRow(*parts, device_digest=self._returned.get(place))
            for place, parts in enumerate(self._rows)
        ]
        return Delivered(self.read_bytes, self._verified, rows)

    def _hash(self, row: NDArray[np.uint8]) -> str:
        start_s = time.thread_time()
        digest = hashlib.sha256(np.ascontiguousarray(row).data).hexdigest()
        self.hash_cpu_s += time.thread_time() - start_s
        return digest


def harness_ceiling(
    loader: SampleLoaderConfig,
    samples: SampleSet,
    world: Communicator,
    copier: DeviceCopier | None = None,
) -> float:
    """Return the rate at which all ranks together load from memory, in bytes per second.

    Each rank holds one file, the median in size, and loads it repeatedly for three seconds. It
    starts with an empty pipeline, so the figure is slightly too low. Batches are copied to the
    device if the run copies them. Samples are verified as in the run.
    """
    one = ceiling_samples(samples)
    ready = loader.sample_loader(one, lambda _: None)
    try:
        world.barrier()
        rate = _bytes_per_s(ready, one, copier)
    finally:
        ready.close()
    return float(sum(world.all_gather(rate)))


def ceiling_samples(samples: SampleSet) -> SampleSet:
    by_size = sorted(range(len(samples.paths)), key=samples.file_bytes.__getitem__)
    median = by_size[len(by_size) // 2]
    return replace(
        samples,
        paths=(samples.paths[median],),
        file_bytes=(samples.file_bytes[median],),
        drawn=frozenset(),
        in_memory=True,
    )


def _bytes_per_s(loader: Loader, samples: SampleSet, copier: DeviceCopier | None) -> float:
    least = CEILING_BATCHES_MIN * samples.accelerators
    order = [0] * (samples.batch_samples * max(CEILING_BATCHES_MAX, least))
    read_bytes = 0
    elapsed_s = 0.0
    start_ns = time.monotonic_ns()
    for batches, batch in enumerate(loader.epoch(order), 1):
        if copier is not None:
            copier.make_room()
            copier.copy(batch.tensor, {})
        read_bytes += batch.read_bytes
        elapsed_s = (time.monotonic_ns() - start_ns) / NS_PER_S
        if elapsed_s >= CEILING_S and batches >= least:
            break
    if copier is not None:
        copier.finish()
    return read_bytes / elapsed_s


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """Whether this rank copies its batches; ``reason`` is a phrase for the record if not."""

    copies: bool
    reason: str = ""


def choose_device(device: Device) -> DeviceChoice:
    """Return whether batches are copied to a device on this host.

    Raises ``ConfigError`` or ``MissingExtraError`` if ``device=cuda`` is not available.
    """
    if device is Device.none:
        return DeviceChoice(copies=False, reason=NO_DEVICE)
    try:
        require_cuda()
    except WattloadError as error:
        if device is Device.cuda:
            raise
        return DeviceChoice(copies=False, reason=str(error).partition(";")[0])
    return DeviceChoice(copies=True)


@contextmanager
def device_copier(
    choice: DeviceChoice, samples: SampleSet, local: Communicator
) -> Iterator[DeviceCopier | None]:
    """Yield the copier of a rank of a host's, ``None`` without a device.

    Raises ``ConfigError`` if the device is not usable.
    """
    if not choice.copies:
        yield None
        return
    shape = (samples.batch_samples, samples.resize_bytes)
    copier = cuda_copier(shape, accelerators=samples.accelerators, local_rank=local.rank)
    with closing(copier):
        yield copier


def device_memory_bytes(choice: DeviceChoice, samples: SampleSet) -> int:
    """Return the pinned memory of one rank's copier: two buffers per accelerator and direction."""
    return 2 * 2 * samples.accelerators * samples.batch_bytes if choice.copies else 0
