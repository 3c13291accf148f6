"""The loop of a run: train, write a checkpoint, read it back cold, remove the oldest.

Training consists of emulated steps. It stalls while a checkpoint is written, or only for a snapshot
and continues while the bytes drain.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from wattload.core.checks.io import written_extents_check
from wattload.core.errors import ConfigError, TargetError, WattloadError, remedy
from wattload.core.io import BlockIdentity, ByteCounter
from wattload.core.record.results import Check
from wattload.core.units import NS_PER_S
from wattload.core.workload import Accelerator, RunContext
from wattload.loaders.aligned_io import aligned_buffers
from wattload.loaders.checkpoint_store import Saved, ShardStore
from wattload.loaders.data.cold_cache import cold_cache_check, evict
from wattload.results.checkpoint.facts import (
    READ_PHASE,
    WRITE_PHASE,
    RankCounts,
    Stall,
    StepTimes,
)
from wattload.workloads.checkpoint.config import Config, Job
from wattload.workloads.checkpoint.storage import WORKLOAD, Storage, block_identity

TRAIN_PHASE = "train"
SNAPSHOT_PHASE = "snapshot"
WAIT_PHASE = "drain_wait"
SNAPSHOT_BUFFER_BYTES = 32 << 20
_FALLBACK = "unet3d"


class Cycle:
    """Writes and reads the checkpoints of one rank; every rank runs the same loop in step.

    The window of a read starts at a barrier and ends when every rank has its shard, so it covers
    the slowest rank.
    """

    def __init__(
        self,
        job: Job,
        context: RunContext,
        storage: Storage,
        store: ShardStore,
        *,
        nonce: int,
        step_s: float,
    ) -> None:
        self.counts = RankCounts(
            file_count=len(store.file_names), overhead_bytes=store.overhead_limit_bytes
        )
        self.cold: list[Check] = []
        self.training = Training(context, step_s, interval_s=job.config.training_s)
        self._setup = WriterSetup(
            job=job,
            context=context,
            storage=storage,
            store=store,
            nonce=nonce,
            counts=self.counts,
            training=self.training,
        )

    def run(self) -> None:
        """Write, read and remove all checkpoints; the last ones stay for ``verify`` to remove.

        Raises:
            TargetError: the target is full, read-only or broken.
            DataError: a checkpoint's manifest is not of this run, or a file is truncated.
        """
        config = self._setup.job.config
        writer: Writer = (AsyncWriter if config.is_async else SyncWriter)(self._setup)
        try:
            self._run(writer, config.checkpoint_count, config.kept)
        finally:
            writer.close()

    def _run(self, writer: Writer, count: int, keep: int) -> None:
        unread: list[int] = []
        for checkpoint in range(count):
            writer.wait()
            self._make_room(checkpoint - 1 - keep)
            writer.write(checkpoint)
            unread.append(checkpoint)
            if len(unread) == keep or checkpoint == count - 1:
                writer.settle()
                for written in unread:
                    self._read(written)
                unread.clear()
        self._setup.context.end_job()
        self._make_room(count - 1 - keep)

    def _make_room(self, checkpoint: int) -> None:
        if checkpoint >= 0:
            self._setup.storage.remove_checkpoint(checkpoint, self._setup.store)

    def _read(self, checkpoint: int) -> None:
        setup, world = self._setup, self._setup.context.communicator
        folder = setup.storage.folder(checkpoint)
        with target_errors(f"reading checkpoint {checkpoint}"):
            files = setup.storage.files_of(checkpoint, setup.nonce)
            self._make_cold([folder / file.name for file in files])
            world.barrier()
            with setup.context.phase(READ_PHASE) as phase:
                start_ns = time.monotonic_ns()
                identity = setup.identity(checkpoint)
                loaded = setup.store.load(folder, files, identity, phase.count_read)
                self.counts.read_s += _seconds_since(start_ns)
                world.barrier()
        self.counts.read_cpu_s += loaded.cpu_s
        self.counts.payload_bytes += loaded.payload_bytes
        self.counts.bad_blocks += loaded.bad_blocks
        self.counts.bad_files += [f"{folder.name}/{name}" for name in loaded.bad_files]

    def _make_cold(self, paths: list[Path]) -> None:
        evict(paths)
        self.cold.append(cold_cache_check(paths))
        self.cold.append(
            written_extents_check(paths, remedy="something else changes these files; run again")
        )


class Writer(Protocol):
    """Writes checkpoints on one rank; every rank makes the same calls in the same order."""

    def wait(self) -> None:
        """Wait until no checkpoint is pending, without training."""
        ...

    def write(self, checkpoint: int) -> None:
        """Write a checkpoint, then train for the interval; it may still be pending."""
        ...

    def settle(self) -> None:
        """Train until no checkpoint is pending."""
        ...

    def close(self) -> None:
        """Stop pending work; incomplete checkpoints stay incomplete."""
        ...


class SyncWriter:
    """Training stalls until a checkpoint is durable and complete."""

    def __init__(self, setup: WriterSetup) -> None:
        self._setup = setup

    def wait(self) -> None:
        """Return at once: nothing is ever pending."""

    def write(self, checkpoint: int) -> None:
        """Write and commit a checkpoint, then train, unless it was the last.

        The window starts at a barrier and ends when the checkpoint is complete, so it covers the
        slowest rank.
        """
        setup, world = self._setup, self._setup.context.communicator
        with target_errors(f"writing checkpoint {checkpoint}"):
            partial = setup.storage.announce(checkpoint, setup.store)
            world.barrier()
            with setup.context.phase(WRITE_PHASE) as phase:
                start_ns = time.monotonic_ns()
                saved = setup.save(partial, checkpoint, phase.count_written)
                saved_s = _seconds_since(start_ns)
                # Each target's leader commits, so not only rank 0 needs this.
                setup.storage.commit(checkpoint, setup.nonce, world.all_gather(saved))
            setup.count_saved(checkpoint, saved, saved_s)
        if checkpoint < setup.job.config.checkpoint_count - 1:
            self._train()

    def settle(self) -> None:
        """Return at once: nothing is ever pending."""

    def close(self) -> None:
        """Do nothing: nothing is pending between calls."""

    def _train(self) -> None:
        setup = self._setup
        steps = setup.training.interval_steps
        if steps:
            with setup.context.phase(TRAIN_PHASE, timed=False):
                for _ in range(steps):
                    setup.training.step(lambda: None, draining=False)
            setup.context.end_pause(TRAIN_PHASE)


class AsyncWriter:
    """Training stalls for a snapshot, and continues while the bytes drain on a thread.

    Only one checkpoint is pending at a time: the next one and training wait for it. Ranks agree at
    the end of each step, so collective operations happen on all of them in the same order. The
    threads only do file I/O: the save of each rank, and the commit on each leader.
    """

    def __init__(self, setup: WriterSetup) -> None:
        self._setup = setup
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="drain")
        self._stopped = threading.Event()
        self._snapshot = Snapshot(setup.job.shards[setup.context.communicator.rank].size_bytes)
        self._pending: _PendingCheckpoint | None = None
        self._waited_s = 0.0
        self._trained_s: float | None = None

    def wait(self) -> None:
        """Wait until the previous checkpoint is complete, and keep the duration."""
        start_ns = time.monotonic_ns()
        if self._pending is not None:
            with self._setup.context.phase(WAIT_PHASE, timed=False):
                while self._pending is not None:
                    self._advance(self._pending)
        self._waited_s = _seconds_since(start_ns)

    def write(self, checkpoint: int) -> None:
        """Take the snapshot, start its drain, and train for the interval.

        An interval of steps without a drain precedes the first checkpoint.
        """
        setup, world = self._setup, self._setup.context.communicator
        if checkpoint == 0:
            world.barrier()  # otherwise the first step would include differences in start-up
            self._train()
        with target_errors(f"writing checkpoint {checkpoint}"):
            partial = setup.storage.announce(checkpoint, setup.store)
        world.barrier()
        start_ns = time.monotonic_ns()
        with setup.context.phase(SNAPSHOT_PHASE, timed=False):
            self._snapshot.take()
        world.barrier()
        copied_s = _seconds_since(start_ns)
        setup.counts.stalls.append(Stall(self._waited_s, copied_s, self._trained_s))
        self._pending = self._drain(partial, checkpoint)
        self._trained_s = self._train()

    def settle(self) -> None:
        self._trained_s = None
        if self._pending is None:
            return
        with self._setup.context.phase(TRAIN_PHASE, timed=False):
            while self._pending is not None:
                self._step()

    def close(self) -> None:
        """Stop a drain at its next block, before it is durable, and wait for its thread."""
        self._stopped.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _train(self) -> float:
        """Train for the interval; return the duration of its steps in seconds."""
        setup, training = self._setup, self._setup.training
        before_s = training.seconds
        with setup.context.phase(TRAIN_PHASE, timed=False):
            for _ in range(training.interval_steps):
                self._step()
        return training.seconds - before_s

    def _step(self) -> None:
        pending = self._pending
        if pending is None:
            self._setup.training.step(lambda: True, draining=False)
            return
        with target_errors(f"draining checkpoint {pending.checkpoint}"):
            ready = self._setup.training.step(pending.is_ready, draining=True)
        if all(ready):
            self._advance(pending)

    def _drain(self, partial: Path, checkpoint: int) -> _PendingCheckpoint:
        setup = self._setup

        def save() -> _SaveResult:
            with setup.context.phase(WRITE_PHASE) as phase:

                def count(moved_bytes: int) -> None:
                    if self._stopped.is_set():
                        raise StoppedError
                    phase.count_written(moved_bytes)

                start_ns = time.monotonic_ns()
                saved = setup.save(partial, checkpoint, count)
                return _SaveResult(saved, _seconds_since(start_ns))

        return _PendingCheckpoint(checkpoint, self._threads.submit(save))

    def _advance(self, pending: _PendingCheckpoint) -> None:
        """Start the commit after the save, or complete after the commit; waits for either."""
        setup, world = self._setup, self._setup.context.communicator
        with target_errors(f"draining checkpoint {pending.checkpoint}"):
            if pending.commit is None:
                # Each target's leader commits, so not only rank 0 needs this.
                by_rank = world.all_gather(pending.save.result().saved)
                pending.commit = self._threads.submit(self._commit, pending.checkpoint, by_rank)
                return
            drained = pending.save.result()
            pending.commit.result()
            world.barrier()
            setup.count_saved(pending.checkpoint, drained.saved, drained.seconds)
        self._pending = None

    def _commit(self, checkpoint: int, saved: list[Saved]) -> None:
        """Commit on a leader, in a span of the write phase."""
        setup = self._setup
        if setup.storage.leads:
            with setup.context.phase(WRITE_PHASE):
                setup.storage.commit_own(checkpoint, setup.nonce, saved)


@dataclass(slots=True)
class _PendingCheckpoint:
    """A checkpoint in progress: its save on every rank, then its commit on every leader."""

    checkpoint: int
    save: Future[_SaveResult]
    commit: Future[None] | None = None

    def is_ready(self) -> bool:
        """Return whether this rank's part of the stage is done; raises its exception."""
        stage: Future[_SaveResult] | Future[None] = self.commit or self.save
        if not stage.done():
            return False
        stage.result()
        return True


@dataclass(frozen=True, slots=True)
class _SaveResult:
    """The result of a save on a thread, and its duration."""

    saved: Saved
    seconds: float


class StoppedError(Exception):
    """Ends a save on a thread when the run has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSetup:
    """The objects that a writer uses on one rank."""

    job: Job
    context: RunContext
    storage: Storage
    store: ShardStore
    nonce: int
    counts: RankCounts
    training: Training

    def identity(self, checkpoint: int) -> BlockIdentity:
        """Return the identity in the stamps of this rank's blocks."""
        return block_identity(
            self.nonce, rank=self.context.communicator.rank, checkpoint=checkpoint
        )

    def save(self, folder: Path, checkpoint: int, count: ByteCounter) -> Saved:
        fsync = self.job.config.fsync
        return self.store.save(folder, self.identity(checkpoint), count, fsync=fsync)

    def count_saved(self, checkpoint: int, saved: Saved, seconds: float) -> None:
        """Adopt the files of a complete checkpoint, and count what its save took."""
        self.counts.file_bytes.append(self.storage.adopt(checkpoint, self.store))
        self.counts.synced_counts.append(saved.synced_count)
        self.counts.write_s += seconds
        self.counts.write_cpu_s += saved.cpu_s


def _seconds_since(start_ns: int) -> float:
    return (time.monotonic_ns() - start_ns) / NS_PER_S


@contextmanager
def target_errors(action: str) -> Iterator[None]:
    """Raise errors of the kernel as ``TargetError``."""
    try:
        yield
    except WattloadError:  # some are OSErrors too
        raise
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise TargetError(
            f"{action} failed: {error.strerror or error}{where}; {remedy(error.errno)}, "
            "or choose another target with target.path="
        ) from error


class Training:
    """Steps of an emulated accelerator: each rank sleeps for the step time, then synchronises.

    Ranks synchronise at the end of a step as in data-parallel training. Nothing is computed, so
    only the host slows a step (cores and memory used by a drain), not an accelerator's own work.
    """

    def __init__(self, context: RunContext, step_s: float, *, interval_s: float) -> None:
        self.draining, self.other = StepTimes(), StepTimes()
        self.interval_steps = math.ceil(interval_s / step_s) if interval_s else 0
        """The whole steps that take at least ``interval_s``; the same on every rank."""
        self._world = context.communicator
        self._step_s = step_s

    @property
    def seconds(self) -> float:
        """The duration of all steps."""
        return self.draining.seconds + self.other.seconds

    def step(self, report: Callable[[], Any], *, draining: bool) -> list[Any]:
        """Make one step; return the value of ``report()`` at its end, by rank."""
        start_ns = time.monotonic_ns()
        time.sleep(self._step_s)
        reports = self._world.all_gather(report())
        times = self.draining if draining else self.other
        times.count += 1
        times.seconds += _seconds_since(start_ns)
        return reports


def step_seconds(config: Config, accelerator: Accelerator) -> float:
    """Return the seconds of one step: the setting, or the accelerator's.

    No step time is published for Llama checkpoints. An accelerator without one for ``checkpoint``
    uses its step time for unet3d. Raises ``ConfigError`` for an interval in steps of 0 s.
    """
    found = config.step_s
    if found is None:
        found = accelerator.step_s.get(WORKLOAD, accelerator.step_s.get(_FALLBACK, 0.0))
    if config.training_s and not found:
        raise ConfigError(
            f"training for {config.training_s:g} s between checkpoints needs a step time above 0, "
            f"and accelerator={accelerator.name} has 0 s; set workload.step_s, or "
            "workload.interval_s=0"
        )
    return found


class Snapshot:
    """The copy that training waits for, of a shard of any size in bounded memory.

    As many bytes as the shard has are copied between two buffers at the speed of memory. The copy
    is not kept, and the drained bytes are generated. A full copy would need as much host memory as
    the shard, which is not available for tens of gigabytes per rank.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        window_bytes = min(size_bytes, SNAPSHOT_BUFFER_BYTES)
        self._source, self._copy = aligned_buffers(2, window_bytes)

    def take(self) -> None:
        whole, rest = divmod(self._size_bytes, self._source.size)
        for _ in range(whole):
            np.copyto(self._copy, self._source)
        np.copyto(self._copy[:rest], self._source[:rest])


def snapshot_memory_bytes(size_bytes: int) -> int:
    """Return the memory of a snapshot of a shard, in bytes."""
    return 2 * min(size_bytes, SNAPSHOT_BUFFER_BYTES)
