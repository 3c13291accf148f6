"""The kv_cache workload: which drive restores more tokens a second, and for how many joules."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from typing import ClassVar

from wattload.core.record.results import Check
from wattload.core.record.run import DataRecord
from wattload.core.storage.targets import Target
from wattload.core.units import MILLI, format_seconds
from wattload.core.workload import Accelerator, Outcome, OverHosts, RunContext, WorkloadPlan
from wattload.loaders.block_transfers import BlockTransferConfig
from wattload.loaders.data.cold_cache import cold_cache_check, evict
from wattload.loaders.data.data_folder import DataFolder, noting_what_remains
from wattload.loaders.engine.engine import IOEngine
from wattload.results.kv_cache.facts import (
    FILL,
    RESTORE,
    STEADY,
    STORE,
    KvFacts,
    KvSettings,
    Layout,
    Loop,
)
from wattload.workloads.kv_cache.cache import BlockCache
from wattload.workloads.kv_cache.checks import freed_space, stored_blocks
from wattload.workloads.kv_cache.config import Config
from wattload.workloads.kv_cache.outline import FILL_EVICTED_SHARE, Job, at_rate, outline, plan_job
from wattload.workloads.kv_cache.server import MonotonicClock, Server, count_nothing
from wattload.workloads.kv_cache.sources import in_order, source_of
from wattload.workloads.kv_cache.tally import LoopTally, Tally
from wattload.workloads.kv_cache.tier import DriveTier, Placed

WORKLOAD = "kv_cache"
DRIVE_SHARE = 0.8
"""The cache takes this share of the file system, where no size is set."""
MEMORY_PER_BLOCK = 1024
"""Bytes of the index, of names and of remembered ids for each block: 600 to 900 were measured."""
CEILING_S = 3.0
CEILING_BLOCKS = 1024
VERIFIED_BLOCKS = 64
HARNESS_S = 1.0
SHORT_SHARE = 0.99


class KvCache:
    """A server that keeps blocks of keys and values on drives.

    The timed phases follow each other: ``fill`` until a fifth of the capacity has been evicted,
    ``steady`` for the mix of requests, after a warm-up, and ``restore`` and ``store`` for each kind
    alone. The files are deleted at the end.
    """

    name: ClassVar[str] = WORKLOAD
    outline = staticmethod(outline)
    at_rate = staticmethod(at_rate)
    needs: ClassVar[tuple[type, ...]] = (BlockTransferConfig,)
    over_hosts: ClassVar[OverHosts] = "one"
    """A cache belongs to one server; the ranks of tensor parallelism are its files."""

    def __init__(
        self, config: Config, loader: BlockTransferConfig, accelerator: Accelerator
    ) -> None:
        self.config = config
        self._loader = loader
        self._job: Job | None = None
        self._folders: list[DataFolder] = []
        self._tier: DriveTier | None = None
        self._cached: Sequence[Placed] = ()
        self._free_bytes = 0

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Return what the run will do to the targets; creates nothing there.

        Raises:
            ConfigError: a setting does not fit the model, the trace or the targets.
            DataError: the trace can't be read.
            MissingExtraError: a library behind the loader is not installed.
            TargetError: the loader can't work on a target.
        """
        config = self.config
        job = plan_job(config, _capacity_bytes(config, context.targets), seed=context.seed)
        self._loader.check_block_transfers(job.limits, context.targets)
        self._job = job
        return WorkloadPlan(
            data_bytes=0,
            prepare_bytes=0,
            run_bytes=job.fill_bytes + job.mix_bytes + job.alone_bytes,
            peak_bytes=job.cache_bytes,
            memory_bytes_per_rank=self._loader.block_transfer_bytes(job.limits)
            + job.capacity * MEMORY_PER_BLOCK * job.geometry.pieces,
            needs_direct_io=self._loader.transfers_directly,
            reading_s=config.duration_s + config.saturation_s,
            lines=tuple(job.lines()),
            maximum_ranks=1,
        )

    def prepare(self, context: RunContext) -> DataRecord | None:
        """Claim the data folders and delete what an interrupted run left; there is no data.

        Raises:
            DataError: a folder is not wattload's, or another run is using it.
            TargetError: a target is not writable.
        """
        self._folders = [
            DataFolder.claim(target.path, WORKLOAD, {}, seed=0) for target in context.targets
        ]
        for folder in self._folders:
            folder.empty()
        return None

    def run(self, context: RunContext) -> Outcome:
        """Fill, serve, restore and store, then measure what bounds the rates.

        Raises:
            DataError: a file changed while it was read.
            OSError: a target is full with nothing to evict, read-only, or broken.
        """
        with self._cleanup_on_failure():
            return self._run(context)

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Compare all bytes of the blocks in the cache with what was stored, and delete them."""
        with self._cleanup_on_failure():
            checks = () if self._tier is None else tuple(self._verify(self._tier, context))
            self._remove()
        return checks

    def _run(self, context: RunContext) -> Outcome:
        config, job, progress = self.config, self._planned(), context.progress
        self._free_bytes = _free_bytes(context.targets)
        tier = self._tier = DriveTier(
            self._folders,
            job.geometry,
            job.capacity,
            self._loader.block_transfers(job.limits, context.targets, seed=context.seed),
            job.limits,
            nonce=secrets.randbits(64),
            seed=context.seed,
        )
        cache = self._new_cache()
        server = self._server(cache, tier, seed=context.seed)
        tallies: dict[str, Tally] = {}
        progress.begin("filling the cache")
        with context.phase(FILL) as phase:
            tallies[FILL] = server.fill(FILL_EVICTED_SHARE, phase.moved, job.most_filling)
        progress.begin("serving requests")
        with context.phase("warm_up", timed=False) as phase:
            server.mix(config.warm_up_s, phase.moved)
        with context.phase(STEADY) as phase:
            steady = tallies[STEADY] = server.mix(config.duration_s, phase.moved)
            loop = server.loop
            server.cut()
        restorable = server.restorable(each_once=not self._loader.transfers_directly)
        cold = self._evict(tier, restorable)
        if restorable:
            progress.begin("restoring alone")
            with context.phase(RESTORE) as phase:
                tallies[RESTORE] = server.restore_again(
                    config.saturation_s, phase.moved, restorable, self._forget(tier)
                )
        progress.begin("storing alone")
        with context.phase(STORE) as phase:
            tallies[STORE] = server.store_new(
                config.saturation_s, phase.moved, job.most_stored_alone
            )
        progress.end()
        context.end_job()
        self._cached = cache.stored()
        facts = KvFacts(
            settings=KvSettings.model_validate(config),
            bytes_per_token=job.geometry.bytes_per_token,
            block_bytes=job.geometry.block_bytes,
            moved_block_bytes=job.geometry.moved_block_bytes,
            pieces=job.geometry.pieces,
            mla=job.geometry.mla,
            capacity_blocks=job.capacity,
            reads_directly=self._loader.transfers_directly,
            counts={name: tally.counts() for name, tally in tallies.items()},
            times=tuple(server.times.times(job.geometry.moved_piece_bytes)),
            hit_shares=tuple(steady.hit_shares),
            loop=self._loop(loop, context.seed),
            source=job.source,
            drive_ceiling_bytes_per_s=self._drive_ceiling(context, tier),
            harness_ceiling_bytes_per_s=self._harness_ceiling(context, server, tier, restorable),
        )
        return Outcome(
            facts=facts,
            paths=(tier.path(),),
            checks=cold,
            remarks=tuple(_remarks(facts, config.duration_s)),
            queue_depth=config.queue_depth,
            block_bytes=min(config.request_bytes, job.geometry.moved_piece_bytes),
        )

    def _evict(self, tier: DriveTier, restorable: Sequence[Sequence[Placed]]) -> Sequence[Check]:
        """Drop the pages of blocks that are restored alone, and prove it; empty without blocks."""
        paths = tier.paths(block for blocks in restorable for block in blocks)
        evict(paths)
        return (cold_cache_check(paths),) if paths else ()

    def _forget(self, tier: DriveTier) -> Callable[[Sequence[Placed]], None]:
        """Return what drops the pages of restored blocks, where reads leave any."""
        if self._loader.transfers_directly:
            return lambda blocks: None
        return lambda blocks: evict(tier.paths(blocks))

    def _drive_ceiling(self, context: RunContext, tier: DriveTier) -> float | None:
        """Return the rate of random reads of the same size and depth from the same files."""
        job = self._planned()
        if not self._cached or any(target.direct_io is None for target in context.targets):
            return None
        size_bytes = min(job.limits.request_bytes, job.geometry.moved_piece_bytes)
        step = -(-len(self._cached) // CEILING_BLOCKS)
        plan = tier.random_reads(self._cached[::step], size_bytes, CEILING_S)
        with (
            context.phase("drive_ceiling", timed=False) as phase,
            closing(IOEngine(block_bytes=size_bytes, depth=plan.depth)) as engine,
        ):
            result = engine.run(plan, moved=phase.count_read)
        return result.moved_bytes / result.seconds

    def _harness_ceiling(
        self,
        context: RunContext,
        server: Server,
        tier: DriveTier,
        order: Sequence[list[Placed]],
    ) -> float | None:
        """Return the rate at which this host restores the same blocks without a drive."""
        if not order:
            return None
        loader, job = self._loader, self._planned()
        with (
            context.phase("harness_ceiling", timed=False),
            closing(
                loader.block_transfers(
                    job.limits, context.targets, seed=context.seed, diskless=True
                )
            ) as nowhere,
            tier.moving_by(nowhere),
        ):
            start_s = time.monotonic()
            tally = server.restore_again(HARNESS_S, count_nothing, order, lambda blocks: None)
            return tally.restored_blocks * job.moved / (time.monotonic() - start_s)

    def _loop(self, tally: LoopTally, seed: int) -> Loop:
        """Return how requests flowed, with the arrivals of the same ones in a fresh source."""
        if self.config.is_closed:
            return tally.loop(self.config.users, None)
        requests = in_order(source_of(self.config, seed=seed))
        own = islice(requests, tally.first, tally.first + tally.arrived)
        return tally.loop(None, sum(request.arrival_s for request in own))

    def _verify(self, tier: DriveTier, context: RunContext) -> Iterator[Check]:
        """Yield the checks of what the cache holds at the end."""
        job, compared, bad = self._planned(), 0, 0
        context.progress.begin("comparing all blocks", read_bytes=len(self._cached) * job.moved)
        for first in range(0, len(self._cached), VERIFIED_BLOCKS):
            result = tier.read_whole(self._cached[first : first + VERIFIED_BLOCKS]).result()
            compared += result.compared_bytes
            bad += result.bad_blocks
            context.progress.advance(read_bytes=result.moved_bytes)
        context.progress.end()
        yield stored_blocks(len(self._cached) * job.moved, compared, bad)
        held = job.capacity if job.geometry.layout is Layout.layer else len(self._cached)
        yield freed_space(held * job.moved, self._free_bytes - _free_bytes(context.targets))

    def _new_cache(self) -> BlockCache:
        job, memory_bytes = self._planned(), self.config.memory_tier_bytes
        return BlockCache(job.capacity, memory_capacity=memory_bytes // job.geometry.block_bytes)

    def _server(self, cache: BlockCache, tier: DriveTier, *, seed: int) -> Server:
        config, decode_ms = self.config, self.config.decode_ms_per_token
        return Server(
            source_of(config, seed=seed),
            cache,
            tier,
            self._planned().geometry,
            MonotonicClock(),
            admission=config.admission,
            window_bytes=config.queue_depth * config.request_bytes,
            max_backlog=config.max_backlog,
            prefill_tokens_per_s=config.prefill_tokens_per_s,
            decode_s_per_token=None if decode_ms is None else decode_ms * MILLI,
        )

    @contextmanager
    def _cleanup_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            with noting_what_remains(error, [folder.path for folder in self._folders]):
                self._remove()
            raise

    def _remove(self) -> None:
        """Delete the blocks of this run."""
        if self._tier is not None:
            self._tier.close()
            self._tier = None
        for folder in self._folders:
            folder.remove()

    def _planned(self) -> Job:
        if self._job is None:
            raise RuntimeError("plan() has to be called before prepare() and run()")
        return self._job


def _capacity_bytes(config: Config, targets: Sequence[Target]) -> int:
    """Return the size of the cache as it is set, or 80 % of the file systems."""
    if config.capacity_bytes is not None:
        return config.capacity_bytes
    found = {target.path.stat().st_dev: os.statvfs(target.path) for target in targets}
    return round(DRIVE_SHARE * sum(each.f_blocks * each.f_frsize for each in found.values()))


def _free_bytes(targets: Sequence[Target]) -> int:
    found = {target.path.stat().st_dev: os.statvfs(target.path) for target in targets}
    return sum(each.f_bfree * each.f_frsize for each in found.values())


def _remarks(facts: KvFacts, duration_s: float) -> Iterator[str]:
    counts = facts.counts
    if not any(each.evicted_blocks for name, each in counts.items() if name != STORE):
        yield "No block was evicted: the requests never filled the cache."
    full = sum(each.full_disk_evictions for each in counts.values())
    if full:
        yield f"The file system was full before the cache: {full:,} blocks made room for others."
    if RESTORE not in counts:
        yield (
            "Nothing could be restored alone: no block that the mix restored was in the cache at "
            "its end."
        )
    if facts.loop.seconds < SHORT_SHARE * duration_s and not facts.loop.ended_early:
        yield f"The trace ended {format_seconds(facts.loop.seconds)} after the mix began."
    if facts.loop.ended_early:
        yield (
            f"Overloaded: {facts.loop.backlog_end:,} requests were in the system, more than "
            "workload.max_backlog, which ended the mix early."
        )
