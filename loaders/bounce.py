"""loader=bounce: reads through pinned host memory into GPU memory.

This is the path of applications without GPUDirect Storage, and of gdsio's transfer type 2. With
``submit=thread`` each thread reads a block with O_DIRECT, copies it to the GPU on a stream of its
own, and waits for the copy. With ``submit=ring`` a few threads keep the same number of reads in
flight by io_uring and copy many blocks together: the best that a path through the CPU does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wattload.core.io import DataPath
from wattload.core.settings import check_settings, setting
from wattload.core.storage.targets import Target
from wattload.core.workload import Requirement
from wattload.loaders.block_reads import Ability, BlockReader, ReadPlan
from wattload.loaders.engine.library import IO_URING, choose_backend
from wattload.loaders.gpu.host import check_host
from wattload.loaders.gpu.process import ENGINE, ProcessReader, Way

THREAD, RING = "thread", "ring"
POLLER_LIMIT = 64


@dataclass(slots=True, kw_only=True)
class Config:
    """How blocks reach the GPU through pinned buffers of ours."""

    name: ClassVar[str] = "bounce"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    _target_: str = "wattload.loaders.bounce.Config"
    submit: str = setting(
        THREAD,
        "thread: each thread reads, copies and waits; ring: io_uring, with copies in batches.",
        choices=(THREAD, RING),
    )
    pollers: int = setting(
        1, "Threads with an I/O ring of their own, per GPU (ring).", least=1, most=POLLER_LIMIT
    )

    def check(self) -> None:
        """Raise ``ConfigError`` for a setting outside its range."""
        check_settings(self, "loader")

    @property
    def abilities(self) -> Ability:
        return Ability.FILES | Ability.GPU | Ability.THREADS

    def check_block_reads(self, plan: ReadPlan, targets: Sequence[Target]) -> None:
        """Raise without a CUDA driver or the GPUs, for limits, and for targets without O_DIRECT."""
        self.check()
        if self.submit == RING:
            choose_backend(IO_URING)
        check_host(plan, targets, ring=self.submit == RING)

    def block_read_bytes(self, plan: ReadPlan) -> int:
        return plan.in_flight * plan.block_bytes

    def block_reader(self, plan: ReadPlan, folder: Path) -> BlockReader:
        """Return the reader; nothing is kept in ``folder``."""
        is_ring = self.submit == RING
        engine = (
            f"{plan.in_flight} reads in flight by io_uring, {self.pollers} pollers per GPU, copies "
            "in batches"
            if is_ring
            else f"{plan.in_flight} threads with pread, one copy for each read"
        )
        path = DataPath(data_path="host_memory", path_requested="host_bounce", engine=engine)
        less = "use fewer threads or smaller blocks" + (
            f", or loader.submit={THREAD}" if is_ring else ""
        )
        arguments = ("ring" if is_ring else "bounce", self.pollers)
        return ProcessReader(plan, Way(module=ENGINE, arguments=arguments, path=path, less=less))
