"""What benchmarks of ``kv_cache`` run in a process of its own: ``python -m benchmarks.kv_job JOB``.

A loader stores and restores blocks as the workload does. The engine moves the same extents in one
plan, with the same stamps and the same comparison. A number of requests is served without a drive.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

from benchmarks.child import ROOT, io_figures, output
from benchmarks.kv_virtual import NullTier, VirtualClock
from benchmarks.measure import Figures, NotMeasuredError
from wattload.core.io import IOKind, IOOrder, IOPlan, IOResult
from wattload.core.storage.targets import resolve_targets
from wattload.core.units import MIB
from wattload.loaders.block_transfers import BlockTransfers, TransferLimits
from wattload.loaders.data.cold_cache import RESIDENT_LIMIT, evict, resident_fraction
from wattload.loaders.data.data_folder import DataFolder
from wattload.loaders.direct.config import Config as Loader
from wattload.loaders.engine.engine import IOEngine
from wattload.workloads.kv_cache.cache import BlockCache
from wattload.workloads.kv_cache.config import Config
from wattload.workloads.kv_cache.geometry import geometry_of
from wattload.workloads.kv_cache.server import Server, count_nothing
from wattload.workloads.kv_cache.sources import source_of
from wattload.workloads.kv_cache.tier import DriveTier, Placed

OURS, ENGINE, BUFFERED, DIRECT = "kv_cache", "engine", "LMCache buffered", "LMCache O_DIRECT"
HERE = (sys.executable, "-m", "benchmarks.kv_job")
DEPTH = 32
SUFFIXES = (".kv", ".partial", ".pt")
CAPACITY = 100_000
"""Blocks of the cache without a drive: 6.7 TB of llama3.1-8b."""
PEER = ROOT / "benchmarks/kv_peers/lmcache_disk.py"
PYTHON = "LMCACHE_PYTHON"
"""The environment variable that names the Python of LMCache's environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``count`` blocks of ``tokens``, each in a file below ``folder``, that ``mover`` moves.

    After stores the file system is synced before the clock stops: LMCache does not fsync. It
    restores the ``stored`` files, through links.
    """

    folder: Path
    kind: IOKind
    tokens: int
    count: int
    request_blocks: int = 32
    mover: str = OURS
    stored: Sequence[Path] = ()

    @property
    def files(self) -> Sequence[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.suffix in SUFFIXES)

    def command(self) -> list[str]:
        job = json.dumps(asdict(self), default=str)
        if self.mover in (OURS, ENGINE):
            return [*HERE, job]
        if not os.environ.get(PYTHON):
            raise NotMeasuredError(f"set {PYTHON} to the Python of LMCache: {PEER.name}")
        return [os.environ[PYTHON], str(PEER), job]

    def __call__(self) -> Figures:
        """Delete the blocks before stores, or drop them from the page cache, and move them.

        Raises:
            NotMeasuredError: they are still in the page cache, or were not moved.
        """
        if self.kind is IOKind.WRITE:
            for path in self.files:
                path.unlink()
        else:
            evict(self.files)
            share = resident_fraction(self.files)
            if share is None or share > RESIDENT_LIMIT:
                raise NotMeasuredError(f"blocks are in the page cache (share: {share})")
        found = json.loads(output(self.command()).splitlines()[-1])
        return io_figures(operations=self.count, **found)


def run(job: Job) -> Figures:
    """Move the blocks here; return the bytes, and wall and CPU time of this process.

    Raises:
        NotMeasuredError: a block that was read is not what was stored.
    """
    geometry = geometry_of(Config(block_tokens=job.tokens))
    limits = TransferLimits(
        request_bytes=MIB, queue_depth=DEPTH, largest_bytes=geometry.moved_piece_bytes
    )
    targets = resolve_targets([job.folder], host="")
    recorder = Mock(spec=BlockTransfers)
    is_ours = job.mover == OURS
    transfers = Loader().block_transfers(limits, targets, seed=0) if is_ours else recorder
    data = DataFolder.claim(job.folder, "kv_cache", {}, seed=0)
    tier = DriveTier([data], geometry, job.count, transfers, limits, nonce=1, seed=0)
    blocks = [(number, number) for number in range(job.count)]
    if not is_ours:
        move = _engine(tier, recorder, blocks, job.kind)
    elif job.kind is IOKind.READ:
        move = partial(_restored, tier, blocks, job.request_blocks)
    else:
        move = partial(_stored, tier, blocks)
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    results = move()
    if job.kind is IOKind.WRITE:
        subprocess.run(["sync", "--file-system", job.folder], check=True)
    cpu_s, seconds = time.process_time() - start_cpu_s, time.monotonic() - start_s
    if any(result.bad_blocks for result in results):
        raise NotMeasuredError("blocks that were read are not what was stored")
    moved_bytes = sum(result.moved_bytes for result in results)
    return {"moved_bytes": moved_bytes, "seconds": seconds, "cpu_s": cpu_s}


def _restored(tier: DriveTier, blocks: Sequence[Placed], step: int) -> Sequence[IOResult]:
    """Restore requests of ``step`` blocks, all of them queued at once."""
    queued = [tier.restore(blocks[n : n + step]) for n in range(0, len(blocks), step)]
    return [transfer.result() for transfers in queued for transfer, _ in transfers]


def _stored(tier: DriveTier, blocks: Sequence[Placed]) -> Sequence[IOResult]:
    """Store blocks: a file each, synced and then renamed; at last the names are synced."""
    results = []
    for block, transfer in [(block, tier.store(block)) for block in blocks]:
        results.append(transfer.result())
        tier.commit(block)
    tier.sync()
    return results


def _engine(
    tier: DriveTier, recorder: Mock, blocks: Sequence[Placed], kind: IOKind
) -> Callable[[], Sequence[IOResult]]:
    """Return what moves all extents of the tier's plans in one, at random where it reads."""
    if kind is IOKind.READ:
        tier.restore(blocks)
    else:
        for block in blocks:
            tier.store(block)
    plans: list[IOPlan] = [call.args[0] for call in recorder.submit.call_args_list]
    extents = [extent for plan in plans for extent in plan.extents]
    words = [word for plan in plans for word in plan.words or ()]
    plan = replace(plans[0], extents=extents, words=words)
    if kind is IOKind.READ:
        count = sum(extent.length_bytes for extent in extents) // MIB
        plan = replace(plan, order=IOOrder.RANDOM, operation_count=count)
    engine = IOEngine(block_bytes=MIB, depth=DEPTH)
    return lambda: [engine.run(plan)]


def served(requests: int) -> Figures:
    """Serve requests without a drive, in a process of its own; see ``serve``."""
    found: Figures = json.loads(output([*HERE, str(requests)]))
    return found


def serve(requests: int) -> Figures:
    """Serve requests here: users like those of a published trace, in virtual time."""
    from wattload.run.compose import compose

    config = compose(["workload=kv_cache_conversation", f"target.path={ROOT}"])[0].workload
    server = Server(
        source_of(config, seed=0),
        BlockCache(CAPACITY),
        NullTier(),
        geometry_of(config),
        VirtualClock(),
        admission=config.admission,
        window_bytes=config.queue_depth * config.request_bytes,
        max_backlog=config.max_backlog,
    )
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    tally = server.mix(requests / config.request_rate, count_nothing)
    cpu_s, seconds = time.process_time() - start_cpu_s, time.monotonic() - start_s
    return {
        "blocks_per_s": (tally.drive_blocks + tally.pending_blocks + tally.missed_blocks) / cpu_s,
        "seconds": seconds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if isinstance(given, int):
        figures = serve(given)
    else:
        given |= {"folder": Path(given["folder"]), "kind": IOKind(given["kind"])}
        figures = run(Job(**given))
    sys.stdout.write(json.dumps(figures))
