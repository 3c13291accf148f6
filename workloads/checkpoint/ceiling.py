"""What the host does without a drive: the same save and load on no file, and stamping alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from wattload.core.units import MIB, NS_PER_S
from wattload.core.workload import Communicator
from wattload.loaders.aligned import PAGE_BYTES, aligned_buffers
from wattload.loaders.checkpoints import CheckpointLoader, Identity, Shard, Tensor
from wattload.loaders.stamps import Stamper

LEAST_S = 1.0
SHARD_BYTES = 256 * MIB

_BUFFER_COUNT = 8
_BUFFER_BYTES = 4 * MIB
_COPIES = 3
_IDENTITY = Identity(nonce=0, rank=0, checkpoint=0)
_NOWHERE = Path("memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Bytes per second of all ranks together; ``generator`` is one thread per rank."""

    write: float
    read: float
    generator: float


def ceilings(loader: CheckpointLoader, shard: Shard, world: Communicator, *, seed: int) -> Ceilings:
    """Run the loops of this run without a target for a second each, on all ranks at once.

    The shard is cut to 256 MiB: a store without files may keep it in memory.
    """
    store = loader.checkpoint_store(shortened(shard, SHARD_BYTES), seed=seed, diskless=True)
    try:
        saved = store.save(_NOWHERE, _IDENTITY, _uncounted, fsync=True)
        size_bytes = sum(file.payload_bytes for file in saved.files)

        def save() -> int:
            store.save(_NOWHERE, _IDENTITY, _uncounted, fsync=True)
            return size_bytes

        def load() -> int:
            return store.load(_NOWHERE, saved.files, _IDENTITY, _uncounted).payload_bytes

        write, read = _rate(save, world), _rate(load, world)
    finally:
        store.close()
    return Ceilings(write=write, read=read, generator=_rate(_stamping(seed), world))


def ceiling_memory_bytes(shard: Shard) -> int:
    """Return a bound on what the ceilings of a store that keeps its files in memory hold.

    The files, and twice as much while one is written or loaded: 0.8 GB were seen for 256 MiB.
    """
    return _COPIES * min(SHARD_BYTES, shard.size_bytes)


def shortened(shard: Shard, most_bytes: int) -> Shard:
    """Return a shard's first ``most_bytes``, a multiple of 4, with its last tensor cut."""
    tensors: list[Tensor] = []
    left_bytes = most_bytes
    for tensor in shard.tensors:
        if left_bytes:
            tensors.append(replace(tensor, size_bytes=min(tensor.size_bytes, left_bytes)))
            left_bytes -= tensors[-1].size_bytes
    return replace(shard, tensors=tuple(tensors))


def _stamping(seed: int) -> Callable[[], int]:
    """Return a function that stamps every buffer once and returns their bytes."""
    buffers = aligned_buffers(_BUFFER_COUNT, _BUFFER_BYTES)
    stamper = Stamper(buffers, seed=seed, rank=0)

    def stamp_all() -> int:
        for number, buffer in enumerate(buffers):
            stamper.stamp(buffer, _IDENTITY, number * _BUFFER_BYTES // PAGE_BYTES)
        return _BUFFER_COUNT * _BUFFER_BYTES

    return stamp_all


def _rate(work: Callable[[], int], world: Communicator) -> float:
    """Repeat the work for a second; returns all ranks' bytes over the slowest one's seconds."""
    world.barrier()
    start_ns = time.monotonic_ns()
    moved_bytes, seconds = 0, 0.0
    while seconds < LEAST_S:
        moved_bytes += work()
        seconds = (time.monotonic_ns() - start_ns) / NS_PER_S
    ranks = world.gather((moved_bytes, seconds))
    return float(sum(moved for moved, _ in ranks) / max(elapsed for _, elapsed in ranks))


def _uncounted(moved_bytes: int) -> None:
    """Take no note: nothing moves to or from the target."""
