"""Preparation of a range: purge, then two sequential passes of 128 KiB, resumable.

SNIA PTS 2.0.2, section 7.1: write the user capacity twice, sequentially, in 128 KiB.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from wattload.core.io import Allocation, Extent, IOKind, IOPlan, Stamps
from wattload.core.units import GIB, MIB
from wattload.core.workload import Conditioning, RunContext
from wattload.loaders.aligned_io import create_direct, direct_alignment
from wattload.loaders.engine.engine import IOEngine
from wattload.results.random_write.facts import Condition
from wattload.workloads.random_write.config import Config, Purge
from wattload.workloads.random_write.write_area import FILE_NAME, PASSES, WriteArea, is_stamped

PHASE = "condition"
BLOCK_BYTES = 128 << 10
QUEUE_DEPTH = 32

NOTED_SHARE = 1 / 128
"""How often progress is noted: what an interrupted preparation writes again."""
STEP_LEAST_BYTES = 256 * MIB


def laps(config: Config, area: WriteArea) -> int:
    """Return the sequential passes that the range needs; a file must be written once at least."""
    if config.prepared is Condition.sequential:
        return PASSES
    return int(area.is_file and area.history is None)


def left_bytes(config: Config, area: WriteArea) -> int:
    return laps(config, area) * area.range_bytes - _done_bytes(config, area)


def prepare(config: Config, area: WriteArea, context: RunContext) -> Mapping[str, Any]:
    """Purge and write the range as configured; return what the purge did.

    Raises:
        OSError: the drive or the file system refuses a write.
        TargetError: the drive refuses the purge, or it would empty another namespace too.
    """
    purged: Mapping[str, Any] = {}
    if config.purge is not Purge.none and area.drive is not None:
        purged = area.drive.purge(config.purge.value)
        area.history = None
    total = laps(config, area) * area.range_bytes
    start = _done_bytes(config, area)
    if start == total:
        return purged
    if area.is_file and start == 0:
        _reserve(area)
    context.progress.begin("preparing", written_bytes=total - start)
    try:
        with context.phase(PHASE, timed=False) as phase:
            engine = IOEngine(block_bytes=BLOCK_BYTES, depth=QUEUE_DEPTH)
            try:
                for plan, done in sequential_plans(area, start, total):
                    engine.run(
                        plan,
                        moved=phase.count_written,
                        alignment_bytes=direct_alignment(area.path),
                    )
                    area.note(_noted(area, done, complete=done == total))
            finally:
                engine.close()
    finally:
        context.progress.end()
    return purged


def _done_bytes(config: Config, area: WriteArea) -> int:
    """Return what an interrupted preparation of the same range has written, if it is still there.

    After the last note the interrupted run has written one step more at most.
    """
    known = area.history
    if known is None or known.complete or known.range_bytes != area.range_bytes:
        return 0
    if config.purge is not Purge.none or not known.sequential_bytes:
        return 0
    counted = area.host_written()
    if area.drive is not None and (counted is None or known.host_written_bytes is None):
        return 0
    if counted is not None and known.host_written_bytes is not None:
        since_bytes = counted[0] - known.host_written_bytes
        if not -counted[1] <= since_bytes <= _step_bytes(area) + counted[1]:
            return 0
    if not is_stamped(area, min(known.sequential_bytes, area.range_bytes)):
        return 0
    return min(known.sequential_bytes, laps(config, area) * area.range_bytes)


def _reserve(area: WriteArea) -> None:
    """Create the file with all its blocks, so that a full file system is found at once."""
    assert area.folder is not None
    area.folder.reserve(FILE_NAME)
    area.folder.discard(FILE_NAME)
    area.folder.reserve(FILE_NAME)
    with area.folder.open() as folder:
        descriptor = create_direct(folder, FILE_NAME)
        try:
            os.posix_fallocate(descriptor, 0, area.range_bytes)
        except OSError:
            area.folder.discard(FILE_NAME)
            raise
        finally:
            os.close(descriptor)


def sequential_plans(area: WriteArea, start: int, total: int) -> Iterator[tuple[IOPlan, int]]:
    """Yield plans that follow each other, and the bytes done after each."""
    step = _step_bytes(area)
    while start < total:
        lap, offset = divmod(start, area.range_bytes)
        size = min(step, area.range_bytes - offset)
        start += size
        yield (
            IOPlan(
                kind=IOKind.WRITE,
                extents=[Extent(area.path, offset, size)],
                block_bytes=BLOCK_BYTES,
                depth=QUEUE_DEPTH,
                allocation=Allocation.OVERWRITE,
                fsync=True,
                stamps=Stamps(area.nonce, lap),
                device=area.device,
            ),
            start,
        )


def _step_bytes(area: WriteArea) -> int:
    step = min(max(int(area.range_bytes * NOTED_SHARE), STEP_LEAST_BYTES), 64 * GIB)
    return step - step % BLOCK_BYTES


def _noted(area: WriteArea, done: int, *, complete: bool) -> Conditioning:
    counted = area.host_written()
    return Conditioning(
        block_bytes=BLOCK_BYTES,
        range_bytes=area.range_bytes,
        sequential_bytes=done,
        host_written_bytes=None if counted is None else counted[0],
        ended_s=time.time(),
        complete=complete,
        nonce=area.nonce,
    )
