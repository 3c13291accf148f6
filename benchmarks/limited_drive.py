"""A drive that is the limit: how much of what the engine moves there ``loader=native`` converts.

A control group gives its processes only a part of the drive's rate, so that one core can ask for
more than the drive has. ``python -m benchmarks.limited_drive WAY FOLDER PROCS`` does the work of
one way in the group whose ``cgroup.procs`` is ``PROCS``, and prints bytes moved per second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import add
from pathlib import Path

from benchmarks.measure import NotMeasuredError
from wattload.core.io import Extent, IOKind, IOPlan
from wattload.loaders.converters import ConversionSettings
from wattload.loaders.data.criteo_day_files import ROW_BYTES, cut_parts
from wattload.loaders.engine.engine import IOEngine
from wattload.loaders.native.config import Config
from wattload.workloads.dlrm.workers import load_libraries

ROOT = Path(__file__).resolve().parents[1]
RATE_BYTES_PER_S = 50_000_000
"""Of reads, and of writes: a fifteenth of what one core converts, also if other work is on it."""

CONTROL_GROUPS = Path("/sys/fs/cgroup")
NAMES = {"native": "limited.native", "engine": "limited.engine"}
"""The file that each way writes."""


@contextmanager
def limited_group(folder: Path) -> Iterator[Path]:
    """Make a control group with a part of the drive's rate and yield its ``cgroup.procs``.

    The group is removed at the end; no process may be left in it.

    Raises:
        NotMeasuredError: there is no writable control group for block I/O, or the folder is on no
            drive.
    """
    device, rate = _drive(folder), RATE_BYTES_PER_S
    version_1 = CONTROL_GROUPS / "blkio"
    if version_1.is_dir():
        parent = version_1
        limits = {
            f"blkio.throttle.{kind}_bps_device": f"{device} {rate}" for kind in ("read", "write")
        }
    else:
        parent = CONTROL_GROUPS
        limits = {"io.max": f"{device} rbps={rate} wbps={rate}"}
    group = parent / f"wattload-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise NotMeasuredError(f"the drive can't be limited: {error}; run this as root") from error
    try:
        try:
            for name, text in limits.items():
                (group / name).write_text(text)
        except OSError as error:
            raise NotMeasuredError(
                f"the drive can't be limited: {error}; the kernel needs blk-throttle, and the "
                "control group the blkio or io controller"
            ) from error
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def _drive(folder: Path) -> str:
    """Return major and minor number of the whole drive under a folder."""
    number = folder.stat().st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    device = Path("/sys/dev/block", name)
    if not device.exists():
        raise NotMeasuredError(f"{folder} is on no block device whose rate could be limited")
    is_partition = (device / "partition").exists()
    return (device.resolve().parent / "dev").read_text().strip() if is_partition else name


def rate(way: str, folder: Path, procs: Path) -> float:
    """Return the bytes that a way moves per second, in a process of its own in the group.

    Raises:
        NotMeasuredError: the process failed; its last words are in the message.
    """
    (folder / NAMES[way]).unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.limited_drive", way, str(folder), str(procs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise NotMeasuredError(f"{way} failed: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout)


def native(folder: Path) -> Callable[[], int]:
    """Return what converts ``day_0`` to packed rows and returns the bytes that moved."""
    (part,) = cut_parts([folder / "day_0"], 1)
    settings = ConversionSettings(compression="none", block_bytes=16 << 20, columnar=False)
    converter, moved = Config().converter(), [0, 0, 0]

    def count(*more: int) -> None:
        moved[:] = map(add, moved, more)

    def work() -> int:
        converter.tsv_to_binary(part, folder / NAMES["native"], settings, count)
        read_bytes, written_bytes, _ = moved
        return read_bytes + written_bytes

    return work


def engine(folder: Path) -> Callable[[], int]:
    """Return what reads ``day_0`` and writes as much as native does, both at the same time."""
    config, day = Config(), folder / "day_0"
    written_bytes = day.read_bytes().count(b"\n") * ROW_BYTES
    files = {
        IOKind.READ: Extent(day, 0, day.stat().st_size),
        IOKind.WRITE: Extent(folder / NAMES["engine"], 0, written_bytes),
    }
    engines = {
        kind: IOEngine(
            backend=config.engine, block_bytes=config.block_bytes, depth=config.queue_depth
        )
        for kind in files
    }

    def move(kind: IOKind) -> int:
        plan = IOPlan(
            kind=kind,
            extents=[files[kind]],
            block_bytes=config.block_bytes,
            depth=config.queue_depth,
            fsync=kind is IOKind.WRITE,
        )
        return engines[kind].run(plan).moved_bytes

    def work() -> int:
        with ThreadPoolExecutor(len(files)) as threads:
            return sum(threads.map(move, files))

    return work


WAYS = {"native": native, "engine": engine}


def _main(way: str, folder: Path, procs: Path) -> None:
    """Do a way's work in a control group and print its rate; libraries are loaded before."""
    load_libraries()
    work = WAYS[way](folder)
    procs.write_text(str(os.getpid()))
    start_s = time.monotonic()
    moved_bytes = work()
    sys.stdout.write(str(moved_bytes / (time.monotonic() - start_s)))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
