"""One plan of the I/O engine in a process of its own.

``python -m benchmarks.engine_child SPEC``: SPEC is JSON (see ``Job``), what comes out is one JSON
object. The engine is opened before the clock starts, as fio opens its own; the plan's files after.
"""

from __future__ import annotations

import json
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.devices import identity, size_of
from benchmarks.measure import NotMeasuredError
from benchmarks.taken import Taken, children_cpu_s
from wattload.core.io import Allocation, Extent, IOKind, IOOrder, IOPlan, Stamps

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the engine is to do.

    Each of ``files`` is moved from end to end in blocks of ``block_bytes``, for ``seconds`` where
    that is given, else once. ``backend`` and ``direct`` are the engine's; files of a backend that
    has no disk are only names, of ``nominal_bytes`` each. A block device is the only one of
    ``files``. With ``is_verified`` every block is compared with a stamp and its sum. With
    ``readings_s`` a reading is taken every so many seconds.
    """

    kind: IOKind
    order: IOOrder
    files: Sequence[Path]
    block_bytes: int
    depth: int
    seconds: float | None = None
    direct: bool = True
    backend: str = "auto"
    nominal_bytes: int | None = None
    is_verified: bool = False
    readings_s: float | None = None

    def command(self) -> list[str]:
        spec = {name: value for name, value in asdict(self).items() if value is not None}
        spec["files"] = [str(path) for path in self.files]
        return [sys.executable, "-m", "benchmarks.engine_child", json.dumps(spec)]

    def shown(self) -> str:
        """Return the command as it can be typed in the root of the repository."""
        return shlex.join(["python", *self.command()[1:]])

    def take(self) -> Taken:
        """Run it in a process of its own.

        Raises:
            NotMeasuredError: it failed; its last words are in the message.
        """
        before_s = children_cpu_s()
        done = subprocess.run(self.command(), capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode:
            words = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise NotMeasuredError(f"the engine failed: {words[-1]}")
        found = json.loads(done.stdout)
        return Taken(**found, process_cpu_s=children_cpu_s() - before_s)

    def plan(self) -> IOPlan:
        """Return the plan; writes go over what is there, and end with fsync."""
        sizes = [self.nominal_bytes or size_of(path) for path in self.files]
        device = self.files[0] if self.files[0].is_block_device() else None
        return IOPlan(
            kind=self.kind,
            order=self.order,
            extents=[Extent(path, 0, size) for path, size in zip(self.files, sizes, strict=True)],
            block_bytes=self.block_bytes,
            depth=self.depth,
            duration_s=self.seconds,
            allocation=Allocation.OVERWRITE,
            fsync=self.kind is IOKind.WRITE,
            stamps=Stamps(0, 0) if self.is_verified else None,
            device=identity(device) if device else None,
        )


def run(job: Job) -> dict[str, Any]:
    """Execute a job here and return its figures.

    The wall time and the CPU time (of all threads of this process, the kernel's workers for its
    rings included) are taken around the call, so what the call itself costs is in them.
    """
    from wattload.loaders.engine.engine import IOEngine

    engine = IOEngine(
        backend=job.backend, block_bytes=job.block_bytes, depth=job.depth, direct=job.direct
    )
    plan = job.plan()
    try:
        start_s, start_cpu_s = time.monotonic(), _cpu_s()
        ticket = engine.submit(plan)
        while not ticket.wait(job.readings_s):
            ticket.reading()
        result = ticket.result()
        cpu_s, seconds = _cpu_s() - start_cpu_s, time.monotonic() - start_s
    finally:
        engine.close()
    return {
        "moved_bytes": result.moved_bytes,
        "operation_count": result.operation_count,
        "seconds": seconds,
        "cpu_s": cpu_s,
    }


def job_of(spec: str) -> Job:
    found = json.loads(spec)
    found["kind"], found["order"] = IOKind(found["kind"]), IOOrder(found["order"])
    found["files"] = [Path(name) for name in found["files"]]
    return Job(**found)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(job_of(sys.argv[1]))))
