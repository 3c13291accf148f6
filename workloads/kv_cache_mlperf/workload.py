"""The kv_cache_mlperf workload: MLPerf Storage v3.0's loop, for comparison with its results."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import ClassVar

from wattload.core.host.counters import host_state
from wattload.core.io import DataPath
from wattload.core.record.results import Check
from wattload.core.record.run import DataRecord
from wattload.core.storage.targets import Target
from wattload.core.units import format_bytes
from wattload.core.workload import Accelerator, Outcome, OverHosts, RunContext, WorkloadPlan
from wattload.loaders.data.data_folder import DataFolder, noting_what_remains
from wattload.results.kv_cache_mlperf import NAME, PHASE, LoopFacts, LoopSettings
from wattload.workloads.kv_cache.models import model_named
from wattload.workloads.kv_cache_mlperf.config import OPTIONS, Config
from wattload.workloads.kv_cache_mlperf.entries import DTYPE_BYTES, NOISE_BYTES, Entries
from wattload.workloads.kv_cache_mlperf.loop import Loop
from wattload.workloads.kv_cache_mlperf.users import MOST_CONTEXT_TOKENS, draw_users, requests

MOST_WORKERS = 500
_FREE_SHARE = 0.05


class KvCacheMlperf:
    """MLPerf's loop; every process is a client with all users and a folder of its own."""

    name: ClassVar[str] = NAME
    needs: ClassVar[tuple[type, ...]] = ()
    over_hosts: ClassVar[OverHosts] = "replicate"
    """The processes of each host are clients on its own drives."""

    def __init__(self, config: Config, loader: object, accelerator: Accelerator) -> None:
        self.config = config
        option = OPTIONS[config.option]
        memory_bytes = option.memory_bytes // config.length_divisor
        self._option = option._replace(memory_bytes=memory_bytes)
        self._users = config.users or self._option.users
        self._workers = min(self._users, MOST_WORKERS)
        self._model = model_named(self._option.model)
        self._token_bytes = self._model.bytes_per_token(DTYPE_BYTES)
        tokens = max(MOST_CONTEXT_TOKENS // config.length_divisor, 1)
        self._largest_bytes = tokens * self._token_bytes
        self._data: DataFolder | None = None

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the loop may write, and whether this host has too little memory for it."""
        config = self.config
        memory_bytes = self._memory_bytes(context)
        most_bytes = config.most_written_bytes * context.sharers.world_size
        capacity_bytes = sum(map(self._capacity_bytes, context.targets))
        return WorkloadPlan(
            data_bytes=0,
            prepare_bytes=0,
            run_bytes=most_bytes,
            peak_bytes=min(capacity_bytes, most_bytes),
            memory_bytes_per_rank=memory_bytes,
            needs_direct_io=False,
            reading_s=config.duration_s,
            refusal=self._refusal(memory_bytes * context.local.world_size),
            minimum_ranks=len(context.targets),
        )

    def prepare(self, context: RunContext) -> DataRecord | None:
        """Claim the data folder and remove leftovers of an earlier run; there is no data."""
        part = context.sharers.rank
        place = context.targets[part % len(context.targets)].data_folder.parent
        for leads in (True, False):
            if leads == (part < len(context.targets)):
                # One folder for all settings: no data is reused, and one run at a time writes.
                self._data = DataFolder.claim(place, NAME, {}, seed=0, part=part)
                if leads:
                    self._data.empty()
            context.sharers.barrier()
        return None

    def run(self, context: RunContext) -> Outcome:
        """Run the loop; a failure or an interrupt deletes the entries first.

        Raises:
            OSError: the target is full, read-only or broken.
            DataError: an entry is not the file that was written.
        """
        with self._cleanup_on_failure(context) as data:
            return self._run(context, data)

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Delete the entries: the reads have compared them."""
        with self._cleanup_on_failure(context) as data:
            data.close()
            context.sharers.barrier()
            if context.sharers.rank < len(context.targets):
                data.remove()
            context.sharers.barrier()
        return ()

    def _run(self, context: RunContext, data: DataFolder) -> Outcome:
        config, world = self.config, context.communicator
        part, places = context.sharers.rank, len(context.targets)
        sharing = len(range(part % places, context.sharers.world_size, places))
        random = Random(context.seed + world.rank)
        drawn = requests(
            draw_users(self._users, random), random, length_divisor=config.length_divisor
        )
        context.progress.begin("MLPerf's loop")
        world.barrier()
        with context.phase(PHASE) as phase:
            entries = Entries(
                data, f"rank_{part}", phase, self._model, self._option,
                largest_bytes=self._largest_bytes,
                capacity_bytes=self._capacity_bytes(context.targets[part % places]) // sharing,
                most_written_bytes=config.most_written_bytes,
            )  # fmt: skip
            loop = Loop(entries, token_bytes=self._token_bytes, workers=self._workers)
            try:
                loop.run(drawn, duration_s=config.duration_s)
            finally:
                entries.close()
        context.progress.end()
        clients = world.gather(entries.facts(is_full=loop.is_full))
        if world.rank:
            return Outcome()
        return Outcome(
            facts=LoopFacts(
                settings=LoopSettings.model_validate(config),
                model=self._option.model,
                users=self._users,
                clients=tuple(clients),
            ),
            paths=(DataPath(data_path="page_cache", path_requested="page_cache"),),
            remarks=tuple(self._remarks(is_full=any(client.is_full for client in clients))),
        )

    def _remarks(self, *, is_full: bool) -> Iterator[str]:
        config, option = self.config, self._option
        if config.length_divisor > 1:
            yield (
                f"Entries and the cache in memory had 1/{config.length_divisor} of MLPerf's size: "
                "figures do not compare with published ones."
            )
        if self._users != option.users:
            yield (
                f"{self._users} users asked, not the {option.users} of MLPerf's option "
                f"{config.option}."
            )
        if is_full:
            yield (
                "The loop ended early, since it might not write more than "
                f"{format_bytes(config.most_written_bytes)} (workload.most_written_bytes)."
            )

    def _memory_bytes(self, context: RunContext) -> int:
        """Return what the entries in a process's memory take: each thread holds one.

        As many as may be written at once are the longest; the others have the mean of the longest
        of each user.
        """
        users = draw_users(self._users, Random(context.seed))
        mean = sum(user.context_tokens for user in users) / len(users) / MOST_CONTEXT_TOKENS
        writers = min(self._option.allocations, self._workers)
        count = writers + mean * (self._workers - writers)
        return min(NOISE_BYTES, self._largest_bytes) + round(count * self._largest_bytes)

    def _refusal(self, needed_bytes: int) -> str:
        available_bytes = host_state().memory_available_bytes
        if available_bytes is None or needed_bytes <= available_bytes:
            return ""
        return (
            f"{self._workers} threads of MLPerf's option {self.config.option} hold entries of up "
            f"to {format_bytes(self._largest_bytes)}, {needed_bytes} bytes together, but only "
            f"{available_bytes} bytes of memory are available; lower workload.users, or raise "
            "workload.length_divisor"
        )

    def _capacity_bytes(self, target: Target) -> int:
        if self.config.capacity_bytes is not None:
            return self.config.capacity_bytes
        status = os.statvfs(target.data_folder.parent)
        free_blocks = status.f_bavail - int(_FREE_SHARE * status.f_blocks)
        return max(free_blocks, 0) * status.f_frsize

    @contextmanager
    def _cleanup_on_failure(self, context: RunContext) -> Iterator[DataFolder]:
        if self._data is None:
            raise RuntimeError("prepare() has to be called before run()")
        data, self._data = self._data, None
        try:
            yield data
        except BaseException as error:
            with noting_what_remains(error, [data.path]):
                data.close()
                data.reload()
                data.remove_files()
                if context.sharers.world_size == 1:  # no other process may still create a file
                    data.remove()
            raise
        self._data = data
