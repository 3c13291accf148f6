"""fio as the yardstick: the fastest known set-up of it, its command, and its figures."""

from __future__ import annotations

import json
import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.child import Task, io_figures, output
from benchmarks.devices import size_of
from benchmarks.measure import Figures, NotMeasuredError
from wattload.core.io import IOKind, IOOrder
from wattload.loaders.aligned_io import HUGE_PAGE_BYTES
from wattload.loaders.data.cold_cache import evict

ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Makes malloc ask for transparent huge pages, as our buffers do (glibc manual, 39.4)."""
CHECKSUM = "crc32c"
"""fio's fastest check that finds every changed bit; it uses the processor's instruction."""
VERIFY = (f"--verify={CHECKSUM}", "--verify_state_save=0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Task):
    """What fio does: the same as a plan of ours.

    ``batch`` is how many operations it submits and completes in one system call. ``files`` exist,
    fully written, and are read or overwritten for ``seconds``; with ``new_bytes`` fio creates each
    of them, preallocates so many bytes and writes them once, and it is removed afterwards. With
    ``is_verified`` it compares the header and the CRC of each block that ``seal`` wrote.
    """

    batch: int = 1
    new_bytes: int | None = None
    is_verified: bool = False

    def command(self) -> list[str]:
        """Return the command line.

        One thread, registered buffers and files. One latency is taken per operation, as we take
        one; fio's two others, its map of random blocks and its scrambling of written buffers are
        work that we don't do, so fio does not do it either.
        """
        is_write = self.kind is IOKind.WRITE
        is_random = self.order is IOOrder.RANDOM
        pages = self.depth * self.block_bytes // HUGE_PAGE_BYTES + 1
        return [
            "fio",
            "--name=bench",
            f"--rw={'rand' if is_random else ''}{self.kind}",
            *("--ioengine=io_uring", "--fixedbufs=1", "--registerfiles=1", "--thread=1"),
            f"--direct={int(self.direct)}",
            f"--bs={self.block_bytes}",
            f"--iodepth={self.depth}",
            f"--iodepth_batch_submit={self.batch}",
            "--iodepth_batch_complete_min=1",
            f"--iodepth_batch_complete_max={self.batch}",
            f"--filename={':'.join(map(str, self.files))}",
            *(["--norandommap=1"] if is_random else ["--file_service_type=sequential"]),
            *self._extent(),
            *("--disable_slat=1", "--disable_lat=1"),
            *([] if self.direct else ["--invalidate=0"]),
            *(["--scramble_buffers=0"] if is_write else []),
            *([*VERIFY, "--verify_fatal=1"] if self.is_verified else []),
            *(["--iomem=shmhuge"] if huge_pages_free() >= pages else []),
            "--output-format=json",
        ]

    def _extent(self) -> list[str]:
        """Return the options for how much is moved, and of which files."""
        if self.new_bytes is not None:
            return [f"--size={self.new_bytes * len(self.files)}", "--fallocate=native"]
        return [
            f"--size={sum(map(size_of, self.files))}",
            *("--time_based=1", f"--runtime={round(self.seconds * 1000)}ms"),
            *("--fallocate=none", "--allow_file_create=0"),
            *(["--overwrite=1"] if self.kind is IOKind.WRITE else []),
        ]

    def shown(self) -> str:
        """Return the command as it can be typed in the folder of the files."""
        folder = str(self.files[0].parent)
        here = [word.replace(f"{folder}/", "") for word in self.command()]
        settings = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        return f"`cd {shlex.quote(folder)}; {shlex.join([*settings, *here])}`"

    def __call__(self) -> Figures:
        """Run it.

        CPU seconds are those of the thread that moves the bytes, as fio reads them (``getrusage``):
        its start-up, its filling of buffers and its other threads are left out. We fsync written
        files inside the time: what ``--end_fsync=1`` sends with ``--fixedbufs`` is refused by the
        kernel (a stale ``buf_index``, EINVAL), and fio does not report that.

        Raises:
            NotMeasuredError: fio is not installed, or failed.
        """
        printed = output(self.command(), {**os.environ, **ENVIRONMENT})
        job: dict[str, Any] = json.loads(printed[printed.index("{") :])["jobs"][0]
        side, seconds = job[str(self.kind)], float(job["job_runtime"]) / 1000
        if not (side["total_ios"] and seconds):  # it counts whole milliseconds
            raise NotMeasuredError("fio moved nothing, or took less than a millisecond")
        return io_figures(
            moved_bytes=side["io_bytes"],
            operations=side["total_ios"],
            seconds=seconds + self._finish(),
            cpu_s=(job["usr_cpu"] + job["sys_cpu"]) / 100 * seconds,
        )

    def _finish(self) -> float:
        """Sync what was written and remove new files; return the seconds of the sync."""
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


def seal(path: Path, size_bytes: int, block_bytes: int) -> None:
    """Write a file whose blocks fio can verify.

    Raises:
        NotMeasuredError: fio is not installed, or failed.
    """
    output(
        [
            *("fio", "--name=seal", "--rw=write", "--ioengine=psync", f"--filename={path}"),
            *(f"--size={size_bytes}", f"--bs={block_bytes}", "--end_fsync=1"),
            *(*VERIFY, "--do_verify=0"),
        ]
    )
    evict([path])


def huge_pages_free() -> int:
    """Return how many reserved huge pages of 2 MiB are free (``/proc/meminfo``)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(fields.get("HugePages_Free", "0"))
