"""One plan of the I/O engine in a process of its own: ``python -m benchmarks.engine_job JOB``.

The engine is opened before the clock starts, as fio opens its own; the plan's files after.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.child import Task, io_figures, output
from benchmarks.devices import identity, size_of
from benchmarks.measure import Figures
from wattload.core.io import Allocation, Extent, IOKind, IOOrder, IOPlan, Stamps


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Task):
    """What our engine does.

    Files of a backend without a disk are only names, of ``nominal_bytes`` each; a block device is
    the only one of ``files``. With ``is_verified`` every block is compared with a stamp and its
    sum. Without ``seconds`` each block is moved once, and a file is closed after its last one. With
    ``readings_s`` progress is read every so many seconds.
    """

    backend: str = "auto"
    nominal_bytes: int | None = None
    is_verified: bool = False
    readings_s: float | None = None

    def command(self) -> list[str]:
        job = {**asdict(self), "files": list(map(str, self.files))}
        return [sys.executable, "-m", "benchmarks.engine_job", json.dumps(job)]

    def shown(self) -> str:
        """Return the command as it can be typed in the root of the repository."""
        return f"`{shlex.join(['python', *self.command()[1:]])}`"

    def __call__(self) -> Figures:
        figures: Figures = json.loads(output(self.command()))
        return figures

    def plan(self) -> IOPlan:
        """Return the plan; writes overwrite what is there, and end with fsync."""
        sizes = [self.nominal_bytes or size_of(path) for path in self.files]
        device = self.files[0] if self.files[0].is_block_device() else None
        return IOPlan(
            kind=self.kind,
            order=self.order,
            extents=[Extent(path, 0, size) for path, size in zip(self.files, sizes, strict=True)],
            block_bytes=self.block_bytes,
            depth=self.depth,
            duration_s=self.seconds or None,
            allocation=Allocation.OVERWRITE,
            fsync=self.kind is IOKind.WRITE,
            stamps=Stamps(0, 0) if self.is_verified else None,
            device=identity(device) if device else None,
        )


def run(job: Job) -> Figures:
    """Run a job here and return its figures.

    Wall and CPU time (of all threads of this process, the kernel's workers for its rings included)
    are taken around the call, so the cost of the call itself is included.
    """
    from wattload.loaders.engine.engine import IOEngine

    engine = IOEngine(
        backend=job.backend, block_bytes=job.block_bytes, depth=job.depth, direct=job.direct
    )
    plan = job.plan()
    try:
        start_s, start_cpu_s = time.monotonic(), time.process_time()
        ticket = engine.submit(plan)
        while not ticket.wait(job.readings_s):
            ticket.reading()
        result = ticket.result()
        cpu_s, seconds = time.process_time() - start_cpu_s, time.monotonic() - start_s
    finally:
        engine.close()
    return io_figures(
        moved_bytes=result.moved_bytes,
        operations=result.operation_count,
        seconds=seconds,
        cpu_s=cpu_s,
    )


def parsed(text: str) -> Job:
    """Return the job of a command line."""
    job = json.loads(text)
    job |= {"kind": IOKind(job["kind"]), "order": IOOrder(job["order"])}
    return Job(**job | {"files": list(map(Path, job["files"]))})


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(parsed(sys.argv[1]))))
