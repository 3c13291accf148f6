"""How a checkpoint gets to the target: while training stands still, or while it goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wattload.core.errors import TargetError, WattloadError
from wattload.core.workload import RunContext
from wattload.loaders.checkpoints import Identity, Saved, ShardStore
from wattload.workloads.checkpoint.account import Account, Count, Stall
from wattload.workloads.checkpoint.job import Job
from wattload.workloads.checkpoint.storage import Storage
from wattload.workloads.checkpoint.training import TRAIN_PHASE, Snapshot, Training

WRITE_PHASE = "write"
SNAPSHOT_PHASE = "snapshot"
WAIT_PHASE = "drain_wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a writer works with, on one rank."""

    job: Job
    context: RunContext
    storage: Storage
    store: ShardStore
    nonce: int
    account: Account
    training: Training

    def identity(self, checkpoint: int) -> Identity:
        """Return what the stamps of this rank's blocks say."""
        return Identity(
            nonce=self.nonce, rank=self.context.communicator.rank, checkpoint=checkpoint
        )

    def save(self, folder: Path, checkpoint: int, count: Count) -> Saved:
        """Save this rank's shard."""
        fsync = self.job.config.fsync
        return self.store.save(folder, self.identity(checkpoint), count, fsync=fsync)


class Writer(Protocol):
    """Writes checkpoints on one rank; every rank makes the same calls in step."""

    def wait(self) -> None:
        """Return when no checkpoint is on its way any more; training stands still."""
        ...

    def write(self, checkpoint: int) -> None:
        """Write a checkpoint, then train for the interval; it may be on its way still."""
        ...

    def settle(self) -> None:
        """Train on until no checkpoint is on its way any more."""
        ...

    def close(self) -> None:
        """End what is under way; what was not complete stays so."""
        ...


class SyncWriter:
    """Training stands still until a checkpoint is durable and complete."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def wait(self) -> None:
        """Return: nothing is ever on its way."""

    def write(self, checkpoint: int) -> None:
        """Write and commit a checkpoint, then train, unless it was the last.

        The window begins at a barrier and ends when the checkpoint is complete, so it holds the
        slowest rank. Its times are taken first and last inside the phase.
        """
        parts, world = self._parts, self._parts.context.communicator
        with explained(f"writing checkpoint {checkpoint}"):
            partial = parts.storage.announce(checkpoint, parts.store)
            world.barrier()
            with parts.context.phase(WRITE_PHASE) as phase:
                start_ns = time.monotonic_ns()
                count = Count(parts.context, tell=lambda n: phase.moved(written_bytes=n))
                saved = parts.save(partial, checkpoint, count)
                own_ns = time.monotonic_ns() - start_ns
                parts.storage.commit(checkpoint, parts.nonce, world.gather(saved))
                end_ns = time.monotonic_ns()
            parts.account.file_bytes.append(parts.storage.adopt(checkpoint, parts.store))
            parts.account.synced_counts.append(saved.synced_count)
        parts.account.write.add((start_ns, end_ns), count.moved_bytes, own_ns, saved.cpu_s)
        if checkpoint < parts.job.config.checkpoint_count - 1:
            self._train()

    def settle(self) -> None:
        """Return: nothing is ever on its way."""

    def close(self) -> None:
        """Do nothing: nothing is under way between calls."""

    def _train(self) -> None:
        parts = self._parts
        steps = parts.training.step_count(parts.job.config.training_s)
        if steps:
            with parts.context.phase(TRAIN_PHASE, timed=False):
                for _ in range(steps):
                    parts.training.step(lambda: None, draining=False)


@dataclass(slots=True)
class _Pending:
    """A checkpoint on its way: its save on every rank, then its commit on every target's leader."""

    checkpoint: int
    count: Count
    save: Future[tuple[Saved, int, int]]
    commit: Future[tuple[int, int]] | None = None

    def is_ready(self) -> bool:
        """Return whether this rank's part of the stage is done; raises what made it fail."""
        stage: Future[tuple[Saved, int, int]] | Future[tuple[int, int]] = self.commit or self.save
        if not stage.done():
            return False
        stage.result()
        return True


class AsyncWriter:
    """Training stands still for a snapshot, and goes on while the bytes drain on a thread.

    One checkpoint at a time is on its way: the next waits for it, and training with it. Ranks agree
    at the end of each step, so that what concerns them all happens on all of them alike, and on the
    threads there is nothing but file I/O: the save of each rank, and the commit on each leader.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="drain")
        self._stopped = threading.Event()
        self._snapshot = Snapshot(parts.job.shards[parts.context.communicator.rank].size_bytes)
        self._pending: _Pending | None = None
        self._waited_ns = 0
        self._trained_ns: int | None = None

    def wait(self) -> None:
        """Return when the checkpoint before is complete, and keep how long that took."""
        start_ns = time.monotonic_ns()
        if self._pending is not None:
            with self._parts.context.phase(WAIT_PHASE, timed=False):
                while self._pending is not None:
                    self._advance(self._pending)
        self._waited_ns = time.monotonic_ns() - start_ns

    def write(self, checkpoint: int) -> None:
        """Take the snapshot, let it drain, and train for the interval.

        Before the first one there is an interval too, of steps with no drain beside them.
        """
        parts, world = self._parts, self._parts.context.communicator
        if checkpoint == 0:
            world.barrier()  # or the first step would hold what ranks took to get here
            self._train()
        with explained(f"writing checkpoint {checkpoint}"):
            partial = parts.storage.announce(checkpoint, parts.store)
        world.barrier()
        start_ns = time.monotonic_ns()
        with parts.context.phase(SNAPSHOT_PHASE, timed=False):
            self._snapshot.take()
        world.barrier()
        copied_ns = time.monotonic_ns() - start_ns
        parts.account.stalls.append(Stall(self._waited_ns, copied_ns, self._trained_ns))
        self._pending = self._drain(partial, checkpoint)
        self._trained_ns = self._train()

    def settle(self) -> None:
        """Train on until the checkpoint is complete on every rank."""
        self._trained_ns = None
        if self._pending is None:
            return
        with self._parts.context.phase(TRAIN_PHASE, timed=False):
            while self._pending is not None:
                self._step()

    def close(self) -> None:
        """Stop a drain at its next block, before it is durable, and wait for its thread."""
        self._stopped.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _train(self) -> int:
        """Train for the interval; returns what its steps took, in ns."""
        parts, training = self._parts, self._parts.training
        before = len(training.steps)
        with parts.context.phase(TRAIN_PHASE, timed=False):
            for _ in range(training.step_count(parts.job.config.training_s)):
                self._step()
        return sum(step.duration_ns for step in training.steps[before:])

    def _step(self) -> None:
        pending = self._pending
        if pending is None:
            self._parts.training.step(lambda: True, draining=False)
            return
        with explained(f"draining checkpoint {pending.checkpoint}"):
            ready = self._parts.training.step(pending.is_ready, draining=True)
        if all(ready):
            self._advance(pending)

    def _drain(self, partial: Path, checkpoint: int) -> _Pending:
        parts = self._parts
        count = Count(parts.context, self._stopped)

        def save() -> tuple[Saved, int, int]:
            with parts.context.phase(WRITE_PHASE) as phase:
                start_ns = time.monotonic_ns()
                count.tell = lambda n: phase.moved(written_bytes=n)
                saved = parts.save(partial, checkpoint, count)
                return saved, start_ns, time.monotonic_ns()

        return _Pending(checkpoint, count, self._threads.submit(save))

    def _advance(self, pending: _Pending) -> None:
        """Go from saved on every rank to the commit, from there to complete; waits for either."""
        parts, world = self._parts, self._parts.context.communicator
        with explained(f"draining checkpoint {pending.checkpoint}"):
            if pending.commit is None:
                by_rank = world.gather(pending.save.result()[0])
                pending.commit = self._threads.submit(self._commit, pending.checkpoint, by_rank)
                return
            saved, start_ns, end_ns = pending.save.result()
            took_ns, committed_ns = pending.commit.result()
            of_ranks = world.gather((took_ns, committed_ns - start_ns))
            parts.account.file_bytes.append(parts.storage.adopt(pending.checkpoint, parts.store))
        commit_ns, durable_ns = (max(column) for column in zip(*of_ranks, strict=True))
        parts.account.durable_ns.append(durable_ns)
        parts.account.synced_counts.append(saved.synced_count)
        side = parts.account.write
        side.add((start_ns, end_ns), pending.count.moved_bytes, end_ns - start_ns, saved.cpu_s)
        side.commit_ns[-1] = commit_ns
        self._pending = None

    def _commit(self, checkpoint: int, saved: list[Saved]) -> tuple[int, int]:
        """Commit on a target's leader, in a span of the write phase; returns its ns and its end."""
        parts = self._parts
        if not parts.storage.leads:
            return 0, 0
        with parts.context.phase(WRITE_PHASE):
            start_ns = time.monotonic_ns()
            parts.storage.commit_own(checkpoint, parts.nonce, saved)
            end_ns = time.monotonic_ns()
            return end_ns - start_ns, end_ns


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn what the kernel refuses into one sentence about the target."""
    try:
        yield
    except WattloadError:  # says it already, and some are OSErrors
        raise
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise TargetError(
            f"{doing} failed: {error.strerror or error}{where}; free some room or choose another "
            "target with target.path="
        ) from error
