"""The loop: write a checkpoint, prove the cache cold, read it back, take the oldest away."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from wattload.core.errors import TargetError, WattloadError
from wattload.core.record.check import Check
from wattload.core.workload import RunContext
from wattload.loaders.checkpoints import Identity, ShardStore
from wattload.loaders.coldcache import cold_cache_check, evict
from wattload.workloads.checkpoint.job import Job
from wattload.workloads.checkpoint.storage import Storage

WRITE_PHASE = "write"
READ_PHASE = "read"


@dataclass(slots=True)
class Side:
    """One direction on one rank: windows per checkpoint, bytes that moved, CPU seconds.

    A window is start and end in ns on CLOCK_MONOTONIC, which the ranks of one host share.
    """

    windows_ns: list[tuple[int, int]] = field(default_factory=list)
    moved_bytes: list[int] = field(default_factory=list)
    cpu_s: float = 0.0


@dataclass(slots=True)
class Account:
    """What one rank did on ``host``; ``file_bytes`` are its files' sizes, per checkpoint.

    ``payload_bytes`` counts delivered tensor bytes; ``bad_blocks`` and ``bad_files`` what was wrong
    with them.
    """

    host: str
    write: Side = field(default_factory=Side)
    read: Side = field(default_factory=Side)
    file_bytes: list[int] = field(default_factory=list)
    payload_bytes: int = 0
    bad_blocks: int = 0
    bad_files: list[str] = field(default_factory=list)
    cold: list[Check] = field(default_factory=list)


class Cycle:
    """Writes and reads the checkpoints of one rank; every rank runs the same loop in step.

    The window of a write begins at a barrier and ends when the checkpoint is committed, that of a
    read begins at a barrier and ends when every rank has its shard: both hold the slowest rank.
    Times are taken first and last inside the phase, so they are those of its span.
    """

    def __init__(
        self, job: Job, context: RunContext, storage: Storage, store: ShardStore, nonce: int
    ) -> None:
        self.account = Account(host=socket.gethostname())
        self._job = job
        self._context = context
        self._storage = storage
        self._store = store
        self._nonce = nonce

    def run(self) -> None:
        """Write, read and remove all checkpoints; the last ones stay for ``verify`` to remove.

        Raises:
            TargetError: the target is full, read-only or broken.
            DataError: a checkpoint's manifest is not the one of this run, or a file is truncated.
        """
        count, keep = self._job.config.checkpoint_count, self._job.config.keep
        unread: list[int] = []
        for checkpoint in range(count):
            self._write(checkpoint)
            unread.append(checkpoint)
            if checkpoint >= keep:
                self._storage.take_away(checkpoint - keep, self._store.file_names)
            if len(unread) == keep or checkpoint == count - 1:
                for written in unread:
                    self._read(written)
                unread.clear()

    def _write(self, checkpoint: int) -> None:
        context, world = self._context, self._context.communicator
        with _explained(f"writing checkpoint {checkpoint}"):
            partial = self._storage.announce(checkpoint, self._store.file_names)
            world.barrier()
            with context.phase(WRITE_PHASE) as phase:
                start_ns = time.monotonic_ns()
                count = _Count(lambda n: phase.moved(written_bytes=n), context)
                saved = self._store.save(
                    partial, self._identity(checkpoint), count, fsync=self._job.config.fsync
                )
                self._storage.commit(checkpoint, self._nonce, world.gather(saved))
                end_ns = time.monotonic_ns()
            self.account.file_bytes.append(self._storage.adopt(checkpoint, self._store.file_names))
        _add(self.account.write, (start_ns, end_ns), count.moved_bytes, saved.cpu_s)

    def _read(self, checkpoint: int) -> None:
        context, world = self._context, self._context.communicator
        folder = self._storage.folder(checkpoint)
        with _explained(f"reading checkpoint {checkpoint}"):
            files = self._storage.files_of(checkpoint, self._nonce)
            self._make_cold([folder / file.name for file in files])
            world.barrier()
            with context.phase(READ_PHASE) as phase:
                start_ns = time.monotonic_ns()
                count = _Count(lambda n: phase.moved(read_bytes=n), context)
                loaded = self._store.load(folder, files, self._identity(checkpoint), count)
                world.barrier()
                end_ns = time.monotonic_ns()
        self.account.payload_bytes += loaded.payload_bytes
        self.account.bad_blocks += loaded.bad_blocks
        self.account.bad_files += [f"{folder.name}/{name}" for name in loaded.bad_files]
        _add(self.account.read, (start_ns, end_ns), count.moved_bytes, loaded.cpu_s)

    def _make_cold(self, paths: list[Path]) -> None:
        evict(paths)
        self.account.cold.append(cold_cache_check(paths))

    def _identity(self, checkpoint: int) -> Identity:
        return Identity(
            nonce=self._nonce, rank=self._context.communicator.rank, checkpoint=checkpoint
        )


class _Count:
    """Tells phase and progress of bytes that moved, and keeps their sum."""

    def __init__(self, tell: Callable[[int], None], context: RunContext) -> None:
        self.moved_bytes = 0
        self._tell = tell
        self._advance = context.progress.advance
        self._lock = threading.Lock()

    def __call__(self, moved_bytes: int) -> None:
        with self._lock:
            self.moved_bytes += moved_bytes
        self._tell(moved_bytes)
        self._advance(moved_bytes)


def _add(side: Side, window_ns: tuple[int, int], moved_bytes: int, cpu_s: float) -> None:
    side.windows_ns.append(window_ns)
    side.moved_bytes.append(moved_bytes)
    side.cpu_s += cpu_s


@contextmanager
def _explained(doing: str) -> Iterator[None]:
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
