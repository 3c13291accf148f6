"""The harness ceiling: the same loader and loop from memory, with no computation."""

from __future__ import annotations

import time
from dataclasses import replace

from wattload.core.io import Loader
from wattload.core.units import NS_PER_S
from wattload.core.workload import Communicator
from wattload.loaders.devicecopy import DeviceCopier
from wattload.loaders.samples import SampleLoaderConfig, SampleSet

SECONDS = 3.0
BATCHES_LEAST = 8
BATCHES_MOST = 512


def harness_ceiling(
    loader: SampleLoaderConfig,
    samples: SampleSet,
    world: Communicator,
    copier: DeviceCopier | None = None,
) -> float:
    """Return what all ranks together load from memory, in bytes per second.

    Each rank holds one file, the median in size, and loads it over and over for three seconds; it
    counts from an empty pipeline on, so the figure is rather too low. Batches are copied to the
    device where the run's are. Nothing is hashed.
    """
    one = ceiling_samples(samples)
    ready = loader.sample_loader(one, lambda _: None)
    try:
        world.barrier()
        rate = _bytes_per_s(ready, one, copier)
    finally:
        ready.close()
    return float(sum(world.gather(rate)))


def ceiling_samples(samples: SampleSet) -> SampleSet:
    """Return the one sample that a ceiling is measured with."""
    by_size = sorted(range(len(samples.paths)), key=samples.file_bytes.__getitem__)
    median = by_size[len(by_size) // 2]
    return replace(
        samples,
        paths=(samples.paths[median],),
        file_bytes=(samples.file_bytes[median],),
        hashed=frozenset(),
        in_memory=True,
    )


def _bytes_per_s(loader: Loader, samples: SampleSet, copier: DeviceCopier | None) -> float:
    least = BATCHES_LEAST * samples.accelerators
    order = [0] * (samples.batch_samples * max(BATCHES_MOST, least))
    read_bytes = 0
    elapsed_s = 0.0
    start_ns = time.monotonic_ns()
    for batches, batch in enumerate(loader.epoch(order), 1):
        if copier is not None:
            copier.make_room()
            copier.copy(batch.tensor, {})
        read_bytes += batch.read_bytes
        elapsed_s = (time.monotonic_ns() - start_ns) / NS_PER_S
        if elapsed_s >= SECONDS and batches >= least:
            break
    if copier is not None:
        copier.finish()
    return read_bytes / elapsed_s
