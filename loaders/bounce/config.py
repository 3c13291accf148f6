"""The settings of loader=bounce: reads through pinned host memory into GPU memory.

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
from wattload.loaders.engine.library import IO_URING, choose_backend
from wattload.loaders.gpu.limits import check_host
from wattload.loaders.gpu.process import ProcessReader, Way
from wattload.loaders.gpu_reads import GpuReader, GpuReadPlan

THREAD, RING = "thread", "ring"
POLLER_LIMIT = 64


@dataclass(slots=True, kw_only=True)
class Config:
    """How blocks reach the GPU through pinned buffers of ours."""

    name: ClassVar[str] = "bounce"
    requires: ClassVar[tuple[Requirement, ...]] = ()

    _target_: str = "wattload.loaders.bounce.config.Config"
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
    def gpu_path_must_be_direct(self) -> bool:
        """``False``: the path through host memory is the requested one."""
        return False

    def check_gpu_reads(self, plan: GpuReadPlan, targets: Sequence[Target]) -> None:
        """Raise without a CUDA driver or the GPUs, for limits, and for targets without O_DIRECT."""
        self.check()
        if self.submit == RING:
            choose_backend(IO_URING)
        check_host(plan, targets, ring=self.submit == RING)

    def gpu_reader(self, plan: GpuReadPlan, folder: Path) -> GpuReader:
        """Return the reader; nothing is kept in ``folder``."""
        is_ring = self.submit == RING
        engine = (
            f"{plan.threads} reads in flight by io_uring, {self.pollers} pollers per GPU, copies "
            "in batches"
            if is_ring
            else f"{plan.threads} threads with pread, one copy for each read"
        )
        path = DataPath(data_path="host_memory", path_requested="host_bounce", engine=engine)
        return ProcessReader(
            plan,
            Way(
                name="ring" if is_ring else "bounce",
                path=path,
                pollers=self.pollers,
                pins=True,
                variables={},
            ),
        )
