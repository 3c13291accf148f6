"""A loader that reads into host memory on one thread, and counts as it is instructed to."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from wattload.core.histogram import Histogram
from wattload.core.io import DataPath, PathCounts
from wattload.core.storage.targets import Target
from wattload.core.workload import Requirement
from wattload.loaders.aligned_io import aligned_buffer
from wattload.loaders.block_reads import (
    Ability,
    BlockReader,
    ReadFailure,
    ReadPlan,
    ReadResult,
    ReadsWatch,
)
from wattload.loaders.stamps import bad_blocks


def pinned(reads: int, read_bytes: int) -> PathCounts:
    return PathCounts(
        reads=reads, read_bytes=read_bytes, pinned_copies=reads, pinned_bytes=read_bytes
    )


def by_library(**shares: float) -> Callable[[int, int], PathCounts]:
    """Return counts of a library by the shares of its paths: ``p2p``, ``nvfs``, ``posix``."""

    def counts(reads: int, read_bytes: int) -> PathCounts:
        parts = {f"{name}_reads": round(shares.get(name, 0) * reads) for name in shares}
        all_parts = {"p2p_reads": 0, "nvfs_reads": 0, "posix_reads": 0, **parts}
        return PathCounts(reads=reads, read_bytes=read_bytes, library_reads=reads, **all_parts)

    return counts


LEAST = 64
"""Blocks that are read at least."""


@dataclass
class FakeLoader:
    """``threads`` of the plan are taken in turn, so each waits for the others."""

    name: ClassVar[str] = "fake"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    counts: Callable[[int, int], PathCounts] = pinned
    only_direct: bool = False
    failures: tuple[ReadFailure, ...] = ()
    delivers_zeros: bool = False
    hidden_share: float = 0.0
    """The share of a thread's time that is in no latency."""
    through_page_cache: bool = False
    has_latencies: bool = True
    plans: list[ReadPlan] = field(default_factory=list)

    def check(self) -> None:
        pass

    @property
    def abilities(self) -> Ability:
        own = Ability.FILES | Ability.GPU | Ability.THREADS
        return own | Ability.ONLY_DIRECT if self.only_direct else own

    def check_block_reads(self, plan: ReadPlan, targets: Sequence[Target]) -> None:
        self.plans.append(plan)

    def block_read_bytes(self, plan: ReadPlan) -> int:
        return plan.in_flight * plan.block_bytes

    def block_reader(self, plan: ReadPlan, folder: Path) -> BlockReader:
        return FakeReader(self, plan)


class FakeReader:
    def __init__(self, loader: FakeLoader, plan: ReadPlan) -> None:
        self.loader = loader
        self.plan = plan
        self.is_closed = False

    def path(self) -> DataPath:
        return DataPath(data_path="made up", path_requested="o_direct", engine="fake")

    def run(self, watch: ReadsWatch) -> ReadResult:
        plan, loader = self.plan, self.loader
        draw = random.Random(plan.seed)
        flags = os.O_RDONLY | (0 if loader.through_page_cache else os.O_DIRECT)
        descriptors = [os.open(file.path, flags) for file in plan.files]
        buffer = aligned_buffer(plan.block_bytes)
        operations = [0] * len(plan.files)
        compared_bytes = wrong = 0
        watch.begin()
        start_ns = time.monotonic_ns()
        cpu_s = time.process_time()
        # However busy the machine is, more is read than may be in the page cache.
        while time.monotonic_ns() - start_ns < plan.duration_s * 1e9 or 0 < sum(operations) < LEAST:
            index = sum(operations) % plan.in_flight % len(plan.files)
            blocks = plan.files[index].size_bytes // plan.block_bytes
            offset = draw.randrange(blocks) * plan.block_bytes
            os.preadv(descriptors[index], [buffer.data], offset)
            if loader.delivers_zeros:
                buffer.fill(0)
            stamps = plan.files[index].stamps
            wrong += bad_blocks(buffer, stamps, offset_bytes=offset, unit_bytes=stamps.unit_bytes)
            compared_bytes += plan.block_bytes
            operations[index] += 1
            watch.moved(1, plan.block_bytes)
        end_ns = time.monotonic_ns()
        watch.end(start_ns, end_ns)
        for descriptor in descriptors:
            os.close(descriptor)
        count = sum(operations)
        # Each of the threads waits for all others, except for the hidden share of its time.
        whole_ns = (end_ns - start_ns) * plan.in_flight / max(count, 1)
        each_ns = whole_ns * (1 - loader.hidden_share)
        return ReadResult(
            operations=count,
            start_ns=start_ns,
            end_ns=end_ns,
            cpu_s=time.process_time() - cpu_s,
            latency=Histogram.of([round(each_ns)] * count) if loader.has_latencies else None,
            mean_latency_s=None if loader.has_latencies else each_ns / 1e9,
            counts=loader.counts(count, count * plan.block_bytes),
            file_operations=tuple(operations),
            failures=loader.failures,
            compared_bytes=compared_bytes,
            bad_blocks=wrong,
            software={"cuda": "12.8"},
        )

    def close(self) -> None:
        self.is_closed = True
