"""A workload that stamps a whole drive, and waits where a test wants it to."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from wattload.core.base_models import Frozen
from wattload.core.io import BlockIdentity
from wattload.core.record.results import Check
from wattload.core.record.run import DataRecord
from wattload.core.storage.targets import TargetKind
from wattload.core.workload import (
    Accelerator,
    Conditioning,
    Outcome,
    OverHosts,
    RunContext,
    WorkloadPlan,
)
from wattload.loaders.stamps import seal
from wattload.workloads.null import Config

PIECE_BYTES = 1 << 20


class DriveBefore(Frozen):
    """How the drive was purged."""

    purge: Mapping[str, Any]


class RawWriter:
    """Writes the share in ``WATTLOAD_TEST_SHARE`` of each drive, all of it by default.

    It waits in the phase that ``WATTLOAD_TEST_STOP`` names, once the file that it also names
    is there. ``WATTLOAD_TEST_PURGE`` is a purge that comes first.
    """

    name = "raw_writer"
    needs: ClassVar[tuple[type, ...]] = ()
    over_hosts: ClassVar[OverHosts] = "one"
    target_kinds = (TargetKind.BLOCK,)
    prepares_last = True

    def __init__(self, config: Config, loader: object, accelerator: Accelerator) -> None:
        self._stop = os.environ.get("WATTLOAD_TEST_STOP", "")
        self._share = float(os.environ.get("WATTLOAD_TEST_SHARE", "1"))
        self._purge = os.environ.get("WATTLOAD_TEST_PURGE", "")
        self._purged: dict[str, object] = {}

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Plan one pass."""
        sizes = [target.device.size_bytes for target in context.targets if target.device]
        return WorkloadPlan(
            data_bytes=0,
            prepare_bytes=0,
            run_bytes=int(max(sizes) * self._share),
            peak_bytes=0,
            memory_bytes_per_rank=PIECE_BYTES,
            needs_direct_io=True,
            covered_bytes=int(max(sizes) * self._share),
        )

    def prepare(self, context: RunContext) -> DataRecord | None:
        """Purge, and note how the drive was prepared."""
        self._wait("prepare")
        for target in context.targets:
            drive = context.raw_drive(target)
            if drive is None or target.device is None:
                continue
            if self._purge == "discard":
                self._purged = dict(drive.purge("discard"))
            drive.note_conditioning(
                Conditioning(
                    block_bytes=131072,
                    range_bytes=target.device.size_bytes,
                    sequential_bytes=2 * target.device.size_bytes,
                    ended_s=time.time(),
                    complete=True,
                    nonce=drive.nonce,
                )
            )
        return None

    def run(self, context: RunContext) -> Outcome:
        """Write each drive from its start."""
        with context.phase("write") as phase:
            for target in context.targets:
                drive, device = context.raw_drive(target), target.device
                if drive is None or device is None:
                    continue
                descriptor = os.open(device.path, os.O_RDWR)
                for start in range(0, int(device.size_bytes * self._share), PIECE_BYTES):
                    content = np.random.default_rng(start).integers(0, 256, PIECE_BYTES, np.uint8)
                    seal(content, BlockIdentity(drive.nonce, 1), offset_bytes=start)
                    os.pwrite(descriptor, content.tobytes(), start)
                    phase.count_written(PIECE_BYTES)
                    os.fsync(descriptor)
                os.close(descriptor)
            self._wait("run")
        return Outcome(facts=DriveBefore(purge=self._purged))

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Check nothing."""
        return ()

    def _wait(self, where: str) -> None:
        if self._stop == where:
            Path("waiting").touch()
            time.sleep(120)
