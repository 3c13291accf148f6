"""Making the data: what is missing is written by all ranks, and an interrupted call goes on."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from wattload.core.errors import TargetError, WattloadError
from wattload.core.io import ByteCounter
from wattload.core.target import Target
from wattload.core.workload import RunContext
from wattload.loaders.aligned import PAGE_BYTES, aligned_buffer
from wattload.loaders.datafolder import DataFolder
from wattload.loaders.formats import record_format
from wattload.loaders.python.blockio import DirectMedium, Medium
from wattload.workloads.unet3d.dataset import WORKLOAD, Dataset, PreparedData
from wattload.workloads.unet3d.payload import POOL_BYTES, PayloadPool
from wattload.workloads.unet3d.recordfile import PageCacheMedium, Record, RecordWriter

CHUNK_BYTES = 8 << 20
MAXIMUM_WRITERS = 8


def prepare(dataset: Dataset, context: RunContext) -> tuple[PreparedData, bool]:
    """Claim the folders and make what is missing; returns the data and whether all was there.

    Every rank makes every ``world_size``-th of the missing files, and lists them in its own part of
    the manifest; an interrupted call is taken up where it stopped.

    Raises:
        DataError: a folder is somebody else's, or a verified file was changed.
        TargetError: the target is full or can't be written.
    """
    world = context.communicator
    if world.rank == 0:
        _claim(dataset, 0)
    world.barrier()
    folders = _claim(dataset, world.rank)
    hollow_count = len(dataset.hollow(folders))
    missing = dataset.missing(folders)
    kept = sorted(set(range(dataset.file_count)) - set(missing))
    world.barrier()  # nobody writes before all have looked
    data = PreparedData(dataset, folders, hollow_count=hollow_count)
    if dataset.config.verify_data:
        data.verify(kept[world.rank :: world.world_size])
    _make(data, missing[world.rank :: world.world_size], context)
    world.barrier()
    if world.rank == 0:
        for folder in folders:
            folder.seal()
    for folder in folders:
        folder.reload()
    world.barrier()
    return data, not missing


def _claim(dataset: Dataset, rank: int) -> list[DataFolder]:
    return [
        DataFolder.claim(
            target.data_folder.parent,
            WORKLOAD,
            dataset.parameters,
            seed=dataset.config.data_seed,
            part=rank,
        )
        for target in dataset.targets
    ]


def _make(data: PreparedData, indices: Sequence[int], context: RunContext) -> None:
    """Write the files in an untimed phase; an interrupt or a failure ends after those begun."""
    if not indices:
        return
    context.progress.begin("generating", sum(data.dataset.file_bytes[index] for index in indices))
    try:
        with context.phase("generate", timed=False) as phase:
            _write_all(data, indices, context, lambda size: phase.moved(written_bytes=size))
    finally:
        context.progress.end()


def _write_all(
    data: PreparedData, indices: Sequence[int], context: RunContext, moved: ByteCounter
) -> None:
    """Write the files with several threads."""
    count = min(writer_count(context.communicator.world_size), len(indices))
    free: queue.SimpleQueue[Sequence[RecordWriter]] = queue.SimpleQueue()
    for writers in _writers(data.dataset, count, moved):
        free.put(writers)

    def write(index: int) -> None:
        writers = free.get()
        try:
            context.progress.advance(_write(data, index, writers))
        finally:
            free.put(writers)

    with ThreadPoolExecutor(count, thread_name_prefix="generate") as threads:
        try:
            for done in as_completed([threads.submit(write, index) for index in indices]):
                done.result()
        finally:
            threads.shutdown(cancel_futures=True)


def _writers(dataset: Dataset, count: int, moved: ByteCounter) -> Iterator[Sequence[RecordWriter]]:
    """Yield one writer per target for each thread; writers of one thread share its buffer."""
    layout = record_format(dataset.config.record_format)
    pool = PayloadPool(dataset.config.data_seed)
    for _ in range(count):
        buffer = aligned_buffer(CHUNK_BYTES)
        yield [
            RecordWriter(layout, pool, buffer, _medium(target), moved) for target in dataset.targets
        ]


def _medium(target: Target) -> Medium:
    """Return O_DIRECT where the target takes blocks of 4096 bytes, else the page cache."""
    needs = target.direct_io
    fits = needs is not None and needs.offset_align_bytes <= PAGE_BYTES
    return DirectMedium() if fits else PageCacheMedium()


def _write(data: PreparedData, index: int, writers: Sequence[RecordWriter]) -> int:
    place = index % len(data.folders)
    record = Record(
        folder=data.folders[place],
        name=data.dataset.names[index],
        shape=data.dataset.shapes[index],
        index=index,
    )
    try:
        return writers[place].write(record)
    except WattloadError:
        raise
    except OSError as error:
        raise TargetError(
            f"{data.paths[index]} could not be written: {error.strerror}; "
            "what was finished is kept and taken up by the next run"
        ) from error


def writer_count(world_size: int) -> int:
    """Return the threads that generate on one rank: the processors, shared by the ranks."""
    return max(min(len(os.sched_getaffinity(0)) // world_size, MAXIMUM_WRITERS), 1)


def generation_memory_bytes(world_size: int) -> int:
    """Return the memory of one rank's generating threads, in bytes."""
    return POOL_BYTES + writer_count(world_size) * CHUNK_BYTES
