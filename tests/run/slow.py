"""A workload that moves what it is told and then waits: for tests that end a run midway."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from wattload.core.errors import DataError
from wattload.core.record.results import Check
from wattload.core.record.run import DataRecord
from wattload.core.workload import Accelerator, Outcome, OverHosts, RunContext, WorkloadPlan
from wattload.workloads.null import Config


class Slow:
    """Waits in the phase that ``WATTLOAD_TEST_STOP`` names; fails on the rank in ``..._FAIL``.

    A ``nap`` during the run ends when the file ``go-on`` appears in the target. ``naps`` are one in
    each phase, which end with ``go-on-prepare`` and so on. A ``stall`` ends when a byte can be read
    from the pipe ``drive`` there.
    """

    name = "slow"
    needs: ClassVar[tuple[type, ...]] = ()
    over_hosts: ClassVar[OverHosts] = "replicate"

    def __init__(self, config: Config, loader: object, accelerator: Accelerator) -> None:
        self._stop = os.environ.get("WATTLOAD_TEST_STOP", "")
        self._fail = os.environ.get("WATTLOAD_TEST_FAIL", "")

    def plan(self, context: RunContext) -> WorkloadPlan:
        """Plan one megabyte."""
        return WorkloadPlan(
            data_bytes=0,
            prepare_bytes=0,
            run_bytes=10**6,
            peak_bytes=10**6,
            memory_bytes_per_rank=0,
            needs_direct_io=False,
        )

    def prepare(self, context: RunContext) -> DataRecord | None:
        """Make nothing."""
        with context.phase("prepare", timed=False):
            self._wait("prepare", context)
        return None

    def run(self, context: RunContext) -> Outcome:
        """Move a little, then wait."""
        with context.phase("first") as phase:
            phase.moved(read_bytes=1000)
        if self._fail == str(context.communicator.rank):
            raise DataError("the record on this rank is torn")
        with context.phase("second") as phase:
            phase.moved(read_bytes=500)
            self._wait("run", context)
            self._wait("nap", context)
            self._wait("stall", context)
        context.communicator.barrier()
        return Outcome()

    def verify(self, context: RunContext) -> Sequence[Check]:
        """Wait if told to."""
        self._wait("verify", context)
        return ()

    def _wait(self, where: str, context: RunContext) -> None:
        target = context.targets[0].path
        if self._stop == "naps" and where in ("prepare", "run", "verify"):
            Path(target, f"waiting-{where}-{context.communicator.rank}").touch()
            while not Path(target, f"go-on-{where}").exists():
                time.sleep(0.05)
        if self._stop != where:
            return
        if target is not None:
            Path(target, f"waiting-{context.communicator.rank}").write_text(str(os.getpid()))
            while where == "nap" and not Path(target, "go-on").exists():
                time.sleep(0.05)
            if where == "stall":
                _read_blocking(Path(target, "drive"))
        if where not in ("nap", "stall"):
            time.sleep(120)


def _read_blocking(pipe: Path) -> None:
    """Read a byte in C that keeps Python's lock: until then, no other Python thread runs."""
    descriptor = os.open(pipe, os.O_RDWR)
    ctypes.PyDLL(None).read(descriptor, ctypes.create_string_buffer(1), 1)
    os.close(descriptor)
