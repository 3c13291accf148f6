"""The loop: write a checkpoint, prove the cache cold, read it back, take the oldest away."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from wattload.core.workload import RunContext
from wattload.loaders.checkpoints import ShardStore
from wattload.loaders.coldcache import cold_cache_check, evict
from wattload.workloads.checkpoint.account import Account, Count
from wattload.workloads.checkpoint.job import Job
from wattload.workloads.checkpoint.storage import Storage
from wattload.workloads.checkpoint.training import Training
from wattload.workloads.checkpoint.writing import (
    AsyncWriter,
    Parts,
    SyncWriter,
    Writer,
    explained,
)

READ_PHASE = "read"


class Cycle:
    """Writes and reads the checkpoints of one rank; every rank runs the same loop in step.

    The window of a read begins at a barrier and ends when every rank has its shard, so it holds the
    slowest rank. Its times are taken first and last inside the phase, so they are those of its
    span; a write's are its writer's.
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
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.account = Account(host=socket.gethostname(), memory_bytes=memory_bytes)
        self.account.file_count = len(store.file_names)
        self._parts = Parts(
            job=job,
            context=context,
            storage=storage,
            store=store,
            nonce=nonce,
            account=self.account,
            training=Training(context, step_s),
        )

    def run(self) -> None:
        """Write, read and remove all checkpoints; the last ones stay for ``verify`` to remove.

        Raises:
            TargetError: the target is full, read-only or broken.
            DataError: a checkpoint's manifest is not the one of this run, or a file is truncated.
        """
        config = self._parts.job.config
        writer: Writer = (AsyncWriter if config.is_async else SyncWriter)(self._parts)
        try:
            self._run(writer, config.checkpoint_count, config.kept)
        finally:
            writer.close()
        self.account.steps = self._parts.training.steps

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
        self._make_room(count - 1 - keep)

    def _make_room(self, checkpoint: int) -> None:
        if checkpoint >= 0:
            self._parts.storage.take_away(checkpoint, self._parts.store)

    def _read(self, checkpoint: int) -> None:
        parts, world = self._parts, self._parts.context.communicator
        folder = parts.storage.folder(checkpoint)
        with explained(f"reading checkpoint {checkpoint}"):
            files = parts.storage.files_of(checkpoint, parts.nonce)
            self._make_cold([folder / file.name for file in files])
            world.barrier()
            with parts.context.phase(READ_PHASE) as phase:
                start_ns = time.monotonic_ns()
                count = Count(parts.context, tell=lambda n: phase.moved(read_bytes=n))
                loaded = parts.store.load(folder, files, parts.identity(checkpoint), count)
                own_ns = time.monotonic_ns() - start_ns
                world.barrier()
                end_ns = time.monotonic_ns()
        self.account.payload_bytes += loaded.payload_bytes
        self.account.bad_blocks += loaded.bad_blocks
        self.account.bad_files += [f"{folder.name}/{name}" for name in loaded.bad_files]
        self.account.read.add((start_ns, end_ns), count.moved_bytes, own_ns, loaded.cpu_s)

    def _make_cold(self, paths: list[Path]) -> None:
        evict(paths)
        self.account.cold.append(cold_cache_check(paths))
