"""fio as the yardstick: the fastest set-up of it that is known, its command, and what it says."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.devices import size_of
from benchmarks.measure import NotMeasuredError
from benchmarks.taken import Taken, children_cpu_s
from wattload.core.io import IOKind, IOOrder
from wattload.loaders.aligned_io import HUGE_PAGE_BYTES

THP_VARIABLE = "GLIBC_TUNABLES"
THP_TUNABLE = "glibc.malloc.hugetlb=1"
"""Makes malloc ask for transparent huge pages, as our buffers do (glibc manual, 39.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What fio is to do: the same as a plan of ours.

    ``batch`` is how many operations it hands over and takes back in one system call. ``files`` are
    there, fully written, and gone over for ``seconds``; with ``new_bytes`` fio makes each of them
    anew, preallocates so many bytes, writes them once, and removes it.
    """

    kind: IOKind
    order: IOOrder
    files: Sequence[Path]
    block_bytes: int
    depth: int
    seconds: float
    direct: bool = True
    batch: int = 1
    new_bytes: int | None = None

    def command(self) -> list[str]:
        """Return the command line.

        One thread, registered buffers and files. One latency is taken per operation, as we take
        one; fio's two others, its map of random blocks and its scrambling of written buffers are
        work that we don't do, so it is spared that.
        """
        writes = self.kind is IOKind.WRITE
        is_random = self.order is IOOrder.RANDOM
        return [
            "fio",
            "--name=bench",
            f"--rw={'rand' if is_random else ''}{self.kind}",
            *("--ioengine=io_uring", "--fixedbufs=1", "--registerfiles=1", "--thread=1"),
            f"--direct={int(self.direct)}",
            f"--bs={self.block_bytes}",
            f"--iodepth={self.depth}",
            *_batching(self.batch),
            f"--filename={':'.join(str(path) for path in self.files)}",
            *(["--norandommap=1"] if is_random else ["--file_service_type=sequential"]),
            *self._extent(),
            *("--disable_slat=1", "--disable_lat=1"),
            *([] if self.direct else ["--invalidate=0"]),
            *(["--scramble_buffers=0"] if writes else []),
            *(["--iomem=shmhuge"] if self._has_huge_pages() else []),
            "--output-format=json",
        ]

    def _extent(self) -> list[str]:
        """Return what says how much is moved, and of which files."""
        if self.new_bytes is not None:
            size_bytes = self.new_bytes * len(self.files)
            return [f"--size={size_bytes}", "--fallocate=native"]
        overwrite = ["--overwrite=1"] if self.kind is IOKind.WRITE else []
        return [
            f"--size={sum(size_of(path) for path in self.files)}",
            *("--time_based=1", f"--runtime={round(self.seconds * 1000)}ms"),
            *("--fallocate=none", "--allow_file_create=0", *overwrite),
        ]

    def shown(self) -> str:
        """Return the command as it can be typed in the folder of the files."""
        folder = str(self.files[0].parent)
        here = [word.replace(f"{folder}/", "") for word in self.command()]
        return f"cd {shlex.quote(folder)}; {THP_VARIABLE}={THP_TUNABLE} {shlex.join(here)}"

    def take(self) -> Taken:
        """Run it.

        CPU seconds are those of the thread that moves the bytes, as fio reads them (``getrusage``):
        its start-up, its filling of buffers and its other threads are left out. Writes end with
        fsync of each file inside the time, by us: what ``--end_fsync=1`` sends with ``--fixedbufs``
        is refused by the kernel (a stale ``buf_index``, EINVAL), and fio does not tell.

        Raises:
            NotMeasuredError: fio is not installed, or failed (its own words are in the message).
        """
        if shutil.which("fio") is None:
            raise NotMeasuredError("fio is not installed (apt-get install fio)")
        before_s = children_cpu_s()
        done = subprocess.run(
            self.command(), capture_output=True, text=True, check=False, env=environment()
        )
        if done.returncode != 0:
            words = done.stderr.strip() or done.stdout.strip()[-200:]
            raise NotMeasuredError(f"fio failed: {words}")
        job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
        return _taken(job, self.kind, children_cpu_s() - before_s, sync_s=self._finish())

    def _finish(self) -> float:
        """Make what was written durable, remove files that were made; returns the seconds of it."""
        if self.kind is not IOKind.WRITE:
            return 0.0
        start_s = time.monotonic()
        for path in self.files:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        seconds = time.monotonic() - start_s
        if self.new_bytes is not None:
            for path in self.files:
                path.unlink()
        return seconds

    def _has_huge_pages(self) -> bool:
        return huge_pages_free() >= self.depth * self.block_bytes // HUGE_PAGE_BYTES + 1


def _batching(batch: int) -> list[str]:
    if batch == 1:
        return []
    return [
        f"--iodepth_batch_submit={batch}",
        "--iodepth_batch_complete_min=1",
        f"--iodepth_batch_complete_max={batch}",
    ]


def _taken(job: dict[str, Any], kind: IOKind, process_cpu_s: float, *, sync_s: float) -> Taken:
    side = job[str(kind)]
    seconds = float(job["job_runtime"]) / 1000
    return Taken(
        moved_bytes=int(side["io_bytes"]),
        operation_count=int(side["total_ios"]),
        seconds=seconds + sync_s,
        cpu_s=(float(job["usr_cpu"]) + float(job["sys_cpu"])) / 100 * seconds,
        process_cpu_s=process_cpu_s,
    )


def environment() -> dict[str, str]:
    return {**os.environ, THP_VARIABLE: THP_TUNABLE}


def huge_pages_free() -> int:
    """Return how many reserved huge pages of 2 MiB nobody uses (``/proc/meminfo``)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(fields.get("HugePages_Free", "0"))
