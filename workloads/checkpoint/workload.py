"""The checkpoint workload: save the shards of a Llama-3 model, and load them again."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, cast

from wattload.core.accelerator import Accelerator
from wattload.core.errors import ConfigError, DataError, TargetError, WattloadError
from wattload.core.io import IOKind, TimesOperations, TracedOperations, TracesOperations
from wattload.core.record.check import Check
from wattload.core.record.latency import Latency, latencies_of
from wattload.core.workload import DataFacts, Outcome, RunContext, WorkloadPlan
from wattload.loaders.aligned import PAGE_BYTES
from wattload.loaders.checkpoints import CheckpointLoader, Shard, ShardStore
from wattload.loaders.direct import check_alignment
from wattload.workloads.checkpoint import checks
from wattload.workloads.checkpoint.account import Account
from wattload.workloads.checkpoint.ceiling import ceiling_memory_bytes, ceilings
from wattload.workloads.checkpoint.config import Config
from wattload.workloads.checkpoint.cycle import READ_PHASE, Cycle
from wattload.workloads.checkpoint.describe import details, remarks
from wattload.workloads.checkpoint.job import Job, plan_job
from wattload.workloads.checkpoint.metrics import metrics
from wattload.workloads.checkpoint.storage import WORKLOAD, Storage
from wattload.workloads.checkpoint.training import snapshot_memory_bytes, step_seconds
from wattload.workloads.checkpoint.writing import WRITE_PHASE


class Checkpoint:
    """Checkpoints of a Llama-3 model as DLIO shards it, one shard per rank.

    Each save is a span of the timed phase ``write``: it ends when files, manifest and folders are
    durable and the folder has its final name. Each load is a span of the timed phase ``read``, from
    a cache proved cold, with every delivered byte looked at. Making room, eviction and removal lie
    between the spans. With ``mode=async`` the spans of ``write`` lie under untimed ``train``, after
    ``snapshot`` and ``drain_wait``. The ceilings come last, in an untimed phase of their own.
    """

    name: ClassVar[str] = WORKLOAD

    def __init__(self, config: Config, loader: object, accelerator: Accelerator) -> None:
        if not hasattr(loader, "checkpoint_store"):
            kind = type(loader).__module__.rpartition(".")[2]
            raise ConfigError(
                f"loader={kind} writes no checkpoints; workload={WORKLOAD} runs with "
                "loader=direct, loader=torch or loader=dcp"
            )
        self.config = config
        self._accelerator = accelerator
        self._loader = cast(CheckpointLoader, loader)
        self._job: Job | None = None
        self._storage: Storage | None = None
        self._accounts: Sequence[Account] = ()
        self._overhead_bytes: Sequence[int] = ()

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will do to the target; makes nothing there.

        Raises ``ConfigError`` for what can't be run, blocks that a target's O_DIRECT does not take
        among it, and ``MissingExtraError`` for a library that is not installed.
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
            run_bytes=job.checkpoint_bytes * self.config.checkpoint_count,
            peak_bytes=job.checkpoint_bytes * job.most_kept,
            memory_bytes_per_rank=max(map(self._memory_bytes, job.shards)),
            needs_direct_io=self._loader.checkpoint_path_is_direct,
            maximum_ranks=job.model_ranks,
        )

    def _memory_bytes(self, shard: Shard) -> int:
        snapshot_bytes = snapshot_memory_bytes(shard.size_bytes) if self.config.is_async else 0
        run_bytes = self._loader.checkpoint_memory_bytes(shard) + snapshot_bytes
        if self._loader.checkpoint_path_is_direct:
            return run_bytes  # its ceilings move nothing, and so keep nothing
        return max(run_bytes, ceiling_memory_bytes(shard))

    def prepare(self, context: RunContext) -> DataFacts | None:
        """Take the data folder and remove what an earlier run left in it; there is no data.

        Raises:
            DataError: the folder is somebody else's, or another run is at work in it.
            TargetError: the target can't be written.
        """
        self._storage = Storage(self._planned(), context)
        return None

    def run(self, context: RunContext) -> Outcome:
        """Write and read the checkpoints, then measure the ceilings.

        Raises:
            TargetError: the target is full, read-only or broken.
            DataError: a checkpoint's manifest or file is not what was written.

        What fails or is interrupted gives the target's space back first.
        """
        with self._abandoning():
            return self._run(context)

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Compare files and delivered bytes with the plan, and give the target's space back."""
        job, storage = self._planned(), self._prepared()
        with self._abandoning():
            complete = context.communicator.gather(storage.complete())
            storage.remove()
        if not self._accounts:
            return ()
        return (
            checks.bytes_on_target(job, self._accounts, self._overhead_bytes),
            checks.committed(job, complete),
            checks.read_back(job, self._accounts),
        )

    def _run(self, context: RunContext) -> Outcome:
        job, world, storage = self._planned(), context.communicator, self._prepared()
        shard = job.shards[world.rank]
        nonce = world.broadcast(secrets.randbits(64))
        store = self._loader.checkpoint_store(shard, seed=context.seed)
        try:
            step_s = step_seconds(self.config, self._accelerator)
            cycle = Cycle(job, context, storage, store, nonce=nonce, step_s=step_s)
            context.progress.begin(
                "checkpoints", 2 * shard.size_bytes * self.config.checkpoint_count
            )
            cycle.run()
        finally:
            context.progress.end()
            store.close()
        self._accounts = world.gather(cycle.account)
        self._overhead_bytes = world.gather(store.overhead_limit_bytes)
        with context.phase("harness_ceiling", timed=False):
            found = ceilings(self._loader, shard, world, seed=context.seed)
        return Outcome(
            metrics=metrics(self._accounts, found),
            paths=(store.path(),),
            checks=self._checks(),
            details=details(job, self._accounts, nonce=nonce, step_s=step_s),
            remarks=remarks(job),
            latencies=_latencies(store),
            operations=_operations(store),
        )

    def _checks(self) -> Sequence[Check]:
        job, accounts = self._planned(), self._accounts
        made = (checks.cold(accounts), checks.durable(job, accounts))
        is_mlperf = self.config.protocol == "mlperf"
        return (*made, checks.mlperf_read_start(accounts)) if is_mlperf else made

    @contextmanager
    def _abandoning(self) -> Iterator[None]:
        """Give the space back where the block fails; where that fails too, say what stays."""
        storage = self._prepared()
        try:
            yield
        except BaseException as error:
            self._storage = None
            try:
                storage.abandon()
            except (OSError, DataError) as stays:
                left = f"{storage.path} keeps its files ({stays}); `wattload clean` removes them"
                if isinstance(error, WattloadError):
                    raise TargetError(f"{error}; {left}") from error
                error.add_note(left)
            raise

    def _planned(self) -> Job:
        if self._job is None:
            raise RuntimeError("plan is called before anything else")
        return self._job

    def _prepared(self) -> Storage:
        if self._storage is None:
            raise RuntimeError("prepare is called before run")
        return self._storage


def _operations(store: ShardStore) -> Sequence[TracedOperations]:
    """Return the samples of this rank's writes and reads, where the store keeps them."""
    if not isinstance(store, TracesOperations):
        return ()
    return (
        *store.traced(IOKind.WRITE, WRITE_PHASE),
        *store.traced(IOKind.READ, READ_PHASE),
    )


def _latencies(store: ShardStore) -> tuple[Latency, ...]:
    """Return how long this rank's writes and reads took, where the store times them."""
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
