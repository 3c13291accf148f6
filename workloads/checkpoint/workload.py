"""The checkpoint workload: save the shards of a Llama-3 model, and load them again."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from wattload.core.io import IOKind, TimesOperations, TracedOperations, TracesOperations
from wattload.core.record.results import Check, Latency, latencies_of
from wattload.core.record.run import DataRecord
from wattload.core.workload import Accelerator, Outcome, OverHosts, RunContext, WorkloadPlan
from wattload.loaders.aligned_io import PAGE_BYTES, check_alignment
from wattload.loaders.checkpoint_store import CheckpointLoader, Shard, ShardStore
from wattload.loaders.data.cold_cache import worst_over_hosts
from wattload.loaders.data.data_folder import noting_what_remains
from wattload.results.checkpoint.facts import (
    READ_PHASE,
    WRITE_PHASE,
    CheckpointFacts,
    CheckpointSettings,
)
from wattload.workloads.checkpoint.ceilings import ceiling_memory_bytes, ceilings
from wattload.workloads.checkpoint.config import Config, Job, plan_job
from wattload.workloads.checkpoint.cycle import Cycle, snapshot_memory_bytes, step_seconds
from wattload.workloads.checkpoint.remarks import remarks
from wattload.workloads.checkpoint.storage import WORKLOAD, Storage, folder_name


class Checkpoint:
    """Checkpoints of a Llama-3 model as DLIO shards it, one shard per rank.

    Each save is a span of the timed phase ``write``. It ends when files, manifest and folders are
    durable and the folder has its final name. Each load is a span of the timed phase ``read``. It
    starts with a page cache verified to be cold, and every delivered byte is checked. Eviction and
    removal happen between the spans. With ``mode=async`` the spans of ``write`` overlap with the
    untimed phase ``train``, after ``snapshot`` and ``drain_wait``. The ceilings are measured last,
    in a separate untimed phase.
    """

    name: ClassVar[str] = WORKLOAD
    needs: ClassVar[tuple[type, ...]] = (CheckpointLoader,)
    over_hosts: ClassVar[OverHosts] = "divide"
    """A checkpoint has one shard for each rank of all hosts. A rank writes its own to a drive of
    its host, or into the shared folder, and reads it back from there."""

    def __init__(self, config: Config, loader: CheckpointLoader, accelerator: Accelerator) -> None:
        self.config = config
        self._accelerator = accelerator
        self._loader = loader
        self._job: Job | None = None
        self._storage: Storage | None = None
        self._has_run = False

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will do to the target; creates nothing there.

        Raises:
            ConfigError: a setting is out of range or does not fit, or the blocks do not fit the
                O_DIRECT alignment of a target.
            MissingExtraError: a library is not installed.
        """
        self._loader.check()
        self._loader.require_checkpoint_library()
        job = self._job = plan_job(self.config, context)
        step_seconds(self.config, self._accelerator)
        if self._loader.checkpoint_path_is_direct:
            for target in context.targets:
                check_alignment(target, getattr(self._loader, "block_bytes", PAGE_BYTES))
        return WorkloadPlan(
            data_bytes=0,
            prepare_bytes=0,
            run_bytes=job.shared_bytes * self.config.checkpoint_count,
            peak_bytes=job.shared_bytes * job.most_kept,
            memory_bytes_per_rank=max(map(self._memory_bytes, job.shards)),
            needs_direct_io=self._loader.checkpoint_path_is_direct,
            read_bytes=job.shared_bytes * self.config.checkpoint_count,
            computing_s=self.config.training_s * (self.config.checkpoint_count - 1),
            maximum_ranks=job.model_ranks,
        )

    def _memory_bytes(self, shard: Shard) -> int:
        snapshot_bytes = snapshot_memory_bytes(shard.size_bytes) if self.config.is_async else 0
        run_bytes = self._loader.checkpoint_memory_bytes(shard) + snapshot_bytes
        if self._loader.checkpoint_path_is_direct:
            return run_bytes  # its ceilings do not keep any data
        return max(run_bytes, ceiling_memory_bytes(shard))

    def prepare(self, context: RunContext) -> DataRecord | None:
        """Claim the data folder and remove leftovers of an earlier run; there is no data.

        Raises:
            DataError: the folder is not wattload's, or another run is using it.
            TargetError: the target is not writable.
        """
        self._storage = Storage(self._planned(), context)
        return None

    def run(self, context: RunContext) -> Outcome:
        """Write and read the checkpoints, then measure the ceilings.

        A failure or an interrupt deletes the files on the target first.

        Raises:
            TargetError: the target is full, read-only or broken.
            DataError: a checkpoint's manifest or file differs from what was written.
        """
        with self._cleanup_on_failure():
            return self._run(context)

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Compare the checkpoints on the targets with the plan, then delete them."""
        storage = self._prepared()
        with self._cleanup_on_failure():
            complete = context.communicator.gather(storage.complete())
            storage.remove()
        return (_committed(self.config, complete),) if self._has_run else ()

    def _run(self, context: RunContext) -> Outcome:
        job, world, storage = self._planned(), context.communicator, self._prepared()
        shard = job.shards[world.rank]
        nonce = world.broadcast(secrets.randbits(64))
        store = self._loader.checkpoint_store(shard, seed=context.seed)
        try:
            step_s = step_seconds(self.config, self._accelerator)
            cycle = Cycle(job, context, storage, store, nonce=nonce, step_s=step_s)
            total_bytes = shard.size_bytes * self.config.checkpoint_count
            context.progress.begin("checkpoints", read_bytes=total_bytes, written_bytes=total_bytes)
            cycle.run()
        finally:
            context.progress.end()
            store.close()
        by_rank = world.gather((cycle.counts, os.uname().nodename, cycle.cold))
        with context.phase("harness_ceiling", timed=False):
            found = ceilings(self._loader, shard, world, seed=context.seed)
        latencies, operations = _latencies(store), _operations(store)
        if world.rank:
            return Outcome(latencies=latencies, operations=operations)
        self._has_run = True
        return Outcome(
            facts=CheckpointFacts(
                settings=CheckpointSettings.model_validate(self.config),
                model_ranks=job.model_ranks,
                model_bytes=job.model_bytes,
                whole_bytes=job.rank_bytes,
                rank_bytes=tuple(shard.size_bytes for shard in job.shards),
                rank_tensors=tuple(len(shard.tensors) for shard in job.shards),
                kept=self.config.kept,
                interval_s=self.config.training_s,
                step_s=step_s,
                ranks=tuple(counts for counts, _, _ in by_rank),
                draining_steps=cycle.training.draining,
                other_steps=cycle.training.other,
                ceilings=found,
            ),
            paths=(store.path(),),
            checks=worst_over_hosts((host, cold) for _, host, cold in by_rank),
            remarks=remarks(job),
            latencies=latencies,
            operations=operations,
        )

    @contextmanager
    def _cleanup_on_failure(self) -> Iterator[None]:
        storage = self._prepared()
        try:
            yield
        except BaseException as error:
            self._storage = None
            with noting_what_remains(error, [storage.path]):
                storage.abandon()
            raise

    def _planned(self) -> Job:
        if self._job is None:
            raise RuntimeError("plan() has to be called first")
        return self._job

    def _prepared(self) -> Storage:
        if self._storage is None:
            raise RuntimeError("prepare() has to be called before run()")
        return self._storage


def _committed(config: Config, complete: Sequence[Sequence[str]]) -> Check:
    """Compare the complete checkpoints on each rank's target with the plan."""
    count, kept = config.checkpoint_count, min(config.kept, config.checkpoint_count)
    expected = [folder_name(number) for number in range(count - kept, count)]
    different = sum(list(names) != expected for names in complete)
    last = f"last {kept} checkpoints, complete by their manifests"
    if kept == 1:
        last = "last checkpoint, complete by its manifest"
    return Check(
        name="checkpoint_committed",
        verdict="fail" if different else "pass",
        sentence=(
            f"At the end, the target had the {last}, and no others."
            if not different
            else f"At the end, the target should have the {last}, and no others; found "
            f"{[list(names) for names in complete]}."
        ),
        figures={"kept": kept, "different_ranks": different},
        mandatory=True,
    )


def _operations(store: ShardStore) -> Sequence[TracedOperations]:
    """Return the sampled writes and reads of this rank, if the store keeps them."""
    if not isinstance(store, TracesOperations):
        return ()
    return (
        *store.traced(IOKind.WRITE, WRITE_PHASE),
        *store.traced(IOKind.READ, READ_PHASE),
    )


def _latencies(store: ShardStore) -> tuple[Latency, ...]:
    """Return the latencies of this rank's writes and reads, if the store measures them."""
    if not isinstance(store, TimesOperations):
        return ()
    size_bytes = store.operation_bytes
    return (
        *latencies_of(
            store.latency(IOKind.WRITE), phase=WRITE_PHASE, kind="write", operation_bytes=size_bytes
        ),
        *latencies_of(
            store.latency(IOKind.READ), phase=READ_PHASE, kind="read", operation_bytes=size_bytes
        ),
    )
