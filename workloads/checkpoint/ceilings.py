"""The ceilings of the host that bound the rates of a checkpoint run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from wattload.core.io import BlockIdentity
from wattload.core.units import MIB, NS_PER_S
from wattload.core.workload import Communicator
from wattload.loaders.aligned_io import aligned_buffer, fill_random
from wattload.loaders.checkpoint_store import CheckpointLoader, Shard, Tensor
from wattload.loaders.stamps import StampedMemory
from wattload.results.checkpoint.facts import Ceilings

LEAST_S = 1.0
SHARD_BYTES = 256 * MIB
_GENERATOR_BYTES = 32 * MIB
_COPIES = 3
_IDENTITY = BlockIdentity(nonce=0, word=0)
_NOWHERE = Path("memory")


def ceilings(loader: CheckpointLoader, shard: Shard, world: Communicator, *, seed: int) -> Ceilings:
    """Run the loops of this run without a target for one second each, on all ranks in parallel.

    The shard is limited to 256 MiB, because a store without files may keep it in memory.
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

        write, read = _measure_rate(save, world), _measure_rate(load, world)
    finally:
        store.close()
    return Ceilings(
        write_bytes_per_s=write,
        read_bytes_per_s=read,
        generator_bytes_per_s=_measure_rate(_stamping(seed), world),
    )


def ceiling_memory_bytes(shard: Shard) -> int:
    """Return a bound on the memory of the ceilings with a store that keeps files in memory.

    It needs the files, and twice as much while one is written or loaded: 0.8 GB was measured for
    256 MiB.
    """
    return _COPIES * min(SHARD_BYTES, shard.size_bytes)


def shortened(shard: Shard, most_bytes: int) -> Shard:
    """Return the first ``most_bytes`` of a shard, a multiple of 4, truncating the last tensor."""
    tensors: list[Tensor] = []
    left_bytes = most_bytes
    for tensor in shard.tensors:
        if left_bytes:
            tensors.append(replace(tensor, size_bytes=min(tensor.size_bytes, left_bytes)))
            left_bytes -= tensors[-1].size_bytes
    return replace(shard, tensors=tuple(tensors))


def _stamping(seed: int) -> Callable[[], int]:
    """Return a function that stamps every buffer once and returns their total size."""
    buffer = aligned_buffer(_GENERATOR_BYTES)
    fill_random([buffer], seed=seed, rank=0)
    memory = StampedMemory(buffer)

    def stamp_all() -> int:
        return memory.stamp(0, _GENERATOR_BYTES, _IDENTITY, 0).size

    return stamp_all


def _measure_rate(work: Callable[[], int], world: Communicator) -> float:
    """Repeat the work for a second; return all ranks' bytes over the slowest rank's seconds."""
    world.barrier()
    start_ns = time.monotonic_ns()
    moved_bytes, seconds = 0, 0.0
    while seconds < LEAST_S:
        moved_bytes += work()
        seconds = (time.monotonic_ns() - start_ns) / NS_PER_S
    ranks = world.all_gather((moved_bytes, seconds))
    return float(sum(moved for moved, _ in ranks) / max(elapsed for _, elapsed in ranks))


def _uncounted(moved_bytes: int) -> None:
    """Count nothing: no bytes move to or from the target."""
