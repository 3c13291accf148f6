"""fio as the yardstick of sequential direct I/O."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import NotMeasuredError
from wattload.core.io import IOKind
from wattload.loaders.aligned import HUGE_PAGE_BYTES


def command(kind: IOKind, files: Sequence[Path], *, depth: int, block_bytes: int) -> list[str]:
    """Return the fio command that reads or overwrites files from end to end, once.

    The files are there in full size, and fio's own preallocation is off: it meets what we meet.
    Writes end with fsync of each file. Its buffers are huge pages, as ours are, where the host has
    some in reserve: in 4 KiB pages a block of 1 MiB takes more segments than many queues allow.
    """
    size_bytes = sum(path.stat().st_size for path in files)
    has_huge = huge_pages_free() >= depth * block_bytes // HUGE_PAGE_BYTES + 1
    return [
        "fio",
        f"--name={kind}",
        f"--rw={kind}",
        "--ioengine=io_uring",
        "--direct=1",
        f"--bs={block_bytes}",
        f"--iodepth={depth}",
        f"--filename={':'.join(str(path) for path in files)}",
        "--file_service_type=sequential",
        f"--size={size_bytes}",
        "--fallocate=none",
        "--allow_file_create=0",
        *(["--overwrite=1", "--end_fsync=1"] if kind is IOKind.WRITE else []),
        *(["--iomem=shmhuge"] if has_huge else []),
        "--output-format=json",
    ]


def huge_pages_free() -> int:
    """Return how many reserved huge pages of 2 MiB nobody uses (``/proc/meminfo``)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(fields.get("HugePages_Free", "0"))


def rate(arguments: Sequence[str]) -> float:
    """Run a command and return its bytes per second over its whole run time, fsync included.

    Raises:
        NotMeasuredError: fio is not installed, or failed (its own words are in the message).
    """
    if shutil.which("fio") is None:
        raise NotMeasuredError("fio is not installed (apt-get install fio)")
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotMeasuredError(f"fio failed: {done.stderr.strip() or done.stdout.strip()[-200:]}")
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    side = job[arguments[2].removeprefix("--rw=")]
    return float(side["io_bytes"]) / (float(job["job_runtime"]) / 1000)


def shown(arguments: Sequence[str]) -> str:
    """Return a command as it can be typed."""
    return shlex.join(arguments)
